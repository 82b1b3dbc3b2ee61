"""
Where each value of a document was written, so that a message can name the file, the line and the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

Key = tuple[str | int, ...]


def dotted(key: Key) -> str:
    """
    >>> dotted(("what_if", 0, "slow"))
    'what_if.0.slow'
    """
    return ".".join(map(str, key))


def key_of(path: str) -> Key:
    """The inverse of ``dotted``: numbers are positions in a list.

    >>> key_of("what_if.0.slow")
    ('what_if', 0, 'slow')
    """
    return tuple(int(part) if part.isdecimal() and len(part) < 10 else part for part in path.split("."))


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Origin:
    """The file of a document and the line (from 1) of each key in it; empty for values that were made in Python.

    ``folder`` is where paths in the document start. ``inside`` is the key of the document in its file, if it is a part
    of it. ``elsewhere`` says of keys whose value came from elsewhere what to put before a message. ``below`` is the
    origin of the document that this one is based on.
    """

    file: str = ""
    folder: Path = field(default_factory=Path)
    lines: Mapping[Key, int] = field(default_factory=dict)
    inside: Key = ()
    elsewhere: Mapping[Key, str] = field(default_factory=dict)
    below: Origin | None = None

    def place(self, key: Key) -> str:
        """``file:line: `` of *key*, or of the section that it would stand in; empty where it stands in no file."""
        if self._elsewhere(key) is not None:
            return ""
        if self.below and self._own_depth(key) < self.below._depth(key):
            return self.below.place(key)
        if not self.file:
            return ""
        line = self._line(key)
        return f"{self.file}:{line}: " if line else f"{self.file}: "

    def where(self, key: Key) -> str:
        """``file:line: key``: what to put before a message about the value at *key*."""
        if (said := self._elsewhere(key)) is not None:
            return said or dotted(self.inside + key)
        if self.below and self._own_depth(key) < self.below._depth(key):
            return self.below.where(key)
        return (self.place(key) + dotted(self.inside + key)).removesuffix(": ")

    def said(self, key: Key) -> str:
        """What is known of where a value came from that stands in no file of its own; often nothing."""
        return self._elsewhere(key) or ""

    def part(self, key: Key) -> Origin:
        """The origin of the mapping at *key*, as a document of its own."""
        elsewhere = {k[len(key) :]: text for k, text in self.elsewhere.items() if k[: len(key)] == key}
        if (said := self._elsewhere(key)) is not None:
            elsewhere[()] = said
        return replace(self, inside=self.inside + key, elsewhere=elsewhere)

    def without(self, changed: Iterable[Key]) -> Origin:
        """The origin of a document whose *changed* values no longer come from the file."""
        return replace(self, elsewhere={**self.elsewhere, **dict.fromkeys(changed, "")})

    def _elsewhere(self, key: Key) -> str | None:
        return next((self.elsewhere[key[:n]] for n in range(len(key), -1, -1) if key[:n] in self.elsewhere), None)

    def _line(self, key: Key) -> int | None:
        full = self.inside + key
        return next((self.lines[full[:n]] for n in range(len(full), -1, -1) if full[:n] in self.lines), None)

    def _own_depth(self, key: Key) -> int:
        """How many words of *key* stand in the file."""
        full = self.inside + key
        return next((n for n in range(len(key), 0, -1) if full[: len(self.inside) + n] in self.lines), 0)

    def _depth(self, key: Key) -> int:
        """How many words of *key* stand in the file, or in one that it is based on."""
        return max(self._own_depth(key), self.below._depth(key) if self.below else 0)
