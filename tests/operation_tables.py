"""Operation tables of jobs that never ran: an order of operations, and times that a test chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.diagnosis_oracle import Row, SlowReplay
from trainsim.diagnosis.operations import NUMBER, JobShape, OperationTable, operation_table
from trainsim.replaying import schedule

USUAL = {
    "forward-compute": 1.0, "backward-compute": 2.0, "gc": 0.0, "optimizer": 0.5, "forward-send": 0.01,
    "forward-recv": 0.01, "backward-send": 0.01, "backward-recv": 0.01, "params-all-gather": 0.2,
    "grads-reduce-scatter": 0.3, "layernorm-grads-all-reduce": 0.01, "separate-grads-all-reduce": 0.02,
    "embedding-grads-all-reduce": 0.05, "optimizer-clip-main-grad": 0.03,
}  # fmt: skip
"""Seconds that an operation takes where a test says nothing else."""


def job(
    shape: JobShape, *, steps: int = 3, microbatches: Callable[[int], int] = lambda step: 4,
    took: Callable[[Row], float] = lambda row: USUAL[row["type"]], late: Callable[[Row], float] = lambda row: 0.0,
    **options: Any,
) -> OperationTable:  # fmt: skip
    """The table of a job in which operations take as long as *took* says, once all that they wait for is over, and
    start as *late* as it says. *options*: see ``order``."""
    rows = [row for step in range(steps) for row in order(shape, step, microbatches(step), **options)]
    replay = SlowReplay(rows, pp=shape.pp, vpp=shape.vpp, overlapped=options.get("overlapped", False))
    posted, ended = replay.play([took(row) for row in rows], [late(row) for row in rows])
    for row, start, end in zip(rows, posted, ended, strict=True):
        row["start"], row["duration"] = start, end - start
    return table_of(rows, shape)


def table_of(rows: list[Row], shape: JobShape, name: str = "made") -> OperationTable:
    """Rows as a table."""
    columns: dict[str, Any] = {key: [row[key] for row in rows] for key in rows[0] if key != "type"}
    return operation_table(name=name, shape=shape, type=[NUMBER[row["type"]] for row in rows], **columns)


def order(
    shape: JobShape, step: int, microbatches: int, *, overlapped: bool = False, separate: bool = False,
    recorded: bool = False, collected: bool = False,
) -> list[Row]:  # fmt: skip
    """The operations of a step in the order of each worker, with their places as times.

    *overlapped*: reductions beside the backwards; *separate*: separate gradients are reduced too; *recorded*: sends and
    receives that do not take place are in the table; *collected*: Python collects garbage after the passes.
    """
    name = "interleaved-1f1b" if shape.vpp > 1 else "1f1b"
    cells = schedule(name, stages=shape.pp, microbatches=microbatches, chunks=shape.vpp)
    rows: list[Row] = []
    for dp_rank in range(shape.dp):
        for lane in range(shape.dsp):
            for stage in range(shape.pp):
                worker = _Worker(shape, {"dp_rank": dp_rank, "lane": lane, "stage": stage, "step": step})
                worker.passes(list(cells)[stage], overlapped=overlapped, recorded=recorded)
                worker.end(overlapped=overlapped, separate=separate, collected=collected)
                rows += worker.rows
    return rows


class _Worker:
    def __init__(self, shape: JobShape, place: dict[str, int]):
        self.shape, self.place = shape, place
        self.rows: list[Row] = []

    def add(self, kind: str, chunk: int = -1, model_chunk: int = -1, microbatch: int = -1) -> None:
        seq = sum(row["type"] == kind for row in self.rows)
        self.rows.append({**self.place, "type": kind, "start": float(len(self.rows)), "duration": 0.0, "seq_id": seq,
                          "chunk": chunk, "model_chunk": model_chunk, "microbatch": microbatch})  # fmt: skip

    def passes(self, cells: Any, *, overlapped: bool, recorded: bool) -> None:
        for chunk in range(self.shape.vpp):
            self.add("params-all-gather", chunk)
        left = {chunk: sum("B" in c and _stage(c) // self.shape.pp == chunk for c in cells)
                for chunk in range(self.shape.vpp)}  # fmt: skip
        for cell in cells:
            direction, way = ("forward", 1) if "F" in cell else ("backward", -1)
            model_chunk, microbatch = _stage(cell), int(cell.replace("F", "B").split("B")[1])
            chunk = model_chunk // self.shape.pp
            for kind, to in (("recv", -way), ("compute", 0), ("send", way)):
                if kind == "compute":
                    self.add(f"{direction}-compute", chunk, model_chunk, microbatch)
                elif recorded or 0 <= model_chunk + to < self.shape.chunks:
                    self.add(f"{direction}-{kind}")
            if direction == "backward":
                left[chunk] -= 1
                if overlapped and not left[chunk]:
                    self.add("grads-reduce-scatter", chunk)

    def end(self, *, overlapped: bool, separate: bool, collected: bool) -> None:
        if collected:
            self.add("gc")
        self.add("layernorm-grads-all-reduce")
        if separate:
            self.add("separate-grads-all-reduce")
        if self.place["stage"] in (0, self.shape.pp - 1):
            self.add("embedding-grads-all-reduce")
        if not overlapped:
            for chunk in range(self.shape.vpp):
                self.add("grads-reduce-scatter", chunk)
        self.add("optimizer-clip-main-grad")
        self.add("optimizer")


def _stage(cell: str) -> int:
    return int(cell.replace("F", "B").split("B")[0])


def scattered(seed: int, by: float = 0.2) -> Callable[[Row], float]:
    """Times that differ from operation to operation, the same for the same operation."""

    def took(row: Row) -> float:
        mark = [seed, *(row[key] + 1 for key in ("step", "dp_rank", "lane", "stage", "microbatch", "seq_id")),
                NUMBER[row["type"]]]  # fmt: skip
        return float(USUAL[row["type"]] * (1 + by * np.random.default_rng(mark).random()))

    return took
