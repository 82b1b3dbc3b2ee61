"""Arguments and options shared by several commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

Name = Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a built-in one.")]
Names = Annotated[
    list[str],
    typer.Argument(metavar="SCENARIO", help="A scenario file, the name of a built-in one, or files from other tools."),
]
Sets = Annotated[
    list[str], typer.Option("--set", metavar="PATH=VALUE", help="Change a field, such as parallel.tp=8; repeatable.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else.")]
Files = Annotated[
    str | None,
    typer.Option(
        "--files",
        metavar="WHAT,...",
        help="Any of result, gantt, svg, links, trace (or whole-trace), kineto (a trace per rank as of the PyTorch "
        "profiler), report; or none. Default: not svg, links, kineto.",
    ),
]
Ranks = Annotated[
    str | None, typer.Option("--ranks", metavar="R,...", help="Whose traces: 0,8,16-23 or all. Default: one pipeline.")
]
Workers = Annotated[
    int | None, typer.Option("--workers", metavar="N", help="Processes; default: one per core where that helps.")
]
Backend = Annotated[
    str | None,
    typer.Option(
        "--backend",
        metavar="NAME",
        help="Where to run: serial, processes, dask, ray; or a cluster, as in dask://host:8786.",
    ),
]
StoreFile = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH",
        help="Save every point to this file, or Parquet folder/, as it finishes; skip those already there.",
    ),
]
Tokens = Annotated[
    str | None,
    typer.Option("--tokens", metavar="N", help="Tokens of the whole training, such as 15T; adds days and GPU-hours."),
]
Price = Annotated[
    str | None,
    typer.Option("--price", metavar="X", help="Price of a GPU-hour, in any currency; with --tokens, adds the cost."),
]


def command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a command whose parameters are the options of the command line, as many as it has."""
    return function
