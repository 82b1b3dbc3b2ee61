"""What was measured, and what the GPUs did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.analysis.measured_analysis import MeasuredAnalysis
from trainsim.report.sections import CARD, PAGE, TERMINAL, section
from trainsim.tables.blocks import Figure, Figures, Section
from trainsim.units import format_number_of, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

FEW = 8
"""Numbers of ranks that are listed."""


@section("measured step", place=2, shown_by=(TERMINAL, PAGE, CARD), needs=MeasuredAnalysis)
def measured_step(result: MeasuredAnalysis) -> Section:
    """Which step of which ranks was read, and how long the GPUs computed, communicated, copied and did nothing."""
    return Section(
        result.name, (Figures(tuple(_figures(result))),), "measured; GPU times of one step, averaged over ranks"
    )


def _figures(result: MeasuredAnalysis) -> Iterator[Figure]:
    measured, step = result.measured, result.step_time or 1.0
    yield Figure("step time", format_time(result.step_time), measured.part)
    if measured.marked:
        read = [mark.seconds for mark in measured.marked if mark.read]
        every = ", ".join(format_time(mark.seconds) for mark in measured.marked[:FEW])
        yield Figure("on the host", format_time(sum(read) / len(read)), f"as the profiler marks steps: {every}")
    numbers = ", ".join(map(str, measured.rank_numbers[:FEW])) + (", ..." if len(measured.rank_numbers) > FEW else "")
    gpu = f"on {measured.gpu}" if measured.gpu else "the files do not name the GPU"
    yield Figure(format_number_of(len(measured.rank_numbers), "rank"), numbers, gpu)
    if len(result.bubble.per_stage) > 1:
        window = f"of the {format_time(result.bubble.window_s)} up to the last pass"
        yield Figure("bubble", f"{result.bubble.fraction:.1%}", window)
    mean = [sum(column) / len(result.gpu_use) / result.steps for column in zip(*result.gpu_use, strict=True)]
    computing, talking, hidden, copying, idle, kernels = mean
    yield Figure(
        "computing", format_time(computing), f"{computing / step:.1%}; kernels add up to {format_time(kernels)}"
    )
    if talking:
        part = f"{hidden / talking:.0%} of it while kernels compute, {format_time(talking - hidden)} exposed"
        yield Figure("communicating", format_time(talking), part)
    if copying:
        yield Figure("copying", format_time(copying), "copies and fills of memory")
    yield Figure("idle", format_time(idle), f"{idle / step:.1%}: none of these is running")
