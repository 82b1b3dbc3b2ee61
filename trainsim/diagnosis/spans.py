"""Steps of an operation table as spans: what a measured trace is made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainsim.contracts.groups import Messages
from trainsim.contracts.measured import from_spans
from trainsim.contracts.record import COMPUTE
from trainsim.contracts.trace import Trace
from trainsim.diagnosis.job_replay import JobReplay
from trainsim.diagnosis.lowering import KIND, WORK
from trainsim.diagnosis.operations import (
    BACKWARD_SEND,
    COMPUTE_TYPES,
    FORWARD_SEND,
    MESSAGE_TYPES,
    NUMBER,
    TYPES,
    Floats,
    OperationTable,
)
from trainsim.diagnosis.structure import STREAMS, StepStructure
from trainsim.errors import UnknownName

SENT = {FORWARD_SEND: Messages("forward", 1), BACKWARD_SEND: Messages("backward", -1)}
"""What sends carry: the message is in the trace of who sends it, and receives are passive."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StepSpans:
    """Spans of one or several steps as ``from_spans`` takes them: a rank per worker, with its stage."""

    columns: dict[str, list[Any]]
    stages: tuple[int, ...]
    steps: tuple[int, ...]

    def trace(self) -> Trace:
        """The trace of these spans."""
        messages = {sent.chain: sent for sent in SENT.values()}
        return from_spans(self.columns, stages=self.stages, messages=messages)


def spans_of(table: OperationTable, step: int | Sequence[int]) -> StepSpans:
    """The spans of a *step*, or of several back to back: passes and the end of the step, collectives of parameters and
    gradients, and messages. A communication is posted when its operation started, and starts when the last of those who
    take part has posted it. Raises UnknownName for a step that is not there, and InvalidData for one that is not whole.
    """
    wanted = [step] if isinstance(step, int) else list(step)
    for number in wanted:
        if number not in table.steps:
            raise UnknownName("step of the table", str(number), list(map(str, table.steps)))
    replay = JobReplay.of(table.rows(np.isin(table.step, wanted)))
    workers = sorted({int(w) for part in replay.parts for w in part.structure.worker})
    rank = {worker: k for k, worker in enumerate(workers)}
    columns: dict[str, list[Any]] = defaultdict(list)
    offset, first = 0.0, 0
    for place, number in enumerate(replay.steps):
        part = next(p for p in replay.parts if number in p.steps)
        column = part.steps.index(number)
        rows = part.rows[:, column]
        start, end = replay.table.start[rows], replay.table.end[rows]
        _add(columns, part.structure, start + offset, end + offset, rank=rank, first=first, update=place)
        offset += float(end.max())
        first += int(part.structure.microbatch.max(initial=0)) + 1
    return StepSpans(columns=dict(columns), stages=tuple(table.workers[w][2] for w in workers), steps=replay.steps)


def _add(
    columns: dict[str, list[Any]], structure: StepStructure, posted: Floats, end: Floats, *, rank: dict[int, int],
    first: int, update: int,
) -> None:  # fmt: skip
    """The operations of one step, in the order of each chain; neighbours that overlap by a rounding touch."""
    latest = np.full(len(structure.meetings), -np.inf)
    np.maximum.at(latest, structure.meeting, posted)
    alone = np.isin(structure.type, [NUMBER[name] for name in COMPUTE_TYPES])
    start = np.where(alone, posted, np.minimum(latest[structure.meeting], end))
    free: dict[tuple[int, str], float] = defaultdict(float)
    for k in np.argsort(posted, kind="stable").tolist():
        name = TYPES[structure.type[k]]
        if name in MESSAGE_TYPES and name not in SENT:
            continue
        chain = SENT[name].chain if name in SENT else STREAMS[name]
        worker = rank[int(structure.worker[k])]
        begins = max(float(start[k]), free[worker, chain]) if chain == COMPUTE else float(start[k])
        ends = max(float(end[k]), begins)
        free[worker, chain] = ends
        kind, passing = KIND.get(name, "dp"), name in WORK or name in SENT
        values = {
            "rank": worker, "chain": chain, "name": name, "kind": kind, "layer": -1, "end": ends, "start": begins,
            "posted": min(float(posted[k]), begins), "stream": COMPUTE if chain == COMPUTE else kind,
            "microbatch": first + max(int(structure.microbatch[k]), 0) if passing else update,
            "work": WORK.get(name, "update"), "chunk": max(int(structure.chunk[k]), 0),
        }  # fmt: skip
        for key, value in values.items():
            columns[key].append(value)
