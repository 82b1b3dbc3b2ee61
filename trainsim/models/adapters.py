"""
Low-rank adapters on a frozen model (LoRA, Hu et al. 2021, arXiv 2106.09685): which linear layers have one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainsim.errors import InvalidPlan, ScenarioError, UnknownName, nearest
from trainsim.models.weight_types import weight_type

KEYS = ("rank", "targets", "base_dtype")
USUAL = ("q", "v")
"""The layers of the paper's experiments, and peft's default for Llama."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Two small matrices, ``rank`` x inputs and outputs x ``rank``, beside each of the ``targets``. ``base_dtype``
    names how frozen weights are stored (``weights/``); None: as the passes use them."""

    rank: int
    targets: tuple[str, ...] = USUAL
    base_dtype: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The mapping that ``lora`` reads back."""
        stored = {} if self.base_dtype is None else {"base_dtype": self.base_dtype}
        return {"rank": self.rank, "targets": list(self.targets), **stored}


def lora(given: Mapping[str, Any] | Lora) -> Lora:
    """The adapters that a scenario's ``model.lora`` describes. Raises ScenarioError and InvalidPlan.

    >>> lora({"rank": 8})
    Lora(rank=8, targets=('q', 'v'), base_dtype=None)
    """
    if isinstance(given, Lora):
        return given
    if not isinstance(given, Mapping):
        raise ScenarioError("model.lora: expected a mapping, such as {rank: 8, targets: [q, v]}")
    for key in given:
        if key not in KEYS:
            near = nearest(str(key), KEYS)
            raise ScenarioError(
                f"model.lora: unknown key {key!r}; {f'did you mean {near!r}?' if near else ', '.join(KEYS)}"
            )
    rank, targets = given.get("rank"), given.get("targets", USUAL)
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise InvalidPlan(f"model.lora: rank is {rank!r}; it must be a whole number >= 1, for example 16")
    if not isinstance(targets, list | tuple) or not targets or not all(isinstance(name, str) for name in targets):
        raise InvalidPlan(f"model.lora: targets is {targets!r}; it must be a list of linear layers, such as [q, v]")
    stored = given.get("base_dtype")
    if stored is not None and not isinstance(stored, str):
        raise InvalidPlan(f"model.lora: base_dtype is {stored!r}; it must be the name of a type, such as nf4")
    return Lora(rank=rank, targets=tuple(targets), base_dtype=None if stored is None else weight_type(stored).name)


def expanded(targets: Collection[str], *, gated: bool) -> tuple[str, ...]:
    """*targets* with every linear layer of attention and MLP in the place of ``all``, each with an adapter of its own.

    >>> expanded(["all"], gated=True), expanded(["all"], gated=False)
    (('q', 'k', 'v', 'o', 'gate', 'up', 'down'), ('q', 'k', 'v', 'o', 'fc1', 'fc2'))
    """
    every = ("q", "k", "v", "o", *(("gate", "up", "down") if gated else ("fc1", "fc2")))
    return tuple(name for target in targets for name in (every if target == "all" else (target,)))


def members(target: str, *, gated: bool) -> tuple[str, ...]:
    """The linear layers that *target* means; several where their product is one and has one adapter.

    Raises UnknownName.

    >>> members("qkv", gated=True), members("up", gated=False)
    (('q', 'k', 'v'), ('fc1',))
    """
    known = {name: (name,) for name in ("q", "k", "v", "o")} | {"qkv": ("q", "k", "v"), "proj": ("o",)}
    if gated:
        known |= {name: (name,) for name in ("gate", "up", "down")} | {"fc1": ("gate", "up"), "fc2": ("down",)}
    else:
        known |= {"fc1": ("fc1",), "fc2": ("fc2",), "up": ("fc1",), "down": ("fc2",)}
    if target not in known:
        raise UnknownName("linear layer for an adapter", target, known)
    return known[target]


def check_targets(adapted: Lora, *, gated: bool, known: Collection[str]) -> None:
    """Every target is a layer among those *known* and none has two adapters. Raises UnknownName and InvalidPlan."""
    seen: dict[str, str] = {}
    for target, name in _pairs(adapted, gated):
        if name not in known:
            raise InvalidPlan(
                f"model.lora: an adapter on {target} is not simulated, for a layer of this model has no {name} (it has "
                f"{', '.join(known)}); leave it out of targets"
            )
        if name in seen:
            raise InvalidPlan(f"model.lora: {target} and {seen[name]} both put an adapter on {name}; leave one out")
        seen[name] = target


def _pairs(adapted: Lora, gated: bool) -> Iterator[tuple[str, str]]:
    for target in expanded(adapted.targets, gated=gated):
        yield from ((target, name) for name in members(target, gated=gated))
