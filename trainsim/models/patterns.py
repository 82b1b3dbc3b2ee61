"""
Which layer of a model is of which kind: named kinds with what they change, and a pattern of their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainsim.errors import InvalidPlan, ScenarioError, UnknownName, nearest
from trainsim.models.latent import read_delta, read_mla
from trainsim.models.layer_kind import DEFAULT, OTHERS, SIZES
from trainsim.models.mixture import read_moe
from trainsim.models.sizes import MOST_LAYERS

Changes = tuple[tuple[str, Any], ...]
"""What a kind of layer has that the model's own sizes are not: (key, value) each."""


def read_kinds(given: Any) -> tuple[tuple[str, Changes], ...]:
    """The named kinds of a scenario's ``model.layer_kinds``. Raises ScenarioError.

    >>> read_kinds({"wide": {"ffn_hidden": 8192}})
    (('wide', (('ffn_hidden', 8192),)),)
    """
    if not isinstance(given, Mapping):
        raise ScenarioError("model.layer_kinds: expected a mapping, such as {wide: {ffn_hidden: 8192}}")
    allowed = (*SIZES, *OTHERS)
    for name, changes in given.items():
        if name == DEFAULT:
            raise ScenarioError(f"model.layer_kinds: {DEFAULT} is the model's own layer; give this kind another name")
        if not isinstance(changes, Mapping):
            raise ScenarioError(f"model.layer_kinds.{name}: expected a mapping, such as {{ffn_hidden: 8192}}")
        for key in changes:
            if key not in allowed:
                near = nearest(str(key), allowed)
                hint = f"did you mean {near!r}?" if near else f"a kind may change {', '.join(allowed)}"
                raise ScenarioError(f"model.layer_kinds.{name}: unknown key {key!r}; {hint}")
    return tuple((str(name), tuple(_read(changes).items())) for name, changes in given.items())


def _read(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes of a kind with its experts and its latent attention as values."""
    parts: dict[str, Callable[[Any], object]] = {"moe": read_moe, "mla": read_mla, "linear_attention": read_delta}
    return {k: parts[k](v) if k in parts and v is not None else v for k, v in changes.items()}


def read_pattern(given: Any, layers: int) -> tuple[str, ...]:
    """The kind of each of *layers* layers, from a list that is as long or is repeated; ``wide*3`` is three of a kind.

    Raises ScenarioError and InvalidPlan.

    >>> read_pattern(["dense*2", "default"], 6)
    ('dense', 'dense', 'default', 'dense', 'dense', 'default')
    """
    if not isinstance(given, list | tuple) or not given or not all(isinstance(name, str) for name in given):
        raise ScenarioError(f"model.layer_pattern is {given!r}; it must be a list of kinds, such as [wide, default]")
    pattern: list[str] = []
    for entry in given:
        name, star, count = entry.partition("*")
        if star and not (count.strip().isdecimal() and 0 < int(count) <= MOST_LAYERS):
            raise ScenarioError(f"model.layer_pattern: {entry!r} is not NAME*COUNT, such as wide*3")
        pattern += [name.strip()] * (int(count) if star else 1)
    if layers % len(pattern):
        raise InvalidPlan(
            f"model.layer_pattern has {len(pattern)} layers, which does not divide the model's {layers}; "
            f"write {layers} of them, or a number that divides it"
        )
    return tuple(pattern) * (layers // len(pattern))


def check_pattern(pattern: Sequence[str], named: Sequence[str], layers: int) -> None:
    """Every layer has a kind that exists. Raises UnknownName and InvalidPlan."""
    for name in pattern:
        if name != DEFAULT and name not in named:
            raise UnknownName("kind of layer", name, (DEFAULT, *named))
    if pattern and len(pattern) != layers:
        raise InvalidPlan(f"the pattern has {len(pattern)} layers and the model {layers}")


def shortened(pattern: Sequence[str]) -> list[str]:
    """A pattern as a person would write it.

    >>> shortened(("dense", "dense", "default", "dense"))
    ['dense*2', 'default', 'dense']
    """
    out: list[tuple[str, int]] = []
    for name in pattern:
        if out and out[-1][0] == name:
            out[-1] = (name, out[-1][1] + 1)
        else:
            out.append((name, 1))
    return [f"{name}*{count}" if count > 1 else name for name, count in out]
