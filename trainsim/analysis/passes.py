"""What a rank's compute chain looks like from afar: its passes as intervals, and what it does at one moment."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trainsim.analysis.kinds import BACKWARD, PASSES
from trainsim.analysis.lanes import Floats, Ints, Lanes

NAMES = {"F": "forward", "B": "backward", "I": "backward (inputs)", "W": "backward (weights)"}
"""Passes of a schedule for people."""


class TaskTable(NamedTuple):
    """The tasks of a compute chain as columns; times in seconds."""

    work: tuple[str, ...]
    chunk: Ints
    microbatch: Ints
    start: Floats
    end: Floats


class Passes(NamedTuple):
    """The passes of a compute chain as columns, by start; one that takes turns with another is whole again.

    ``half`` is 1 for the forward and -1 for the backward of two that run at once, and 0 for all others.
    """

    work: tuple[str, ...]
    chunk: Ints
    microbatch: Ints
    start: Floats
    end: Floats
    half: Ints


class UpdateSpan(NamedTuple):
    """A kernel or collective outside the passes; seconds."""

    kind: str
    name: str
    start: float
    end: float


def update_spans(lanes: Lanes, c: int) -> tuple[UpdateSpan, ...]:
    """What class *c* does in its compute chain outside the passes of the schedule: reductions, optimizer, ..."""
    lane, labels = lanes.compute[c], lanes.trace.labels
    spans = lanes.trace.spans_of(lane.number, np.flatnonzero(~lane.in_pass))
    return tuple(
        UpdateSpan(labels[k].kind, labels[k].name, start, end)
        for k, start, end in zip(spans.label.tolist(), spans.start.tolist(), spans.end.tolist(), strict=True)
    )


def tasks_of(lanes: Lanes, c: int) -> TaskTable:
    """The tasks of class *c* in order; a task that only waits has no length."""
    lane, facts = lanes.compute[c], lanes.trace.facts
    tasks = lanes.trace.tasks[lane.number]
    start, end = lanes.trace.task_times(lane.number)
    return TaskTable(
        work=lanes.works(lane),
        chunk=np.array([fact.chunk for fact in facts], np.int64)[tasks.facts],
        microbatch=tasks.microbatch,
        start=start,
        end=end,
    )


def passes_of(lanes: Lanes, c: int) -> Passes:
    """The passes of class *c*: segments of one pass joined."""
    tasks = tasks_of(lanes, c)
    first, last = _segments(lanes, c, tasks)
    start, end = tasks.start[first], tasks.end[last]
    paired = last > first
    overlap = (start[1:] < end[:-1]) & (paired[1:] | paired[:-1])
    together = np.append(overlap, False) | np.append(False, overlap) if len(first) else paired
    work = tuple(map(tasks.work.__getitem__, first.tolist()))
    forward = np.array([name == "F" for name in work], bool)
    return Passes(
        work=work,
        chunk=tasks.chunk[first],
        microbatch=tasks.microbatch[first],
        start=start,
        end=end,
        half=np.where(together, np.where(forward, 1, -1), 0),
    )


def _segments(lanes: Lanes, c: int, tasks: TaskTable) -> tuple[Ints, Ints]:
    """Of each pass of class *c*, in order, its first and its last task."""
    facts = lanes.trace.tasks[lanes.compute[c].number].facts
    names = [fact.work if fact.work in PASSES else "" for fact in lanes.trace.facts]
    known = list(dict.fromkeys(names))
    work = np.array([known.index(name) for name in names], np.int64)[facts]
    which = np.flatnonzero(np.array([bool(name) for name in names], bool)[facts])
    if not len(which):
        return which, which
    # Work, chunk and microbatch as one number: tasks with the same number are segments of one pass.
    chunks, microbatches = int(tasks.chunk.max()) + 1, int(tasks.microbatch.max()) + 1
    key = ((work * chunks + tasks.chunk) * microbatches + tasks.microbatch)[which]
    _, first = np.unique(key, return_index=True)
    _, last = np.unique(key[::-1], return_index=True)
    order = np.argsort(first, kind="stable")
    return which[first[order]], which[(len(key) - 1 - last)[order]]


def in_flight(tasks: TaskTable) -> int:
    """The most chunks of microbatches that are kept at once, from the start of a forward to the end of its backward.

    >>> zeros = np.zeros(4)
    >>> in_flight(TaskTable(("F", "F", "B", "B"), zeros, np.array([0, 1, 0, 1]), zeros, zeros))
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


class Moment(NamedTuple):
    """The pass of a rank's compute chain at one moment, or what it does outside the passes.

    ``phase`` is a value of NAMES, ``rollout`` for all before the passes, or ``update`` for all that follows them;
    ``microbatch`` and ``chunk`` are -1 outside passes. ``idle``: the pass is over and the next has not begun.
    ``chunks`` are those of the rank.
    """

    phase: str
    microbatch: int = -1
    chunk: int = -1
    idle: bool = False
    chunks: int = 1

    def __str__(self) -> str:
        """
        >>> str(Moment("forward", 3, 0)), str(Moment("backward", 0, 1, idle=True, chunks=2))
        ('in forward of microbatch 3', 'after backward of microbatch 0, chunk 1')
        >>> str(Moment("update")), str(Moment("start"))
        ('in the update after the passes', 'at the start of the step')
        """
        if self.phase == "update":
            return "in the update after the passes"
        if self.phase == "rollout":
            return "in the rollout before the passes"
        if self.phase == "start":
            return "at the start of the step"
        chunk = f", chunk {self.chunk}" if self.chunks > 1 else ""
        return f"{'after' if self.idle else 'in'} {self.phase} of microbatch {self.microbatch}{chunk}"


def moment(lanes: Lanes, rank: int, at: float) -> Moment:
    """What *rank* does at *at* (seconds). Where one pass ends as the next begins, it is the next."""
    c = int(lanes.trace.rank_class[rank])
    passes = passes_of(lanes, c)
    begun = np.flatnonzero((passes.start <= at) & (passes.end > passes.start))
    lane = lanes.compute[c]
    if (lane.generates & (lane.posted <= at) & (at < lane.end)).any():
        return Moment("rollout")
    if any(span.start <= at < span.end for span in update_spans(lanes, c)):
        return Moment("update")
    if not len(begun):
        return Moment("start")
    running = begun[passes.end[begun] > at]
    last = running[-1] if len(running) else begun[passes.end[begun].argmax()]
    return _pass(passes, int(last), idle=not len(running) and bool(passes.end[last] < at - lanes.trace.tick))


def _pass(passes: Passes, k: int, *, idle: bool) -> Moment:
    chunks = int(passes.chunk.max()) + 1
    return Moment(NAMES[passes.work[k]], int(passes.microbatch[k]), int(passes.chunk[k]), idle, chunks)
