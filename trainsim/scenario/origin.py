"""Where each value of a scenario was written, so that a message can name the file, the line and the key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Key = tuple[str | int, ...]


def dotted(key: Key) -> str:
    """
    >>> dotted(("what_if", 0, "slow"))
    'what_if.0.slow'
    """
    return ".".join(map(str, key))


def parts(path: str) -> Key:
    """The inverse of ``dotted``: numbers are positions in a list."""
    return tuple(int(part) if part.isdigit() else part for part in path.split("."))


def value_at(data: Any, key: Key) -> Any:
    """The value at *key* of nested mappings and lists, or None."""
    for part in key:
        if isinstance(data, Mapping):
            data = data.get(part)
        elif isinstance(data, list | tuple) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The file of a scenario and the line of each key in it; empty for a scenario made in Python.

    Values at the keys ``changed`` were set since, so they stand in no file.
    """

    file: str = ""
    folder: Path = field(default_factory=Path)
    lines: Mapping[Key, int] = field(default_factory=dict)
    changed: tuple[Key, ...] = ()

    def place(self, key: Key) -> str:
        """``file:line: `` of *key*, or of the section that it would stand in."""
        if not self.file or any(key[: len(c)] == c for c in self.changed):
            return ""
        line = next((self.lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in self.lines), None)
        return f"{self.file}:{line}: " if line else f"{self.file}: "

    def without(self, changed: Iterable[Key]) -> Origin:
        """The origin of a scenario whose *changed* values no longer come from the file."""
        return Origin(file=self.file, folder=self.folder, lines=self.lines, changed=(*self.changed, *changed))
