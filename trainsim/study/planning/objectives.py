"""What a plan wants to have least of: each objective by name, with its bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainsim.registry import Registry
from trainsim.study.planning.bounding import Bounded
from trainsim.study.trial import Measures


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """``of`` a run: what should be small; ``at_least``: what it is at least, for a layout that was not run. ``words``:
    what the best has least of."""

    of: Callable[[Measures], float]
    at_least: Callable[[Bounded], float]
    words: str


objectives: Registry[Objective] = Registry("objective")


def _gpus(bounded: Bounded) -> int:
    layout = bounded.layout
    return layout.tp * layout.cp * layout.pp * layout.dp


objectives.register("time")(
    Objective(of=lambda ran: ran.step_time, at_least=lambda bound: bound.seconds, words="time per step")
)
objectives.register("cost", "tokens-per-dollar")(
    Objective(
        of=lambda ran: ran.step_time * ran.gpus,
        at_least=lambda bound: bound.seconds * _gpus(bound),
        words="GPU-hours per token",
    )
)
objectives.register("memory")(
    Objective(of=lambda ran: ran.needed_memory, at_least=lambda bound: bound.nbytes, words="memory per GPU")
)
