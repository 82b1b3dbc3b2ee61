"""``trainsim list``: what there is of a kind, with a line about each."""

from __future__ import annotations

import sys
from importlib import import_module
from inspect import getdoc, isfunction
from typing import Annotated, Any

import typer

from trainsim.cli.options import Json
from trainsim.cli.writing import print_json, render
from trainsim.errors import UnknownName
from trainsim.tables.cells import Sign
from trainsim.tables.prose import unmarked
from trainsim.tables.table import Column, Table

KINDS = {  # where the things of each kind are, and what they are
    "models": ("trainsim.models.known", "MODELS", "model shapes"),
    "gpus": ("trainsim.hardware.gpu", "GPUS", "GPUs: datasheet and measured kernels"),
    "topologies": ("trainsim.hardware.topology", "TOPOLOGIES", "machines: nodes, links and networks"),
    "placements": ("trainsim.hardware.placements", "placements", "in which order a machine gives out its nodes"),
    "schedules": ("trainsim.schedules", "schedules", "pipeline schedules"),
    "collectives": ("trainsim.collectives", "algorithms", "algorithms of collectives"),
    "networks": (
        "trainsim.hardware.collective_constants",
        "COLLECTIVE_CONSTANTS",
        "what collectives cost on a kind of network",
    ),
    "kernels": ("trainsim.hardware.kernel_constants", "KERNELS", "how well an architecture runs kernels"),
    "strategies": ("trainsim.sharding", "strategies", "how replicas share model states"),
    "frameworks": ("trainsim.frameworks", "FRAMEWORKS", "what the training software does"),
    "optimizers": ("trainsim.optimizers", "OPTIMIZERS", "optimizers and their states"),
    "importers": ("trainsim.importers.importer", "importers", "files of other tools that are understood"),
    "exporters": ("trainsim.exporters.exporter", "exporters", "files of other tools that are written"),
    "scenarios": ("trainsim.scenario.loading", "SCENARIOS", "scenarios that ship"),
}


def list_names(
    kind: Annotated[str, typer.Argument(metavar="[KIND]", help=f"One of {', '.join(KINDS)}.")] = "",
    as_json: Json = False,
) -> None:
    """List the names of a kind, one per line.

    Without KIND: the kinds.
    """
    about = described(kind) if kind else {name: words for name, (_, _, words) in KINDS.items()}
    if as_json:
        print_json(about)
    else:
        render(listing(about))


def described(kind: str) -> dict[str, str]:
    """Every name of a kind with a line about it. Raises UnknownName for a kind that there is not."""
    if kind not in KINDS:
        raise UnknownName("kind of thing", kind, KINDS)
    module, attribute, _ = KINDS[kind]
    known = getattr(import_module(module), attribute)
    if hasattr(known, "descriptions"):
        return dict(known.descriptions())
    if kind in ("importers", "exporters"):
        return {name: item.title for name, item in known.items()}
    return {name: sentence(item, f"{module}.{name}") for name, item in known.items()}


def listing(about: dict[str, str]) -> Table:
    """A row per name."""
    rows = tuple((name, Sign(words)) for name, words in about.items())
    return Table(columns=(Column(), Column(wraps=True)), rows=rows)


def sentence(item: Any, home: str) -> str:
    """The first paragraph of what a registered thing says of itself: a function's docstring, else that of the module
    that made it, which *home* probably is."""
    if isfunction(item):
        text = getdoc(item) or ""
    else:
        parts = [getattr(item, name) for name in dir(item) if not name.startswith("_")]
        others = [part.__module__ for part in parts if isfunction(part) and part.__module__ != type(item).__module__]
        described_by = next((sys.modules[name] for name in (home, *others) if name in sys.modules), None)
        text = (described_by.__doc__ or "") if described_by else ""
    return unmarked(" ".join(text.strip().split("\n\n")[0].split()))
