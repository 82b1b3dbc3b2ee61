"""
Mappings read key by key: every wrong value is reported with its place and what would be right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeVar

from trainsim.documents.document import Document
from trainsim.documents.origin import Key
from trainsim.errors import TrainsimError, nearest, shorten
from trainsim.units import Quantity

T = TypeVar("T")
REQUIRED: Any = object()
INFINITE = float("inf")
MOST = 1 << 53
"""Whole numbers that are floating-point numbers too end here."""


class BadValue(TrainsimError):
    """A value that its section does not take; whoever reads the section adds the place."""


MOST_NAMED = 40
"""Keys that a message lists: more are told by the nearest ones alone."""


def _some(known: Sequence[str]) -> str:
    """*known* in words, those that are read first where they are many."""
    left = len(known) - MOST_NAMED
    return ", ".join(known[:MOST_NAMED]) + (f" and {left} others" if left > 0 else "")


@dataclass(frozen=True, slots=True, eq=False)
class DocumentPart:
    """One mapping of a document, read key by key; every complaint names its place."""

    document: Document
    path: Key
    data: Mapping[str, Any]

    @classmethod
    def open(cls, document: Document, path: Key, data: object, known: Iterable[str]) -> DocumentPart:
        """Check that *data* is a mapping with no other keys than *known*."""
        if not isinstance(data, Mapping):
            kind = "nothing" if data is None else f"a {type(data).__name__}"
            raise document.fail(path, f"expected a mapping (key: value), found {kind}")
        known = list(known)
        for key in data:
            if key not in known:
                near = nearest(str(key), known)
                hint = f" Did you mean {near!r}?" if near else ""
                raise document.fail((*path, str(key)), f"unknown key {key!r}.{hint} Known: {_some(known)}.")
        return cls(document, path, data)

    def fail(self, key: str | int, message: str) -> TrainsimError:
        """The exception to raise about the value of *key*."""
        return self.document.fail((*self.path, key), message)

    def section(self, key: str, known: Iterable[str]) -> DocumentPart:
        """The mapping under *key*, empty if it is missing."""
        return DocumentPart.open(self.document, (*self.path, key), self.data.get(key, {}), known)

    def value(self, key: str, default: T, read: Callable[[Any], T]) -> T:
        """What *read* makes of the value of *key*; its errors get the place."""
        if key not in self.data:
            if default is REQUIRED:
                raise self.fail(key, f"{key!r} is missing")
            return default
        try:
            return read(self.data[key])
        except TrainsimError as error:
            raise self.fail(key, str(error)) from None

    def text(self, key: str, default: str = REQUIRED) -> str:
        return self.value(key, default, text)

    def word(self, key: str, words: Iterable[str], default: str = REQUIRED) -> str:
        return self.value(key, default, lambda v: word(v, words))

    def flag(self, key: str, default: bool = REQUIRED) -> bool:
        return self.value(key, default, flag)

    def integer(self, key: str, default: int = REQUIRED, *, low: int = 1, high: int = 1 << 20) -> int:
        return self.value(key, default, lambda v: whole(v, low, high))

    def number(self, key: str, default: float = REQUIRED, *, low: float, high: float) -> float:
        return self.value(key, default, lambda v: between(number(v), low, high, v))

    def quantity(
        self, key: str, parser: Callable[[Quantity], float], default: float = REQUIRED, *, low: float, high: float
    ) -> float:
        """A number with a unit, in SI, within sane bounds."""
        return self.value(key, default, lambda v: between(parser(scalar(v)), low, high, v))


def whole(value: object, low: int, high: int) -> int:
    """*value* if it is an integer in [low, high].

    >>> whole(0, 1, 8)
    Traceback (most recent call last):
    trainsim.documents.part.BadValue: 0 is out of range; it must be from 1 to 8
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadValue(f"{shorten(value)} is not a whole number")
    if not low <= value <= high:
        raise BadValue(f"{shorten(value)} is out of range; it must be from {low} to {high}")
    return value


def between(value: float, low: float, high: float, written: object) -> float:
    """*value* if it is in [low, high]; *written* is how the user spelled it."""
    if not low <= value <= high:
        spelled = written if isinstance(written, str) else shorten(written)
        bounds = f"be from {low:g} to {high:g}" if high < INFINITE else "be more than 0" if low else "not be negative"
        raise BadValue(f"{spelled} is out of range; it must {bounds}")
    return value


def number(value: object) -> float:
    """*value* as a float, if it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadValue(f"{shorten(value)} is not a number")
    if not (abs(value) <= MOST if isinstance(value, int) else isfinite(value)):
        raise BadValue(f"{shorten(value)} is out of range")
    return float(value)


def scalar(value: object) -> Quantity:
    """*value* if a quantity can be written so."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadValue(f"{shorten(value)} is not a quantity; write a number with a unit such as 25GB/s or 1.5us")
    return value


def text(value: object) -> str:
    """*value* without blanks around it, if it is text with something in it."""
    if isinstance(value, str) and value.strip():
        return " ".join(value.split())
    raise BadValue(f"expected text, found {shorten(value)}")


def word(value: object, words: Iterable[str]) -> str:
    """*value* if it is one of *words*."""
    words = list(words)
    if value in words:
        return str(value)
    near = nearest(value, words) if isinstance(value, str) else None
    hint = f"did you mean {near!r}? " if near else ""
    raise BadValue(f"{shorten(value)} means nothing here; {hint}it can be {', '.join(words)}")


def flag(value: object) -> bool:
    """*value* if it is true or false."""
    if isinstance(value, bool):
        return value
    raise BadValue(f"expected true or false, found {shorten(value)}")
