"""
Traces made of literal spans: measured ones, or those of a simulation written out and read again.

A measured span says when it started and ended, not what let it start. That is taken from the times: a wait is over when
a span of another chain of the rank ends, or a message, and a collective starts when the last of its peers has posted
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trainsim.contracts.causes import Observed
from trainsim.contracts.exact import tick_for
from trainsim.contracts.groups import Messages
from trainsim.contracts.instructions import KINDS, Memory
from trainsim.contracts.record import COMPUTE, Label, Record, Run, TaskFacts, Tasks
from trainsim.contracts.trace import Ints, Trace
from trainsim.errors import InvalidPlan, UnknownName

REQUIRED = ("rank", "chain", "name", "kind", "microbatch", "layer", "start", "end")
PLAIN = ("name", "kind", "layer", "stream", "payloads")
"""Columns that say what a label says."""
WORK_OF = {"forward": "F", "backward": "B", "recompute": "B", "optimizer": "update", "dp": "update"}
"""What a task of the compute chain does that has a span of a kind, where nobody says it."""
NEAR = 50
"""Spans of the same microbatch that are looked at to know what a collective between kernels belongs to."""
Columns = Mapping[str, Any]


def span_columns(trace: Trace, ranks: Iterable[int] | None = None) -> dict[str, list[Any]]:
    """Every span of *ranks* (None: all) as equally long columns: what ``from_spans`` takes, with ``stream``,
    ``posted``, ``work``, ``chunk`` and ``payloads``; seconds."""
    out: dict[str, list[Any]] = {name: [] for name in (*REQUIRED, "stream", "posted", "work", "chunk", "payloads")}
    for rank in range(trace.ranks) if ranks is None else ranks:
        for chain in trace.chain_names(rank):
            number = trace.number[int(trace.rank_class[rank]), chain]
            spans, tasks = trace.spans_of(number), trace.tasks[number].facts
            labels = [trace.labels[k] for k in spans.label.tolist()]
            task = trace.rows(number).task[spans.row].tolist()
            facts = [trace.facts[int(tasks[k])] if k < len(tasks) else TaskFacts("", 0) for k in task]
            columns = {
                "rank": [rank] * len(labels), "chain": [chain] * len(labels), "microbatch": spans.microbatch.tolist(),
                "posted": spans.posted.tolist(), "start": spans.start.tolist(), "end": spans.end.tolist(),
                "work": [fact.work for fact in facts], "chunk": [fact.chunk for fact in facts],
                **{name: [getattr(label, name) for label in labels] for name in PLAIN},
            }  # fmt: skip
            for name, column in columns.items():
                out[name] += column
    return out


def from_spans(
    columns: Columns, *, stages: Sequence[int] = (), messages: Mapping[str, Messages] | None = None
) -> Trace:
    """A trace in which every rank is a class of its own, and every span a row.

    *columns* are equally long: ``rank`` (numbered from 0), ``chain`` (``compute`` does the work; *messages* says which
    carry messages), ``name``, ``kind`` (one of KINDS), ``microbatch`` and ``layer`` (-1: none),
    ``start`` and ``end`` in seconds. They may have ``stream`` (else the kind, or ``compute`` for kernels), ``posted``
    (else the start), ``work`` (a pass of the schedule, or ``update``; else by kind), ``chunk`` (else 0),
    ``payloads`` (what it moves between ranks; else nothing) and ``after`` (the place among the columns of the span that
    let it start, where times do not tell that; -1: none). *stages* are those of the ranks (else all 0). Raises
    InvalidPlan for columns that are no spans.

    >>> trace = from_spans({"rank": [0, 0], "chain": ["compute"] * 2, "name": ["a", "b"], "kind": ["forward"] * 2,
    ...                     "microbatch": [0, 1], "layer": [0, 0], "start": [5.0, 7.0], "end": [6.0, 9.0]})
    >>> trace.duration, trace.spans(0, "compute").end.tolist()
    (4.0, [1.0, 4.0])
    """
    return _SpanTable(columns, messages or {}).trace(stages)


class _SpanTable:
    """The columns as arrays, by rank, chain and start; ``first`` says which spans begin a chain."""

    def __init__(self, columns: Columns, messages: Mapping[str, Messages]):
        self.messages = messages
        for name in REQUIRED:
            if name not in columns:
                raise InvalidPlan(f"spans have no column {name!r}; they need {', '.join(REQUIRED)}")
        size = {len(columns[name]) for name in columns}
        if len(size) != 1 or size == {0}:
            raise InvalidPlan(f"columns of spans are {sorted(size)} long; they must be equally long, and not empty")
        start, end = (np.array(columns[name], np.float64) for name in ("start", "end"))
        posted = np.array(columns.get("posted", columns["start"]), np.float64)
        if (end < start).any() or (start < posted).any():
            raise InvalidPlan("a span ends before it starts, or starts before it was posted")
        rank, chain = np.array(columns["rank"], np.int64), np.array(columns["chain"], object)
        place = [(name in messages, name != COMPUTE, name) for name in chain.tolist()]
        order = np.array(sorted(range(len(rank)), key=lambda k: (rank[k], place[k], start[k], end[k])), np.int64)
        origin = float(posted.min())
        self.tick = tick_for(float(end.max()) - origin)
        self.rank, self.chain = rank[order], chain[order]
        self.posted, self.start, self.end = (
            np.round((times[order] - origin) / self.tick) * self.tick for times in (posted, start, end)
        )
        self.microbatch, self.layer = (np.array(columns[name], np.int64)[order] for name in ("microbatch", "layer"))
        self.name, self.kind = (np.array(columns[name], object)[order].tolist() for name in ("name", "kind"))
        for kind in set(self.kind) - set(KINDS):
            raise UnknownName("kind of span", kind, KINDS)
        self.ranks = int(self.rank.max()) + 1
        if len(np.unique(self.rank)) != self.ranks or self.rank.min() < 0:
            raise InvalidPlan("ranks of spans must be numbered from 0 without a hole")
        self.first = np.append(True, (self.rank[1:] != self.rank[:-1]) | (self.chain[1:] != self.chain[:-1]))
        streams = columns.get("stream")
        kernels = {"forward", "backward", "recompute", "optimizer", "host", "delay", "other"}
        given = streams if streams is None else np.array(streams, object)[order].tolist()
        self.stream = given or [COMPUTE if kind in kernels else kind for kind in self.kind]
        chunk = columns.get("chunk")
        self.chunk = np.zeros(len(order), np.int64) if chunk is None else np.array(chunk, np.int64)[order]
        payloads = columns.get("payloads")
        self.payloads = [()] * len(order) if payloads is None else [payloads[k] for k in order.tolist()]
        self.work = list(self._works(columns.get("work"), order))
        self.after = self._after(columns.get("after"), order)

    def _after(self, given: Any, order: Ints) -> dict[int, int]:
        """Of spans that say so the one that let them start; places are those of the table."""
        if given is None:
            return {}
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        after = np.array(given, np.int64)[order]
        return {k: int(place[after[k]]) for k in np.flatnonzero(after >= 0).tolist()}

    def _works(self, given: Any, order: Ints) -> Iterator[str]:
        """What the task of each span does: as *given*, or in the compute chain as its neighbours of the microbatch."""
        if given is not None:
            yield from np.array(given, object)[order].tolist()
            return
        computes = (self.chain == COMPUTE).tolist()
        known = [WORK_OF.get(kind, "") if inside else "" for kind, inside in zip(self.kind, computes, strict=True)]
        of_task = list(zip(self.rank.tolist(), computes, self.microbatch.tolist(), strict=True))
        for k, work in enumerate(known):
            near = (j for far in range(NEAR) for j in (k - far, k + far) if 0 <= j < len(known))
            yield work or next((known[j] for j in near if known[j] and of_task[j] == of_task[k]), "")

    def trace(self, stages: Sequence[int]) -> Trace:
        """Everything put together."""
        labels: dict[Label, int] = {}
        each = map(Label, self.name, self.kind, self.stream, self.layer.tolist(), self.payloads)
        run = [labels.setdefault(label, len(labels)) for label in each]
        heads = np.flatnonzero(self.first).tolist()
        stage = np.array(stages, np.int64) if len(stages) else np.zeros(self.ranks, np.int64)
        causes = Observed(
            rank=self.rank, stage=stage[self.rank], chain=self.chain.tolist(), name=self.name,
            microbatch=self.microbatch, posted=self.posted, start=self.start, end=self.end, first=self.first,
            carriers=frozenset(self.messages),
        ).causes()  # fmt: skip
        causes = self.after | causes
        facts: dict[TaskFacts, int] = {}
        records, tasks = [], []
        for begin, over in zip(heads, [*heads[1:], len(run)], strict=True):
            records.append(record := Record())
            table = np.stack([run, self.microbatch, self.posted, self.start], axis=1)[begin:over]
            record.table.extend(table.ravel().tolist())
            record.scales.extend((self.end - self.start)[begin:over].tolist())
            tasks.append(self._tasks(begin, over, record, facts))
            for k in range(begin, over):
                if k in causes:
                    source = int(np.searchsorted(heads, causes[k], side="right")) - 1
                    record.causes.extend((k - begin, source, causes[k] - heads[source]))
        return Trace(
            rank_class=np.arange(self.ranks), representative=np.arange(self.ranks), stage=stage,
            parameters=np.zeros(self.ranks), memory=(Memory(),) * self.ranks,
            runs=[Run((label,), (0.0,), (0.0,), (1.0,)) for label in labels],
            chains=tuple((int(self.rank[k]), str(self.chain[k])) for k in heads), records=tuple(records),
            facts=tuple(facts), tasks=tuple(tasks), messages=self.messages, tick=self.tick,
        )  # fmt: skip

    def _tasks(self, begin: int, over: int, record: Record, facts: dict[TaskFacts, int]) -> Tasks:
        """The tasks of one chain: spans in a row that do the same for the same chunk and microbatch."""
        which, microbatches = [], []
        if self.chain[begin] not in self.messages:
            every = (self.work, self.chunk.tolist(), self.microbatch.tolist())
            keys = list(zip(*(column[begin:over] for column in every), strict=True))
            for k, (work, chunk, microbatch) in enumerate(keys):
                if k + 1 == len(keys) or keys[k + 1] != keys[k]:
                    which.append(facts.setdefault(TaskFacts(work, chunk), len(facts)))
                    microbatches.append(microbatch)
                    record.tasks.append(k + 1)
        return Tasks(np.array(which, np.int64), np.array(microbatches, np.int64))
