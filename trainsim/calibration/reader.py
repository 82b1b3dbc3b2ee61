"""
The registry of readers, and how a file finds its own: each says how sure it is, and the surest one reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainsim.calibration.measurements import Measurements
from trainsim.errors import ScenarioError
from trainsim.measured.file import MeasuredFile
from trainsim.registry import Registry

LOOKED_AT = 1 << 16
"""Characters at the beginning by which a file is recognised."""
SURE = 0.2
"""Below, nobody claims to know a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredText:
    """The text of a file, called ``shown`` in messages."""

    shown: str
    text: str

    @property
    def name(self) -> str:
        """The file's own name in lower case, without its folder."""
        return Path(self.shown).name.lower()

    @property
    def start(self) -> str:
        """The beginning of the text."""
        return self.text[:LOOKED_AT]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementReader:
    """One kind of input. ``sniff`` says how sure it is (0 to 1) that a text is its own; ``load`` reads one, and raises
    ScenarioError where nothing in it can be used."""

    name: str
    title: str
    sniff: Callable[[MeasuredText], float]
    load: Callable[[MeasuredText], Measurements]


readers: Registry[MeasurementReader] = Registry("kind of measurements", "trainsim.calibration.readers")
"""The kinds that are known, by name."""


def register(reader: MeasurementReader) -> MeasurementReader:
    """Add *reader* to the registry."""
    return readers.register(reader.name)(reader)


def read(path: str | Path) -> Measurements:
    """The measurements in the file at *path*. Raises ScenarioError that says what is wrong with it."""
    text = text_of(Path(path))
    return reader_of(text).load(text)


def reader_of(text: MeasuredText) -> MeasurementReader:
    """The reader that knows *text*. Raises ScenarioError if nobody does."""
    if not text.text.strip():
        raise ScenarioError(f"{text.shown}: the file is empty")
    sure, best = max(((reader.sniff(text), name) for name, reader in readers.items()), key=lambda pair: pair[0])
    if sure <= SURE:
        known = "; ".join(f"{reader.title}" for reader in readers.values())
        raise ScenarioError(f"{text.shown}: holds no measurements that are known here. Known: {known}.")
    return readers[best]


def text_of(path: Path) -> MeasuredText:
    """The text of a file, unpacked if it is packed by gzip; letters that are none are replaced.

    Raises ScenarioError for what is no file, is too long, or is damaged.
    """
    text = MeasuredFile(path, b"").text()
    if not text.whole:
        raise ScenarioError(f"{path}: cannot be read: it is cut off; copy it again")
    return MeasuredText(shown=str(path), text=text.text)
