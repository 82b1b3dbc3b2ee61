"""``trainsim show step``: a step or a part of it, drawn kernel by kernel where that can be seen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainsim.cli.options import Name, Sets
from trainsim.cli.reading import load
from trainsim.cli.writing import default_folder, folder_for, picture_file, print_lines, slug


def show_step(
    scenario: Name,
    part: Annotated[
        str | None,
        typer.Argument(metavar="[PART]", help="A pass (F4), a layer of it (F4/12), or a time range (1.2s-1.3s)."),
    ] = None,
    changes: Sets = [],  # noqa: B006
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The picture (.png, .svg). Default: out/<scenario>/<part>.png."),
    ] = None,
) -> None:
    """The Gantt chart of a step, or of a part of it.

    A pass is drawn on the rank that runs it.
    """
    file = picture_file(out) if out else None
    base = load(scenario, changes)
    file = file or default_folder(base, changes) / f"{slug(part or 'step')}.png"
    folder_for(file.parent)
    from trainsim.report.files import save_pictures
    from trainsim.report.progress import working

    with working(base.name) as phase:
        result = base.run(phase)
        phase("drawing")
        save_pictures(result.gantt(window=part), [file])
    print_lines([f"Drawn: {file}"])
