"""The operation table of a simulated step: what a job that ran so would have recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from trainsim.contracts.groups import Messages
from trainsim.contracts.record import COMPUTE, Label
from trainsim.contracts.trace import Trace
from trainsim.diagnosis.operations import (
    BACKWARD,
    BACKWARD_RECEIVE,
    BACKWARD_SEND,
    CLIP,
    EMBEDDING,
    FORWARD,
    FORWARD_RECEIVE,
    FORWARD_SEND,
    GATHER,
    NUMBER,
    REDUCE,
    UPDATE,
    JobShape,
    OperationTable,
    operation_table,
)
from trainsim.errors import NotBuilt

if TYPE_CHECKING:
    from trainsim.result.result import Result

PASS_TYPES = {"F": FORWARD, "B": BACKWARD}
MESSAGE = {"forward": (FORWARD_SEND, FORWARD_RECEIVE), "backward": (BACKWARD_SEND, BACKWARD_RECEIVE)}
COLLECTIVES = {"all_gather": GATHER, "reduce_scatter": REDUCE, "all_reduce": REDUCE}

Cells = tuple[str, float, float, int, int, int]
"""Type, start, end, chunk, microbatch (-1: none) and step of an operation."""


def operations_of(result: Result) -> OperationTable:
    """The operations of all simulated steps. A worker is one GPU of each (dp rank, stage), since those of its
    tensor-parallel group go in step with it.

    Raises NotBuilt for schedules whose passes come in parts or two at once, and for blocking messages: an operation
    table has no words for them.
    """
    job = result.job
    if job.pipeline.p2p == "blocking":
        raise NotBuilt("pipeline.p2p = 'blocking': an operation table has no handshakes; use async")
    mesh = result.simulation.network.mesh
    at = mesh.coordinates(np.arange(mesh.ranks))
    own = np.flatnonzero((at["tp"] == 0) & (at["cp"] == 0)).tolist()
    place = {rank: (int(at["dp"][rank]), int(at["pp"][rank])) for rank in own}
    worker = {where: rank for rank, where in place.items()}
    cells = {rank: list(_own_operations(result.trace, rank, job.training.microbatches)) for rank in own}
    for rank, (dp_rank, stage) in place.items():
        for carries, distance, cell in _messages(result.trace, rank, job.training.microbatches):
            other = worker[dp_rank, (stage + distance) % mesh.size("pp")]
            for kind, whose in zip(MESSAGE[carries], (rank, other), strict=True):
                cells[whose].append((kind, *cell[1:]))
    rows: dict[str, list[float]] = defaultdict(list)
    for rank, (dp_rank, stage) in place.items():
        _add(rows, cells[rank], dp_rank=dp_rank, stage=stage, pp=mesh.size("pp"))
    shape = JobShape(
        dp=mesh.size("dp"), pp=mesh.size("pp"), tp=mesh.size("tp") * mesh.size("cp"), vpp=job.pipeline.chunks,
        layers=job.model.layers,
    )  # fmt: skip
    return operation_table(name=job.name, shape=shape, **{name: np.array(column) for name, column in rows.items()})


def _add(rows: dict[str, list[float]], some: list[Cells], *, dp_rank: int, stage: int, pp: int) -> None:
    """The operations of one worker as rows, numbered by type and step in the order of their starts."""
    count: dict[tuple[str, int], int] = defaultdict(int)
    for kind, start, end, chunk, microbatch, step in sorted(some, key=lambda cell: (cell[1], cell[2])):
        passes = kind in PASS_TYPES.values()
        values = {
            "dp_rank": dp_rank, "stage": stage, "step": step, "type": NUMBER[kind], "start": start,
            "duration": end - start, "seq_id": count[kind, step], "chunk": chunk,
            "model_chunk": chunk * pp + stage if passes else -1, "microbatch": microbatch if passes else -1,
        }  # fmt: skip
        count[kind, step] += 1
        for name, value in values.items():
            rows[name].append(value)


def _own_operations(trace: Trace, rank: int, microbatches: int) -> Iterator[Cells]:
    """Passes, the end of each step, and what the chains of data parallelism do on a rank."""
    for chain in trace.chain_names(rank):
        number = trace.number[int(trace.rank_class[rank]), chain]
        if chain in trace.messages:
            continue
        facts, spans = trace.tasks[number], trace.spans_of(number)
        begun, over = trace.task_times(number)
        task = trace.rows(number).task[spans.row]
        works = [trace.facts[k] for k in facts.facts.tolist()]
        for k, (fact, microbatch) in enumerate(zip(works, facts.microbatch.tolist(), strict=True)):
            if chain == COMPUTE and fact.work in PASS_TYPES:
                step, inside = divmod(microbatch, microbatches)
                yield PASS_TYPES[fact.work], float(begun[k]), float(over[k]), fact.chunk, inside, step
            elif chain == COMPUTE and fact.work in ("I", "W", "OVERLAP_F_B"):
                raise NotBuilt(f"a pass {fact.work}: an operation table has whole forwards and backwards; use 1f1b")
        labels = [trace.labels[k] for k in spans.label.tolist()]
        every = zip(labels, spans.posted.tolist(), spans.end.tolist(), task.tolist(), strict=True)
        for label, posted, end, k in every:
            work = works[k].work
            if work not in PASS_TYPES and (kind := _kind(label, alone=chain == COMPUTE)):
                until = float(over[k]) if kind == UPDATE else end
                yield kind, posted, until, works[k].chunk if chain != COMPUTE else -1, -1, int(facts.microbatch[k])


def _kind(label: Label, *, alone: bool) -> str:
    """The type of operation that a span outside the passes is; empty: none that tables have."""
    operations = {payload.operation for payload in label.payloads}
    if alone:
        if label.kind == "optimizer":
            return UPDATE
        return {"tied embedding": EMBEDDING, "gradient norm": CLIP}.get(label.name, "")
    if label.kind != "dp":
        return ""
    return next((COLLECTIVES[operation] for operation in operations if operation in COLLECTIVES), "")


def _messages(trace: Trace, rank: int, microbatches: int) -> Iterator[tuple[str, int, Cells]]:
    """What each message of a rank carries, how far it goes in the pipeline, and when."""
    for chain in trace.chain_names(rank):
        sent = trace.messages.get(chain)
        if isinstance(sent, Messages) and sent.carries in MESSAGE:
            spans = trace.spans(rank, chain)
            for start, end, microbatch in zip(
                spans.start.tolist(), spans.end.tolist(), spans.microbatch.tolist(), strict=True
            ):
                step = microbatch // microbatches
                yield sent.carries, sent.distance, (FORWARD_SEND, start, end, -1, -1, step)
