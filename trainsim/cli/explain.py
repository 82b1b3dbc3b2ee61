"""``trainsim explain``: what would make a step shorter."""

from __future__ import annotations

from typing import Annotated

import typer

from trainsim.cli.reading import load
from trainsim.cli.writing import print_json, render


def explain(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of one.")],
    changes: Annotated[
        list[str], typer.Option("--set", metavar="PATH=VALUE", help="Change a field first; repeatable.")
    ] = [],  # noqa: B006
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else.")
    ] = False,
) -> None:
    """Say where the time of a step is lost, and which change would save most; each is run."""
    from trainsim.study.explain.explanation import explain as explained

    one = explained(load(scenario, changes))
    if as_json:
        print_json(one.to_dict())
    else:
        render(one)
