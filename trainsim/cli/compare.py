"""``trainsim compare``: runs side by side."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from trainsim.cli.options import Json, Sets
from trainsim.cli.reading import grids_of, load
from trainsim.cli.writing import print_json, render, save_figure, try_drawing
from trainsim.errors import ScenarioError


def compare(
    scenarios: Annotated[list[str], typer.Argument(metavar="A B [C...]", help="Scenario files, or names that ship.")],
    changes: Sets = [],  # noqa: B006
    grid: Annotated[
        list[str],
        typer.Option("--grid", metavar="PATH=V1,V2,...", help="Run each with each value, such as schedules."),
    ] = [],  # noqa: B006
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Draw all Gantt charts on one time axis here.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Put runs side by side: how they differ, and why."""
    from trainsim.study.compare import compare as side_by_side
    from trainsim.study.sweep import points
    from trainsim.study.swept import label
    from trainsim.study.trial import Change, Trial

    values = grids_of(grid)
    bases = [load(name, changes, tried=values) for name in scenarios]
    trials = [
        Trial(base=base, parts=(Change(title=f"{base.name}: {label(point)}", values=point),)) if point
        else Trial(base=base, name=base.name)
        for base in bases
        for point in points(values)
    ]  # fmt: skip
    if len(trials) < 2:
        raise ScenarioError("compare wants two or more: A B, or one with --grid pipeline.schedule=1f1b,zb-h1")
    if out:
        try_drawing(out)
    runs = side_by_side(trials)
    if out:
        with redirect_stdout(sys.stderr if as_json else sys.stdout):
            save_figure(runs.gantt(), out)
    if as_json:
        data = runs.to_dict()
        print_json({**data["differences"][0], **data} if len(runs) == 2 else data)
    else:
        render(runs)
    if runs.interrupted:
        raise KeyboardInterrupt
