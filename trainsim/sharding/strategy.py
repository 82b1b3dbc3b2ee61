"""
What a sharding strategy is: its plan, and the traits that everything else asks for.

The scenario's schema, what is refused and derived, the lists of ``explain`` and ``what_fits`` and the table in
docs/sharding.md read these traits, so that a strategy is one file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from trainsim.contracts.job import Job
from trainsim.sharding.parameter_groups import ParameterGroup
from trainsim.sharding.plan import ShardingPlan
from trainsim.sharding.strategy_options import Option

STATES = ("optimizer", "gradients", "parameters")
"""Model states that replicas can share."""


class Refusal(NamedTuple):
    """``key`` of the sharding section does not go together with the rest of the job, and what would."""

    key: str
    reason: str


class Derived(NamedTuple):
    """The ``value`` of a key of the sharding section that the scenario leaves out, and why; no reason: no note."""

    key: str
    value: object
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One way for replicas to share model states.

    ``plan`` says what a pipeline rank exchanges for its groups of parameters; ``title`` is its name in texts. Traits:

    * ``shares``: the states that replicas share, of ``STATES``. Parameters that are shared are gathered for each pass.
    * ``every_pass``: it exchanges beside every pass, so that passes must be whole, of one stage.
    * ``saves_more_than``: strategies whose place it can take to save memory.
    * ``options`` that it understands, beside ``overlap`` and ``offload``; ``brings``: (options given, replicas of a
      node) -> those that it sets itself.
    * ``offloads``: the states that can be off the GPU; ``moves_together``: all of them or none, in fp32.
    * ``experts_apart``: it treats experts that fewer ranks hold than the layers around them as parameters of their own.
    * ``mixed_weights``: it gathers parameters of several types together.
    * ``updates_in_backward``: a parameter can be updated as soon as its gradient is reduced.
    * ``framework``: the profile whose strategy it is.
    * ``summed_by``: the number of replicas that share the sums of gradients over microbatches.
    * ``amounts_to``: the strategy from which nothing differs in a job; none where it is one of its own.
    * ``refuses``: what does not go together with it; ``notes``: what is worth saying of a job.
    """

    plan: Callable[[Job, int, Sequence[ParameterGroup]], ShardingPlan]
    title: str
    shares: frozenset[str] = frozenset()
    every_pass: bool = False
    saves_more_than: frozenset[str] = frozenset()
    options: tuple[Option[Any], ...] = ()
    brings: Callable[[Mapping[str, Any], int], Iterator[Derived]] = lambda given, node: iter(())
    offloads: frozenset[str] = frozenset({"optimizer"})
    moves_together: bool = False
    experts_apart: bool = False
    mixed_weights: bool = False
    updates_in_backward: bool = False
    framework: str = "neutral"
    summed_by: Callable[[Job], int] = lambda job: 1
    amounts_to: Callable[[Job], str | None] = lambda job: None
    refuses: Callable[[Job], Iterator[Refusal]] = lambda job: iter(())
    notes: Callable[[Job], Iterator[Derived]] = lambda job: iter(())

    def __post_init__(self) -> None:
        wrong = (self.shares | self.offloads) - set(STATES)
        if wrong:
            raise ValueError(f"strategy {self.title}: no model states {sorted(wrong)}; it can be {', '.join(STATES)}")

    @property
    def uses(self) -> frozenset[str]:
        """The names of its options."""
        return frozenset(option.name for option in self.options)

    @property
    def shares_parameters(self) -> bool:
        """Whether parameters are gathered for each pass."""
        return "parameters" in self.shares

    @property
    def shares_gradients(self) -> bool:
        """Whether a rank keeps the gradients of its share only."""
        return "gradients" in self.shares
