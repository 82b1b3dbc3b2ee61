"""``ts.sweep_plot``: a sweep as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trainsim.errors import ScenarioError, TrainsimError
from trainsim.study.pictures.bars import bars
from trainsim.study.pictures.heat import heat_map
from trainsim.study.pictures.pareto import pareto
from trainsim.study.pictures.quantities import quantity
from trainsim.study.sweep_summary import Summary, summarize
from trainsim.study.swept import SweptPoint, read_frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

Kind = Literal["map", "pareto"]


def sweep_plot(
    frame: DataFrame, path: str | Path | None = None, *, kind: Kind = "map", value: str | None = None
) -> Figure:
    """A picture of a table of ``ts.sweep`` (or some of its rows, or its CSV), as a matplotlib figure, also written to
    *path*.

    *kind* ``map``: every point by its axes: bars for one axis, heat maps of the two that matter most for more, with a
    panel for each value of the third. ``pareto``: speed against memory. *value* is the column that a map shows (None:
    the step time, or tokens/s where batches or GPUs differ). Raises UnknownName for another column and ScenarioError
    for a table that is none of a sweep, or of which nothing ran.

    >>> import trainsim as ts
    >>> frame = ts.sweep("quickstart", {"parallel.tp": [1, 2, 4]})
    >>> sweep_plot(frame, value="mfu").axes[0].get_xlabel()
    'parallel.tp'
    """
    axes, points = read_frame(frame)
    figure = draw(axes, points, kind=kind, value=value)
    if path is not None:
        save(figure, Path(path))
    return figure


def draw(axes: Sequence[str], points: Sequence[SweptPoint], *, kind: Kind = "map", value: str | None = None) -> Figure:
    """The same of points."""
    summary = summarize(axes, points)
    shown = quantity(value, summary.objective)
    if not summary.ran:
        raise ScenarioError("there is nothing to draw: no point could run")
    ordered = by_weight(axes, points, summary)
    if kind == "pareto":
        return pareto(ordered, points, summary)
    if kind != "map":
        raise ScenarioError(f"kind={kind!r}: the pictures of a sweep are 'map' and 'pareto'")
    if len(ordered) < 2:
        return bars((ordered or list(axes))[0], points, summary, shown)
    pair = sorted(ordered[:2], key=list(axes).index)  # across and down as the design has them
    return heat_map([*pair, *ordered[2:]], points, summary, shown)


def by_weight(axes: Sequence[str], points: Sequence[SweptPoint], summary: Summary) -> list[str]:
    """The axes with two values or more, what matters most first."""
    several = [axis for axis in axes if len({str(point.values.get(axis)) for point in points}) > 1]
    effects: Mapping[str, float] = {one.axis: one.effect for one in summary.sensitivities}
    return sorted(several, key=lambda axis: -effects.get(axis, 0.0))


def save(figure: Figure, path: Path) -> None:
    """Write *figure*; the format is the ending of the name."""
    try:
        figure.savefig(path)
    except ValueError as error:
        raise TrainsimError(f"{path}: {error}") from None
