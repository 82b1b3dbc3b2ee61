"""
Rings inside a node without a switch: orders of GPUs in which every neighbour is linked directly.

NCCL lays several rings over such a node and splits the bytes over them. Cycles are taken greedily: the one whose
weakest link is strongest first, until the links are used up. On a DGX-1V that finds the two cycles of the cube mesh
(one of double, one of single links), which together use all six links of every GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import pairwise, permutations

from trainsim.hardware.node import Node

Order = tuple[int, ...]
Weights = Mapping[tuple[int, int], float]
MOST_SEARCHED = 16  # members beyond which no cycle is searched for
STEPS = 200_000  # of a search, before it gives up


@cache
def rings(node: Node, members: Order) -> tuple[tuple[Order, float], ...]:
    """(Positions in *members* in ring order, part of the bytes) of each ring over local GPUs *members*."""
    n = len(members)
    straight: Order = tuple(range(n))
    position = {gpu: i for i, gpu in enumerate(members)}
    weights: dict[tuple[int, int], float] = {}
    for link in node.links:
        if link.src.startswith("gpu") and link.dst.startswith("gpu"):
            a, b = position.get(int(link.src[3:])), position.get(int(link.dst[3:]))
            if a is not None and b is not None:
                weights[a, b] = link.bandwidth
    if not weights or not 2 < n <= MOST_SEARCHED:
        return ((straight, 1.0),)
    weighted_rings: list[tuple[Order, float]] = []
    while (cycle := _widest_cycle(weights, n)) is not None:
        width = min(weights[edge] for edge in pairwise((*cycle, cycle[0])))
        for order in (cycle, (cycle[0], *cycle[:0:-1])):
            weighted_rings.append((order, width))
            weights = {e: w - width * (e in set(pairwise((*order, order[0])))) for e, w in weights.items()}
        weights = {edge: w for edge, w in weights.items() if w > 0}
    if not weighted_rings:
        return ((_fewest_detours(weights, n), 1.0),)
    total = sum(width for _, width in weighted_rings)
    return tuple((order, width / total) for order, width in weighted_rings)


def _widest_cycle(weights: Weights, n: int) -> Order | None:
    """The Hamiltonian cycle whose weakest link is strongest, if there is one."""
    for threshold in sorted(set(weights.values()), reverse=True):
        cycle = _cycle({edge for edge, w in weights.items() if w >= threshold}, n)
        if cycle:
            return cycle
    return None


def _cycle(edges: set[tuple[int, int]], n: int) -> Order | None:
    """A cycle through all of 0..n-1 along *edges*, by depth-first search; None if there is none (or it is too deep)."""
    path, steps = [0], 0
    candidates = [iter(sorted(b for a, b in edges if a == 0))]
    while candidates:
        steps += 1
        following = next(candidates[-1], None)
        if following is None or steps > STEPS:
            candidates.pop()
            path.pop()
        elif following not in path:
            path.append(following)
            if len(path) == n and (following, 0) in edges:
                return tuple(path)
            candidates.append(iter(sorted(b for a, b in edges if a == following)))
    return None


def _fewest_detours(weights: Weights, n: int) -> Order:
    """The order with the most direct neighbours; the order given where trying all would take long."""
    if n > 8:
        return tuple(range(n))
    orders = ((0, *rest) for rest in permutations(range(1, n)))
    return max(orders, key=lambda order: sum(edge in weights for edge in pairwise((*order, order[0]))))
