"""
What other installed packages add: folders of data files for a catalogue, and modules that fill registries.

A package says so with entry points. ``trainsim.catalogues`` names a catalogue, by the word that ``trainsim list`` has
for it, and the package in whose folder the files lie; ``trainsim.modules`` names a module to import, under any name::

    [project.entry-points."trainsim.catalogues"]
    gpus = "acme_machines.gpus"

    [project.entry-points."trainsim.modules"]
    acme = "acme_machines.schedules"
"""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from trainsim.errors import TrainsimError, nearest

CATALOGUES, MODULES = "trainsim.catalogues", "trainsim.modules"
"""Groups of entry points."""
KINDS = ("models", "families", "gpus", "kernels", "topologies", "networks", "frameworks", "optimizers", "scenarios",
         "weights")  # fmt: skip
"""Catalogues to which a package can add."""


class BrokenPlugin(TrainsimError):
    """Mend or uninstall the package that the message names."""


class Addition(NamedTuple):
    """A folder of data files, and the package that brings it, with its version."""

    package: str
    folder: Path


def additions(kind: str) -> tuple[Addition, ...]:
    """The folders that installed packages add to the catalogue called *kind*. Raises BrokenPlugin.

    >>> additions("gpus")
    ()
    """
    return tuple(addition for name, addition in _additions(tuple(sys.path)) if name == kind)


def module_sources() -> tuple[Addition, ...]:
    """The package, or the one file, that each module lies in which installed packages want imported.

    >>> module_sources()
    ()
    """
    return _module_sources(tuple(sys.path))


def import_modules() -> None:
    """Import what installed packages want imported, once. Raises BrokenPlugin."""
    _import_modules(tuple(sys.path))


@lru_cache(maxsize=4)
def _additions(path: tuple[str, ...]) -> tuple[tuple[str, Addition], ...]:
    return tuple((entry.name, Addition(_package(entry), _folder(entry))) for entry in _entries(CATALOGUES))


@lru_cache(maxsize=4)
def _module_sources(path: tuple[str, ...]) -> tuple[Addition, ...]:
    specs = ((entry, find_spec(entry.value.partition(".")[0].partition(":")[0])) for entry in _entries(MODULES))
    return tuple(
        Addition(_package(entry), Path(place))
        for entry, spec in specs
        if spec and (place := next(iter(spec.submodule_search_locations or ()), spec.origin))
    )


@lru_cache(maxsize=4)
def _import_modules(path: tuple[str, ...]) -> None:
    for entry in _entries(MODULES):
        try:
            import_module(entry.value)
        except Exception as fault:  # whatever a package of others does while it is imported
            raise _broken(entry, f"importing {entry.value} failed: {_words(fault)}") from fault


def _entries(group: str) -> list[EntryPoint]:
    """In an order that does not depend on where packages lie."""
    return sorted(entry_points(group=group), key=lambda entry: (_package(entry), entry.name))


def _folder(entry: EntryPoint) -> Path:
    """The folder of the package that an entry point of CATALOGUES names."""
    if entry.name not in KINDS:
        near = nearest(entry.name, KINDS)
        hint = f"did you mean {near!r}? " if near else ""
        raise _broken(entry, f"no catalogue is called {entry.name!r}; {hint}there are {', '.join(KINDS)}")
    try:
        spec = find_spec(entry.value)
    except Exception as fault:  # of the packages around it, which are imported to find it
        raise _broken(entry, f"looking for {entry.value} failed: {_words(fault)}") from fault
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        raise _broken(entry, f"{entry.value} is not a package, so it has no data files")
    return Path(folders[0])


def _broken(entry: EntryPoint, what: str) -> BrokenPlugin:
    return BrokenPlugin(
        f"package {_package(entry)}, entry point {entry.name} of {entry.group}: {what}. Mend or uninstall the package."
    )


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "unknown"


def _words(fault: BaseException) -> str:
    return " ".join(f"{type(fault).__name__}: {fault}".split()).removesuffix(": ").removesuffix(".")
