"""Layers that could live elsewhere: away from the stage that sets the pace, to those that wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from trainsim.analysis.lanes import Floats
from trainsim.contracts.job import Slow
from trainsim.result.result import Result
from trainsim.schedules.lookup import facts
from trainsim.schedules.placement import model_stage
from trainsim.study.trial import Change
from trainsim.units import format_layout

LAYERS = "layers"
"""The kind of changes that move layers."""
NEAR_MEAN = 0.005
"""Above the mean by less than this, a stage is not slow."""
MOST = 3
"""Stages to which a layer is tried to be moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowest:
    """The pipeline rank whose passes take longest: ``excess`` is by what part it is above the mean, ``reason`` why."""

    stage: int
    excess: float
    reason: str
    busy: tuple[float, ...]

    def __str__(self) -> str:
        if not self.matters:
            return "all stages have the same amount of work" if len(self.busy) > 1 else "there is one stage"
        return f"stage {self.stage} is {self.excess:.1%} slower than average because {self.reason}"

    @property
    def matters(self) -> bool:
        return len(self.busy) > 1 and self.excess > NEAR_MEAN


def slowest(result: Result) -> Slowest:
    """The pipeline rank with most work per step (busy in passes, less what its peers keep it waiting)."""
    busy: Floats = np.array([stage.busy_s - stage.late_s for stage in result.bubble.stages] or [0.0])
    stage = int(busy.argmax())
    mean = float(busy.mean())
    return Slowest(
        stage=stage,
        excess=float(busy[stage]) / mean - 1.0 if mean else 0.0,
        reason=_reason(result, stage),
        busy=tuple(busy.tolist()),
    )


def _reason(result: Result, rank: int) -> str:
    """Why a rank is slower than the others."""
    parts = result.simulation.plan.parts
    stages = parts.of_rank(rank)
    seconds = _rank_seconds(_held(result), result.job.pipeline.layout, _layer_seconds(result))
    layers = [sum(s.layers for s in parts.of_rank(r)) for r in range(result.job.parallel.pp)]
    if any(isinstance(w, Slow) and _touches(result, w, rank) for w in result.job.what_if):
        return "of a slow GPU (what_if)"
    if layers[rank] > float(np.mean(layers)):
        return f"it has {layers[rank]} layers, {np.mean(layers):.3g} on average"
    if seconds[rank] > float(np.mean(seconds)) * (1 + NEAR_MEAN):
        return "its layers are larger than those of other stages"
    if any(s.head for s in stages):
        return "of the head" + (" and the embedding" if any(s.embedding for s in stages) else "")
    return "of the embedding" if any(s.embedding for s in stages) else f"it has {layers[rank]} layers"


def _touches(result: Result, slow: Slow, rank: int) -> bool:
    coordinates = result.hops.mesh.coordinates(np.array(slow.ranks, np.int64)).get("pp")
    return coordinates is not None and bool((coordinates == rank).any())


def moves(result: Result, slow: Slowest) -> Iterator[Change]:
    """One layer from the slowest rank to each of those that have least to do, and as many layers as level the ranks."""
    if not slow.matters:
        return
    held, layout = _held(result), list(result.job.pipeline.layout)
    for rank in np.argsort(slow.busy, kind="stable").tolist()[:MOST]:
        move = _move(held, layout, slow.stage, rank)
        if move:
            title = f"one layer moved to stage {move[1]}"
            if result.job.pipeline.chunks > 1:
                title = f"one layer of virtual stage {move[0]} moved to {move[1]} (on stage {rank})"
            yield Change(kind=LAYERS, title=title, values={"pipeline.layout": _moved(layout, *move)})
    level, moved = _levelled(held, layout, slow.busy, _layer_seconds(result))
    if moved > 1:
        yield Change(
            kind=LAYERS,
            title=f"{moved} layers moved, so that {format_layout(level)} remain",
            values={"pipeline.layout": level},
        )


def _held(result: Result) -> list[list[int]]:
    """The stages of the layout that each pipeline rank holds."""
    job, parts = result.job, result.simulation.plan.parts
    place, pp = facts(job.pipeline.schedule).placement, job.parallel.pp
    return [[model_stage(place, s.index, pp) for s in parts.of_rank(rank)] for rank in range(pp)]


def _layer_seconds(result: Result) -> list[float]:
    """Seconds that each layer of the model is worth in a step."""
    slices = [parts.layers for parts in result.simulation.plan.parts.slices]
    each = (
        sum(block.forward_seconds + block.backward_seconds for block in blocks) for blocks in zip(*slices, strict=True)
    )
    return [seconds * result.job.training.microbatches for seconds in each]


def _move(held: Sequence[Sequence[int]], layout: Sequence[int], giver: int, taker: int) -> tuple[int, int] | None:
    """(Stage that gives, stage that takes) when rank *giver* gives a layer to rank *taker*; None if it cannot."""
    able = [stage for stage in held[giver] if layout[stage] > 1]
    if giver == taker or not able:
        return None
    gives, takes = max(able, key=lambda s: layout[s]), min(held[taker], key=lambda s: layout[s])
    return (gives, takes) if gives != takes else None


def _levelled(
    held: Sequence[Sequence[int]], layout: list[int], busy: Sequence[float], layers: Sequence[float]
) -> tuple[list[int], int]:
    """The layout after moving layers from the busiest rank to the idlest for as long as that helps, and how many.

    Stages hold layers in a row, so that what lies between giver and taker moves on by one. *layers* are their seconds.

    >>> _levelled([[0], [1], [2]], [4, 4, 4], [4.0, 4.0, 7.0], [1.0] * 12)
    ([5, 5, 2], 2)
    """
    moved, now = 0, list(busy)
    while moved < sum(layout):
        giver, taker = now.index(max(now)), now.index(min(now))
        move = _move(held, layout, giver, taker)
        if move is None:
            break
        after = _moved(layout, *move)
        change = zip(_rank_seconds(held, after, layers), _rank_seconds(held, layout, layers), strict=True)
        then = [seconds + new - old for seconds, (new, old) in zip(now, change, strict=True)]
        if max(then) >= now[giver]:
            break
        layout, now, moved = after, then, moved + 1
    return layout, moved


def _rank_seconds(held: Sequence[Sequence[int]], layout: Sequence[int], layers: Sequence[float]) -> list[float]:
    """Seconds of the layers of each pipeline rank.

    >>> _rank_seconds([[0, 2], [1]], [1, 2, 1], [1.0, 2.0, 3.0, 4.0])
    [5.0, 5.0]
    """
    ends = list(accumulate(layout, initial=0))
    return [sum(sum(layers[ends[stage] : ends[stage + 1]]) for stage in stages) for stages in held]


def _moved(layout: Sequence[int], giver: int, taker: int) -> list[int]:
    """
    >>> _moved([6, 6, 5], 0, 2)
    [5, 6, 6]
    """
    return [layers - (k == giver) + (k == taker) for k, layers in enumerate(layout)]
