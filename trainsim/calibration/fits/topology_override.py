"""From factors on rates and constants to the override of a topology: the keys that differ, on top of its base."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainsim.calibration.answer import Constant
from trainsim.calibration.fits.adjusted import families
from trainsim.documents.catalogue import Spec
from trainsim.documents.document import Document
from trainsim.hardware.cluster import Cluster
from trainsim.hardware.constants import collective_unit, link_kinds
from trainsim.hardware.topology import find_topology

UNKNOWNS: Mapping[str, tuple[str, ...]] = {
    "local_rate": (),
    "network_rate": (),
    "nvls_rate": ("nvls_rate",),
    "tree_rate": ("tree_rate",),
    "latency": ("latency_scale",),
    "network_latency": ("network_hop", "ring_network_step"),
    "ramp": ("ramp",),
    "ramp_gather": ("ramp_gather",),
    "nvls_ramp": ("nvls_ramp",),
    "ramp_network": ("ramp_network",),
}
"""What is fitted, and the constants of collectives that each factor multiplies."""
LEAST, MOST = 0.001, 1.0
"""Bounds of the part of a link's rate that is reached."""


def constants_of(cluster: Cluster, factors: Mapping[str, float]) -> dict[str, float]:
    """The constants of collectives of *cluster*, each times the factor of its unknown."""
    scaled = {name: factors[unknown] for unknown, names in UNKNOWNS.items() if unknown in factors for name in names}
    return {name: value * scaled.get(name, 1.0) for name, value in cluster.constants.items()}


def override(
    base: Spec, cluster: Cluster, factors: Mapping[str, float], *, source: str
) -> tuple[dict[str, Any], tuple[Constant, ...]]:
    """The override, and each constant that it changes. *cluster* is the base as it is now.

    >>> from trainsim.hardware.cluster import load_topology
    >>> override("dgx_h100", load_topology("dgx_h100"), {"network_rate": 0.5}, source="a log")[0]["fabric"]
    {'reachable': 0.48}
    """
    document: dict[str, Any] = {"base": str(base)} if isinstance(base, str | Path) else dict(base)
    document["source"] = source
    constants: list[Constant] = []
    if "network_rate" in factors:
        before, after = cluster.fabric.reachable, _part(cluster.fabric.reachable * factors["network_rate"])
        document["fabric"] = {**document.get("fabric", {}), "reachable": after}
        constants.append(Constant(key="fabric.reachable", before=before, after=after))
    if "local_rate" in factors:
        links = list(_links(find_topology(base), cluster, factors["local_rate"], constants))
        document["node"] = {**document.get("node", {}), "links": links}
    moved = {name: value for name, value in constants_of(cluster, factors).items() if value != cluster.constants[name]}
    if moved:
        named = find_topology(base).data.get("collectives")
        own = {"base": named} if isinstance(named, str) else {}
        document["collectives"] = {**own, **{name: _rounded(value) for name, value in moved.items()}}
    constants += [
        Constant(
            key=f"collectives.{name}", before=cluster.constants[name], after=_rounded(value), unit=collective_unit(name)
        )
        for name, value in moved.items()
    ]
    return document, tuple(constants)


def _links(document: Document, cluster: Cluster, factor: float, constants: list[Constant]) -> Iterator[dict[str, Any]]:
    """The links of the base, those within a node with another reachable part."""
    inside, kinds, told = families(cluster), link_kinds(), set()
    for number, link in enumerate(document.data["node"]["links"]):
        kind = kinds[link["kind"]]
        if kind.family not in inside:
            yield dict(link)
            continue
        before = float(link.get("reachable", kind.reachable))
        yield {**link, "reachable": (after := _part(before * factor))}
        if (kind.name, after) not in told:
            told.add((kind.name, after))
            constants.append(Constant(key=f"node.links[{number}].reachable", before=before, after=after))


def _part(value: float) -> float:
    return _rounded(min(max(value, LEAST), MOST))


def _rounded(value: float) -> float:
    """Four digits: more than any log tells.

    >>> _rounded(1.23456e-5)
    1.235e-05
    """
    return float(f"{value:.4g}")
