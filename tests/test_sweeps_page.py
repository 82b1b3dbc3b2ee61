"""docs/sweeps.md and docs/plan.md are run as they stand: their commands and their Python, in order."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import split

import pytest

from tests.test_cli import status

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {"sweeps": (), "plan": (pytest.mark.slow,)}


def blocks(page: str) -> list[tuple[str, str]]:
    """(Language, text) of the blocks of a page."""
    return re.findall(r"```(\w*)\n(.*?)```", (DOCS / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL)


COMMANDS = [
    pytest.param(line, marks=marks)
    for page, marks in PAGES.items()
    for kind, block in blocks(page)
    if not kind
    for line in block.splitlines()
    if line.startswith("trainsim ")
]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_runs(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _, *words = split(line, comments=True)
    detail = [] if any("simulation.detail" in word for word in words) else ["--set", "simulation.detail=block"]
    assert status(*words, *detail) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize(("page", "made"), [("sweeps", "frame"), ("plan", "best")])
def test_its_python_runs(page: str, made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(block for kind, block in blocks(page) if kind == "python")
    names: dict[str, object] = {}
    exec(compile(code, str(DOCS / page), "exec"), names)
    assert made in names
