"""``trainsim explain``: what would make a step shorter."""

from __future__ import annotations

from trainsim.cli.options import Backend, Json, Names, Sets, StoreFile, Workers
from trainsim.cli.reading import load, tell_if_long
from trainsim.cli.writing import print_json, render


def explain(
    scenario: Names,
    changes: Sets = [],  # noqa: B006
    store: StoreFile = None,
    workers: Workers = None,
    backend: Backend = None,
    as_json: Json = False,
) -> None:
    """Where a step loses time, and which change would save most."""
    from trainsim.study.explain import explain as explained

    base = load(scenario, changes)
    tell_if_long(base)
    explanation = explained(base, workers=workers, backend=backend, store=store)
    if as_json:
        print_json(explanation.to_dict())
    else:
        render(explanation)
    if explanation.interrupted:
        raise KeyboardInterrupt
