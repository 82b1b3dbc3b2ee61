"""
The last step from what files say of a machine to a topology: links whose generation is that of the GPU, values that
stand beside it, and what is still missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from trainsim.documents.origin import Origin
from trainsim.errors import TrainsimError
from trainsim.hardware.constants import link_kinds
from trainsim.hardware.gpu import load_gpu
from trainsim.hardware.node import kind_of
from trainsim.hardware.ranges import expand
from trainsim.hardware.topology import MERGED, OVERRIDES
from trainsim.importers.findings import Remark
from trainsim.importers.topology.generations import GENERIC, generation_of, parts, physics_of, rated
from trainsim.importers.topology.wires import entries, wire

BESIDE = tuple(key for key in OVERRIDES if key not in ("nodes", "gpus_per_node", *MERGED))
"""Keys of a scenario's cluster that go into a topology made here."""
BASEBOARD = "baseboard"
"""The kind of a link that a GPU has if it stands on a board of its maker's."""
ASKS = {
    "gpu": "no file names the GPU: --set cluster.gpu=NAME (trainsim list gpus)",
    "nic": "no file gives the rate of the NICs: --set cluster.nic_bandwidth=200Gbps, or a file of the network",
    "node": "a network without a node: add a file that describes one (NCCL's topology, nvidia-smi topo -m) or "
    "--set cluster.topology.base=NAME (trainsim list topologies)",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A scenario's ``cluster`` whose topology is as complete as files make it, and remarks about what was filled in."""

    cluster: dict[str, Any]
    remarks: tuple[Remark, ...] = ()


def finished(cluster: Mapping[str, Any], files: Sequence[str]) -> Finished:
    """*cluster* with its ``topology``, which *files* describe, ready to be read; what is not known yet stays as it is.

    Raises what a GPU that cannot be read raises.
    """
    given: dict[str, Any] = deepcopy(dict(cluster))
    topology: dict[str, Any] = given["topology"]
    for key in BESIDE:
        if key in given:
            _put(topology, OVERRIDES[key], given.pop(key))
    remarks: list[Remark] = []
    if isinstance(topology.get("node"), Mapping) and "gpu" in topology:
        topology["node"], remarks = _with_generations(topology["node"], topology["gpu"])
        for remark in remarks:
            _follow(topology, remark)
    fabric = topology.get("fabric")
    if "base" in topology and isinstance(fabric, Mapping) and fabric.get("kind") == "single_switch":
        topology["fabric"] = {**fabric, "kind": "fat_tree", "nodes_per_leaf": topology.get("nodes", 1)}  # one leaf
    names = " and ".join(files)
    about = f"{topology['base']}, changed after {names}" if "base" in topology else f"a machine, after {names}"
    topology.setdefault("description", about)
    topology.setdefault("source", f"imported from {names}; rates of links are those of their kinds")
    order = [key for key in (*FIRST, *topology) if key in topology]
    given["topology"] = {key: topology[key] for key in dict.fromkeys(order)}
    return Finished(cluster=given, remarks=tuple(remarks))


FIRST = ("base", "name", "description", "source", "gpu", "gpus_per_node", "nodes", "nvls", "node", "fabric")


def missing(cluster: Mapping[str, Any]) -> dict[str, str]:
    """What the topology in *cluster* lacks to be one, and how to say it."""
    topology = cluster["topology"]
    fabric, node = topology.get("fabric") or {}, topology.get("node") or {}
    open_: dict[str, str] = {}
    if "base" not in topology:
        if "gpus_per_node" not in topology:
            return {"cluster.topology.base": ASKS["node"]}
        if "gpu" not in topology:
            open_["cluster.gpu"] = ASKS["gpu"]
        if node.get("nics") and "bandwidth" not in node["nics"]:
            open_["cluster.nic_bandwidth"] = ASKS["nic"]
        if "fabric" in topology and not node.get("nics") and fabric.get("kind") != "none":
            open_["cluster.topology.node.nics"] = "the node has no NIC for the network: give node.nics"
    if fabric.get("kind") in ("fat_tree", "rail_optimised") and "nodes_per_leaf" not in fabric:
        open_["cluster.nodes_per_leaf"] = "leaves differ too much: --set cluster.nodes_per_leaf=N"
    return open_


def _follow(topology: dict[str, Any], board: Remark) -> None:
    """Write what follows from the *board* on which GPUs were taken to stand."""
    generation = generation_of(topology["gpu"], Origin())
    if "NVSwitches" in board.words and max(generation["sm"], default=0) >= parts()["multicast_from"]:
        topology.setdefault("nvls", True)
    elif board.words.startswith("none"):
        topology.setdefault("collectives", "pcie")


def _put(topology: dict[str, Any], path: Sequence[Any], value: Any) -> None:
    here = topology
    for part in path[:-1]:
        inner = here.get(part)
        here[part] = inner = dict(inner) if isinstance(inner, Mapping) else {}
        here = inner
    here[path[-1]] = value


def _with_generations(node: Mapping[str, Any], gpu: Any) -> tuple[dict[str, Any], list[Remark]]:
    """*node* with the kinds of link that go with *gpu* in the place of generic ones."""
    links = node.get("links")
    nics = node.get("nics") if isinstance(node.get("nics"), Mapping) else {}
    generic = (*GENERIC, BASEBOARD)
    if not isinstance(links, list) or not any(
        isinstance(link, Mapping) and link.get("kind") in generic for link in [*links, nics]
    ):
        return dict(node), []
    generation = generation_of(gpu, Origin())
    out, remarks = dict(node), []
    made: list[dict[str, Any]] = []
    for link in links:
        if not isinstance(link, Mapping) or link.get("kind") not in generic:
            made.append(link)
        elif link["kind"] == BASEBOARD:
            devices, board, words = _baseboard(link, gpu, generation)
            made = [*board, *made]
            out["devices"] = {**devices, **(node.get("devices") or {})}
            if devices:
                out["complexes"] = {"nvswitch": f"nvswitch[0-{devices['nvswitch'] - 1}]"}
            remarks.append(Remark(key="NVLinks", words=words, about="cluster.topology.node.links"))
        else:
            made.append({**link, **_resolved(link, gpu, generation, links)})
    out["links"] = made
    if nics and nics.get("kind") in GENERIC:
        out["nics"] = {**nics, **_resolved(nics, gpu, generation, links)}
    return out, remarks


def _resolved(link: Mapping[str, Any], gpu: Any, generation: Mapping[str, Any], links: Sequence[Any]) -> dict[str, Any]:
    """What stands in the place of a generic kind."""
    kind, lanes = str(link["kind"]), int(link.get("lanes") or 0)
    if kind in generation:
        return physics_of(kind, lanes, generation)
    if kind == "pcie":
        return {"kind": "pcie4"}
    most = max(_lanes(links).values(), default=1)
    return {"lanes": 1, **rated(load_gpu(gpu), max(lanes, 1), most)}


def _lanes(links: Sequence[Any]) -> dict[str, int]:
    """NVLinks of each GPU."""
    lanes: dict[str, int] = {}
    for link in links:
        if not isinstance(link, Mapping) or link.get("kind") != "nvlink":
            continue
        try:
            ends = expand(str(link["from"])), expand(str(link["to"]))
        except TrainsimError:
            continue
        for here, there in (ends, ends[::-1]):
            for name in here if kind_of(here[0]) == "gpu" else ():
                others = len(there) - (name in there)
                lanes[name] = lanes.get(name, 0) + others * int(link.get("lanes") or 1)
            if ends[0] == ends[1]:
                break
    return lanes


def _baseboard(
    link: Mapping[str, Any], gpu: Any, generation: Mapping[str, Any]
) -> tuple[dict[str, int], list[dict[str, Any]], str]:
    """(NVSwitches, links, words) of the board on which as many of *gpu* come; nothing for other GPUs."""
    gpus = expand(str(link["from"]))
    boards = parts()["baseboards"].get(generation.get("nvlink"), {})
    if not isinstance(gpu, str) or gpu not in parts()["on_baseboards"] or len(gpus) not in boards:
        words = "none: the file names none, and how such GPUs are connected is not known"
        return {}, [], words
    lanes = round(load_gpu(gpu).nvlink_bandwidth / link_kinds()[generation["nvlink"]].lane)
    switches = boards[len(gpus)]
    if not switches:
        each = lanes // (len(gpus) - 1)
        wires = [wire(a, b, **physics_of("nvlink", each, generation)) for a, b in combinations(gpus, 2)]
        return (
            {},
            entries(wires),
            f"{each} between every two GPUs, as on boards of {len(gpus)} {gpu}: the file names none",
        )
    wires = [
        wire(a, f"nvswitch{k}", **physics_of("nvlink", lanes // switches + (k < lanes % switches), generation))
        for a in gpus
        for k in range(switches)
    ]
    words = f"{lanes} from each GPU to {switches} NVSwitches, as on boards of {len(gpus)} {gpu}: the file names none"
    return {"nvswitch": switches}, entries(wires), words
