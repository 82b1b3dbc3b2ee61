"""The commands: they read words, call the library and print; nothing is worked out here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trainsim.cli.compare import compare
from trainsim.cli.explain import explain
from trainsim.cli.options import Json, Name, Sets
from trainsim.cli.reading import load, words
from trainsim.cli.show import list_names, show
from trainsim.cli.sweep import sweep
from trainsim.cli.writing import folder_for, print_json, print_lines, render, slug

NO = 1  # exit status of a scenario that ran and whose answer is "no"

app = typer.Typer(
    name="trainsim",
    help="Replay a distributed training step without a GPU: its time, its bubble, its memory, and where they go.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(asked: bool) -> None:
    if asked:
        print_lines([f"trainsim {sys.modules['trainsim'].__version__}"])
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_version, help="Print it.")] = False,
) -> None:
    """Replay a distributed training step without a GPU: its time, its bubble, its memory, and where they go."""


@app.command()
def run(
    scenario: Name,
    changes: Sets = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Default: out/<scenario>/.")] = None,
    as_json: Json = False,
    no_fold: Annotated[bool, typer.Option("--no-fold", help="Simulate every rank: slow, the same numbers.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if it does not fit in memory.")] = False,
) -> None:
    """Simulate one step; print it and write result.json, Gantt charts, a trace and a page."""
    base = load(scenario, changes)
    if no_fold:
        base = base.replace({"simulation.fold": False})
    folder = folder_for(out or Path("out") / slug(base))
    if not as_json:
        from trainsim.report.resolved import resolved_lines

        print_lines(resolved_lines(base.resolved))
    from trainsim.report.files import save
    from trainsim.report.progress import working
    from trainsim.report.text import summary, written

    with working(base.name) as phase:
        result = base.run(phase)
    if as_json:
        print_json(result.to_dict())
    else:
        render(summary(result))
        if not result.memory.fits:
            print_lines([f"What would make it fit: {words('trainsim show memory', scenario, changes)}", ""])
    with working(base.name) as phase:
        phase("drawing")
        files = save(result, folder)
    if as_json:
        print("\n".join(map(str, files)), file=sys.stderr)
    else:
        render(written(files))
    if strict and not result.memory.fits:
        raise typer.Exit(NO)


app.command()(sweep)
app.command()(compare)
app.command()(explain)
app.add_typer(show, name="show")
app.command("list")(list_names)
