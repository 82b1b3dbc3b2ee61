"""``trainsim validate``: published runs beside what is predicted for them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trainsim.cli.options import Backend, Json, StoreFile, Workers
from trainsim.cli.writing import keep_apart, print_json, render, try_writing
from trainsim.errors import ScenarioError


def validate(
    runs: Annotated[
        Path | None,
        typer.Option(
            "--runs",
            metavar="FILE",
            help="Your own runs: a CSV file with the columns of the built-in table; or nanotron, a second table.",
        ),
    ] = None,
    source: Annotated[
        list[str], typer.Option("--source", metavar="NAME", help="Only runs of this source; repeatable.")
    ] = [],  # noqa: B006
    left_out: Annotated[
        bool,
        typer.Option("--left-out", help="Hold out each run's source: its software profile and its fits."),
    ] = False,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write one row per run here.")] = None,
    store: StoreFile = None,
    workers: Workers = None,
    backend: Backend = None,
    as_json: Json = False,
) -> None:
    """Simulate published runs and compare with their measurements.

    Errors by source, the runs that are furthest off, and why some cannot be replayed.
    """
    from trainsim.validation.scoring import validate as score

    if csv:
        keep_apart("--csv", csv, [runs])
        try_writing(csv)
    validation = score(runs, sources=source, left_out=left_out, workers=workers, backend=backend, store=store)
    if csv:
        validation.frame().to_csv(csv, index=False)
        print(f"Written: {csv}", file=sys.stderr)
    if as_json:
        print_json({"rows": [row.to_dict() for row in validation.scores]})
    else:
        render(validation)
    if validation.interrupted:
        raise KeyboardInterrupt
    if not any(row.predicted for row in validation.scores):
        raise ScenarioError(f"no run could be replayed; the first one: {validation.scores[0].reason}")
