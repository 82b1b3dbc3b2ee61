"""The options that say which points a sweep runs, and the design that they are together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainsim.cli.reading import grid_of, grids_of, split, value_of
from trainsim.errors import ScenarioError

if TYPE_CHECKING:
    from trainsim.study.designs.design import Design

Grids = Annotated[
    list[str], typer.Option("--grid", metavar="PATH=V1,V2,...", help="Values to try; every combination runs.")
]
Zips = Annotated[
    list[str],
    typer.Option(
        "--zip", metavar="'PATH=V1,V2 PATH=V1,V2'", help="Values that go together, the same number for each path."
    ),
]
PointsFile = Annotated[
    Path | None, typer.Option("--points", metavar="FILE", help="A list of points: a .csv, .yaml or .json file.")
]
Ranges = Annotated[
    list[str],
    typer.Option("--sample", metavar="PATH=LOW..HIGH", help="Sample a range ('1..64 log': log scale) or V1,V2,..."),
]
Samples = Annotated[
    int | None, typer.Option("--samples", metavar="N", help="Number of points for --sample. Default: 32.")
]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", help="Random seed of --sample. Default: 0.")]
Wheres = Annotated[
    list[str],
    typer.Option(
        "--where", metavar="CONDITION", help="Keep only such points: 'parallel.tp*parallel.pp<=64'; repeatable."
    ),
]
USUAL_SAMPLES = 32


def design_of(
    grids: list[str],
    zips: Sequence[str] = (),
    *,
    points: Path | None = None,
    ranges: Sequence[str] = (),
    samples: int | None = None,
    seed: int | None = None,
) -> Design:
    """The design that the options are: each multiplies the others. Raises ScenarioError if there is none, or for
    options that cannot be read."""
    from trainsim.study.designs.design import Design
    from trainsim.study.designs.grid import grid
    from trainsim.study.designs.listed import read_points
    from trainsim.study.designs.samples import samples as sampled
    from trainsim.study.designs.zipped import zipped

    if not ranges and (samples is not None or seed is not None):
        raise ScenarioError("--samples and --seed are those of --sample PATH=LOW..HIGH; add one, or leave them out")
    design = grid(grids_of(grids)) if grids else Design()
    for text in zips:
        design = design * zipped(zip_of(text))
    if points is not None:
        design = design * read_points(points)
    if ranges:
        design = design * sampled(ranges_of(ranges), USUAL_SAMPLES if samples is None else samples, seed=seed or 0)
    if not design.parts:
        raise ScenarioError("say what to try: --grid parallel.tp=1,2,4, or --zip, --points or --sample")
    return design


def zip_of(text: str) -> dict[str, list[Any]]:
    """Paths and values of one ``--zip``.

    >>> zip_of("parallel.tp=1,2 parallel.dp=8,4")
    {'parallel.tp': [1, 2], 'parallel.dp': [8, 4]}
    """
    parts = [part for part in re.split(r"\s+(?=[A-Za-z_][\w.]*=)", text.strip()) if part]
    if not parts:
        raise ScenarioError(f"{text!r}: expected paths with values, such as --zip 'parallel.tp=1,2 parallel.dp=8,4'")
    values: dict[str, list[Any]] = {}
    for part in parts:
        path, tried = grid_of(part)
        if path in values:
            raise ScenarioError(f"{text!r}: {path} stands there twice; keep one")
        values[path] = tried
    return values


def ranges_of(texts: Sequence[str]) -> dict[str, Any]:
    """Paths and ranges, or lists of choices, of several ``--sample``.

    >>> ranges_of(["training.micro_batch=1..16", "parallel.tp=2,4"])
    {'training.micro_batch': '1..16', 'parallel.tp': [2, 4]}
    """
    ranges: dict[str, Any] = {}
    for text in texts:
        path, value = split(text, "--sample training.micro_batch=1..16")
        if path in ranges:
            raise ScenarioError(f"{text!r}: {path} has a --sample already; keep one")
        choices = None if ".." in value else value_of(f"[{value}]")
        ranges[path] = choices if isinstance(choices, list) and choices else value.strip()
    return ranges
