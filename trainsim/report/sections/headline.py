"""The figures that matter most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.analysis.analysis import Analysis
from trainsim.analysis.expectation import AGREES
from trainsim.analysis.training_cost import in_days
from trainsim.report.memory_words import short_verdict
from trainsim.report.sections import CARD, PAGE, TERMINAL, section
from trainsim.report.style import CONVENTION
from trainsim.tables.blocks import Figure, Figures, Paragraph, Section
from trainsim.units import format_bytes, format_count, format_flops, format_number_of, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainsim.analysis.training_cost import TrainingCost


@section("headline", place=0, shown_by=(TERMINAL, PAGE, CARD), needs=Analysis)
def headline(result: Analysis) -> Section:
    """Step time and the closed form beside it, speed, memory, and what was simulated."""
    return Section(result.name, (Figures(tuple(_figures(result))), Paragraph(f"MFU and HFU: {CONVENTION}", "quiet")))


def _figures(result: Analysis) -> Iterator[Figure]:
    speed, use, lanes = result.throughput, result.memory, result.lanes
    yield Figure("step time", format_time(result.step_time), _closed_form(result))
    if (span := result.likely) is not None:
        reasons = f"; least certain: {', '.join(span.because)}" if span.because else ""
        ends = " to ".join(format_time(end, like=result.step_time) for end in (span.low, span.high))
        yield Figure("likely", ends, f"80% range, from the errors of published runs{reasons}")
    if result.period is not None:
        steps = format_number_of(result.steps, "step")
        yield Figure("period", format_time(result.period), f"from one update to the next, {steps} back to back")
    per_gpu = f"{speed.samples_per_s:.4g} samples/s, {speed.tokens_per_s_per_gpu:,.1f} tokens/s per GPU"
    yield Figure("throughput", f"{speed.tokens_per_s:,.0f} tokens/s", per_gpu)
    yield Figure("MFU", f"{speed.mfu:.1%}", f"{format_flops(speed.model_flops_per_gpu)} per GPU, model FLOPs")
    recomputed = f"{format_flops(speed.hardware_flops_per_gpu)} per GPU, recomputation included"
    yield Figure("HFU", f"{speed.hfu:.1%}", recomputed)
    if len(result.bubble.per_stage) > 1:
        window = f"of the {format_time(result.bubble.window_s)} up to the last pass"
        yield Figure("bubble", f"{result.bubble.fraction:.1%}", window)
    room = f"of {format_bytes(use.capacity)} on the fullest GPU: {short_verdict(use)}"
    yield Figure("memory", format_bytes(use.peak), room, "" if use.fits else "bad")
    if (whole := result.training_cost) is not None:
        yield _training(whole)
    some = result.parameters
    trained = f"{format_count(some['trainable'])} trained, " if some["trainable"] < some["total"] else ""
    yield Figure(
        "parameters", format_count(some["total"]), f"{trained}{format_count(some['per_rank'])} per rank (mean)"
    )
    classes = format_number_of(result.trace.classes, "class")
    effort = f"{format_count(result.trace.operations)} operations in {format_time(result.simulation.wall_s)}"
    yield Figure("simulated", format_number_of(lanes.ranks, "rank"), f"folded into {classes}; {effort}")


def _training(whole: TrainingCost) -> Figure:
    """Days of the whole training; GPU-hours, cost and the likely range beside them."""
    parts = [f"{format_count(whole.tokens)} tokens, {format_count(whole.gpu_hours)} GPU-hours"]
    if whole.cost is not None:
        parts.append(f"cost {format_count(whole.cost)} at {whole.price:g} per GPU-hour")
    if (ends := whole.between(whole.days)) is not None:
        parts.append(f"likely {in_days(*ends)}")
    return Figure("training", in_days(whole.days), f"{'; '.join(parts)}; steps alone")


def _closed_form(result: Analysis) -> str:
    closed = result.estimate
    agrees = abs(closed.difference) < AGREES
    verdict = "agrees" if agrees else f"is {closed.difference:+.1%}: {closed.explanation}"
    return f"closed form {format_time(closed.seconds)}; the simulation {verdict}"
