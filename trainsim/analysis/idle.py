"""When a chain is idle: the gaps between its rows, what ended each, and what others of its rank did meanwhile."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trainsim.analysis.kinds import COLUMN
from trainsim.analysis.lanes import Bools, Floats, Ints, Lane, Lanes

WORK = [COLUMN["forward"], COLUMN["backward"]]
"""The columns of kernels of the model."""


class Occupancy(NamedTuple):
    """Rows of a compute chain that belong to passes and to the blocking messages between them, in order; seconds.

    ``gap`` is the idle time before each row, ``cause`` the row that ended it (of all lanes, or -1), ``beside`` whether
    that was another chain of this rank, ``work`` the time that the row took and ``waited`` what its messages kept it
    waiting besides. ``aside`` is the part of the other gaps in which another chain of this rank worked. ``begin`` is
    when the rollout ahead of the passes was over, from which ``first`` and ``last`` count.
    """

    rows: Ints
    gap: Floats
    cause: Ints
    beside: Bools
    work: Floats
    waited: Floats
    aside: Floats
    first: float
    last: float
    begin: float = 0.0

    @property
    def busy(self) -> float:
        """Seconds in passes and their collectives; gaps that end with another chain of this rank are no bubble, nor
        those in which one works."""
        return float(self.work.sum() + self.gap[self.beside].sum() + self.aside.sum())


def first_step(lanes: Lanes, lane: Lane) -> Bools:
    """Which rows belong to the first step."""
    ends = lanes.updates[lane.owner]
    return lane.task <= ends[0] if len(ends) else np.ones(len(lane), bool)


def later_steps(lanes: Lanes, lane: Lane) -> Bools:
    """Which rows belong to the steps after the first."""
    ends = lanes.updates[lane.owner]
    later: Bools = (lane.task > ends[0]) & (lane.task <= ends[-1])
    return later


def gaps(lane: Lane) -> tuple[Floats, Floats]:
    """When the chain went idle before each row, and for how long."""
    idle_from = np.concatenate([[0.0], lane.end[:-1]])[: len(lane)]
    return idle_from, lane.posted - idle_from


def occupancy(lanes: Lanes, lane: Lane, within: Bools) -> Occupancy:
    """What the passes of a compute chain take of the rows *within*."""
    own = np.flatnonzero(lane.busy & within)
    rows = np.flatnonzero(within & ~lanes.updating(lane) & ~lane.generates)
    rows = rows[rows <= (own[-1] if len(own) else -1)]
    length = lane.end[rows] - lane.posted[rows]
    waited = np.where(lane.busy[rows], lane.seconds[rows, COLUMN["pp"]], length)
    cause = lanes.gap_cause(lane)[rows]
    beside = cause >= 0
    collectives = [other.number for other in lanes.others[lane.owner] if not other.seconds[:, WORK].any()]
    if collectives:
        chosen = np.zeros(len(lanes.all), bool)
        chosen[collectives] = True
        beside[beside] = chosen[lanes.chain_of[cause[beside]]]
    else:
        beside[:] = False
    since, gap = (of[rows] for of in gaps(lane))
    ahead = np.flatnonzero(lane.generates & within)
    begin = float(lane.end[ahead[-1]]) if len(ahead) else 0.0
    return Occupancy(
        rows=rows,
        gap=gap,
        cause=cause,
        beside=beside,
        work=length - waited,
        waited=waited,
        aside=np.where(beside, 0.0, worked_beside(lanes, lane, since, gap).sum(1)),
        first=float(lane.posted[own[0]]) - begin if len(own) else 0.0,
        last=float(lane.end[own[-1]]) - begin if len(own) else 0.0,
        begin=begin,
    )


def worked_beside(lanes: Lanes, lane: Lane, since: Floats, length: Floats) -> Floats:
    """Seconds of the kinds WORK that other chains of the rank worked in each interval: a head that is spread over the
    pipeline."""
    out = np.zeros((len(since), len(WORK)))
    for other in lanes.others[lane.owner]:
        for k, kind in enumerate(WORK):
            if other.seconds[:, kind].any():
                out[:, k] += done(lanes, other, kind, since + length) - done(lanes, other, kind, since)
    return out


def done(lanes: Lanes, lane: Lane, kind: int, at: Floats) -> Floats:
    """Seconds of *kind* that a chain has had in spans until each time; of a row under way those spans that were."""
    row = np.searchsorted(lane.end, at, side="right")
    until: Floats = np.concatenate([[0.0], np.cumsum(lane.seconds[:, kind])])[row]
    inside = np.minimum(row, len(lane) - 1)
    under = np.flatnonzero((row < len(lane)) & (at > lane.start[inside]) & (lane.seconds[inside, kind] > 0))
    if len(under):
        until[under] += _within_rows(lanes, lane, kind, inside[under], at[under])
    return until


def _within_rows(lanes: Lanes, lane: Lane, kind: int, row: Ints, at: Floats) -> Floats:
    """Seconds of *kind* from the start of each *row* of a chain until a time in it."""
    spans = lanes.trace.spans_of(lane.number, np.unique(row))
    own = lanes.label_kind[spans.label] == kind
    start, end = spans.start[own], spans.end[own]
    sums = np.concatenate([[0.0], np.cumsum(end - start)])
    over = np.searchsorted(end, at, side="right")
    inside = np.minimum(over, len(end) - 1)
    part = np.where(over < len(end), np.clip(at - start[inside], 0.0, end[inside] - start[inside]), 0.0)
    first = np.searchsorted(spans.row[own], row)
    found: Floats = sums[over] + part - sums[first]
    return found


class Idle(NamedTuple):
    """Intervals (seconds) in which a chain does nothing. ``source`` is the stage it waits for, -1 if none is known;
    ``what`` names the chain that ends the wait (``pp-forward``, ``dp``, ...) or is ``peers`` of a collective."""

    start: Floats
    end: Floats
    source: Ints
    what: tuple[str, ...]


def idle(lanes: Lanes, c: int) -> Idle:
    """When class *c* waits, by start: for events between rows, and for late peers between posting and starting."""
    lane = lanes.compute[c]
    since, length = gaps(lane)
    rows, late = np.flatnonzero(length > 0), np.flatnonzero(lane.start > lane.posted)
    start = np.concatenate([since[rows], lane.posted[late], lane.end[-1:]])
    end = np.concatenate([lane.posted[rows], lane.start[late], [lanes.duration] * min(1, len(lane))])
    cause = np.concatenate([lanes.gap_cause(lane)[rows], lane.cause[late], np.full(min(1, len(lane)), -1, np.int64)])
    chain = np.where(cause >= 0, lanes.chain_of[cause], -1)
    source = np.where(chain >= 0, lanes.stage[lanes.chain_owner[chain]], -1)
    titles = {k: lanes.trace.title(lanes.all[k].name) if k >= 0 else "" for k in np.unique(chain).tolist()}
    names = [titles[k] for k in chain.tolist()]
    what = [*names[: len(rows)], *("peers" for _ in late), ""]
    order = np.argsort(start, kind="stable")
    order = order[end[order] > start[order]]
    return Idle(start[order], end[order], source[order], tuple(what[k] for k in order.tolist()))
