"""``trainsim sweep``: every point of a grid."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trainsim.cli.options import Json, Names, Sets, Workers
from trainsim.cli.reading import grids_of, load
from trainsim.cli.writing import print_json, render, try_writing
from trainsim.errors import ScenarioError


def sweep(
    scenario: Names,
    grid: Annotated[
        list[str], typer.Option("--grid", metavar="PATH=V1,V2,...", help="Values to try; every combination is run.")
    ],
    changes: Sets = [],  # noqa: B006
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the table here.")] = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Run every point of a grid.

    A point that cannot run is a row that says why.
    """
    from trainsim.study.sweep import run_grid

    values = grids_of(grid)
    base = load(scenario, changes, tried=values)
    if csv:
        try_writing(csv)
    swept = run_grid(base, values, workers=workers)
    if csv:
        swept.frame().to_csv(csv, index=False)
        print(f"Written: {csv}", file=sys.stderr)
    if as_json:
        print_json({"rows": list(swept.rows())})
    else:
        render(swept)
    if swept.interrupted:
        raise KeyboardInterrupt
    failures = [outcome.failure for outcome in swept.outcomes if outcome.failure]
    if len(failures) == len(swept.outcomes):
        raise ScenarioError(f"no point could run; the first one: {failures[0].message}")
