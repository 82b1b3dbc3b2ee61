"""The report as one page that needs nothing else, and the card that a notebook shows."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from trainsim.analysis.kinds import TITLES
from trainsim.analysis.memory import CATEGORIES
from trainsim.report.style import MEMORY, PARTS, count, seconds, seconds_of, size
from trainsim.report.text import waits_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from trainsim.comparison import Comparison
    from trainsim.result import Result
    from trainsim.side_by_side import SideBySide


def page(result: Result, picture: bytes | None = None) -> str:
    """The whole report. *picture*: the Gantt chart as PNG, if it has been drawn already."""
    blocks = [
        f"<h1>{escape(result.name)}</h1>",
        tiles(result),
        _section("Where the time goes", breakdown(result), "exposed time of the mean rank; sums to the step"),
        _section("The step", _image(picture or png(result)), "one pipeline; fuller detail in trace.json.gz"),
        _section("Memory", _memory(result), "the fullest rank of each stage, at its fullest"),
        _section(
            "Memory over time",
            memory_chart(result),
            "model states and framework (blue), activations and temporaries (green), capacity (red)",
        ),
        _section("Pipeline bubble", _bubble(result), "idle part of the pipeline's time"),
        _section(
            "Who waits for whom", _waits(result), "seconds of the mean rank of the stage; more than 1 % of the step"
        ),
        _section("Communication", _communication(result), "per rank and step"),
        _section("Critical path", _critical(result), "what the step would be shorter without, first"),
        _section("Closed form beside the simulation", _estimate(result), escape(result.estimate.explanation)),
        _section("Warnings", _list(result.warnings)) if result.warnings else "",
        _section("Scenario", f"<pre>{escape(_yaml(result))}</pre>", "resolved"),
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(result.name)}</title>'
        f"<style>{_css()}</style></head><body><main class='trainsim'>{''.join(blocks)}</main></body></html>\n"
    )


def card(result: Result) -> str:
    """What a notebook shows for a result; never raises."""
    try:
        return (
            f"<style>{_css()}</style><div class='trainsim card'><h3>{escape(result.name)}</h3>{tiles(result)}"
            f"{breakdown(result)}{_image(png(result))}{_list(result.warnings)}</div>"
        )
    except Exception as error:  # a card that cannot be drawn must not hide the result
        return f"<pre>{escape(type(result).__name__)}: {escape(str(error))}</pre>"


def comparison(one: Comparison) -> str:
    """Two runs side by side, for a notebook."""
    most = max((abs(change) for _, change in one.causes), default=1.0)
    rows = [
        (
            escape(part),
            f"{'+' if change > 0 else '−'}{seconds(abs(change))}",
            _bar([(abs(change) / most, "#c0392b" if change > 0 else "#2e8b57")]),
            escape(TITLES[part]),
        )
        for part, change in one.causes
    ]
    changes = [(escape(path), escape(str(a)), escape(str(b))) for path, (a, b) in one.changes.items()]
    pairs = [
        ("step", seconds(one.step_before), seconds(one.step_after)),
        ("MFU", f"{one.mfu_before:.1%}", f"{one.mfu_after:.1%}"),
        ("bubble", f"{one.bubble_before:.1%}", f"{one.bubble_after:.1%}"),
        ("memory", size(one.memory_before), size(one.memory_after)),
    ]
    return (
        f"<style>{_css()}</style><div class='trainsim card'><h3>{one.seconds:+.4g} s ({one.ratio:+.1%})</h3>"
        f"{_table(('', one.before, one.after), [*pairs, *changes])}{_table(('part', 'change', '', ''), rows)}</div>"
    )


def side_by_side(some: SideBySide) -> str:
    """Runs in a table with their Gantt charts on one time axis, for a notebook."""
    rows = [
        (
            escape(c.name), seconds(c.step_time), f"{c.bubble_fraction:.1%}", f"{c.mfu:.1%}", size(max(c.activations)),
            size(c.p2p), size(c.memory_peak) + ("" if c.fits else ": does not fit"),
        )
        for c in some.columns
    ]  # fmt: skip
    head = ("", "step", "bubble", "MFU", "activations", "p2p", "memory")
    return f"<style>{_css()}</style><div class='trainsim card'>{_table(head, rows)}{_image(_png(some.gantt()))}</div>"


def tiles(result: Result) -> str:
    """The figures that matter most."""
    use, speed = result.memory, result.throughput
    figures = [
        ("step time", seconds(result.step_time), f"closed form {seconds(result.estimate.seconds)}"),
        ("throughput", f"{speed.tokens_per_s:,.0f}", "tokens/s"),
        ("MFU", f"{speed.mfu:.1%}", f"{speed.model_flops_per_gpu / 1e12:.1f} TFLOP/s per GPU"),
        ("HFU", f"{speed.hfu:.1%}", f"{speed.hardware_flops_per_gpu / 1e12:.1f} TFLOP/s per GPU"),
        ("bubble", f"{result.bubble.fraction:.1%}", "of the pipeline's time"),
        ("memory", size(use.peak), f"of {size(use.capacity)}: " + ("fits" if use.fits else "does not fit")),
        ("GPUs", f"{result.lanes.ranks:,}", f"{count(result.parameters['total'])} parameters"),
    ]
    alarm = {"memory": "" if use.fits else " alarm"}
    inner = "".join(
        f"<div class='tile{alarm.get(name, '')}'><span>{escape(name)}</span><b>{escape(value)}</b>"
        f"<small>{escape(note)}</small></div>"
        for name, value, note in figures
    )
    return f"<div class='tiles'>{inner}</div>"


def breakdown(result: Result) -> str:
    """One stacked bar of the step, with its legend as a table."""
    step = result.step_time or 1.0
    parts = [(part, value) for part, value in result.breakdown.items() if value > 0]
    rows = [
        (
            f"<i style='background:{PARTS[part]}'></i>{escape(part)}",
            seconds_of(value, step),
            f"{value / step:.1%}",
            _bar([(value / step, PARTS[part])]),
            escape(TITLES[part]),
        )
        for part, value in parts
    ]
    return _bar([(value / step, PARTS[part]) for part, value in parts], tall=True) + _table(("", "", "", "", ""), rows)


def png(result: Result) -> bytes:
    """The Gantt chart as PNG."""
    return _png(result.gantt())


def _png(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=110)
    return out.getvalue()


def memory_chart(result: Result) -> str:
    """Level of each stage over the step as small SVG charts: model states, then what comes and goes; the capacity as
    a line."""
    use, step = result.memory, result.step_time or 1.0
    top = max(use.capacity, use.peak) * 1.02
    some = use.per_stage if len(use.per_stage) <= 16 else (*use.per_stage[:8], *use.per_stage[-8:])
    rows = []
    for stage in some:
        x, y = _thin(stage.times.tolist(), stage.top.tolist(), step)
        stair = " ".join(f"{a * 1000:.1f},{(1 - b / top) * 60:.2f}" for a, b in zip(x, y, strict=True))
        level, states = ((1 - value / top) * 60 for value in (use.capacity, float(stage.held.min())))
        rows.append(
            f"<div class='level'><span>stage {stage.stage}</span><svg viewBox='0 0 1000 60' preserveAspectRatio='none'>"
            f"<polygon points='0,60 {stair} 1000,60'/>"
            f"<rect x='0' width='1000' y='{states:.2f}' height='{60 - states:.2f}'/>"
            f"<line x1='0' x2='1000' y1='{level:.2f}' y2='{level:.2f}'/></svg><small>{size(stage.peak)}</small></div>"
        )
    return "".join(rows)


def _thin(
    times: Sequence[float], held: Sequence[float], step: float, columns: int = 500
) -> tuple[list[float], list[float]]:
    """A stair of at most two points per column that keeps every column's highest level."""
    best: dict[int, float] = {}
    for time, level in zip(times, held, strict=True):
        column = int(time / step * columns)
        best[column] = max(best.get(column, 0.0), level)
    x: list[float] = []
    y: list[float] = []
    for column, level in best.items():
        if y:
            x.append(column / columns)
            y.append(y[-1])
        x.append(column / columns)
        y.append(level)
    return x, y


def _memory(result: Result) -> str:
    use = result.memory
    scale = max(use.capacity, use.peak)
    rows = []
    for stage in use.per_stage:
        parts = [(stage.part(c) / scale, MEMORY[c]) for c in CATEGORIES]
        over = " class='alarm'" if stage.peak > use.capacity else ""
        rows.append(
            (
                f"<span{over}>stage {stage.stage}</span>",
                size(stage.peak),
                f"{stage.peak / use.capacity:.0%}",
                _bar(parts, mark=use.capacity / scale),
                f"rank {stage.rank}, mostly {stage.largest}",
            )
        )
    legend = " ".join(f"<span><i style='background:{MEMORY[c]}'></i>{c}</span>" for c in CATEGORIES)
    missing = f"<p class='note'>not counted: {escape('; '.join(use.not_counted))}</p>"
    return _table(("", "peak", "of capacity", "", "where"), rows) + f"<p class='legend'>{legend}</p>{missing}"


def _bubble(result: Result) -> str:
    one = result.bubble
    rows = [(f"stage {k}", f"{share:.1%}", _bar([(share, "#8c8c8c")])) for k, share in enumerate(one.per_stage)]
    text = (
        f"<p>{one.fraction:.2%} of the pipeline's time (1 − busy / window); idle over ideal {one.idle_over_ideal:.2%}; "
        f"over each rank's own span {one.span_fraction:.2%}. Warm-up {seconds(one.warmup_s)}, steady "
        f"{seconds(one.steady_s)}, cool-down {seconds(one.cooldown_s)}.</p>"
    )
    return text + _table(("", "idle", ""), rows)


def _waits(result: Result) -> str:
    step = result.step_time or 1.0
    rows = [
        (
            f"stage {w.stage}",
            seconds_of(w.seconds, step),
            _bar([(w.seconds / step, "#8c8c8c")]),
            escape(waits_for(w.what, w.source, w.stage)),
        )
        for w in result.waits
        if w.seconds > 0.01 * step
    ]
    return _table(("", "waits", "", ""), rows) if rows else "<p>nobody</p>"


def _communication(result: Result) -> str:
    rows = [
        (
            kind,
            f"{t.operations:,.0f}",
            size(t.bytes_per_rank),
            size(t.bytes_inter_node_per_rank),
            seconds(t.time_s),
            seconds(t.exposed_s),
        )
        for kind, t in result.communication.items()
        if t.operations
    ]
    head = ("kind", "operations", "sent", "to other nodes", "in flight", "exposed")
    return _table(head, rows) if rows else "<p>none</p>"


def _critical(result: Result) -> str:
    rows = [
        (escape(c.kind), seconds_of(c.seconds, result.step_time), f"{c.share:.1%}", _bar([(c.share, "#c0142b")]))
        for c in result.critical_path.causes
    ]
    return _table(("kind", "on the path", "share", ""), rows)


def _estimate(result: Result) -> str:
    one = result.estimate
    rows = [
        (escape(p.name), seconds(p.closed_form), seconds(p.simulated), f"{p.difference:+.4g} s") for p in one.phases
    ]
    rows.append(("step", seconds(one.seconds), seconds(one.simulated), f"{one.difference:+.1%}"))
    return _table(("phase", "closed form", "on the critical path", "difference"), rows)


def _yaml(result: Result) -> str:
    import yaml

    try:
        return yaml.safe_dump(dict(result.scenario), sort_keys=False, allow_unicode=True)
    except yaml.YAMLError:
        return repr(dict(result.scenario))


def _section(title: str, body: str, note: str = "") -> str:
    small = f" <small>{note}</small>" if note else ""
    return f"<section><h2>{escape(title)}{small}</h2>{body}</section>"


def _image(data: bytes) -> str:
    return f"<img alt='Gantt chart' src='data:image/png;base64,{base64.b64encode(data).decode()}'>"


def _bar(parts: Iterable[tuple[float, str]], *, tall: bool = False, mark: float | None = None) -> str:
    inner = "".join(f"<u style='width:{share * 100:.3f}%;background:{colour}'></u>" for share, colour in parts)
    line = f"<s style='left:{mark * 100:.2f}%'></s>" if mark is not None else ""
    return f"<div class='bar{' tall' if tall else ''}'>{inner}{line}</div>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head) if any(head) else ""
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _list(lines: Iterable[str]) -> str:
    inner = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul class='warnings'>{inner}</ul>" if inner else ""


@cache
def _css() -> str:
    return (files("trainsim.report") / "report.css").read_text()
