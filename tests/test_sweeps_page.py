"""docs/sweeps.md is run as it stands: its commands and its Python, in order."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import split

import pytest

from tests.test_cli import status

PAGE = Path(__file__).parents[1] / "docs" / "sweeps.md"
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
COMMANDS = [line for kind, block in BLOCKS if not kind for line in block.splitlines() if line.startswith("trainsim ")]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_runs(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _, *words = split(line, comments=True)
    detail = [] if any("simulation.detail" in word for word in words) else ["--set", "simulation.detail=block"]
    assert status(*words, *detail) == 0
    assert capsys.readouterr().out


def test_its_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(block for kind, block in BLOCKS if kind == "python")
    names: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    assert "frame" in names
