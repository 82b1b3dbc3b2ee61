"""``trainsim explain``: what would make a step shorter."""

from __future__ import annotations

from trainsim.cli.options import Json, Names, Sets, Workers
from trainsim.cli.reading import load
from trainsim.cli.writing import print_json, render


def explain(
    scenario: Names,
    changes: Sets = [],  # noqa: B006
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Where a step loses time, and which change would save most."""
    from trainsim.study.explain import explain as explained

    explanation = explained(load(scenario, changes), workers=workers)
    if as_json:
        print_json(explanation.to_dict())
    else:
        render(explanation)
    if explanation.interrupted:
        raise KeyboardInterrupt
