"""``trainsim export``: a scenario as a file of another tool."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trainsim.cli.options import Json, Name, Sets
from trainsim.cli.reading import load
from trainsim.cli.writing import print_json, try_writing
from trainsim.errors import ScenarioError


def export_scenario(
    scenario: Name,
    kind: Annotated[str, typer.Option("--to", metavar="NAME", help="The format, from `trainsim list exporters`.")] = "",
    changes: Sets = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Write a scenario as a file for another tool.

    The file goes to standard output, or where --out says. What the tool has no word for is told on standard error, key
    by key.
    """
    from trainsim.exporters.exporter import export, exporters

    if not kind:
        raise ScenarioError(f"say which format: --to {' or --to '.join(exporters)}")
    exported = export(load(scenario, changes), kind)
    if out:
        try_writing(out)
        out.write_text(exported.text, encoding="utf-8")
    if as_json:
        print_json(exported.to_dict())
    elif not out:
        print(exported.text, end="" if exported.text.endswith("\n") else "\n")
    if not as_json:
        told = [f"left out: {one.key}: {one.words}" for one in exported.left_out]
        print(*told, *([f"Written: {out}"] if out else []), sep="\n", file=sys.stderr)
