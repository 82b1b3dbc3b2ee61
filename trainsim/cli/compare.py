"""``trainsim compare``: runs side by side."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainsim.cli.measured import StepOfTrace, measured_among, show_measured
from trainsim.cli.options import Backend, Json, Sets, StoreFile, Workers, command
from trainsim.cli.reading import grids_of, load, tell_if_long
from trainsim.cli.writing import print_json, render, save_figure, try_drawing
from trainsim.errors import ScenarioError

if TYPE_CHECKING:
    from trainsim.scenario.scenario import Scenario
    from trainsim.study.compare import SideBySide
    from trainsim.study.trial import Trial


Compared = Annotated[
    list[str],
    typer.Argument(
        metavar="A B [C...]",
        help="Scenario files, or built-in names; or one of them and profiler traces, one file per rank; or two traces.",
    ),
]
Grids = Annotated[
    list[str],
    typer.Option("--grid", metavar="PATH=V1,V2,...", help="Run each scenario with each value, such as schedules."),
]
Charts = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Draw all Gantt charts on one time axis here.")
]


@command
def compare(
    scenarios: Compared,
    changes: Sets = [],  # noqa: B006
    grid: Grids = [],  # noqa: B006
    out: Charts = None,
    store: StoreFile = None,
    workers: Workers = None,
    backend: Backend = None,
    step: StepOfTrace = None,
    as_json: Json = False,
) -> None:
    """Compare runs side by side: how they differ, and why."""
    from trainsim.study.compare import compare as side_by_side

    if traces := measured_among(scenarios):
        asked = {"--grid": grid or None, "--store": store, "--workers": workers, "--backend": backend}
        show_measured(scenarios, traces, changes, step=step, out=out, as_json=as_json, refused=asked)
        return
    if step is not None:
        raise ScenarioError(f"--step {step}: chooses a step of a trace, and none of these is one")
    values = grids_of(grid)
    bases = [load(name, changes, tried=values) for name in scenarios]
    trials = [trial for base in bases for trial in _trials(base, values)]
    if len(trials) < 2:
        raise ScenarioError("compare needs two or more scenarios: A B, or one with --grid pipeline.schedule=1f1b,zb-h1")
    if out:
        _refuse({"--store": store, "--workers": workers, "--backend": backend})
        try_drawing(out)
    for base in bases:
        tell_if_long(base)
    runs = side_by_side(trials, workers=workers, backend=backend, store=store)
    if store:
        print(f"{runs.found:,} of {len(trials):,} runs were in {store}", file=sys.stderr)
    _show(runs, out, as_json=as_json)
    if runs.interrupted:
        raise KeyboardInterrupt


def _trials(base: Scenario, values: Mapping[str, Any]) -> Iterator[Trial]:
    """One of *base*, or one per point of the grid."""
    from trainsim.study.sweep import points
    from trainsim.study.swept import label
    from trainsim.study.trial import Change, Trial

    for point in points(values):
        if point:
            yield Trial(base=base, parts=(Change(title=f"{base.name}: {label(point)}", values=point),))
        else:
            yield Trial(base=base, name=base.name)


def _show(runs: SideBySide, out: Path | None, *, as_json: bool) -> None:
    if out:
        with redirect_stdout(sys.stderr if as_json else sys.stdout):
            save_figure(runs.gantt(), out)
    if as_json:
        data = runs.to_dict()
        print_json({**data["differences"][0], **data} if len(runs) == 2 else data)
    else:
        render(runs)


def _refuse(given: Mapping[str, object]) -> None:
    """Charts need whole runs, which are neither stored nor run elsewhere."""
    for option, value in given.items():
        if value is not None:
            raise ScenarioError(
                f"--out draws whole runs, and {option} {value} gives numbers only; leave out one of the two"
            )
