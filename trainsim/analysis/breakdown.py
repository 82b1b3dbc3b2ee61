"""Where the step goes: every instant of every rank's compute chain belongs to exactly one kind."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from trainsim.analysis.idle import WORK, done, gaps, worked_beside
from trainsim.analysis.kinds import COLUMN, PARTS
from trainsim.analysis.lanes import Bools, Floats, Ints, Lane, Lanes
from trainsim.contracts.exact import TICK
from trainsim.contracts.instructions import KINDS
from trainsim.contracts.record import COMPUTE

BUBBLE = len(KINDS)
"""The column of idle time, after those of the kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWait:
    """What one stage waits for: ``source`` is the stage that is late (or its own), ``seconds`` per step of the
    mean rank."""

    stage: int
    source: int
    what: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ledger:
    """Seconds of all steps per class (rows) and kind (columns: KINDS, then the bubble). ``waiting`` is the part of
    ``seconds`` in which nothing of that kind was under way: a peer of the same stage was late. ``ending`` is the part
    of the bubble (per class) at the end of steps: waiting for other stages in what all do together before the update.
    """

    seconds: Floats
    waiting: Floats
    ending: Floats
    waits: tuple[StageWait, ...]


def ledger(lanes: Lanes) -> Ledger:
    """The exposed time of each class of ranks, summed along its compute chain.

    A kernel counts as its kind; a collective that compute waits for as its kind, the wait for late peers of
    the same stage included. A gap counts as ``pp`` while the message that ends it is in flight, as the kinds
    that another chain of this rank ran if that one ends it (an overlapped reduction), as forward and backward where
    another chain of this rank worked, and else as bubble; waiting for another stage is bubble, also inside a
    collective. After the last span comes what other chains of the rank still do, then bubble.
    """
    account = _Account(lanes)
    for lane in lanes.compute:
        account.enter(lane)
    return Ledger(seconds=account.seconds, waiting=account.waiting, ending=account.ending, waits=account.mean_waits())


class _Account:
    """Fills a ledger, one compute chain after the other."""

    def __init__(self, lanes: Lanes):
        self.lanes = lanes
        self.seconds = np.zeros((lanes.trace.classes, BUBBLE + 1))
        self.waiting = np.zeros((lanes.trace.classes, len(KINDS)))
        self.ending = np.zeros(lanes.trace.classes)
        self._waits: dict[tuple[int, int, str], Fraction] = {}

    def enter(self, lane: Lane) -> None:
        """Every instant of one chain."""
        self.seconds[lane.owner, :BUBBLE] = lane.seconds.sum(0) + lane.held.sum(0)
        self.waiting[lane.owner] = lane.held.sum(0)
        at_end = np.isin(lane.task, self.lanes.updates[lane.owner])
        self._gaps(lane, ~at_end)
        self._late(lane, ~at_end)
        before = float(self.seconds[lane.owner, BUBBLE])
        self._gaps(lane, at_end)
        self._late(lane, at_end)
        self._tail(lane)
        self.ending[lane.owner] = float(self.seconds[lane.owner, BUBBLE]) - before

    def mean_waits(self) -> tuple[StageWait, ...]:
        """Per stage, the longest first; seconds of its mean rank."""
        ranks = np.bincount(self.lanes.stage, self.lanes.count, self.lanes.stages)
        waits = [
            StageWait(
                stage=stage, source=source, what=what, seconds=float(total / int(ranks[stage]) / self.lanes.steps)
            )
            for (stage, source, what), total in self._waits.items()
        ]
        return tuple(sorted(waits, key=lambda wait: (wait.stage, -wait.seconds)))

    def _gaps(self, lane: Lane, which: Bools) -> None:
        """Idle time before rows: the chain waited for an event."""
        lanes = self.lanes
        idle_from, gap = gaps(lane)
        rows = np.flatnonzero((gap > 0) & which)
        cause = lanes.gap_cause(lane)[rows]
        known = cause >= 0
        self._idle(lane, idle_from[rows[~known]], gap[rows[~known]], gap[rows[~known]])
        rows, cause = rows[known], cause[known]
        chain = lanes.chain_of[cause]
        for k in np.unique(chain).tolist():
            of = chain == k
            self._gap(lane, lanes.all[k], (idle_from[rows[of]], gap[rows[of]]), cause[of])

    def _gap(self, lane: Lane, source: Lane, gaps_of: tuple[Floats, Floats], cause: Ints) -> None:
        """Gaps (since when, how long) that ended with the rows *cause* of *source*."""
        lanes, (since, gap) = self.lanes, gaps_of
        seconds, total, own = self.seconds[lane.owner], float(gap.sum()), source.owner == lane.owner
        if source.is_messages:
            running = np.clip(lanes.row_end[cause] - np.maximum(lanes.row_start[cause], since), 0.0, gap)
            seconds[COLUMN["pp"]] += running.sum()
            self._idle(lane, since, gap, gap - running)
            self._note(lane, source.owner, "own messages" if own else lanes.trace.title(source.name), total)
        elif own and source.name != COMPUTE:
            self._beside(lane, source, lanes.row_last[cause], since, since + gap)
            self._note(lane, source.owner, source.name, total)
        else:
            self._idle(lane, since, gap, gap)
            self._note(lane, source.owner, "peers", total)

    def _idle(self, lane: Lane, since: Floats, gap: Floats, idle: Floats) -> None:
        """Gaps of which *idle* seconds are bubble, less what another chain of the rank worked meanwhile."""
        seconds = self.seconds[lane.owner]
        work = worked_beside(self.lanes, lane, since, gap)
        work *= np.minimum(1.0, idle / np.maximum(work.sum(1), self.lanes.trace.tick))[:, None]
        seconds[WORK] += work.sum(0)
        seconds[BUBBLE] += idle.sum() - work.sum()

    def _beside(self, lane: Lane, other: Lane, kind: Ints, since: Floats, until: Floats) -> None:
        """Intervals in which compute waited for another chain of its rank: time of the kinds that ran on it, and where
        none ran waiting of *kind*, the one that ended the wait."""
        work = worked_beside(self.lanes, lane, since, until - since)
        rest = until - since - work.sum(1)
        self.seconds[lane.owner, WORK] += work.sum(0)
        for column in np.flatnonzero(other.seconds.any(0)).tolist():
            if column not in WORK:
                ran = np.clip(
                    done(self.lanes, other, column, until) - done(self.lanes, other, column, since), 0.0, rest
                )
                self.seconds[lane.owner, column] += ran.sum()
                rest = rest - ran
        late = np.bincount(kind, rest, BUBBLE)
        self.seconds[lane.owner, :BUBBLE] += late
        self.waiting[lane.owner] += late

    def _late(self, lane: Lane, which: Bools) -> None:
        """Time between posting a collective and its start: somebody else was late."""
        lanes, late = self.lanes, lane.start - lane.posted
        rows = np.flatnonzero((late > 0) & which)
        cause, kind = lane.cause[rows], lane.first[rows]
        source = np.where(cause >= 0, lanes.chain_of[cause], lane.number)
        owner = lanes.chain_owner[source]
        elsewhere = lanes.stage[owner] != lanes.stage[lane.owner]
        same = np.bincount(kind[~elsewhere], late[rows[~elsewhere]], BUBBLE)
        self.seconds[lane.owner, BUBBLE] += late[rows[elsewhere]].sum()
        self.seconds[lane.owner, :BUBBLE] += same
        self.waiting[lane.owner] += same
        names = [lanes.trace.runs[run].labels[0].name for run in lane.run[rows].tolist()]
        for c, name in sorted(set(zip(owner.tolist(), names, strict=True))):
            of = (owner == c) & (np.array(names, object) == name)
            self._note(lane, c, name, float(late[rows[of]].sum()))

    def _tail(self, lane: Lane) -> None:
        """After the last span of the compute chain: what other chains of the rank still do, then idle."""
        seconds, at = self.seconds[lane.owner], float(lane.end[-1]) if len(lane) else 0.0
        for other in sorted((o for o in self.lanes.others[lane.owner] if len(o)), key=lambda o: float(o.end[-1])):
            end = float(other.end[-1])
            if end > at:
                self._beside(lane, other, other.last[-1:], np.array([at]), np.array([end]))
                at = end
        seconds[BUBBLE] += self.lanes.duration - at

    def _note(self, lane: Lane, owner: int, what: str, total: float) -> None:
        key = (int(self.lanes.stage[lane.owner]), int(self.lanes.stage[owner]), what)
        self._waits[key] = self._waits.get(key, Fraction(0)) + Fraction(total) * int(self.lanes.count[lane.owner])


def mean(seconds: Floats, count: Ints, total: float, steps: int = 1, tick: float = TICK) -> Floats:
    """The mean over ranks and steps of seconds per class and column, in whole ticks, so that the columns sum to *total*
    exactly.

    >>> float(mean(np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([1, 2]), 3.0).sum())
    3.0
    """
    ranks, grain = int(count.sum()) * steps, Fraction(tick)
    sums = [
        sum(Fraction(float(s)) * int(n) for s, n in zip(column, count, strict=True)) / ranks for column in seconds.T
    ]
    whole = [s // grain for s in sums]
    missing = int(Fraction(total) / grain) - sum(whole)
    if missing:
        whole[max(range(len(whole)), key=whole.__getitem__)] += missing
    return np.array([float(w * grain) for w in whole])


def breakdown(lanes: Lanes, book: Ledger, *, stage: int | None = None) -> dict[str, float]:
    """Exposed seconds per step of the mean rank (of one stage, or of all) under the keys of PARTS; sums to the
    step exactly."""
    which = np.flatnonzero(lanes.stage == stage) if stage is not None else np.arange(lanes.trace.classes)
    columns = [[COLUMN[k] for k in kinds] if part != "bubble" else [BUBBLE] for part, kinds in PARTS.items()]
    table = np.stack([book.seconds[which][:, of].sum(1) for of in columns], axis=1)
    means = mean(table, lanes.count[which], lanes.step, lanes.steps, lanes.trace.tick)
    return dict(zip(PARTS, means.tolist(), strict=True))


def waiting(lanes: Lanes, book: Ledger) -> dict[str, float]:
    """Seconds per step of the mean rank, under the keys of PARTS, in which it waited for peers that were late; under
    ``bubble`` what it waited at the end of the step. Each is a part of the breakdown's row.
    """
    share = lanes.count / (lanes.ranks * lanes.steps)
    late = share @ book.waiting
    out = {part: float(sum(late[COLUMN[kind]] for kind in kinds)) for part, kinds in PARTS.items()}
    return {**out, "bubble": float(share @ book.ending)}
