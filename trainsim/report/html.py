"""The report as one page that needs nothing else, and the card that a notebook shows."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from trainsim.analysis.kinds import TITLES, WAITING
from trainsim.analysis.stalls import REASONS
from trainsim.report.markup import bar, css, image, items, png_of, section, table
from trainsim.report.memory_page import memory_charts, memory_table
from trainsim.report.memory_words import short_verdict
from trainsim.report.style import CONVENTION, PARTS
from trainsim.report.text import ROW, waits_for
from trainsim.units import format_bytes, format_count, format_time

if TYPE_CHECKING:
    from trainsim.result.result import Result


def page(result: Result, picture: bytes | None = None) -> str:
    """The whole report. *picture*: the Gantt chart as PNG, if it has been drawn already."""
    blocks = [
        f"<h1>{escape(result.name)}</h1>",
        tiles(result),
        section("Where the time goes", breakdown(result), "exposed time of the mean rank; sums to the step"),
        section("The step", image(picture or png(result)), "one pipeline; fuller detail in trace.json.gz"),
        section("Memory", memory_table(result), "the fullest rank of each stage, at its fullest"),
        section(
            "Memory over time",
            memory_charts(result),
            "the fullest rank of each stage; the line is the capacity, the mark the peak, below are forward, backward "
            "and optimizer",
        ),
        section("Pipeline bubble", _bubble(result), "idle part of the window of the pipeline"),
        section(
            "Who waits for whom", _waits(result), "seconds of the mean rank of the stage; more than 1 % of the step"
        ),
        section("Communication", _communication(result), "mean rank, one step: exposed is at most time and waiting"),
        section(
            "Critical path",
            _critical(result),
            "the chain of work and messages, without a gap, that the length of the step hangs on, by kind",
        ),
        section("Closed form beside the simulation", _estimate(result), escape(result.estimate.explanation)),
        section("Warnings", items(result.warnings)) if result.warnings else "",
        section("Scenario", f"<pre>{escape(_yaml(result))}</pre>", "resolved"),
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(result.name)}</title>'
        f"<style>{css()}</style></head><body><main class='trainsim'>{''.join(blocks)}</main></body></html>\n"
    )


def card(result: Result) -> str:
    """What a notebook shows for a result; never raises."""
    try:
        return (
            f"<style>{css()}</style><div class='trainsim card'><h3>{escape(result.name)}</h3>{tiles(result)}"
            f"{breakdown(result)}{image(png(result))}{items(result.warnings)}</div>"
        )
    except Exception as error:  # a card that cannot be drawn must not hide the result
        return f"<pre>{escape(type(result).__name__)}: {escape(str(error))}</pre>"


def tiles(result: Result) -> str:
    """The figures that matter most."""
    use, speed = result.memory, result.throughput
    figures = [
        ("step time", format_time(result.step_time), _beside(result)),
        ("throughput", f"{speed.tokens_per_s:,.0f}", "tokens/s"),
        ("MFU", f"{speed.mfu:.1%}", f"{speed.model_flops_per_gpu / 1e12:.1f} TFLOP/s per GPU"),
        ("HFU", f"{speed.hfu:.1%}", f"{speed.hardware_flops_per_gpu / 1e12:.1f} TFLOP/s per GPU"),
        ("bubble", f"{result.bubble.fraction:.1%}", f"of {format_time(result.bubble.window_s)}, first to last pass"),
        ("memory", format_bytes(use.peak), f"of {format_bytes(use.capacity)}: {short_verdict(use)}"),
        ("GPUs", f"{result.lanes.ranks:,}", f"{format_count(result.parameters['total'])} parameters"),
    ]
    alarm = {"memory": "" if use.fits else " alarm"}
    inner = "".join(
        f"<div class='tile{alarm.get(name, '')}'><span>{escape(name)}</span><b>{escape(value)}</b>"
        f"<small>{escape(note)}</small></div>"
        for name, value, note in figures
    )
    return f"<div class='tiles'>{inner}</div><p class='note'>MFU, HFU: {escape(CONVENTION)}</p>"


def _beside(result: Result) -> str:
    period = f"period {format_time(result.period)}, " if result.period is not None else ""
    return f"{period}closed form {format_time(result.estimate.seconds)}"


def breakdown(result: Result) -> str:
    """One stacked bar of the step, with its legend as a table."""
    step = result.step_time or 1.0
    parts = [(part, value) for part, value in result.breakdown.items() if value > 0]
    rows = [
        (
            f"<i style='background:{PARTS[part]}'></i>{escape(part)}",
            format_time(value, like=step),
            f"{value / step:.1%}",
            bar([(value / step, PARTS[part])]),
            escape(TITLES[part] + _late(result, part)),
        )
        for part, value in parts
    ]
    return bar([(value / step, PARTS[part]) for part, value in parts], tall=True) + table(("", "", "", "", ""), rows)


def _late(result: Result, part: str) -> str:
    late = result.waiting[part]
    return f"; {format_time(late, like=result.step_time)} of it {WAITING[part]}" if part in WAITING and late > 0 else ""


def png(result: Result) -> bytes:
    """The Gantt chart as PNG."""
    return png_of(result.gantt())


def _bubble(result: Result) -> str:
    one = result.bubble
    if len(one.per_stage) == 1:
        return "<p>no pipeline: one stage</p>"
    rows = [
        (
            f"stage {stage.stage}", f"{share:.1%}", bar([(share, "#8c8c8c")]),
            *(format_time(getattr(stage, f"{phase}_s"), like=one.window_s) for phase in ("warmup", "steady", "cooldown")),  # noqa: E501
            *(format_time(getattr(stage, reason), like=one.window_s) for reason in REASONS),
        )
        for share, stage in zip(one.per_stage, one.stages, strict=False)
    ]  # fmt: skip
    period = f"; {one.period_fraction:.2%} of the steady state" if one.period_fraction is not None else ""
    text = (
        f"<p>{one.fraction:.2%} of the pipeline's window is idle (1 − busy / window): of {format_time(one.window_s)}, from "  # noqa: E501
        f"the start of the step to its last pass. As idle over ideal time {one.idle_over_ideal:.2%}; over the longest "
        f"time from a rank's first pass to its last {one.span_fraction:.2%}{period}. Warm-up {format_time(one.warmup_s)}, "  # noqa: E501
        f"steady {format_time(one.steady_s)}, cool-down {format_time(one.cooldown_s)}.</p><p class='note'>{escape(ROW)}</p>"  # noqa: E501
    )
    waits = [f"for {reason}" for reason in REASONS.values()][:-1]
    head = ("", "idle", "", "in warm-up", "steady", "cool-down", *waits, "is done")
    return text + table(head, rows)


def _waits(result: Result) -> str:
    step = result.step_time or 1.0
    rows = [
        (
            f"stage {w.stage}",
            format_time(w.seconds, like=step),
            bar([(w.seconds / step, "#8c8c8c")]),
            escape(waits_for(w.what, w.source, w.stage)),
        )
        for w in result.waits
        if w.seconds > 0.01 * step
    ]
    return table(("", "waits", "", ""), rows) if rows else "<p>nobody</p>"


def _communication(result: Result) -> str:
    rows = [
        (
            kind,
            f"{t.operations:,.0f}",
            format_bytes(t.bytes_per_rank),
            format_bytes(t.bytes_inter_node_per_rank),
            format_time(t.time_s),
            format_time(t.waiting_s),
            format_time(t.exposed_s),
        )
        for kind, t in result.communication.items()
        if t.operations
    ]
    head = ("kind", "operations", "sent", "to other nodes", "time", "waiting for late peers", "exposed")
    return table(head, rows) if rows else "<p>none</p>"


def _critical(result: Result) -> str:
    rows = [
        (escape(c.kind), format_time(c.seconds, like=result.step_time), f"{c.share:.1%}", bar([(c.share, "#c0142b")]))
        for c in result.critical_path.causes
    ]
    return table(("kind", "on the path", "share", ""), rows)


def _estimate(result: Result) -> str:
    one = result.estimate
    rows = [
        (escape(p.name), format_time(p.closed_form), format_time(p.simulated), format_time(p.difference, signed=True))
        for p in one.phases
    ]
    rows.append(("step", format_time(one.seconds), format_time(one.simulated), f"{one.difference:+.1%}"))
    return table(("phase", "closed form", "on the critical path", "difference"), rows)


def _yaml(result: Result) -> str:
    import yaml

    try:
        return yaml.safe_dump(dict(result.scenario), sort_keys=False, allow_unicode=True)
    except yaml.YAMLError:
        return repr(dict(result.scenario))
