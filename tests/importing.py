"""Files of other tools that tests import: a folder per case under ``data/importers/NAME/``.

A case holds its files and ``expected.yaml``: the ``scenario`` that they are, and the keys of the ``warnings``.
``python -m tests.importing`` writes the expectations anew, to be read before they are committed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainsim.errors import TrainsimError
from trainsim.importers.imported import Imported
from trainsim.importers.importing import import_config, import_sources
from trainsim.importers.source import Source, read_source

CASES = Path(__file__).parent / "data" / "importers"
EXPECTED = "expected.yaml"
SPOTS = (
    "null", "-1", "0", "true", "[]", "{}", '"word"', "1e400", "99999999999999999999", "3.5", '""', "nan", "${x}",
    "$((1/0))", "é", "\x00", "'", '"', "\\", "{", "}", "[", ",", ":", "#", "--", "=", "\t",
    "auto", "!!python/object:x {}",
)  # fmt: skip
"""What is put in the place of something in a file."""
USUAL = {
    "model": "llama-2-7b", "cluster.topology": "dgx_a100", "model.layers": 32, "model.hidden": 4096, "model.heads": 32,
    "model.vocab": 32000, "cluster.gpu": "a100-sxm4-80gb", "cluster.nic_bandwidth": "200Gbps",
    "cluster.nodes_per_leaf": 4, "cluster.topology.base": "dgx_a100",
}  # fmt: skip
"""What completes a scenario of which files say less."""


@dataclass(frozen=True)
class Case:
    """A folder with files of other tools."""

    folder: Path

    @property
    def importer(self) -> str:
        """The importer that its first file belongs to."""
        return self.folder.parent.name

    @property
    def files(self) -> list[Path]:
        """Its files, but for what is expected and for those that others name (in ``named/``)."""
        return sorted(path for path in self.folder.iterdir() if path.is_file() and path.name != EXPECTED)

    @property
    def expected(self) -> dict[str, Any]:
        """What the files are expected to say."""
        data: dict[str, Any] = yaml.safe_load((self.folder / EXPECTED).read_text())
        return data

    def imported(self) -> Imported:
        """What they say."""
        return import_config(self.files)

    def __str__(self) -> str:
        return f"{self.importer}/{self.folder.name}"


def cases() -> list[Case]:
    """All of them, in order."""
    return [Case(folder) for folder in sorted(CASES.glob("*/*")) if folder.is_dir()]


def said(imported: Imported) -> dict[str, Any]:
    """What is compared: the scenario and the keys of warnings."""
    return {"scenario": dict(imported.scenario), "warnings": sorted({remark.key for remark in imported.warnings})}


def mutations(text: str, count: int, seed: int) -> Iterator[str]:
    """*count* texts that differ a little from *text*: cut, repeated, swapped, with other values."""
    dice = random.Random(seed)
    words = list(re.finditer(r"[^\s,:{}\[\]=\"']+", text)) or list(re.finditer(r"\S", text))
    lines = text.splitlines(keepends=True)
    for _ in range(count):
        way = dice.randrange(6)
        at = dice.choice(words)
        if way == 0:
            yield text[: at.start()] + dice.choice(SPOTS) + text[at.end() :]
        elif way == 1:
            other = dice.choice(words)
            yield text[: at.start()] + other[0] + text[at.end() :]
        elif way == 2:
            yield text[: dice.randrange(len(text) + 1)]
        elif way == 3:
            k = dice.randrange(len(lines))
            yield "".join(lines[:k] + lines[k + 1 :])
        elif way == 4:
            k, n = dice.randrange(len(lines)), dice.randrange(len(lines))
            yield "".join([*lines[:k], lines[n], *lines[k:]])
        else:
            k = dice.randrange(len(text) + 1)
            yield text[:k] + dice.choice(SPOTS) + text[k + dice.randrange(3) :]


def survives(source: Source, text: str, others: list[Source], kind: str = "") -> bool:
    """Whether *text* in the place of *source* is refused in words or read, and resolved or refused in words: anything
    else raises."""
    changed = Source(shown=source.shown, text=text, folder=source.folder)
    try:
        imported = import_sources([changed, *others], kind=kind)
        if imported.missing:
            usual = {key: USUAL[key] for key in imported.missing if key in USUAL}
            imported = import_sources([changed, *others], usual, kind=kind)
        if imported.is_machine:
            assert imported.cluster.bandwidth.min() > 0
            assert all(remark.words for remark in imported.compared)
            return True
        imported.complete.resolve()
    except TrainsimError:
        return True
    return True


def main() -> None:
    """Write what is expected of each case anew."""
    for case in cases():
        text = yaml.safe_dump(said(case.imported()), sort_keys=False, allow_unicode=True)
        (case.folder / EXPECTED).write_text(text)


def sources_of(case: Case) -> list[Source]:
    """The texts of a case's files."""
    return [read_source(path) for path in case.files]


if __name__ == "__main__":
    main()
