"""
One clock for files of several machines: the end of a collective is the same moment on all ranks that take part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from trainsim.contracts.instructions import SEND
from trainsim.measured.activities import GpuActivity

TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Operations that end on all ranks at once."""
ALIKE_NS = 1_000_000
"""Nanoseconds by which ends of one collective may differ on its ranks, from their median."""
CLOSE_NS = 500_000
"""The same where it is not known which collective is which."""
MOST_COMPARED = 400
"""Collectives of a group and step that are compared with each other then."""
Meeting = tuple[tuple[int, GpuActivity], ...]
"""One collective as each of its ranks saw it."""


class Clocks(NamedTuple):
    """Nanoseconds by which the clock of each rank was put later; by how much ends of one collective still differ in
    the median; the ranks that share no collective with the others, whose clocks are as they were."""

    shift: dict[int, int]
    apart_ns: int
    alone: tuple[int, ...]


def meetings(by_rank: Mapping[int, Sequence[GpuActivity]]) -> Iterator[Meeting]:
    """The collectives that several of the ranks took part in, found step by step and group by group."""
    found: dict[tuple[str, int], dict[int, list[GpuActivity]]] = {}
    for rank, activities in by_rank.items():
        for activity in sorted(activities, key=lambda one: one.begin_ns):
            if activity.record is not None and activity.record.operation in TOGETHER:
                group = found.setdefault((activity.record.key, activity.step), {})
                group.setdefault(rank, []).append(activity)
    for group in found.values():
        first, *others = group
        pairs = {rank: matched(group[first], group[rank]) for rank in others}
        for k, activity in enumerate(group[first]):
            met = [(rank, group[rank][pairs[rank][k]]) for rank in others if k in pairs[rank]]
            if met:
                yield ((first, activity), *met)


def matched(own: Sequence[GpuActivity], other: Sequence[GpuActivity]) -> dict[int, int]:
    """Which collective of *other* each one of *own* is: the k-th is the k-th if their ends then differ alike. If not,
    some are missing in one of them, and those belong together that do so for the difference that most have."""
    if len(own) == len(other) and all(_same(a, b) for a, b in zip(own, other, strict=True)):
        differences = [b.end_ns - a.end_ns for a, b in zip(own, other, strict=True)]
        middle = median(differences)
        if median(abs(difference - middle) for difference in differences) <= ALIKE_NS:
            return {k: k for k in range(len(own))}
    return _voted(own[:MOST_COMPARED], other[:MOST_COMPARED])


def _voted(own: Sequence[GpuActivity], other: Sequence[GpuActivity]) -> dict[int, int]:
    pairs = sorted((b.end_ns - a.end_ns, k, j) for k, a in enumerate(own) for j, b in enumerate(other) if _same(a, b))
    best: list[tuple[int, int, int]] = []
    first = 0
    for last in range(len(pairs)):
        while pairs[last][0] - pairs[first][0] > CLOSE_NS:
            first += 1
        if last + 1 - first > len(best):
            best = pairs[first : last + 1]
    out = {k: j for _, k, j in best}
    return out if len(out) >= max(2, min(len(own), len(other)) / 2) else {}


def _same(one: GpuActivity, other: GpuActivity) -> bool:
    """Whether two may be one collective as two ranks saw it."""
    return one.record is not None and other.record is not None and one.record.operation == other.record.operation


def aligned(by_rank: Mapping[int, Sequence[GpuActivity]], common: Sequence[Meeting]) -> Clocks:
    """The clocks by which the ends of *common* collectives lie together: those of the first rank, and from there of
    whoever met somebody whose clock is known."""
    ends: dict[int, list[tuple[int, int]]] = {rank: [] for rank in by_rank}
    for k, meeting in enumerate(common):
        for rank, activity in meeting:
            ends[rank].append((k, activity.end_ns))
    known: dict[int, int] = {}  # meeting -> when it ended
    shift: dict[int, int] = {}
    alone: list[int] = []
    left = sorted(by_rank)
    while left:
        rank = next((r for r in left if any(k in known for k, _ in ends[r])), left[0])
        left.remove(rank)
        differences = [known[k] - end for k, end in ends[rank] if k in known]
        if not differences and shift:
            alone.append(rank)
        shift[rank] = round(median(differences)) if differences else 0
        for k, end in ends[rank]:
            known.setdefault(k, end + shift[rank])
    return Clocks(shift, _apart(common, shift), tuple(alone))


def _apart(common: Sequence[Meeting], shift: Mapping[int, int]) -> int:
    """By how much the ends of one collective differ, in the median."""
    spans = []
    for meeting in common:
        ends = [activity.end_ns + shift[rank] for rank, activity in meeting]
        spans.append(max(ends) - min(ends))
    return round(median(spans)) if spans else 0


class MeasuredMessage(NamedTuple):
    """A message as its sender saw it, on the clock of all; and as its receiver did, if that has a kernel for it."""

    target: int
    begin_ns: int
    end_ns: int
    received: GpuActivity | None


def messages(by_rank: Mapping[int, Sequence[GpuActivity]], shift: Mapping[int, int]) -> Iterator[MeasuredMessage]:
    """The messages whose receiver is known: the k-th from one rank to another is the k-th that this one receives from
    there, if there are as many in a step."""
    sent: dict[tuple[int, int, int], list[GpuActivity]] = {}
    received: dict[tuple[int, int, int], list[GpuActivity]] = {}
    for rank, activities in by_rank.items():
        for activity in activities:
            record = activity.record
            if record is None or record.operation != SEND:
                continue
            if record.target not in (-1, rank):
                sent.setdefault((rank, record.target, activity.step), []).append(activity)
            elif record.source not in (-1, rank):
                received.setdefault((record.source, rank, activity.step), []).append(activity)
    for key, own in sent.items():
        others = received.get(key, [])
        pairs = others if len(others) == len(own) else [None] * len(own)
        for activity, other in zip(own, pairs, strict=True):
            by = shift.get(key[0], 0)
            yield MeasuredMessage(key[1], activity.begin_ns + by, activity.end_ns + by, other)


def shifted(activity: GpuActivity, by: int) -> GpuActivity:
    """*activity* on another clock."""
    launched = activity.launched_ns + by if activity.launched_ns >= 0 else activity.launched_ns
    return activity._replace(begin_ns=activity.begin_ns + by, end_ns=activity.end_ns + by, launched_ns=launched)
