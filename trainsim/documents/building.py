"""
From a section to a dataclass, whose annotations say what each key may hold.

``float``, ``int``, ``bool``, ``str``, ``Literal``, ``tuple[...]``, ``dict[...]`` and dataclasses or named tuples of
them are understood; ``Annotated[float, parse_time]`` is a quantity with a unit, ``Annotated[float, Bounds(0.1, 1)]`` a
number within bounds. Numbers are finite and not negative where nothing else is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from trainsim.documents.part import (
    MOST,
    REQUIRED,
    BadValue,
    DocumentPart,
    between,
    flag,
    number,
    scalar,
    text,
    whole,
    word,
)
from trainsim.errors import shorten

T = TypeVar("T")


class Bounds(NamedTuple):
    """Lowest and highest value of a number or quantity."""

    low: float = 0.0
    high: float = float("inf")


SOME = Bounds(low=1e-30)
"""More than nothing: of what others are divided by."""


@cache
def keys_of(kind: Any) -> Mapping[str, tuple[Any, Any]]:
    """(Annotation, default) of every field of a dataclass or named tuple; the default is REQUIRED if there is none."""
    hints = get_type_hints(kind, include_extras=True)
    if is_dataclass(kind):
        return {
            f.name: (
                hints[f.name],
                f.default_factory()
                if f.default_factory is not MISSING
                else REQUIRED
                if f.default is MISSING
                else f.default,
            )
            for f in fields(kind)
            if f.init
        }
    defaults: Mapping[str, Any] = getattr(kind, "_field_defaults", {})
    return {name: (hint, defaults.get(name, REQUIRED)) for name, hint in hints.items()}


def build(kind: type[T], section: DocumentPart, **given: Any) -> T:
    """The *kind* that *section* describes; fields in *given* are not read from it.

    Raises the document's error for unknown, missing and wrong values.
    """
    values, described = dict(given), keys_of(_any(kind))
    for key, (hint, default) in described.items():
        if key not in given:
            values[key] = _read(hint, section, key, default)
    return kind(**values)


def part(kind: type[T], section: DocumentPart, key: str, default: Any = REQUIRED) -> T:
    """The *kind* that the mapping under *key* describes."""
    built: T = _read(kind, section, key, default)
    return built


def _read(hint: Any, section: DocumentPart, key: str, default: Any) -> Any:
    """The value under *key* as *hint* wants it."""
    if key not in section.data:
        return section.value(key, default, _same)
    value, path = section.data[key], (*section.path, key)
    if is_dataclass(hint) or (_is_named_tuple(hint) and isinstance(value, Mapping)):
        assert isinstance(hint, type)
        return build(hint, DocumentPart.open(section.document, path, value, keys_of(hint)))
    if get_origin(hint) in (dict, Mapping):
        return _mapping(hint, section, key)
    return section.value(key, default, _reader(hint))


def _mapping(hint: Any, section: DocumentPart, key: str) -> dict[Any, Any]:
    name_of, kind = get_args(hint)
    value = section.data[key]
    inner = DocumentPart.open(
        section.document, (*section.path, key), value, value if isinstance(value, Mapping) else ()
    )
    for name in inner.data:
        if not isinstance(name, name_of) or isinstance(name, bool):
            wanted = {str: "a word", int: "a whole number"}[name_of]
            raise inner.fail(name, f"the key {shorten(name)} is not {wanted}")
    return {name: _read(kind, inner, name, REQUIRED) for name in inner.data}


@cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    """What makes a value of type *hint*; it raises a TrainsimError without a place."""
    plain: dict[Any, Callable[[Any], Any]] = {
        float: lambda v: between(number(v), 0.0, float("inf"), v),
        int: lambda v: whole(v, 0, MOST),
        bool: flag,
        str: text,
        Any: _same,
    }
    if hint in plain:
        return plain[hint]
    outer, inner = get_origin(hint), get_args(hint)
    if outer is Annotated:
        return _annotated(inner[0], inner[1:])
    if outer is Literal:
        return lambda v: word(v, inner)
    if outer is tuple:
        return lambda v: tuple(map(_reader(inner[0]), _list(v)))
    if outer in (Union, UnionType) and type(None) in inner:
        kind = next(i for i in inner if i is not type(None))
        return lambda v: None if v is None else _reader(kind)(v)
    if _is_named_tuple(hint):
        return lambda v: _row(hint, v)
    raise TypeError(f"no document can hold a {hint}")


def _annotated(kind: Any, extras: tuple[Any, ...]) -> Callable[[Any], Any]:
    bounds = next((e for e in extras if isinstance(e, Bounds)), Bounds())
    parser = next((e for e in extras if callable(e)), None)
    if parser:
        return lambda v: between(parser(scalar(v)), *bounds, v)
    if kind is int:
        return lambda v: whole(v, int(bounds.low), int(min(bounds.high, MOST)))
    return lambda v: between(number(v), *bounds, v)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise BadValue(f"expected a list, found {shorten(value)}")
    return list(value)


def _row(kind: Any, value: Any) -> Any:
    """A named tuple from a list: [a, b, c]."""
    names, values = list(keys_of(kind)), _list(value)
    if len(values) != len(names):
        raise BadValue(f"expected [{', '.join(names)}], found {shorten(value)}")
    return kind(*(_reader(hint)(v) for (hint, _), v in zip(keys_of(kind).values(), values, strict=True)))


def _is_named_tuple(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")


def _any(kind: object) -> Any:
    return kind


def _same(value: Any) -> Any:
    return value
