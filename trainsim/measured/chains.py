"""Activities of a GPU as chains of a trace: kernels that compute, collectives by group, copies, waits for the host."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from trainsim.contracts.groups import Group, Messages, Peers, Within
from trainsim.contracts.instructions import SEND, Payload
from trainsim.contracts.record import COMPUTE
from trainsim.measured.activities import GpuActivity, streams
from trainsim.measured.collective_records import CollectiveRecord
from trainsim.measured.passes import UPDATE, KernelPass
from trainsim.measured.process_groups import ProcessGroups
from trainsim.measured.spans import MeasuredSpan

HOST = "host"
LATE = "wait for the host"
"""What a gap is called in which the GPU had nothing to do, since the host had not launched it yet."""
AFTER = "start after communication"
"""What the time is called from the end of a collective that kernels waited for to the first of these."""
PROMPT_NS = 100_000
"""Nanoseconds after the end of a collective in which kernels begin that were waiting for it."""
BEFORE = -(1 << 62)
"""When a message from another rank began, as far as a wait for it is concerned: it does not matter."""
REST = "until the next step"
WAYS = {True: Messages("forward", 1), False: Messages("backward", -1), None: Messages("message", 1)}


class RankChains(NamedTuple):
    """The spans of a rank, by chain; ``cut_ns`` is what kernels of one chain overlapped and was cut off."""

    spans: list[MeasuredSpan]
    carriers: dict[str, Messages]
    cut_ns: int


class ChainMaker:
    """Makes spans of the activities of one rank; *begun* has when each collective really began, by identity, and
    *arrivals* the ends of messages to each rank, by its number."""

    def __init__(self, groups: ProcessGroups, begun: Mapping[int, int], arrivals: Mapping[int, Sequence[int]]):
        self.groups, self.begun, self.arrivals = groups, begun, arrivals

    def chains(
        self, rank: int, number: int, activities: Sequence[GpuActivity], passes: Sequence[KernelPass], end: int
    ) -> RankChains:
        """Rank *rank* of the trace, which is *number* in its job; a pass for each activity, and the *end* of its last
        step (nanoseconds)."""
        main = max(streams(list(activities)), key=lambda pair: pair[1], default=("", 0))[0]
        own: dict[str, list[tuple[GpuActivity, KernelPass]]] = {COMPUTE: []}
        carriers: dict[str, Messages] = {}
        for activity, of in zip(activities, passes, strict=True):
            own.setdefault(self._chain(activity, main, number, carriers), []).append((activity, of))
        spans: list[MeasuredSpan] = []
        cut = 0
        for chain in [name for name in own if name != COMPUTE]:
            parts = _apart(own[chain]) if chain not in carriers else {"": own[chain]}
            for suffix, part in parts.items():
                made, lost = self._spans(rank, f"{chain}{suffix}", part)
                spans, cut = spans + made, cut + lost
        own[COMPUTE].sort(key=_by_begin)
        computed, lost = self._spans(rank, COMPUTE, own[COMPUTE])
        computed = _with_updates(computed, [activity.step for activity, _ in own[COMPUTE]])
        waits = _Waits(rank, spans, self.arrivals.get(number, ()))
        filled = [*waits.filled(computed, [activity.launched_ns for activity, _ in own[COMPUTE]])]
        return RankChains([*spans, *filled, waits.rest(computed, end)], carriers, cut + lost)

    def _chain(self, activity: GpuActivity, main: str, number: int, carriers: dict[str, Messages]) -> str:
        """The chain of an activity; messages of a pipeline are noted in *carriers*."""
        record = activity.record
        if record is None:
            return COMPUTE if activity.stream == main else f"stream {activity.stream}"
        kind = self.groups.kind(record)
        if record.operation == SEND and kind == "pp":
            way = WAYS[self._forward(record, number)]
            carriers[way.chain] = way
            return way.chain
        name = record.about or record.group
        return f"{kind} {name}" if name and name.lower() not in (kind, "default_pg", "0") else kind

    def _forward(self, record: CollectiveRecord, number: int) -> bool | None:
        """Whether a message goes on to a later stage; None if nobody knows."""
        source = record.source if record.source >= 0 else number
        target = record.target if record.target >= 0 else number
        if source == target:
            return None
        stages = self.groups.stage(source), self.groups.stage(target)
        return stages[0] < stages[1] if stages[0] != stages[1] else source < target

    def _spans(
        self, rank: int, chain: str, part: Sequence[tuple[GpuActivity, KernelPass]]
    ) -> tuple[list[MeasuredSpan], int]:
        """One chain by start, in which nothing overlaps, and the nanoseconds that were cut off for that."""
        out, free, cut = [], -(1 << 63), 0
        for activity, of in sorted(part, key=_by_begin):
            posted = max(activity.begin_ns, free)
            end = max(activity.end_ns, posted)
            cut += posted - activity.begin_ns
            begin = min(max(self.begun.get(id(activity), posted), posted), end)
            kind = activity.kind if activity.record is None else self.groups.kind(activity.record)
            stream = COMPUTE if chain == COMPUTE and kind != "copy" else kind if activity.record else chain
            out.append(
                MeasuredSpan(
                    rank=rank, chain=chain, name=activity.name, kind=kind, stream=stream, posted_ns=posted,
                    begin_ns=begin, end_ns=end, work=of.work, microbatch=of.microbatch,
                    payloads=_payloads(activity.record, kind),
                )
            )  # fmt: skip
            free = end
        return out, cut


def _by_begin(pair: tuple[GpuActivity, KernelPass]) -> tuple[int, int]:
    return pair[0].begin_ns, pair[0].end_ns


def _payloads(record: CollectiveRecord | None, kind: str) -> tuple[Payload, ...]:
    """What a collective carries; of its group only the number of ranks is known."""
    if record is None:
        return ()
    part = Within(record.size) if record.size else None
    peers: Peers = WAYS[None] if record.operation == SEND and kind == "pp" else Group((kind,), part=part)
    return (Payload(peers, record.operation, record.nbytes),)


def _apart(part: list[tuple[GpuActivity, KernelPass]]) -> dict[str, list[tuple[GpuActivity, KernelPass]]]:
    """Collectives of one group by stream, where those of several overlap."""
    order = sorted(part, key=_by_begin)
    if all(b[0].begin_ns >= a[0].end_ns for a, b in pairwise(order)):
        return {"": part}
    out: dict[str, list[tuple[GpuActivity, KernelPass]]] = {}
    first = order[0][0].stream
    for pair in part:
        stream = pair[0].stream
        out.setdefault("" if stream == first else f" on stream {stream}", []).append(pair)
    return out


def _with_updates(computed: list[MeasuredSpan], steps: Sequence[int]) -> list[MeasuredSpan]:
    """The spans of the compute chain so that every step but the last ends with an update: its last span, if nothing
    else."""
    last = {step: k for k, step in enumerate(steps)}
    updated = {step for span, step in zip(computed, steps, strict=True) if span.work == UPDATE}
    for ordinal, (step, k) in enumerate(sorted(last.items(), key=lambda item: item[1])[:-1]):
        if step not in updated:
            computed[k] = computed[k]._replace(work=UPDATE, microbatch=ordinal)
    return computed


class _Waits:
    """Why the compute chain of a rank is idle: gaps that the host left, and what follows a collective."""

    def __init__(self, rank: int, others: Sequence[MeasuredSpan], arrivals: Sequence[int]):
        self.rank = rank
        talks = sorted([*((s.end_ns, s.posted_ns) for s in others if s.payloads), *((end, BEFORE) for end in arrivals)])
        self.ends, self.begins = [end for end, _ in talks], [begin for _, begin in talks]

    def filled(self, computed: Sequence[MeasuredSpan], launched: Sequence[int]) -> Iterator[MeasuredSpan]:
        """The spans with those of the host between them. A gap in which a collective ended is left open until then, so
        that its end is what ended the wait."""
        free: int | None = None
        for span, launch in zip(computed, launched, strict=True):
            if free is not None and span.posted_ns > free:
                yield from self._gap(free, span, launched=launch)
            yield span
            free = span.end_ns

    def _gap(self, since: int, span: MeasuredSpan, *, launched: int) -> Iterator[MeasuredSpan]:
        """What fills the gap from *since* to *span*: nothing where it is not known what the GPU waited for."""
        k = bisect_right(self.ends, span.posted_ns) - 1
        over = self.ends[k] if k >= 0 else since
        late = launched > since
        mostly = 2 * (over - max(self.begins[k] if k >= 0 else over, since)) >= span.posted_ns - since
        if over > since and (launched > over or span.posted_ns - over <= PROMPT_NS or mostly):
            for j in range(bisect_right(self.ends, since), k):
                if BEFORE < self.begins[j] <= since < self.ends[j] < over:  # it was waited for before this one
                    since = self.ends[j]
                    yield self._host(AFTER, since, since, span)
            if late and self.begins[k] > since:
                yield self._host(LATE, since, self.begins[k], span)
            yield self._host(LATE if launched > over else AFTER, over, span.posted_ns, span)
        elif late:
            yield self._host(LATE, since, span.posted_ns, span)

    def rest(self, computed: Sequence[MeasuredSpan], end: int) -> MeasuredSpan:
        """What is left of the last step when nothing runs any more; it belongs to the update."""
        since = max([*(span.end_ns for span in computed[-1:]), *self.ends[-1:]], default=end)
        step = next((span.microbatch for span in reversed(computed) if span.work == UPDATE), 0)
        begin, end = min(since, max(end, since)), max(end, since)
        return MeasuredSpan(self.rank, COMPUTE, REST, HOST, COMPUTE, begin, begin, end, UPDATE, step)

    def _host(self, name: str, begin: int, end: int, near: MeasuredSpan) -> MeasuredSpan:
        return MeasuredSpan(self.rank, COMPUTE, name, HOST, COMPUTE, begin, begin, end, near.work, near.microbatch)
