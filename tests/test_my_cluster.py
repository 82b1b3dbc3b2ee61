"""docs/my-cluster.md is run as it stands: its files written, its commands and its Python carried out in order."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainsim.cli import main
from trainsim.plugins import KINDS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "my-cluster.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks() -> Iterator[tuple[str, str]]:
    """(Language, text) of every block, in order."""
    for match in BLOCK.finditer(PAGE):
        yield match[1], match[2]


def run(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    program, *words = shlex.split(command, comments=True)
    assert program == "trainsim"
    with pytest.raises(SystemExit) as left:
        main(words)
    printed = capsys.readouterr()
    assert left.value.code == 0, f"{command}: {printed.err}"
    return printed.out


def test_all_of_the_tutorial_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed: dict[str, str] = {}
    for language, text in blocks():
        if language == "yaml":
            name = re.match(r"# (\S+\.yaml)\n", text)
            assert name, text
            Path(name[1]).write_text(text)
        elif language == "text":
            name = re.match(r"\$ .*?(?:tee|cat) (\S+)\n", text)
            assert name, text
            Path(name[1]).write_text(text.partition("\n")[2])
        elif language == "sh":
            printed |= {command: run(command, capsys) for command in text.splitlines()}
        elif language == "python":
            exec(text, names)
            printed[text] = capsys.readouterr().out
        else:
            assert language in ("console", "toml")
    assert len(printed) >= 16
    assert "23.5" in printed["trainsim show gpu a30.yaml"]
    assert "8 GPUs, a30" in printed["trainsim show topology our_box.yaml --nodes 2"]
    assert "4 nodes x 4 GPUs" in printed["trainsim show topology matrix_cluster.yaml --nodes 4"]
    said = next(out for command, out in printed.items() if "network_reachable: {" in command)
    assert float(said.split("network_reachable: ")[1]) == pytest.approx(0.68, abs=0.015), "the page's own number"


def test_the_page_names_every_catalogue_and_is_found() -> None:
    assert all(f"`{kind}`" in PAGE for kind in KINDS)
    for page in ("README.md", "docs/topologies.md"):
        assert "my-cluster.md" in (ROOT / page).read_text()


def test_what_the_page_shows_of_packages_is_what_is_read() -> None:
    groups = re.findall(r'entry-points\."([\w.]+)"', PAGE)
    assert groups == ["trainsim.catalogues", "trainsim.modules"]
