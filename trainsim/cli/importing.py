"""``trainsim import``: files of other tools as a scenario."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trainsim.cli.options import Json, Sets
from trainsim.cli.reading import changes_of
from trainsim.cli.writing import print_json, print_lines, render, try_writing
from trainsim.errors import ScenarioError


def import_files(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Files that together describe one job.")],
    changes: Sets = [],  # noqa: B006
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write the scenario, or the topology, here (.yaml)."),
    ] = None,
    kind: Annotated[
        str, typer.Option("--as", metavar="NAME", help="The format of the file, from `trainsim list importers`.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Turn files from other tools into a scenario.

    What became of every key is told. Several files combine: a config.json, a ds_config.json, a launch script, a TOML or
    YAML of a framework. Files of a machine alone (NCCL's topology, nvidia-smi topo -m, Slurm's or InfiniBand's network,
    a graph) become a topology.
    """
    from trainsim.importers.importing import import_config
    from trainsim.importers.sections import import_sections

    if out and out.suffix not in (".yaml", ".yml"):
        raise ScenarioError(f"--out {out}: a scenario or a topology is a .yaml file")
    imported = import_config(files, changes_of(changes), kind=kind)
    if not imported.missing and imported.is_machine:
        _ = imported.cluster
    elif not imported.missing:
        imported.complete.resolve()  # what cannot be is refused now, with the user's own key
    if out:
        try_writing(out)
        out.write_text(imported.to_yaml(), encoding="utf-8")
    if as_json:
        print_json(imported.to_dict())
    else:
        render(import_sections(imported))
    if out:
        with_name = [f"Written: {out}"]
        print_lines(with_name) if not as_json else print(*with_name, file=sys.stderr)
