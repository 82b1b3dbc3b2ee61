"""Types in words: what a key of a file may hold, and its unit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from trainsim.documents.building import Bounds
from trainsim.scenario.fields import tokens, whole
from trainsim.units import parse_bandwidth, parse_bytes, parse_count, parse_flops, parse_power, parse_time

READERS: Mapping[Callable[..., Any], tuple[str, str]] = {
    whole: ("whole number", ""),
    tokens: ("whole number, `8k`", "tokens"),
    parse_count: ("number, `500M`", ""),
    parse_time: ("time, `5ms`", "s"),
    parse_bytes: ("size, `80GiB`", "bytes"),
    parse_bandwidth: ("rate, `25GB/s`, `200Gbps`", "bytes/s"),
    parse_flops: ("rate, `989TFLOP/s`", "FLOP/s"),
    parse_power: ("power, `700W`", "W"),
}
"""What reads a value -> (what may be written, the unit of what comes out)."""
PLAIN = {bool: "true, false", int: "whole number", float: "number", str: "text", dict: "mapping", Any: "anything"}


def of_type(hint: Any, extras: Iterable[Any] = ()) -> tuple[str, str]:
    """(What may be written, its unit) of a type with *extras*, such as its limits.

    >>> from typing import Annotated, Literal
    >>> of_type(Literal["a", "b"] | None), of_type(Annotated[float, parse_time])
    (('`a`, `b`', ''), ('time, `5ms`', 's'))
    """
    if isinstance(hint, FieldInfo):
        return of_type(hint.annotation, hint.metadata)
    outer, inner = get_origin(hint), get_args(hint)
    if outer is Annotated:
        return of_type(inner[0], (*inner[1:], *extras))
    extras = tuple(extras)
    for extra in extras:
        reader = extra.func if isinstance(extra, BeforeValidator) else extra
        if callable(reader) and reader in READERS:
            words, unit = READERS[reader]
            return _with_limits(words, extras), unit
    if outer is Literal:
        return ", ".join(f"`{_written(value)}`" for value in inner), ""
    if outer in (Union, UnionType):
        parts = [of_type(one) for one in inner if one is not type(None)]
        return " or ".join(dict.fromkeys(words for words, _ in parts)), parts[0][1]
    if outer is tuple:
        words, unit = of_type(inner[0])
        return f"list of {words}" if words != "mapping" else "list of mappings", unit
    if outer in (dict, Mapping):
        words, unit = of_type(inner[1])
        return f"mapping of names to {words}" if inner[1] is not Any else "mapping", unit
    if _is_section(hint):
        return "mapping", ""
    return _with_limits(PLAIN.get(hint, "text"), extras), ""


def section_in(hint: Any) -> type[Any] | None:
    """The section that a key holds, be it one of several forms or in a list."""
    if _is_section(hint):
        found: type[Any] = hint
        return found
    return next((one for one in map(section_in, get_args(hint)) if one), None)


def _is_section(hint: Any) -> bool:
    return isinstance(hint, type) and (issubclass(hint, BaseModel) or is_dataclass(hint) or hasattr(hint, "_fields"))


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _with_limits(words: str, extras: Iterable[Any]) -> str:
    """*words* with the limits of a number, where they are narrower than those of its kind."""
    low, high, above = 0.0, float("inf"), False
    for extra in extras:
        if isinstance(extra, Bounds):
            low, high = extra
        low, above = (extra.gt, True) if getattr(extra, "gt", None) is not None else (low, above)
        low = extra.ge if getattr(extra, "ge", None) is not None else low
        high = extra.le if getattr(extra, "le", None) is not None else high
    if 0 < low < 1e-5:
        low, above = 0.0, True
    above = above and not low
    if high < 1e5:
        return f"{words}, {'above ' if above else ''}{low:g} to {high:g}"
    return f"{words} above 0" if above else f"{words} from 1" if low == 1 else words
