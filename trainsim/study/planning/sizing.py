"""How many GPUs a training needs to be over in so many days: the smallest machine whose best layout is quick enough."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trainsim.errors import InvalidPlan, ScenarioError
from trainsim.scenario.fields import MOST_RANKS
from trainsim.scenario.scenario import Scenario
from trainsim.study.planning.answer import Choice, Plan
from trainsim.study.planning.own import any_job, with_batch
from trainsim.study.planning.plan import Question, plan_for

if TYPE_CHECKING:
    from rich.console import RenderableType

CLOSER = 2
"""How often the gap between a machine that is too small and one that is large enough is halved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A machine of so many ``nodes`` and ``gpus``, and its best layout; None where nothing fits or divides."""

    nodes: int
    gpus: int
    plan: Plan

    @property
    def best(self) -> Choice | None:
        return self.plan.choices[0] if self.plan.choices else None

    @property
    def days(self) -> float | None:
        return self.best.ran.measured.days if self.best else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data; seconds, bytes, days."""
        choices = [choice.to_dict() for choice in self.plan.choices]
        return {"nodes": self.nodes, "gpus": self.gpus, "best": choices[0] if choices else None, "choices": choices}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The machines that were looked at, the smallest first, for a training in ``days``, with ``most`` GPUs at most."""

    base: Scenario
    days: float
    most: int
    sizes: tuple[Size, ...]
    interrupted: bool = False

    @property
    def answer(self) -> Size | None:
        """The smallest machine that is quick enough."""
        return next((size for size in self.sizes if self.serves(size)), None)

    def serves(self, size: Size) -> bool:
        """Whether the training is over in time on a machine."""
        return size.days is not None and size.days <= self.days

    def to_dict(self) -> dict[str, Any]:
        """Plain data with stable keys."""
        answer = self.answer
        return {
            "name": self.base.name,
            "days": self.days,
            "max_gpus": self.most,
            "answer": answer.to_dict() if answer else None,
            "sizes": [size.to_dict() for size in self.sizes],
        }

    def __rich__(self) -> RenderableType:
        from trainsim.study.planning.sections import sizing_sections
        from trainsim.tables.terminal import rich_sections

        return rich_sections(sizing_sections(self))


def size_for(scenario: Scenario, question: Question, *, days: float, most: int) -> Sizing:
    """The smallest machine on which the whole training of *scenario* takes no more than *days*, of *most* GPUs at most.
    It has as many choices as the *question* asks for, other machines one each.

    Numbers of nodes are doubled until one is enough, and then the gap is halved; every machine has its own
    best layout, and the same sequences per step.

    Raises ScenarioError for a training whose tokens nobody says, InvalidPlan for days or GPUs that are none.
    """
    if scenario.spec.training.tokens is None:
        raise ScenarioError("days are those of a whole training; add its tokens, such as --tokens 15T")
    if not 0 < days < float("inf"):
        raise InvalidPlan(f"days={days}: expected a number above 0")
    base, _ = with_batch(scenario)
    each = any_job(base)[0].cluster.gpus_per_node
    if isinstance(most, bool) or not isinstance(most, int) or most < each:
        raise InvalidPlan(f"max_gpus={most}: expected {each} or more, for a node has {each}")
    if most > MOST_RANKS:
        raise InvalidPlan(f"max_gpus={most}: machines have {MOST_RANKS} GPUs at most here")
    looked = _Looking(base, replace(question, top=1), each=each, most=most // each)
    enough = looked.doubling(days)
    if enough:
        looked.halving(*enough, days)
    sizing = Sizing(base=base, days=days, most=most, sizes=looked.found, interrupted=question.runner.interrupted)
    if sizing.answer and question.top > 1 and not sizing.interrupted:
        looked.again(sizing.answer, question.top)
    return replace(sizing, sizes=looked.found, interrupted=question.runner.interrupted)


class _Looking:
    """The machines that were looked at so far, by their nodes."""

    def __init__(self, base: Scenario, question: Question, *, each: int, most: int):
        self.base, self.question, self.each, self.most = base, question, each, most
        self.sizes: dict[int, Size] = {}

    def doubling(self, days: float) -> tuple[int, int] | None:
        """(Nodes that are too few, nodes that are enough) next to each other among the doubled ones."""
        few = 0
        for nodes in self._doubled():
            if self._enough(nodes, days):
                return few, nodes
            if self.question.runner.interrupted:
                return None
            few = nodes
        return None

    def halving(self, few: int, enough: int, days: float) -> None:
        """Look between *few* and *enough* nodes."""
        for _ in range(CLOSER):
            middle = (few + enough) // 2
            if middle in (few, enough) or self.question.runner.interrupted:
                return
            few, enough = (few, middle) if self._enough(middle, days) else (middle, enough)

    def again(self, size: Size, top: int) -> None:
        """List the *top* layouts of a machine, unless that is interrupted; what was run is not run again."""
        plan = plan_for(size.plan.base, replace(self.question, top=top))
        if not plan.interrupted:
            self.sizes[size.nodes] = replace(size, plan=plan)

    @property
    def found(self) -> tuple[Size, ...]:
        """The machines, the smallest first."""
        return tuple(size for _, size in sorted(self.sizes.items()))

    def _doubled(self) -> Iterator[int]:
        nodes = 1
        while nodes < self.most:
            yield nodes
            nodes *= 2
        yield self.most

    def _enough(self, nodes: int, days: float) -> bool:
        size: dict[str, int | None] = {"cluster.nodes": nodes}
        if self.base.spec.cluster.gpus is not None:
            size |= {"cluster.gpus": None}
        plan = plan_for(self.base.replace({**size, "parallel.dp": None}), self.question)
        here = self.sizes[nodes] = Size(nodes=nodes, gpus=nodes * self.each, plan=plan)
        return here.days is not None and here.days <= days
