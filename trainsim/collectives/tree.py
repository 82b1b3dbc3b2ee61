"""
Double binary tree: two trees over the domains, each domain a leaf of one and inside the other, half of the bytes each
(Sanders, Speck, Traeff, 2009; NCCL >= 2.4). Inside a domain the ranks form a chain.
"""

from __future__ import annotations

import numpy as np

from trainsim.collectives import Algorithm, Bools, Edges, Ints, PlacedGroups, algorithms, joined
from trainsim.collectives.latency import tree_chain, tree_latency, tree_ramp, tree_steps
from trainsim.collectives.ring import in_domains, rails


def parents(nodes: int) -> Ints:
    """Parent of each node of a binary tree that is laid out in order; the root 0 has -1.

    >>> parents(6).tolist()
    [-1, 2, 4, 2, 0, 4]
    """
    node = np.arange(nodes)
    bit = node & -node
    up = (node ^ bit) | (bit << 1)
    up = np.where(up >= nodes, node ^ bit, up)
    up[0] = -1
    return up


def tree_edges(operation: str, placement: PlacedGroups) -> Edges:
    """Up the trees to add, down again to give away.

    Over two nodes each NIC carries half of what a ring would put on it. ``tree_rate`` is the part of the links' rate
    that an all-reduce reaches on a tree, over that on a ring.
    """
    return joined([_chains(placement), between_domains_on_trees(placement)])


def between_domains_on_trees(placement: PlacedGroups) -> Edges:
    """What domains send each other: half of the bytes along each of both trees, up and down."""
    down = _down(placement)
    child, parent = _tree_pairs(placement)
    most = placement.machine.constants["tree_rails"]
    ways = ((parent, child), (child, parent))
    return joined([rails(placement, source, target, down / 2.0, most) for source, target in ways])


def _down(placement: PlacedGroups) -> float:
    """The whole buffer, in parts of what a ring would send, over the rate that trees reach."""
    return placement.ranks / max(placement.ranks - 1, 1) / 2.0 / placement.machine.constants["tree_rate"]


def _chains(placement: PlacedGroups) -> Edges:
    """Chains in the domains, with a root on every rank in turn (one per channel): a neighbour misses one channel."""
    forward = in_domains(placement, _down(placement) * (1.0 - 1.0 / placement.size))
    return joined([forward, Edges(forward.group, forward.dst, forward.src, forward.share)])


def _tree_pairs(placement: PlacedGroups) -> tuple[Ints, Ints]:
    """(Child, parent) segments of both trees of every group."""
    begins = np.flatnonzero(np.diff(placement.group, prepend=-1))
    children, above = [], []
    for nodes in np.unique(placement.domains):
        up = parents(int(nodes))
        node = np.flatnonzero(up >= 0)
        other = np.arange(nodes)[::-1] if nodes % 2 == 0 else np.roll(np.arange(nodes), -1)
        child = np.concatenate([node, other[node]])
        parent = np.concatenate([up[node], other[up[node]]])
        first = begins[placement.domains == nodes][:, None]
        children.append((first + child).ravel())
        above.append((first + parent).ravel())
    return np.concatenate(children), np.concatenate(above)


def over_the_network(operation: str, placement: PlacedGroups) -> Bools:
    """Groups over several domains: NCCL's own estimate for large buffers prefers a ring within one.

    Source: src/graph/tuning.cc (2.30.7), by which trees carry out nothing but all-reduces.
    """
    return np.asarray(placement.domains > 1)


algorithms.register("tree", "Tree")(
    Algorithm(
        operations=("all_reduce",),
        edges=tree_edges,
        latency=tree_latency,
        ramp=tree_ramp,
        chain=tree_chain,
        small_rate="tree_small_rate",
        steps=tree_steps,
        automatic=over_the_network,
    )
)
