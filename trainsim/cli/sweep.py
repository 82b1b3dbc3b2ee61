"""``trainsim sweep``: every point of a design."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trainsim.cli.design_options import Grids, PointsFile, Ranges, Samples, Seed, Wheres, Zips, design_of
from trainsim.cli.options import Json, Names, Price, Sets, Tokens, Workers, command
from trainsim.cli.reading import check_cost, load, with_cost
from trainsim.cli.writing import print_json, render, try_writing
from trainsim.errors import ScenarioError

Csv = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the table here.")]


@command
def sweep(
    scenario: Names,
    grid: Grids = [],  # noqa: B006
    zips: Zips = [],  # noqa: B006
    points: PointsFile = None,
    sample: Ranges = [],  # noqa: B006
    samples: Samples = None,
    seed: Seed = None,
    where: Wheres = [],  # noqa: B006
    changes: Sets = [],  # noqa: B006
    tokens: Tokens = None,
    price: Price = None,
    csv: Csv = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Run every point of a grid, a file, or samples of ranges.

    A point that cannot run is a row that says why.
    """
    from trainsim.study.sweep import run_design

    design = design_of(grid, zips, points=points, ranges=sample, samples=samples, seed=seed)
    base = load(scenario, with_cost(changes, tokens, price), tried=design.axes)
    check_cost(base, price, tried=design.axes)
    if csv:
        try_writing(csv)
    swept = run_design(base, design, where=where, workers=workers)
    if csv:
        swept.frame().to_csv(csv, index=False)
        print(f"Written: {csv}", file=sys.stderr)
    if as_json:
        print_json({"rows": list(swept.rows()), "summary": swept.summary().to_dict()})
    else:
        render(swept)
    if swept.interrupted:
        raise KeyboardInterrupt
    failures = [outcome.failure for outcome in swept.outcomes if outcome.failure]
    if len(failures) == len(swept.outcomes):
        raise ScenarioError(f"no point could run; the first one: {failures[0].message}")
