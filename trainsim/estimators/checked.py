"""Checks of what a caller of an estimator gives; their messages name the argument, its value and the way out."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from math import isfinite

from trainsim.errors import InvalidPlan, nearest
from trainsim.units import Quantity, parse_count

MOST = 10**18


def whole(name: str, value: object, *, least: int = 1) -> int:
    """*value* as a whole number of at least *least*: an int, or a float or text that is one.

    >>> whole("nodes", 4.0), whole("nodes", "8")
    (4, 8)
    >>> whole("nodes", 0)
    Traceback (most recent call last):
    trainsim.errors.InvalidPlan: nodes = 0 is too small: it must be a whole number of at least 1
    """
    number = _number(value)
    if number is None or number != int(number):
        raise InvalidPlan(f"{name} = {value!r} is not a whole number; give one of at least {least}")
    if number > MOST:
        raise InvalidPlan(f"{name} is too large: the most that makes sense here is {MOST:.0e}")
    if number < least:
        raise InvalidPlan(f"{name} = {value!r} is too small: it must be a whole number of at least {least}")
    return int(number)


def count(name: str, value: Quantity) -> int:
    """A number of parameters: a plain number, or one with a unit.

    >>> count("parameters", "7.5B"), count("parameters", 2.8e9)
    (7500000000, 2800000000)
    """
    written = isinstance(value, str) and _number(value) is None
    return whole(name, parse_count(value) if written else value)


def positive(name: str, value: object) -> int | float:
    """A finite number above zero, as it was given.

    >>> positive("additional_buffer_factor", 1.5)
    1.5
    """
    number = _number(value)
    if number is None or number <= 0:
        raise InvalidPlan(f"{name} = {value!r} is not a number above zero")
    return number


def switch(name: str, value: object) -> bool:
    """True or false, also as numbers and as a table writes them.

    >>> switch("swiglu", "True"), switch("swiglu", 0)
    (True, False)
    """
    words = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
    chosen = words.get(str(value).strip().lower())
    if chosen is None:
        raise InvalidPlan(f"{name} = {value!r} is neither true nor false")
    return chosen


def choice(name: str, value: object, known: Iterable[str]) -> str:
    """*value*, if it is one of the *known* words.

    >>> choice("recompute", "selective", ("none", "selective", "full"))
    'selective'
    >>> choice("recompute", "selectiv", ("none", "selective", "full"))
    Traceback (most recent call last):
    trainsim.errors.InvalidPlan: recompute = 'selectiv': did you mean 'selective'? It can be none, selective or full
    """
    words = tuple(known)
    if value in words:
        return str(value)
    near = nearest(str(value), words)
    hint = f"did you mean {near!r}? It" if near else "it"
    raise InvalidPlan(f"{name} = {value!r}: {hint} can be {', '.join(words[:-1])} or {words[-1]}")


def _number(value: object) -> int | float | None:
    """*value* as a number, if it is one; a truth value (Python's or numpy's) is none."""
    if type(value).__name__ in ("bool", "bool_"):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        pass
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return number if isfinite(number) else None
