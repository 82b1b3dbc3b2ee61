"""
The constants of links and collectives: data, from ``network.yaml``, each with its source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any

from trainsim.documents.building import build, keys_of
from trainsim.documents.catalogue import shipped
from trainsim.documents.part import DocumentPart
from trainsim.units import parse_bandwidth, parse_time


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkKind:
    """A generation of link: line rate of a lane (bytes/s, one direction), usual lanes, the part of the line rate
    that transfers reach, latency of a hop (s)."""

    name: str
    family: str
    lane: Annotated[float, parse_bandwidth]
    lanes: int
    reachable: float
    latency: Annotated[float, parse_time]
    source: str


@cache
def _data() -> Mapping[str, Any]:
    return shipped("hardware", "network").data


@cache
def link_kinds() -> Mapping[str, LinkKind]:
    """Every generation of link by name.

    >>> link_kinds()["nvlink3"].family
    'nvlink'
    """
    document = shipped("hardware", "network")
    kinds = DocumentPart.open(document, ("links",), document.data["links"], document.data["links"])
    return MappingProxyType(
        {name: build(LinkKind, kinds.section(name, keys_of(LinkKind)), name=name) for name in kinds.data}
    )


@cache
def collective_defaults() -> Mapping[str, float]:
    """The constants that collective models read, in SI units (see docs/topologies.md).

    >>> collective_defaults()["ramp_gather"]
    1.7
    """
    return MappingProxyType({name: float(c["value"]) for name, c in _data()["collectives"].items()})


@cache
def generation_constants(kind: str) -> Mapping[str, float]:
    """The constants of collectives that links of *kind* have in place of the usual ones.

    >>> generation_constants("pcie4")
    mappingproxy({})
    """
    given = _data()["generations"].get(kind, {})
    return MappingProxyType({name: float(value) for name, value in given.items() if name != "source"})


@cache
def protocol_table() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Protocols of collectives that can be asked for by name, by kind of algorithm: seconds and parts of rates."""
    return MappingProxyType(_data()["protocols"])


def collective_unit(name: str) -> str:
    """``"s"`` for a time, ``"B/s"`` for a rate, ``"B"`` for bytes, ``""`` for a ratio or count."""
    return str(_data()["collectives"][name]["unit"])


def collective_least(name: str) -> float:
    """The smallest value that makes sense: more than zero for what others are divided by."""
    return float(_data()["collectives"][name].get("least", 0.0))


@cache
def switch_latency() -> float:
    """Seconds through one network switch."""
    return parse_time(_data()["switch_latency"]["value"])


@cache
def limits(what: str) -> tuple[float, float]:
    """The (lowest, highest) believable ``bandwidth`` (bytes/s) or ``latency`` (s)."""
    parser = parse_bandwidth if what == "bandwidth" else parse_time
    bounds = _data()["limits"][what]
    return parser(bounds["low"]), parser(bounds["high"])
