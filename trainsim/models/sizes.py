"""Checks of a model's numbers, with messages that name the number and the nearest that would work."""

from __future__ import annotations

from collections.abc import Iterable

from trainsim.errors import InvalidPlan, UnknownName

MOST_LAYERS = 100_000


def check_name(name: object) -> None:
    """Raise InvalidPlan unless *name* is a word."""
    if not isinstance(name, str):
        raise InvalidPlan(f"the name of a model is {name!r}; it must be a word")


def check_size(model: str, key: str, value: object, *, least: int = 1) -> None:
    """Raise InvalidPlan unless *value* is a whole number of at least *least*."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidPlan(f"model {model!r}: {key} is {value!r}; it must be a whole number >= {least}")
    if key == "layers" and value > MOST_LAYERS:
        raise InvalidPlan(f"model {model!r}: layers is {value}; at most {MOST_LAYERS} are simulated")


def check_switch(model: str, key: str, value: object) -> None:
    """Raise InvalidPlan unless *value* is true or false."""
    if not isinstance(value, bool):
        raise InvalidPlan(f"model {model!r}: {key} is {value!r}; it must be true or false")


def check_choice(what: str, value: object, allowed: Iterable[str]) -> None:
    """Raise UnknownName unless *value* is among those that are *allowed*."""
    if value not in (known := tuple(allowed)):
        raise UnknownName(what, str(value), known)


def divisor(number: int, near: int, step: int) -> int:
    """The divisor of *number* next to *near*, downwards or upwards."""
    reach = min(max(number, 1), 1 << 16)
    candidates = (near + step * i for i in range(reach) if 0 < near + step * i <= number)
    return next((n for n in candidates if number % n == 0), 1 if step < 0 else number)
