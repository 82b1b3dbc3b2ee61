"""Where layers live: the virtual stages of a pipeline, and which of them hold the embedding and the head."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from trainsim.contracts.job import Job
from trainsim.errors import InvalidPlan
from trainsim.schedules.lookup import facts
from trainsim.schedules.placement import place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Chunk ``chunk`` of pipeline rank ``rank``; its layers are ``first`` .. ``first + layers - 1``.

    ``index`` counts the virtual stages; those of a second replica follow those of the first. ``before`` and ``after``
    are the stages that a microbatch comes from and goes to, or None at the ends.
    """

    index: int
    rank: int
    chunk: int
    first: int
    layers: int
    before: int | None
    after: int | None

    @property
    def embedding(self) -> bool:
        return self.before is None

    @property
    def head(self) -> bool:
        return self.after is None


def virtual_stages(job: Job) -> tuple[Stage, ...]:
    """All virtual stages, by index: a microbatch goes through those of its replica in order.

    Raises InvalidPlan when the layout has lost or invented layers.
    """
    layout, pp, chunks = job.pipeline.layout, job.parallel.pp, job.pipeline.chunks
    shape = facts(job.pipeline.schedule)
    length = pp * chunks // shape.replicas
    if len(layout) != length or sum(layout) != job.model.layers:
        raise InvalidPlan(
            f"the layout {list(layout)} has {len(layout)} stages and {sum(layout)} layers; "
            f"pp={pp} x chunks={chunks} needs {length} stages and the model has {job.model.layers} layers."
        )
    places = [place_of(shape.placement, index, pp) for index in range(pp * chunks)]
    firsts = [0, *accumulate(layout)]
    return tuple(
        Stage(
            index=index,
            rank=places[index][0],
            chunk=places[index][1],
            first=firsts[index % length],
            layers=layout[index % length],
            before=None if index % length == 0 else index - 1,
            after=None if index % length == length - 1 else index + 1,
        )
        for index in range(length * shape.replicas)
    )


def recompute_modes(job: Job, stages: Sequence[Stage]) -> tuple[str, ...]:
    """What is recomputed of each layer of the model, in forward order: none | selective | full.

    The layers of a rank are numbered through its chunks, as torchtitan does (distributed/activation_checkpoint.py).
    """
    before: Counter[int] = Counter()
    modes: dict[int, str] = {}
    for stage in stages[: len(job.pipeline.layout)]:
        for place in range(stage.layers):
            modes[stage.first + place] = job.training.recompute_of(place, before[stage.rank] + place)
        before[stage.rank] += stage.layers
    return tuple(modes[layer] for layer in sorted(modes))
