"""
Sets of constants of collectives: what differs from one fabric to another, from ``collectives/<name>.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from trainsim.documents.catalogue import COMMON, Catalogue, Spec, folder_in
from trainsim.documents.document import Document
from trainsim.documents.origin import Origin
from trainsim.documents.part import DocumentPart
from trainsim.hardware.constants import collective_defaults, collective_least, collective_unit, limits
from trainsim.units import parse_bandwidth, parse_bytes, parse_time

COLLECTIVE_CONSTANTS = Catalogue(
    kind="set of collective constants",
    plural="sets of collective constants",
    key="networks",
    folders=folder_in("hardware", "collectives"),
)
MOST_SECONDS, MOST_RATIO, MOST_BYTES = 1.0, 1000.0, 1e9
UNLIMITED = 1e15
"""Bytes/s that nothing reaches."""


def load_collectives(constants: Spec, *, origin: Origin | None = None) -> Mapping[str, float]:
    """The constants that *constants* names: a name of ``hardware/collectives/``, a path, or a mapping with a ``base``.

    Only those that it says anything about, in seconds or plain ratios. Raises UnknownName, and InvalidData that names
    the file, the line and the key.

    >>> load_collectives("infiniband")["network_hop"]
    5e-06
    >>> load_collectives({"base": "efa", "network_hop": "8us"})["network_hop"]
    8e-06
    """
    return _constants(COLLECTIVE_CONSTANTS.find(constants, origin=origin))


@lru_cache(maxsize=64)
def _constants(document: Document) -> Mapping[str, float]:
    section = DocumentPart.open(document, (), document.data, [*COMMON, *collective_defaults()])
    return {
        name: read_constant(section, name, usual)
        for name, usual in collective_defaults().items()
        if name in section.data
    }


def read_constant(section: DocumentPart, name: str, usual: float) -> float:
    """The constant called *name* as *section* has it, else the *usual* one."""
    if collective_unit(name) == "s":
        return section.quantity(name, parse_time, usual, low=0.0, high=MOST_SECONDS)
    if collective_unit(name) == "B/s":
        return section.quantity(name, parse_bandwidth, usual, low=limits("bandwidth")[0], high=UNLIMITED)
    if collective_unit(name) == "B":
        return section.quantity(name, parse_bytes, usual, low=0.0, high=MOST_BYTES)
    return section.number(name, usual, low=collective_least(name), high=MOST_RATIO)


def collective_constant_names() -> tuple[str, ...]:
    """All sets that ship with the package."""
    return COLLECTIVE_CONSTANTS.names()
