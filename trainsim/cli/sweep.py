"""``trainsim sweep``: every point of a design."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainsim.cli.design_options import Grids, PointsFile, Ranges, Samples, Seed, Wheres, Zips, design_of
from trainsim.cli.options import Backend, Json, Names, Price, Sets, StoreFile, Tokens, Workers, command
from trainsim.cli.reading import check_cost, load, tell_if_long, with_cost
from trainsim.cli.writing import (
    folder_for,
    keep_apart,
    print_json,
    render,
    save_parquet,
    try_drawing,
    try_first,
    try_parquet,
    try_writing,
)
from trainsim.errors import ScenarioError

if TYPE_CHECKING:
    from trainsim.study.sweep import Sweep
    from trainsim.study.sweep_plot import Kind

Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot", metavar="FILE", help="Plot to a .png or .svg file; with a folder, speed against memory as well."
    ),
]
Csv = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the table here.")]
Parquet = Annotated[Path | None, typer.Option("--parquet", metavar="FILE", help="Write the table here as Parquet.")]


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
    plot: Plot = None,
    parquet: Parquet = None,
    store: StoreFile = None,
    workers: Workers = None,
    backend: Backend = None,
    as_json: Json = False,
) -> None:
    """Run many variants: a grid, a file of points, or random samples.

    Points that cannot run stay in the table with the reason.
    """
    from trainsim.study.sweep import run_design

    design = design_of(grid, zips, points=points, ranges=sample, samples=samples, seed=seed)
    base = load(scenario, with_cost(changes, tokens, price), tried=design.axes)
    check_cost(base, price, tried=design.axes)
    try_first({"--csv": (csv, try_writing), "--parquet": (parquet, try_parquet)}, read=[*scenario, points, store])
    pictures = _pictures(plot, read=[*scenario, points, store]) if plot else {}
    tell_if_long(base)
    swept = run_design(base, design, where=where, workers=workers, backend=backend, store=store)
    if store:
        print(f"{swept.found:,} of {len(swept.outcomes):,} points were in {store}", file=sys.stderr)
    _write(swept, csv, parquet)
    _draw(swept, pictures)
    if as_json:
        print_json({"rows": list(swept.rows()), "summary": swept.summary().to_dict()})
    else:
        render(swept)
    _end(swept)


def _end(swept: Sweep) -> None:
    """Say so where a sweep was interrupted, or none of its points could run."""
    if swept.interrupted:
        raise KeyboardInterrupt
    failures = [outcome.failure for outcome in swept.outcomes if outcome.failure]
    if len(failures) == len(swept.outcomes):
        raise ScenarioError(f"no point could run; the first one: {failures[0].message}")


def _pictures(path: Path, *, read: Sequence[str | Path | None]) -> dict[Kind, Path]:
    """The files of the pictures that ``--plot`` asks for, tried out before any work is done."""
    files: dict[Kind, Path] = {"map": path}
    if path.is_dir() or not path.suffix:
        folder = folder_for(path)
        files = {"map": folder / "map.png", "pareto": folder / "pareto.png"}
    for file in files.values():
        keep_apart("--plot", file, read)
        try_drawing(file)
    return files


def _draw(swept: Sweep, pictures: dict[Kind, Path]) -> None:
    """Draw them, if anything ran."""
    for kind, file in pictures.items() if any(outcome.value for outcome in swept.outcomes) else ():
        swept.plot(file, kind=kind)
        print(f"Drawn: {file}", file=sys.stderr)


def _write(swept: Sweep, csv: Path | None, parquet: Path | None) -> None:
    """The table into the files that are wanted."""
    if csv:
        swept.frame().to_csv(csv, index=False)
    if parquet:
        save_parquet(swept.frame(), parquet)
    for file in filter(None, (csv, parquet)):
        print(f"Written: {file}", file=sys.stderr)
