"""Where layers live: the virtual stages of a pipeline, and which of them hold the embedding and the head."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from trainsim.errors import InvalidPlan
from trainsim.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Chunk ``chunk`` of pipeline rank ``rank``; its layers are ``first`` .. ``first + layers - 1``."""

    index: int
    rank: int
    chunk: int
    first: int
    layers: int
    embedding: bool
    head: bool


def virtual_stages(job: Job) -> tuple[Stage, ...]:
    """All virtual stages in the order in which a microbatch goes through them; stage s is chunk s // pp of rank s % pp.

    Raises InvalidPlan when the layout has lost or invented layers.
    """
    layout, pp = job.pipeline.layout, job.parallel.pp
    if len(layout) != pp * job.pipeline.chunks or sum(layout) != job.model.layers:
        raise InvalidPlan(
            f"the layout {list(layout)} has {len(layout)} stages and {sum(layout)} layers; "
            f"pp={pp} x chunks={job.pipeline.chunks} needs {pp * job.pipeline.chunks} stages "
            f"and the model has {job.model.layers} layers."
        )
    firsts = [0, *accumulate(layout)]
    return tuple(
        Stage(
            index=s,
            rank=s % pp,
            chunk=s // pp,
            first=firsts[s],
            layers=layers,
            embedding=s == 0,
            head=s == len(layout) - 1,
        )
        for s, layers in enumerate(layout)
    )
