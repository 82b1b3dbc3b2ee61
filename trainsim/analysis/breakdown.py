"""Where the step goes: every instant of every rank's compute chain belongs to exactly one kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from trainsim.analysis.kinds import COLUMN, PARTS
from trainsim.analysis.lanes import Floats, Ints, Lane, Lanes
from trainsim.exact import TICK
from trainsim.program.instructions import KINDS

BUBBLE = len(KINDS)
"""The column of idle time, after those of the kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What one stage waits for: ``source`` is the stage that is late (or its own), ``seconds`` of the mean
    rank."""

    stage: int
    source: int
    what: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ledger:
    """Seconds per class (rows) and kind (columns: KINDS, then the bubble). ``waiting`` is the part of
    ``seconds`` in which a collective had been posted and a peer of the same stage was late."""

    seconds: Floats
    waiting: Floats
    waits: tuple[Wait, ...]


def ledger(lanes: Lanes) -> Ledger:
    """The exposed time of each class of ranks, summed along its compute chain.

    A kernel counts as its kind; a collective that compute waits for as its kind, the wait for late peers of
    the same stage included. A gap counts as ``pp`` while the message that ends it is in flight, as the kind
    of another chain of this rank if that one ends it (an overlapped reduction), and else as bubble; waiting
    for another stage is bubble, also inside a collective. After the last span comes what other chains of the
    rank still do, then bubble.
    """
    seconds = np.zeros((lanes.trace.classes, BUBBLE + 1))
    waiting = np.zeros((lanes.trace.classes, len(KINDS)))
    waits: dict[tuple[int, int, str], Fraction] = {}
    for c, lane in enumerate(lanes.compute):
        seconds[c, :BUBBLE] = lane.seconds.sum(0) + lane.held.sum(0)
        waiting[c] = lane.held.sum(0)
        _gaps(lanes, lane, seconds[c], waiting[c], waits)
        _posted(lanes, lane, seconds[c], waiting[c], waits)
        _tail(lanes, lane, seconds[c])
    stage_ranks = np.bincount(lanes.stage, lanes.count, lanes.stages)
    mean = (Wait(stage=s, source=o, what=w, seconds=float(t / int(stage_ranks[s]))) for (s, o, w), t in waits.items())
    return Ledger(seconds=seconds, waiting=waiting, waits=tuple(sorted(mean, key=lambda w: (w.stage, -w.seconds))))


def gaps(lane: Lane) -> tuple[Floats, Floats]:
    """When the chain went idle before each row, and for how long."""
    idle_from = np.concatenate([[0.0], lane.end[:-1]])[: len(lane)]
    return idle_from, lane.posted - idle_from


def _gaps(
    lanes: Lanes, lane: Lane, seconds: Floats, waiting: Floats, waits: dict[tuple[int, int, str], Fraction]
) -> None:
    """Idle time between rows: the chain waited for an event."""
    idle_from, gap = gaps(lane)
    rows = np.flatnonzero(gap > 0)
    cause = lanes.gap_cause(lane)[rows]
    known = cause >= 0
    seconds[BUBBLE] += gap[rows[~known]].sum()
    rows, cause = rows[known], cause[known]
    chain = lanes.chain_of[cause]
    running = np.clip(lanes.row_end[cause] - np.maximum(lanes.row_start[cause], idle_from[rows]), 0.0, gap[rows])
    for k in np.unique(chain).tolist():
        of = chain == k
        source = lanes.all[k]
        if source.is_messages:
            seconds[COLUMN["pp"]] += running[of].sum()
            seconds[BUBBLE] += (gap[rows[of]] - running[of]).sum()
            own = source.owner == lane.owner
            what = "own messages" if own else source.name.removeprefix("send:")
        elif source.owner == lane.owner and source.name != "compute":
            kind, late = lanes.row_last[cause[of]], gap[rows[of]] - running[of]
            seconds[: len(KINDS)] += np.bincount(kind, gap[rows[of]], len(KINDS))
            waiting += np.bincount(kind, late, len(KINDS))
            what = source.name
        else:
            seconds[BUBBLE] += gap[rows[of]].sum()
            what = "peers"
        _note(lanes, lane, source.owner, what, float(gap[rows[of]].sum()), waits)


def _posted(
    lanes: Lanes, lane: Lane, seconds: Floats, waiting: Floats, waits: dict[tuple[int, int, str], Fraction]
) -> None:
    """Time between posting a collective and its start: somebody else was late."""
    late = lane.start - lane.posted
    rows = np.flatnonzero(late > 0)
    cause, kind = lane.cause[rows], lane.first[rows]
    source = np.where(cause >= 0, lanes.chain_of[cause], lane.number)
    owner = np.array([one.owner for one in lanes.all])[source]
    elsewhere = lanes.stage[owner] != lanes.stage[lane.owner]
    seconds[BUBBLE] += late[rows[elsewhere]].sum()
    same = np.bincount(kind[~elsewhere], late[rows[~elsewhere]], len(KINDS))
    seconds[: len(KINDS)] += same
    waiting += same
    names = [lanes.trace.runs[run].labels[0].name for run in lane.run[rows].tolist()]
    for c, name in sorted(set(zip(owner.tolist(), names, strict=True))):
        of = (owner == c) & np.array([one == name for one in names])
        _note(lanes, lane, c, name, float(late[rows[of]].sum()), waits)


def _tail(lanes: Lanes, lane: Lane, seconds: Floats) -> None:
    """After the last span of the compute chain: what other chains of the rank still do, then idle."""
    at = float(lane.end[-1]) if len(lane) else 0.0
    later = sorted((float(o.end[-1]), int(o.last[-1])) for o in lanes.others[lane.owner] if len(o))
    for end, kind in later:
        if end > at:
            seconds[kind] += end - at
            at = end
    seconds[BUBBLE] += lanes.step - at


def _note(
    lanes: Lanes, lane: Lane, owner: int, what: str, total: float, waits: dict[tuple[int, int, str], Fraction]
) -> None:
    key = (int(lanes.stage[lane.owner]), int(lanes.stage[owner]), what)
    waits[key] = waits.get(key, Fraction(0)) + Fraction(total) * int(lanes.count[lane.owner])


def mean(seconds: Floats, count: Ints, total: float) -> Floats:
    """The mean over ranks of seconds per class and column, in ticks so that the columns sum to *total*
    exactly.

    >>> float(mean(np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([1, 2]), 3.0).sum())
    3.0
    """
    ranks = int(count.sum())
    sums = [
        sum(Fraction(float(s)) * int(n) for s, n in zip(column, count, strict=True)) / ranks for column in seconds.T
    ]
    tick = Fraction(TICK) if total < 4096 else Fraction(TICK) * 16
    whole = [s // tick for s in sums]
    missing = int(Fraction(total) / tick) - sum(whole)
    if missing:
        whole[max(range(len(whole)), key=whole.__getitem__)] += missing
    return np.array([float(w * tick) for w in whole])


def breakdown(lanes: Lanes, book: Ledger, *, stage: int | None = None) -> dict[str, float]:
    """Exposed seconds of the mean rank (of one stage, or of all) under the keys of PARTS; sums to the step
    exactly."""
    which = np.flatnonzero(lanes.stage == stage) if stage is not None else np.arange(lanes.trace.classes)
    columns = [[COLUMN[k] for k in kinds] if part != "bubble" else [BUBBLE] for part, kinds in PARTS.items()]
    table = np.stack([book.seconds[which][:, of].sum(1) for of in columns], axis=1)
    return dict(zip(PARTS, mean(table, lanes.count[which], lanes.step).tolist(), strict=True))


def by_kind(lanes: Lanes, table: Floats) -> dict[str, float]:
    """A table of seconds per class and kind as the mean over ranks, kind by kind."""
    weight = lanes.count / lanes.ranks
    return dict(zip((*KINDS, "bubble"), (table * weight[:, None]).sum(0).tolist(), strict=False))


def heaviest(parts: dict[str, float], among: Sequence[str] | None = None) -> str:
    """The part that takes most of the time."""
    return max(among or parts, key=lambda part: parts[part])
