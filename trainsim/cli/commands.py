"""The commands: they read words, call the library and print; nothing is worked out here."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from trainsim.cli.calibrate import calibrate
from trainsim.cli.compare import compare
from trainsim.cli.diagnose import diagnose
from trainsim.cli.examples import epilog
from trainsim.cli.explain import explain
from trainsim.cli.export import export_scenario
from trainsim.cli.fits import memory
from trainsim.cli.importing import import_files
from trainsim.cli.listing import list_names
from trainsim.cli.plan import plan
from trainsim.cli.run import run
from trainsim.cli.show import show
from trainsim.cli.sweep import sweep
from trainsim.cli.validate import validate
from trainsim.cli.writing import print_lines

WIDTH = 100
"""Columns that the help takes where there are so many."""

app = typer.Typer(
    name="trainsim",
    help="Simulate a distributed training step without a GPU: its time, bubble and memory, and what causes them.",
    epilog=epilog(""),
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": WIDTH},
)


def _version(asked: bool) -> None:
    if asked:
        print_lines([f"trainsim {sys.modules['trainsim'].__version__}"])
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    """Simulate a distributed training step without a GPU: its time, bubble and memory, and what causes them."""


app.command(epilog=epilog("run"))(run)
app.command(epilog=epilog("sweep"))(sweep)
app.command(epilog=epilog("plan"))(plan)
app.command(epilog=epilog("compare"))(compare)
app.command(epilog=epilog("explain"))(explain)
app.command(epilog=epilog("diagnose"))(diagnose)
app.command(epilog=epilog("memory"))(memory)
app.command(epilog=epilog("validate"))(validate)
app.command("import", epilog=epilog("import"))(import_files)
app.command(epilog=epilog("calibrate"))(calibrate)
app.command("export", epilog=epilog("export"))(export_scenario)
app.add_typer(show, name="show", epilog=epilog("show"))
app.command("list", epilog=epilog("list"))(list_names)
