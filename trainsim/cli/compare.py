"""``trainsim compare``: runs side by side."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from trainsim.cli.options import Json, Sets
from trainsim.cli.reading import grids_of, load
from trainsim.cli.writing import print_json, render, save_figure, try_writing
from trainsim.errors import ScenarioError


def compare(
    scenarios: Annotated[list[str], typer.Argument(metavar="A B [C...]", help="Scenario files, or names of such.")],
    changes: Sets = [],  # noqa: B006
    grid: Annotated[
        list[str],
        typer.Option("--grid", metavar="PATH=V1,V2,...", help="Each of them with each value, such as schedules."),
    ] = [],  # noqa: B006
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Draw all Gantt charts on one time axis here.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run scenarios and put them side by side; say how much each differs from the first, and from where."""
    from trainsim.study.compare import compare as side_by_side

    values = grids_of(grid)
    points: list[dict[str, Any]] = [dict(zip(values, some, strict=True)) for some in product(*values.values())]
    bases = [load(name, changes) for name in scenarios]
    runs = [base.replace(point) if point else base for base in bases for point in points]
    if len(runs) < 2:
        raise ScenarioError("compare wants two or more: A B, or one with --grid pipeline.schedule=1f1b,zb-h1")
    if out:
        try_writing(out)
    some = side_by_side(runs)
    if out:
        with redirect_stdout(sys.stderr if as_json else sys.stdout):
            save_figure(some.gantt(), out)
    if as_json:
        data = some.to_dict()
        print_json({**data["differences"][0], **data} if len(some) == 2 else data)
    else:
        render(some)
