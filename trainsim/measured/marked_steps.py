"""Steps that a profiler marks (``ProfilerStep#5``), and which of them is read."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import NamedTuple

from trainsim.contracts.measured_trace import MarkedStep
from trainsim.errors import ScenarioError
from trainsim.measured.reader import TraceRequest
from trainsim.measured.trace_events import NANOSECOND, Event

NAME = re.compile(r"ProfilerStep\s*#\s*(\d+)")
MARKING = ("user_annotation", "gpu_user_annotation", "operator", "cpu_op")
"""Kinds of events that mark steps: annotations, and operators in older files."""
NONE = -1
"""The step of what lies in none."""


class Mark(NamedTuple):
    """One step of one process, nanoseconds."""

    number: int
    begin_ns: int
    end_ns: int


class StepMarks:
    """The steps that the processes of a file mark: on the host, by process, and on GPUs, by process of theirs."""

    def __init__(self, events: Sequence[Event]):
        self.host: dict[str, list[Mark]] = {}
        self.device: dict[str, list[Mark]] = {}
        for event in events:
            found = NAME.match(event.name)
            if found and event.kind in MARKING:
                marks = self.device if event.kind.startswith("gpu") else self.host
                mark = Mark(int(found[1]) % (1 << 40), event.begin_ns, event.end_ns)
                marks.setdefault(event.thread[0], []).append(mark)
        for own in (*self.host.values(), *self.device.values()):
            own.sort(key=lambda mark: mark.begin_ns)

    def step_of(self, event: Event, launched_ns: int, process: str) -> int:
        """The number of the step that *event* of a GPU belongs to: that in which it was launched, or else in which it
        began."""
        if launched_ns >= 0 and process in self.host:
            return _at(self.host[process], launched_ns)
        if event.thread[0] in self.device:
            return _at(self.device[event.thread[0]], event.begin_ns)
        return _at(next(iter(self.host.values()), []), event.begin_ns)

    def lengths(self) -> dict[int, float]:
        """Seconds of each step, as the mean of those who mark it."""
        found: dict[int, list[float]] = {}
        for own in (self.host or self.device).values():
            for mark in own:
                found.setdefault(mark.number, []).append((mark.end_ns - mark.begin_ns) * NANOSECOND)
        return {number: mean(times) for number, times in found.items()}


def _at(marks: Sequence[Mark], at: int) -> int:
    k = bisect_right(marks, at, key=lambda mark: mark.begin_ns) - 1
    return marks[k].number if k >= 0 and at < marks[k].end_ns else NONE


class ChosenSteps(NamedTuple):
    """Numbers of the steps that are read (None: there are none, all is read), all that are marked, and words on it."""

    numbers: tuple[int, ...] | None
    marked: tuple[MarkedStep, ...]
    part: str


def chosen_steps(lengths: Mapping[int, float], whole: Sequence[int], request: TraceRequest) -> ChosenSteps:
    """Which of the marked steps (number -> seconds) to read; *whole* are those in which every rank did something.

    Raises ScenarioError for a step that is not there.
    """
    if not lengths or not whole:
        if isinstance(request.step, int):
            raise ScenarioError(
                f"step {request.step}: no step marked in the files has kernels; leave it out to read everything"
            )
        return ChosenSteps(None, (), "everything in the files (no steps are marked)")
    if isinstance(request.step, int) and request.step not in whole:
        known = ", ".join(map(str, sorted(whole)))
        raise ScenarioError(f"step {request.step}: the files have kernels of steps {known}")
    ordered = sorted(whole, key=lambda number: lengths.get(number, 0.0))
    middle = ordered[(len(ordered) - 1) // 2]
    numbers: tuple[int, ...] = (request.step,) if isinstance(request.step, int) else (middle,)
    if request.step == "all":
        numbers = tuple(sorted(whole))
    every = ", ".join(map(str, sorted(whole)))
    part = f"step {numbers[0]}" if len(numbers) == 1 else f"steps {every} back to back"
    if request.step is None and len(whole) > 1:
        part += f", of median length among steps {every}"
    marked = tuple(MarkedStep(number, lengths[number], number in numbers) for number in sorted(lengths))
    return ChosenSteps(numbers, marked, part)
