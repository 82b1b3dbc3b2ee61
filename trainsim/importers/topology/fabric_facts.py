"""
A network as files of other tools describe it, on its way to the ``fabric`` of a topology.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from trainsim.hardware.cluster import Cluster
from trainsim.hardware.fabric_reader import MOST_NODES
from trainsim.importers.findings import Remark
from trainsim.importers.topology.notebook import Notebook

TOO_UNEVEN = 2.0
"""How much larger than the mean a leaf may be and still stand for the others."""
CLOSE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricParts:
    """A network of leaves: how many nodes hang on each, and on each pod where leaves are joined in two steps.

    With ``rails`` a leaf is a set of leaves side by side, one for each NIC of a node. ``leaf_up`` is what goes up from
    a leaf as a multiple of what one node sends to it, ``pod_up`` the same of a pod; None where the file knows no rates.
    """

    leaves: tuple[int, ...]
    pods: tuple[int, ...] = ()
    rails: bool = False
    leaf_up: float | None = None
    pod_up: float | None = None

    @property
    def nodes(self) -> int:
        """All nodes."""
        return sum(self.leaves)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What a file of the network tells of the nodes: NICs of each and their rate in Gb/s, as a file of a node does."""

    file: str
    nics: int
    rate: float

    def against(self, cluster: Cluster) -> tuple[Remark, ...]:
        """Whether the nodes of *cluster* have them."""
        rate = cluster.fabric.nic_bandwidth * 8e-9
        words = f"{self.nics} of {self.rate:g} Gb/s on each node there, {cluster.nics_per_node} of {rate:g} Gb/s here"
        more = ": cables above leaves keep their ratio to these" if self.contradicted_by(cluster) else ""
        return (Remark(key="NICs", words=words + more, place=self.file),)

    def contradicted(self, cluster: Cluster) -> tuple[Remark, ...]:
        """The same, where nodes of *cluster* have NICs of another rate in all."""
        return self.against(cluster) if self.contradicted_by(cluster) else ()

    def contradicted_by(self, cluster: Cluster) -> bool:
        """Whether nodes of *cluster* have NICs of another rate in all."""
        there = cluster.nics_per_node * cluster.fabric.nic_bandwidth * 8e-9
        return abs(there - self.nics * self.rate) > CLOSE * self.nics * self.rate


def say_fabric(book: Notebook, fabric: FabricParts, because: str) -> None:
    """Write the facts of *fabric*, which the file's *because* says, into *book*."""
    if not 1 <= fabric.nodes <= MOST_NODES:
        raise book.fail(f"{fabric.nodes} nodes are on the leaves of {because}; the limits are 1 to {MOST_NODES}")
    book.say("nodes", fabric.nodes, because)
    if len(fabric.leaves) == 1 and not fabric.rails:
        book.say("fabric.kind", "single_switch", because)
        return
    book.say("fabric.kind", "rail_optimised" if fabric.rails else "fat_tree", because)
    per_leaf = even(book, fabric.leaves, "nodes_per_leaf", "leaves")
    book.say("fabric.nodes_per_leaf", per_leaf, because)
    _oversubscribed(book, "oversubscription", per_leaf, fabric.leaf_up, because)
    if len(fabric.pods) > 1:
        per_pod = even(book, fabric.pods, "nodes_per_pod", "pods")
        book.say("fabric.nodes_per_pod", per_pod, because)
        _oversubscribed(book, "pod_oversubscription", per_pod, fabric.pod_up, because)


def _oversubscribed(book: Notebook, key: str, nodes: int | None, up: float | None, because: str) -> None:
    """Say how much less goes up than comes from below, or what is assumed where the file does not know."""
    if up and nodes:
        book.say(f"fabric.{key}", round(nodes / up, 4), because)
    elif not up:
        words = f"the file has no rates: no oversubscription is assumed; --set cluster.{key}=R"
        book.assume(f"fabric.{key}", 1.0, words)


def even(book: Notebook, sizes: Sequence[int], ours: str, what: str) -> int | None:
    """The one size that stands for all *sizes*, told where it does not hold for each; None, told as open, where none
    can."""
    most, mean = max(sizes), sum(sizes) / len(sizes)
    smaller = [size for size in sizes if size < most]
    if not smaller:
        return most
    counts = ", ".join(f"{sizes.count(size)} of {size}" for size in sorted(set(sizes), reverse=True))
    told = f"{what} differ: their numbers of nodes are {counts}"
    if len(smaller) == 1:
        book.note(what, f"{told}; the small one is assumed to be the last")
        return most
    if most > TOO_UNEVEN * mean:
        book.leave_open(f"fabric.{ours}", f"{told}; choose one size for all: --set cluster.{ours}=N")
        return None
    each = most if ceil(sum(sizes) / most) == len(sizes) else ceil(mean)
    book.warn(what, f"not modelled: {told}; taken as {each} on each, {ceil(sum(sizes) / each)} {what} in all")
    return each
