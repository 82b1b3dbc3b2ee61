"""``ts.sweep``: every point of a design, run, as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from trainsim.errors import ScenarioError
from trainsim.scenario.scenario import Scenario
from trainsim.study.designs.design import Design, Point
from trainsim.study.designs.grid import grid
from trainsim.study.designs.listed import listed
from trainsim.study.designs.where import Conditions, Where
from trainsim.study.runner import Runner, Running
from trainsim.study.store import AnswerStore
from trainsim.study.sweep_summary import Summary, summarize
from trainsim.study.swept import COLUMNS, TYPES, SweptPoint, label, read_frame
from trainsim.study.trial import Change, Measures, Outcome, Trial, as_scenario, measures

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame
    from rich.console import RenderableType

    from trainsim.study.sweep_plot import Kind

Grid = Mapping[str, Sequence[Any]]
Tried = Grid | Iterable[Point] | Design
"""What to try: a grid (path -> values), points one by one, or a design."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The points of a design in its order, and what came of each. ``interrupted``: some were not run; ``left_out`` is
    for how many a condition did not hold, ``found`` how many were in the store."""

    axes: tuple[str, ...]
    outcomes: tuple[Outcome[Measures], ...]
    interrupted: bool = False
    left_out: int = 0
    found: int = 0

    @property
    def points(self) -> tuple[SweptPoint, ...]:
        """The same without their scenarios."""
        return tuple(map(SweptPoint.of, self.outcomes))

    def rows(self) -> Iterator[dict[str, Any]]:
        """A mapping per point: the changed values, the columns of ``COLUMNS``."""
        return (SweptPoint.of(outcome).row() for outcome in self.outcomes)

    def summary(self) -> Summary:
        """The best points, what is traded for memory, which axis matters, and what cannot run."""
        return summarize(self.axes, self.points, left_out=self.left_out)

    def plot(self, path: str | Path | None = None, *, kind: Kind = "map", value: str | None = None) -> Figure:
        """A picture, as ``ts.sweep_plot`` makes it; also written to *path*."""
        from trainsim.study.sweep_plot import draw, save

        figure = draw(self.axes, self.points, kind=kind, value=value)
        if path is not None:
            save(figure, Path(path))
        return figure

    def frame(self) -> DataFrame:
        """A row per point, as pandas has it."""
        from pandas import DataFrame, Series

        frame = DataFrame(list(self.rows()), columns=[*self.axes, *COLUMNS]).astype(TYPES)
        for axis in self.axes:
            if any(axis not in outcome.trial.changes for outcome in self.outcomes):  # whole numbers stay whole
                frame[axis] = Series([outcome.trial.changes.get(axis) for outcome in self.outcomes], dtype="object")
        frame.attrs |= {
            "interrupted": self.interrupted,
            "left_out": self.left_out,
            "found": self.found,
            "axes": list(self.axes),
        }
        return frame

    def __rich__(self) -> RenderableType:
        from trainsim.study.sweep_sections import sections_of
        from trainsim.tables.terminal import rich_sections

        return rich_sections(sections_of(self))

    def _repr_html_(self) -> str:
        from trainsim.study.sweep_sections import sections_of
        from trainsim.tables.page import card

        return card(sections_of(self))


def sweep(
    base: Scenario | str | Path,
    tried: Tried,
    *,
    where: Where | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    backend: str | None = None,
    store: AnswerStore | str | Path | None = None,
) -> DataFrame:
    """A table with a row per point of *tried*: the changed values, the results, and ``error`` where it could not run.

    *base* is a scenario, its file or its name. *tried* is a mapping from paths to values, of which every combination is
    run; a list of mappings, each a point; or a product of ``ts.grid``, ``ts.zipped`` and ``ts.samples``. *where* leaves
    out points: conditions such as ``"parallel.tp * parallel.pp <= 64"``, or functions of the changed scenario.
    ``workers`` processes run (None: one per core where that pays; 1: none but this one). ``progress`` shows a bar on
    standard error (None: where somebody looks at it). ``backend`` says who runs: ``serial``, ``processes``, ``dask`` or
    ``ray``, the latter two with an address where they are a cluster, as in ``dask://host:8786``. ``store`` is a file of
    points: what is in it is not run again, and what is run goes into it as it comes. An interrupt keeps the rows that
    are finished. Raises ScenarioError for a design or a condition that is none, UnknownName for a backend that there is
    not, and StoreError for a file that cannot be a store.

    >>> table = sweep("quickstart", {"parallel.tp": [2, 3, 4]}, where="parallel.tp < 4")
    >>> table.error[1]
    'parallel.tp = 3: 32 heads are not divisible by tp=3; tp=1, 2, 4, 8, 16, 32 would'
    >>> len(table), table.attrs["left_out"]
    (2, 1)
    """
    asked = run_design(base, tried, where=where, workers=workers, progress=progress, backend=backend, store=store)
    return asked.frame()


def run_design(
    base: Scenario | str | Path, tried: Tried, *, where: Where | None = None, **running: Unpack[Running]
) -> Sweep:
    """The same as a value that also prints itself."""
    runner = Runner(keep=measures, **running)
    scenario, design = as_scenario(base), as_design(tried)
    conditions = Conditions.read(where, scenario, design.axes)
    trials = [Trial(base=scenario, parts=(_change(point),)) for point in conditions.kept(scenario, design)]
    if not trials and len(design):
        raise ScenarioError(f"where: holds for none of {len(design):,} points; widen the condition or the values")
    outcomes = runner.run(trials, "sweep")
    return Sweep(
        axes=design.axes,
        outcomes=tuple(outcomes),
        interrupted=runner.interrupted,
        left_out=len(design) - len(trials),
        found=runner.found,
    )


def sweep_summary(frame: DataFrame) -> Summary:
    """What a table of ``ts.sweep`` (or some of its rows, or its CSV) says on the whole.

    Raises ScenarioError for a table without the columns of a sweep.

    >>> summary = sweep_summary(sweep("quickstart", {"parallel.tp": [2, 4]}))
    >>> summary.fastest.title, summary.sensitivities[0].best.title
    ('tp 2', '2')
    """
    axes, points = read_frame(frame)
    return summarize(axes, points, left_out=int(frame.attrs.get("left_out", 0)))


def _change(point: Point) -> Change:
    return Change(title=label(point), values=point)


def as_design(tried: Tried) -> Design:
    """The design that *tried* is. Raises ScenarioError for what is none."""
    if isinstance(tried, Design):
        return tried
    if isinstance(tried, Mapping | str) or not isinstance(tried, Iterable):
        return grid(tried)
    return listed(tried)


def points(values: Grid) -> Iterator[dict[str, Any]]:
    """Every combination of *values*, the last path varying fastest. Raises what ``grid`` raises.

    >>> [label(point) for point in points({"parallel.tp": [1, 2], "parallel.pp": [4]})]
    ['tp 1, pp 4', 'tp 2, pp 4']
    """
    return iter(grid(values))
