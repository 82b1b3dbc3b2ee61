"""A sweep as sections: a line per point, why some did not run, and what it says on the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainsim.analysis.training_cost import in_days
from trainsim.study.sweep_summary import RefusedPoints, Summary, SweepGoal, kind_of
from trainsim.study.swept import SweptPoint
from trainsim.study.trial import verdict, word
from trainsim.tables.blocks import Block, Figure, Figures, Paragraph, Section
from trainsim.tables.cells import Bar, Cell, Sign, Unit
from trainsim.tables.table import Column, Table
from trainsim.units import format_bytes, format_count, format_number_of, format_time

if TYPE_CHECKING:
    from trainsim.study.sweep import Sweep
    from trainsim.study.trial import Measures

MOST, BEST = 40, 20
"""Points that are all listed; of more, so many of the best."""
MOST_REASONS, MOST_OF_FRONT = 12, 10
EFFECT = "#6aa3d5"
MEASURED = (
    Column("step", Unit.TIME),
    Column("MFU", Unit.SHARE, priority=2),
    Column("bubble", Unit.SHARE, priority=4),
    Column("memory", Unit.BYTES, priority=1),
    Column("tokens/s/GPU", Unit.WHOLE, priority=5),
    Column("days", Unit.NUMBER, priority=3),
    Column("cost", Unit.COUNT, priority=1),
    Column(),
)
"""What a line says of a point; the columns that matter least go first where there is no room."""


def sections_of(swept: Sweep) -> list[Section]:
    """The points, and the summary where there is something to compare."""
    summary = swept.summary()
    sections = [_points(swept, summary)]
    return sections if summary.ran < 2 else [*sections, summary_section(summary)]


def _points(swept: Sweep, summary: Summary) -> Section:
    """The changed values of each point with what came out; of those that did not run, each reason once."""
    points, reasons = swept.points, [kind_of(one.reason) for one in summary.not_run]
    listed = points if len(points) <= MOST else _best(points, summary)
    rows = tuple((*_values(swept.axes, point), *_measured(point, reasons)) for point in listed)
    table = Table(columns=(*_axes(swept.axes, points), *MEASURED), rows=rows)
    blocks: list[Block] = [_without_cost(table)]
    if len(listed) < len(points):
        said = f"the best {len(listed)} of {summary.ran:,} that ran; --csv FILE writes all points, --json too"
        blocks.append(Paragraph(said, "quiet"))
    if reasons:
        blocks.append(_not_run(summary))
    out = f"; {summary.left_out:,} left out by --where" if summary.left_out else ""
    return Section("Sweep", tuple(blocks), format_number_of(len(points), "point") + out)


def _best(points: Sequence[SweptPoint], summary: Summary) -> list[SweptPoint]:
    """Those that fit first, and of them the fastest."""
    ran = [(not point.fits, summary.objective.time(point.ran), k) for k, point in enumerate(points) if point.ran]
    return [points[k] for _, _, k in sorted(ran)[:BEST]]


def _without_cost(table: Table) -> Table:
    """*table* without the columns of days and cost, if nobody asked for them."""
    for header in ("cost", "days"):
        at = next(k for k, column in enumerate(table.columns) if column is MEASURED[_place(header)])
        if all(row[at] is None for row in table.rows):
            table = table.without(at)
    return table


def _place(header: str) -> int:
    return next(k for k, column in enumerate(MEASURED) if column.header == header)


def _not_run(summary: Summary) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (f"({number})", f"{one.reason}{_as_often(one)}") for number, one in enumerate(summary.not_run[:MOST_REASONS], 1)
    ]
    if rest := summary.not_run[MOST_REASONS:]:
        told = f"for {format_number_of(len(rest), 'other reason')}; --csv FILE writes them all"
        rows.append((None, f"{format_number_of(sum(one.points for one in rest), 'point')} {told}"))
    return Table(columns=(Column(), Column(wraps=True)), rows=tuple(rows), title="Not run")


def _as_often(one: RefusedPoints) -> str:
    """How many points have a reason, or one that differs in its numbers."""
    if one.points == 1:
        return ""
    return f" ({one.points:,} points{', each with numbers of its own' if one.reasons > 1 else ''})"


def _axes(axes: Sequence[str], points: Sequence[SweptPoint]) -> tuple[Column, ...]:
    """A column per axis, named by the last word of its path where that is its alone."""
    columns = []
    for path, name in zip(axes, short_names(axes), strict=True):
        values = [point.values[path] for point in points if path in point.values]
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        columns.append(Column(name, align="right" if numbers else "left"))
    return tuple(columns)


def short_names(axes: Sequence[str]) -> list[str]:
    """The last word of each path where that is its alone, else the path.

    >>> short_names(["parallel.tp", "training.rollout.tp", "parallel.pp"])
    ['parallel.tp', 'training.rollout.tp', 'pp']
    """
    last = [path.rpartition(".")[2] for path in axes]
    return [name if last.count(name) == 1 else path for path, name in zip(axes, last, strict=True)]


def _values(axes: Sequence[str], point: SweptPoint) -> tuple[Cell, ...]:
    return tuple(_short(point.values[path]) if path in point.values else None for path in axes)


def _short(value: object) -> str:
    """A value as a scenario writes it; a real number with as many digits as anybody reads."""
    return f"{value:.6g}" if isinstance(value, float) else word(value)


def _measured(point: SweptPoint, reasons: list[str]) -> tuple[Cell, ...]:
    value = point.ran
    if value is None:
        return *[None] * (len(MEASURED) - 1), Sign(f"not run ({reasons.index(kind_of(point.reason)) + 1})", "bad")
    return (
        value.step_time, value.mfu, value.bubble_fraction, value.peak_memory, value.tokens_per_s_per_gpu,
        None if value.days is None else float(f"{value.days:.3g}"), value.cost, verdict(value),
    )  # fmt: skip


def summary_section(summary: Summary) -> Section:
    """What a sweep shows as a whole: how many ran, the best, what is traded for memory, and which axes matter."""
    figures = tuple(_figures(summary))
    blocks: list[Block] = [Figures(figures)] if figures else []
    if not summary.fit:
        blocks.append(Paragraph("none of the points that ran fits in memory", "bad"))
    if len(summary.front) > 1:
        blocks.append(_front(summary))
    elif summary.front and summary.fit > 1:
        blocks.append(Paragraph("the fastest of those that fit takes least memory, too"))
    if summary.sensitivities:
        blocks.append(_sensitivities(summary))
    return Section("On the whole", tuple(blocks), f"{summary.ran:,} ran, {summary.fit:,} of them fit")


def _figures(summary: Summary) -> list[Figure]:
    fastest, thrifty = summary.fastest, summary.thriftiest
    found = []
    if fastest and fastest.ran:
        found.append(Figure("fastest", fastest.title, _about(fastest.ran)))
    if thrifty and thrifty.ran and fastest and thrifty is not fastest and _differs(summary, fastest, thrifty):
        name = "cheapest" if thrifty.ran.cost is not None else "best per GPU"
        found.append(Figure(name, thrifty.title, _about(thrifty.ran)))
    return found


def _differs(summary: Summary, fastest: SweptPoint, thrifty: SweptPoint) -> bool:
    """Whether the thriftiest point is another kind of best."""
    costs = {point.ran.cost for point in (fastest, thrifty) if point.ran}
    return summary.objective is SweepGoal.PER_GPU or len(costs) > 1


def _about(ran: Measures) -> str:
    whole = [] if ran.days is None else [in_days(ran.days)]
    if ran.days_low is not None and ran.days_high is not None:
        whole.append(f"likely {in_days(ran.days_low, ran.days_high)}")
    whole += [] if ran.cost is None else [f"cost {format_count(ran.cost)}"]
    gpus = f"{ran.tokens_per_s:,.0f} tokens/s on {format_number_of(ran.gpus, 'GPU')}"
    return "; ".join([f"step {format_time(ran.step_time)}", gpus, format_bytes(ran.peak_memory), *whole])


def _front(summary: Summary) -> Table:
    """What is traded: each takes less memory than all that are faster."""
    points = summary.front
    step = max(1, -(-(len(points) - 1) // (MOST_OF_FRONT - 1)))
    shown = [points[k] for k in sorted({*range(0, len(points), step), len(points) - 1})]
    rows = tuple(
        (p.ran.step_time, p.ran.tokens_per_s_per_gpu, p.ran.peak_memory, p.title) for p in reversed(shown) if p.ran
    )
    columns = (
        Column("step", Unit.TIME), Column("tokens/s/GPU", Unit.WHOLE), Column("memory", Unit.BYTES),
        Column("point", wraps=True),
    )  # fmt: skip
    some = "" if len(shown) == len(points) else f", {len(shown)} of {len(points)}"
    return Table(columns=columns, rows=rows, title=f"Time against memory: those that no other beats in both{some}")


def _sensitivities(summary: Summary) -> Table:
    rows = tuple(
        (
            one.axis,
            one.best.title,
            one.worst.title,
            one.effect,
            Bar.of(min(one.effect, 1.0), EFFECT),
            one.effect_on_best,
        )
        for one in summary.sensitivities
    )
    columns = (
        Column("axis"), Column("best", align="left"), Column("worst", align="left", priority=2),
        Column("median", Unit.CHANGE), Column(width=12, priority=1), Column("best point", Unit.CHANGE),
    )  # fmt: skip
    title = "What matters: how much longer it takes with the worst value of an axis"
    return Table(columns=columns, rows=rows, title=title)
