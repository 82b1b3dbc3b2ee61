"""
When each operation of a step starts and ends, for many steps and durations at once: the longest way through what waits.

This gives what the engine gives, to the last bit, since times are whole ticks; it plays nothing, so that it can try
dozens of sets of durations on every step. Timelines that are shown are played by the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trainsim.contracts.exact import TICK
from trainsim.diagnosis.operations import TYPES, Floats, Ints
from trainsim.diagnosis.structure import StepStructure
from trainsim.errors import InvalidData


class MeetingLevel(NamedTuple):
    """Meetings that nothing but earlier levels let start: what they wait for (those of each from ``begins`` on), and
    their ``operations``, with the meeting of each."""

    waits: Ints
    begins: Ints
    operations: Ints
    meeting: Ints


class SolvedSteps(NamedTuple):
    """Operations x columns of durations: when each was posted, when all of its meeting were, and when it ended."""

    posted: Floats
    start: Floats
    end: Floats


@dataclass(frozen=True, eq=False)
class StepSolver:
    """The meetings of a structure, level by level. ``waits`` and ``begins``: what each operation waits for itself; the
    place behind the last operation is the beginning of the step."""

    levels: tuple[MeetingLevel, ...]
    waits: Ints
    begins: Ints

    @classmethod
    def of(cls, structure: StepStructure) -> StepSolver:
        """Raises InvalidData for operations that wait for each other."""
        size = len(structure)
        members: list[list[int]] = [[] for _ in structure.meetings]
        for k, meeting in enumerate(structure.meeting.tolist()):
            members[meeting].append(k)
        flat, begins = _flat([some or (size,) for some in structure.waits])
        levels = [_level(some, members, structure) for some in _by_level(members, structure)]
        return cls(tuple(levels), flat, begins)

    def solve(self, durations: Floats) -> SolvedSteps:
        """Play *durations* (operations x columns, seconds): of compute its own, of a communication what it takes after
        the last of its meeting has posted it."""
        ends = self.ends(durations)
        posted = self.ready(ends)
        start = ends - rounded(durations)
        return SolvedSteps(posted, start, ends)

    def ends(self, durations: Floats) -> Floats:
        """When each operation ends."""
        took = rounded(durations)
        end = np.zeros((len(took) + 1, took.shape[1]))
        for level in self.levels:
            start = np.maximum.reduceat(end[level.waits], level.begins, axis=0)
            end[level.operations] = start[level.meeting] + took[level.operations]
        return end[:-1]

    def ready(self, ends: Floats) -> Floats:
        """When the last of what each operation waits for itself has ended."""
        padded = np.concatenate([ends, np.zeros((1, ends.shape[1]))])
        ready: Floats = np.maximum.reduceat(padded[self.waits], self.begins, axis=0)
        return ready


def rounded(durations: Floats) -> Floats:
    """Whole ticks."""
    whole: Floats = np.round(durations / TICK) * TICK
    return whole


def _level(some: Sequence[int], members: Sequence[Sequence[int]], structure: StepStructure) -> MeetingLevel:
    size = len(structure)
    waits, begins = _flat([[w for k in members[m] for w in structure.waits[k]] or (size,) for m in some])
    operations = np.array([k for m in some for k in members[m]], np.int64)
    meeting = np.repeat(np.arange(len(some)), [len(members[m]) for m in some])
    return MeetingLevel(waits, begins, operations, meeting)


def _flat(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    sizes = np.array([len(some) for some in lists], np.int64)
    return np.array([k for some in lists for k in some], np.int64), np.cumsum(sizes) - sizes


def _by_level(members: Sequence[Sequence[int]], structure: StepStructure) -> list[list[int]]:
    """Meetings by how many others have to be over before them."""
    meeting = structure.meeting.tolist()
    before = [{meeting[w] for k in some for w in structure.waits[k]} for some in members]
    after: list[list[int]] = [[] for _ in members]
    missing = [len(some) for some in before]
    for m, some in enumerate(before):
        for other in some:
            after[other].append(m)
    levels = [[m for m, count in enumerate(missing) if not count]]
    done = 0
    while levels[-1]:
        done += len(levels[-1])
        following = []
        for m in levels[-1]:
            for other in after[m]:
                missing[other] -= 1
                if not missing[other]:
                    following.append(other)
        levels.append(following)
    if done < len(members):
        raise InvalidData(
            f"its operations wait for each other in a cycle, such as {_words(members, missing, structure)}; "
            "check start_ts, mb_id and gmc"
        )
    return levels[:-1]


def _words(members: Sequence[Sequence[int]], missing: Sequence[int], structure: StepStructure) -> str:
    """Some operations of those that never start."""
    stuck = [members[m][0] for m, count in enumerate(missing) if count][:3]
    return ", ".join(
        f"{TYPES[structure.type[k]]} of dp_rank {structure.dp_rank[k]}, stage {structure.stage[k]}" for k in stuck
    )
