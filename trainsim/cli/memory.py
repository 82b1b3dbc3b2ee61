"""``trainsim show memory``: what fills the memory and when, a picture of it, and what would make it fit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainsim.cli.options import Backend, Json, Names, Sets, StoreFile, Workers
from trainsim.cli.reading import load
from trainsim.cli.writing import default_folder, folder_for, picture_file, print_json, render

if TYPE_CHECKING:
    from trainsim.result.result import Result


def show_memory(
    scenario: Names,
    changes: Sets = [],  # noqa: B006
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The picture (.png, .svg). Default: out/<scenario>/memory.png."),
    ] = None,
    try_all: Annotated[bool, typer.Option("--all", help="Try what would free memory even if it fits.")] = False,
    store: StoreFile = None,
    workers: Workers = None,
    backend: Backend = None,
    as_json: Json = False,
) -> None:
    """What each stage holds, and what would make it fit.

    If it does not fit, or with --all, changes that take less memory are run.
    """
    file = picture_file(out) if out else None
    base = load(scenario, changes)
    file = file or default_folder(base, changes) / "memory.png"
    folder_for(file.parent)
    from trainsim.report.memory_table import memory_data, memory_sections
    from trainsim.report.progress import working
    from trainsim.study.trial import measures
    from trainsim.study.what_fits import search

    with working(base.name) as phase:
        result = base.run(phase)
    if not as_json:
        render(memory_sections(result))
    fitting = None
    if try_all or not result.memory.fits:
        fitting = search(base, measures(result), workers=workers, backend=backend, store=store)
    _draw(result, file)
    if as_json:
        ways = None if fitting is None else [tried.to_dict() for tried in fitting.tried]
        print_json({"name": result.name, "step_time_s": result.step_time, "memory": memory_data(result), "ways": ways})
        print(file, file=sys.stderr)
    else:
        render(fitting or "It fits; --all tries what would free memory.\n")
        print(f"Drawn: {file}")
    if fitting and fitting.interrupted:
        raise KeyboardInterrupt


def _draw(result: Result, file: Path) -> None:
    from trainsim.report.files import save_pictures

    save_pictures(result.memory_chart(), [file])
