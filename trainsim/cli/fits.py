"""``trainsim memory``: will it fit, what would make it fit, on what card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainsim.cli.options import Backend, Json, Names, Sets, StoreFile, Workers, command
from trainsim.cli.reading import changes_of, data_of
from trainsim.cli.writing import print_json, print_lines, render, save_figure, try_drawing
from trainsim.errors import ScenarioError


@command
def memory(
    scenario: Names,
    changes: Sets = [],  # noqa: B006
    cards: Annotated[
        str, typer.Option("--cards", metavar="GPU,...", help="GPUs to compare, from `trainsim list gpus`.")
    ] = "",
    gpus: Annotated[str, typer.Option("--gpus", metavar="N,...", help="GPU counts to try for each.")] = "1,8",
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Draw the table here (.png, .svg).")] = None,
    store: StoreFile = None,
    workers: Workers = None,
    backend: Backend = None,
    as_json: Json = False,
) -> None:
    """Will it fit, how, and on which GPU.

    Tries a model (its config.json is enough) with the usual training set-ups on several GPUs, next to rules of thumb
    and DeepSpeed's two estimators.
    """
    from trainsim.study.memory_table import checked, memory_table
    from trainsim.study.memory_table_sections import memory_table_sections

    if out:
        try_drawing(out)
    table = memory_table(
        data_of(scenario, changes_of(changes)),
        cards=checked(word.strip() for word in cards.split(",") if word.strip()),
        gpus=_counts(gpus),
        workers=workers,
        backend=backend,
        store=store,
    )
    if as_json:
        print_json({"name": table.model.name, "rows": [fit.to_dict() for fit in table.fits]})
    else:
        render(memory_table_sections(table))
    if out:
        from trainsim.study.memory_picture import memory_picture

        save_figure(memory_picture(table), out)
    if table.interrupted:
        print_lines(["interrupted: what was not run is left out"])
        raise KeyboardInterrupt


def _counts(text: str) -> list[int]:
    """The numbers of ``--gpus``. Raises ScenarioError."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 0 < int(word) <= 1 << 16 for word in words):
        raise ScenarioError(f"--gpus {text}: expected numbers of GPUs with commas between them, for example 1,8")
    return list(dict.fromkeys(int(word) for word in words))
