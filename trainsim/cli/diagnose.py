"""``trainsim diagnose``: what slowed a measured job down."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trainsim.cli.options import Json
from trainsim.cli.writing import folder_for, print_json, render, slug


def diagnose(
    traces: Annotated[
        list[str], typer.Argument(metavar="TRACE", help="Operation tables of one job, in Parquet or CSV.")
    ],
    meta: Annotated[
        Path | None,
        typer.Option(
            "--meta", metavar="FILE", help="How the job is laid out (YAML). Default: meta-NAME.yaml beside it."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where the pictures go. Default: out/NAME/.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find what slowed a measured job down, by replaying it.

    Operations are replayed as measured, in the ideal case and in between. --json writes files with --out only.
    """
    from trainsim.diagnosis.diagnosing import diagnosed
    from trainsim.diagnosis.reading import read_operations
    from trainsim.report.progress import working
    from trainsim.report.text import written

    folder = folder_for(out) if out else None
    with working("diagnose") as phase:
        phase("reading")
        table = read_operations(traces, meta=meta)
        found = diagnosed(table, phase)
    print_json(found.to_dict()) if as_json else render(found)
    if folder is None and as_json:
        return
    with working(found.name) as phase:
        phase("drawing")
        paths = found.save(folder or folder_for(Path("out") / slug(found.name)))
    if as_json:
        print("\n".join(map(str, paths)), file=sys.stderr)
    else:
        render(written(paths))
