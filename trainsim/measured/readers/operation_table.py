"""Operation tables of several workers and steps (Parquet, CSV): what ``trainsim diagnose`` reads, as one step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainsim.contracts.measured_trace import MarkedStep, MeasuredTrace
from trainsim.diagnosis.reading import IN_FILES, MAGIC, read_operations
from trainsim.diagnosis.spans import spans_of
from trainsim.measured.file import MeasuredFile
from trainsim.measured.reader import TraceReader, TraceRequest, register

COLUMNS = (IN_FILES["type"], IN_FILES["start"])
"""By which a table in text is known."""


def load(files: Sequence[MeasuredFile], request: TraceRequest) -> MeasuredTrace:
    """The step that is asked for, all of them back to back, or the one of median length."""
    table = read_operations([file.path for file in files])
    last = {step: float(table.end[table.step == step].max()) for step in table.steps}
    middle = sorted(last, key=lambda step: last[step])[len(last) // 2]
    chosen = list(last) if request.step == "all" else [middle if request.step is None else int(request.step)]
    spans = spans_of(table, chosen)
    part = f"step {chosen[0]} of {len(last)}" if len(chosen) == 1 else f"all {len(last)} steps"
    part += ", of median length" if request.step is None else ""
    return MeasuredTrace(
        name=request.name or table.name, trace=spans.trace(), files=tuple(file.shown for file in files),
        rank_numbers=tuple(range(len(spans.stages))), part=part,
        marked=tuple(MarkedStep(step, seconds, step in spans.steps) for step, seconds in last.items()),
        shifts=tuple(np.zeros(len(spans.stages)).tolist()),
    )  # fmt: skip


def sniff(file: MeasuredFile) -> float:
    """Sure of Parquet, and of text with the columns of an operation table."""
    if file.start.startswith(MAGIC):
        return 0.9
    header = file.start.split(b"\n")[0].decode("utf-8", "replace")
    return 0.9 if all(column in header for column in COLUMNS) else 0.0


register(TraceReader(name="operation-table", title="operation tables (Parquet, CSV)", sniff=sniff, load=load))
