"""What a rank's compute chain looks like from afar: its passes as intervals, and the idle time between them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trainsim.analysis.kinds import BACKWARD, PASSES
from trainsim.analysis.lanes import Floats, Ints, Lanes
from trainsim.analysis.memory import task_bounds
from trainsim.analysis.passes import gaps
from trainsim.contracts.instructions import KINDS


class Slots(NamedTuple):
    """The tasks of a compute chain as columns: times in seconds, and seconds in spans per kind (tasks x KINDS)."""

    work: tuple[str, ...]
    chunk: Ints
    microbatch: Ints
    start: Floats
    end: Floats
    seconds: Floats


class Passes(NamedTuple):
    """The passes of a compute chain as columns, by start; one that takes turns with another is whole again.

    ``half`` is 1 for the forward and -1 for the backward of two that run at once, and 0 for all others. ``seconds`` are
    those in spans per kind (passes x KINDS).
    """

    work: tuple[str, ...]
    chunk: Ints
    microbatch: Ints
    start: Floats
    end: Floats
    seconds: Floats
    half: Ints


class Idle(NamedTuple):
    """Intervals (seconds) in which a chain does nothing. ``source`` is the stage it waits for, -1 if none is known;
    ``what`` names the chain that ends the wait (``pp-forward``, ``dp``, ...) or is ``peers`` of a collective."""

    start: Floats
    end: Floats
    source: Ints
    what: tuple[str, ...]


class Piece(NamedTuple):
    """A kernel or collective outside the passes; seconds."""

    kind: str
    name: str
    start: float
    end: float


def update(lanes: Lanes, c: int) -> tuple[Piece, ...]:
    """What class *c* does in its compute chain outside the passes of the schedule: reductions, optimizer, ..."""
    lane = lanes.compute[c]
    marks = lanes.trace.rows[lane.number].marks
    out = []
    for row in np.flatnonzero(~lane.in_pass).tolist():
        run, at = lanes.trace.runs[int(lane.run[row])], float(lane.start[row])
        ends = marks.get(row) or [at + end for end in run.ends]
        starts = [at, *ends[:-1]] if row in marks else [at + start for start in run.starts]
        out += [Piece(label.kind, label.name, a, b) for label, a, b in zip(run.labels, starts, ends, strict=True)]
    return tuple(out)


def slots(lanes: Lanes, c: int) -> Slots:
    """The tasks of class *c* in order; a task that only waits has no length."""
    lane, tasks = lanes.compute[c], lanes.trace.tasks[lanes.compute[c].number]
    start, end = task_bounds(lane, lanes.trace.rows[lane.number].tasks)
    seconds = np.zeros((len(tasks), len(KINDS)))
    np.add.at(seconds, lane.task, lane.seconds + lane.held)
    return Slots(
        work=tuple(t.template.work for t in tasks),
        chunk=np.array([t.template.chunk for t in tasks], np.int64),
        microbatch=np.array([t.microbatch for t in tasks], np.int64),
        start=start,
        end=end,
        seconds=seconds,
    )


def whole(tasks: Slots) -> Passes:
    """The passes of *tasks*: segments of one pass joined."""
    segments: dict[tuple[str, int, int], list[int]] = {}
    for k, key in enumerate(zip(tasks.work, tasks.chunk.tolist(), tasks.microbatch.tolist(), strict=True)):
        if key[0] in PASSES:
            segments.setdefault(key, []).append(k)
    first, last = (np.array([some[place] for some in segments.values()], np.int64) for place in (0, -1))
    seconds = np.array([tasks.seconds[some].sum(0) for some in segments.values()]).reshape(-1, len(KINDS))
    start, end = tasks.start[first], tasks.end[last]
    paired = np.array([last[k] > first[k] for k in range(len(first))], bool)
    overlap = (start[1:] < end[:-1]) & (paired[1:] | paired[:-1])
    together = np.append(overlap, False) | np.append(False, overlap) if len(first) else paired
    forward = np.array([key[0] == "F" for key in segments], bool)
    return Passes(
        work=tuple(key[0] for key in segments),
        chunk=tasks.chunk[first],
        microbatch=tasks.microbatch[first],
        start=start,
        end=end,
        seconds=seconds,
        half=np.where(together, np.where(forward, 1, -1), 0),
    )


def in_flight(tasks: Slots) -> int:
    """The most chunks of microbatches that are kept at once, from the start of a forward to the end of its backward.

    >>> one = np.zeros(4)
    >>> in_flight(Slots(("F", "F", "B", "B"), one, np.array([0, 1, 0, 1]), one, one, one))
    2
    """
    last: dict[tuple[int, int], int] = {}
    keys = list(zip(tasks.chunk.tolist(), tasks.microbatch.tolist(), strict=True))
    for k, work in enumerate(tasks.work):
        if work in BACKWARD:
            last[keys[k]] = k
    held: set[tuple[int, int]] = set()
    most = 0
    for k, work in enumerate(tasks.work):
        if work == "F":
            held.add(keys[k])
        most = max(most, len(held))
        if last.get(keys[k]) == k:
            held.discard(keys[k])
    return most


def idle(lanes: Lanes, c: int) -> Idle:
    """When class *c* waits, by start: for events between rows, and for late peers between posting and starting."""
    lane = lanes.compute[c]
    since, length = gaps(lane)
    rows, late = np.flatnonzero(length > 0), np.flatnonzero(lane.start > lane.posted)
    start = np.concatenate([since[rows], lane.posted[late], lane.end[-1:]])
    end = np.concatenate([lane.posted[rows], lane.start[late], [lanes.duration] * min(1, len(lane))])
    cause = np.concatenate([lanes.gap_cause(lane)[rows], lane.cause[late], np.full(min(1, len(lane)), -1, np.int64)])
    chain = np.where(cause >= 0, lanes.chain_of[cause], -1)
    owner = np.array([one.owner for one in lanes.all], np.int64)
    source = np.where(chain >= 0, lanes.stage[owner[chain]], -1)
    names = [lanes.trace.title(lanes.all[k].name) if k >= 0 else "" for k in chain.tolist()]
    what = [*names[: len(rows)], *("peers" for _ in late), ""]
    order = np.argsort(start, kind="stable")
    order = order[end[order] > start[order]]
    return Idle(start[order], end[order], source[order], tuple(what[k] for k in order.tolist()))
