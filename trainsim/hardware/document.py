"""
YAML mappings that remember where they stand, so that a wrong value is reported with its file and line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import yaml
from yaml.constructor import SafeConstructor

from trainsim.errors import InvalidTopology, TrainsimError, nearest
from trainsim.units import Quantity

T = TypeVar("T")
Path = tuple[str | int, ...]
REQUIRED: Any = object()


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """A parsed file: its name, and the line (from 1) of every value by path. ``overridden`` paths come from
    a scenario and are reported under the name written there."""

    file: str
    lines: Mapping[Path, int]
    overridden: Mapping[Path, str] = field(default_factory=dict)

    def where(self, path: Path) -> str:
        """What to put before a message about *path*."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.overridden:
                return f"override {self.overridden[path[:end]]}"
        line = next((self.lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self.lines), 1)
        spelled = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")
        return f"{self.file}:{line}" + (f": {spelled}" if spelled else "")


def parse(text: str, file: str) -> tuple[dict[str, Any], dict[Path, int]]:
    """The mapping in *text* and the line of each of its values; InvalidTopology if it is not one."""
    try:
        root = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        lines: dict[Path, int] = {}
        _collect(root, (), file, lines, ())
        data = None if root is None else SafeConstructor().construct_document(root)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InvalidTopology(f"{file}:{line}: this is not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise InvalidTopology(f"{file}: this is not YAML: {error}") from None
    if data is None:
        raise InvalidTopology(f"{file}: the file is empty; a topology needs at least gpu, gpus_per_node and node")
    if not isinstance(data, dict):
        raise InvalidTopology(f"{file}:1: expected a mapping (key: value), found a {type(data).__name__}")
    return data, lines


def _collect(node: yaml.Node | None, path: Path, file: str, lines: dict[Path, int], inside: tuple[int, ...]) -> None:
    if node is None:
        return
    if id(node) in inside:
        raise InvalidTopology(f"{file}:{node.start_mark.line + 1}: this value contains itself through an alias")
    inside = (*inside, id(node))
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        for i, item in enumerate(node.value):
            _collect(item, (*path, i), file, lines, inside)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            child = (*path, str(key.value))
            if child in lines:
                raise InvalidTopology(f"{file}:{key.start_mark.line + 1}: key {key.value!r} stands here twice")
            _collect(value, child, file, lines, inside)
            lines[child] = key.start_mark.line + 1


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """One mapping of a document, read key by key; every complaint names its place."""

    document: Document
    path: Path
    data: Mapping[str, Any]

    @classmethod
    def open(cls, document: Document, path: Path, data: object, known: Iterable[str]) -> Section:
        """Check that *data* is a mapping with no other keys than *known*."""
        if not isinstance(data, Mapping):
            found = "nothing" if data is None else f"a {type(data).__name__}"
            raise InvalidTopology(f"{document.where(path)}: expected a mapping (key: value), found {found}")
        known = list(known)
        for key in data:
            if key not in known:
                near = nearest(str(key), known)
                hint = f" Did you mean {near!r}?" if near else ""
                place = document.where((*path, str(key)))
                raise InvalidTopology(f"{place}: unknown key {key!r}.{hint} Known: {', '.join(known)}.")
        return cls(document, path, data)

    def fail(self, key: str | int, message: str) -> InvalidTopology:
        """The exception to raise about the value of *key*."""
        return InvalidTopology(f"{self.document.where((*self.path, key))}: {message}")

    def section(self, key: str, known: Iterable[str]) -> Section:
        """The mapping under *key*, empty if it is missing."""
        return Section.open(self.document, (*self.path, key), self.data.get(key, {}), known)

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
        return self.value(key, default, _text)

    def flag(self, key: str, default: bool = REQUIRED) -> bool:
        return self.value(key, default, _flag)

    def integer(self, key: str, default: int = REQUIRED, *, low: int = 1, high: int = 1 << 20) -> int:
        return self.value(key, default, lambda v: whole(v, low, high))

    def number(self, key: str, default: float = REQUIRED, *, low: float, high: float) -> float:
        return self.value(key, default, lambda v: between(_number(v), low, high, str(v)))

    def quantity(
        self, key: str, parser: Callable[[Quantity], float], default: float = REQUIRED, *, low: float, high: float
    ) -> float:
        """A number with a unit, in SI, within sane bounds."""
        return self.value(key, default, lambda v: between(parser(_scalar(v)), low, high, str(v)))


def whole(value: object, low: int, high: int) -> int:
    """*value* if it is an integer in [low, high].

    >>> whole(0, 1, 8)
    Traceback (most recent call last):
    trainsim.errors.InvalidTopology: 0 is out of range; it must be from 1 to 8
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidTopology(f"{value!r} is not a whole number")
    if not low <= value <= high:
        raise InvalidTopology(f"{value} is out of range; it must be from {low} to {high}")
    return value


def between(value: float, low: float, high: float, written: str) -> float:
    """*value* if it is in [low, high]; *written* is how the user spelled it."""
    if not low <= value <= high:
        raise InvalidTopology(f"{written} is out of range; it must be from {low:g} to {high:g}")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidTopology(f"{value!r} is not a number")
    return float(value)


def _scalar(value: object) -> Quantity:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidTopology(f"{value!r} is not a quantity; write a number with a unit such as 25GB/s or 1.5us")
    return value


def _text(value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise InvalidTopology(f"expected text, found {value!r}")


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise InvalidTopology(f"expected true or false, found {value!r}")
