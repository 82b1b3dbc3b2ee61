"""The machine of a published run: its GPU and network, in free words, as the ``cluster`` section of a scenario."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from trainsim.documents.catalogue import shipped
from trainsim.hardware.cluster import load_topology
from trainsim.hardware.devices import Device, device_called
from trainsim.validation.published import PublishedRun, UnreadableCell

NICS = re.compile(r"(\d+)\s*x[^0-9;,(+]*?(?:(?:ConnectX|CX)-?\d+[^0-9;,(+]*)?(\d+)\s*G(?:b(?:it)?)?(?:/s|ps)?", re.I)
WHOLE = re.compile(r"(?<![\dx.])(\d+)\s*Gb(?:it)?(?:/s|ps)? per (node|GPU)", re.I)
BARE = re.compile(r"(?<![\dx.])(\d+)\s*Gb(?:it)?(?:/s|ps)?\b", re.I)
"""A rate without a number of NICs: that of each of the machine's."""
INSIDE = re.compile(r"^\W*NV(?:Link|Switch)|single node|\bNVL\d+", re.I)
"""What speaks of links inside a node only."""


class PublishedMachine(NamedTuple):
    """The ``cluster`` section, and what the source does not say of it."""

    cluster: Mapping[str, Any]
    assumed: tuple[str, ...]


def machine_of(run: PublishedRun) -> PublishedMachine:
    """The machine of *run*. Raises UnreadableCell for a GPU that no topology has.

    >>> cells = {"gpu": "A100-SXM4-80GB", "num_gpus": "16", "gpus_per_node": "8", "interconnect": "4x100Gb/s RoCE"}
    >>> machine = machine_of(PublishedRun(line=2, cells=cells)).cluster
    >>> machine["topology"], machine["gpus"], machine["nics_per_node"], machine["nic_bandwidth"]
    ('dgx_a100', 16, 4, '100Gbps')
    """
    gpu, network = run.text("gpu"), run.text("interconnect")
    row = next((row for row in _rows("machines") if _matches(row, gpu=gpu, interconnect=network)), None)
    device = Device(row["gpu_is"], row["topology"]) if row else device_called(gpu)
    if device is None:
        raise UnreadableCell(f"gpu = {gpu!r} is none of the catalogue's; `trainsim list gpus` has them")
    topology = load_topology(device.topology, nodes=1)
    gpus = run.wanted("num_gpus")
    cluster: dict[str, Any] = {"topology": device.topology}
    if topology.gpu.name != device.gpu:
        cluster["gpu"] = device.gpu
    cluster |= _nodes(run, gpus, topology.ranks)
    assumed = []
    if gpus > cluster.get("gpus_per_node", topology.ranks):
        nics = _nics(network, run, topology.ranks)
        if not nics:
            assumed.append(f"network of {device.topology}")
        named = next((r["collectives"] for r in _rows("networks") if _matches(r, interconnect=network)), None)
        own = row is not None and "interconnect" in row  # a topology of that network has its constants
        cluster |= nics | ({"collectives": named} if named and not own else {})
    return PublishedMachine(cluster, tuple(assumed))


def _nodes(run: PublishedRun, gpus: int, usual: int) -> dict[str, Any]:
    """How many GPUs in all, and in a node where that is not the topology's number.

    A rack is a node here, whatever the source calls one; a job of several racks has 64 GPUs in each where that divides.
    """
    stated = run.whole("gpus_per_node") or usual
    if usual > 16:
        per_node = usual if gpus <= usual else next((n for n in (usual, 64, 32, 16, 8, 4) if gpus % n == 0), usual)
    else:
        per_node = min(stated, usual)
    if gpus < per_node or gpus % per_node:
        per_node = next(n for n in range(min(per_node, gpus), 0, -1) if gpus % n == 0)
    return {"gpus": gpus} if per_node == usual else {"gpus": gpus, "gpus_per_node": per_node}


def _nics(network: str, run: PublishedRun, usual: int) -> dict[str, Any]:
    """NICs of a node and their rate, where the source prints them; racks keep theirs, whose nodes are other things."""
    if usual > 16:
        return {}
    for part in re.split(r"[+;]", network):
        if found := NICS.search(part):
            return {"nics_per_node": int(found[1]), "nic_bandwidth": f"{found[2]}Gbps"}
        if (found := WHOLE.search(part)) and not INSIDE.search(part):
            if found[2].lower() == "gpu":
                return {
                    "nics_per_node": min(run.whole("gpus_per_node") or usual, usual),
                    "nic_bandwidth": f"{found[1]}Gbps",
                }
            return _shared(int(found[1]))
        if (found := BARE.search(part)) and not INSIDE.search(part):
            return {"nic_bandwidth": f"{found[1]}Gbps"}
    return {}


def _shared(total: int) -> dict[str, Any]:
    """The NICs of a node of so many Gb/s in all: of 400, 200 or 100 each, as many as there would be."""
    each = 200 if total % 200 == 0 and total <= 1600 else 400 if total % 400 == 0 else total
    return {"nics_per_node": total // each, "nic_bandwidth": f"{each}Gbps"}


def _matches(row: Mapping[str, str], **texts: str) -> bool:
    return all(re.search(row[key], text, re.I) for key, text in texts.items() if key in row)


@cache
def _rows(section: str) -> tuple[Mapping[str, str], ...]:
    return tuple(shipped("validation", "machines").data[section])
