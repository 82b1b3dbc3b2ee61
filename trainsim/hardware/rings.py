"""
Rings inside a node without a switch: orders of GPUs in which every neighbour is linked directly.

NCCL lays several rings over such a node and splits the bytes over them. A link of several lanes belongs to several of
them: four V100 that are joined by two lanes each have three cycles of one lane, which use all twelve. Cycles of one
lane are taken one by one, the one whose weakest link is strongest first and over links with the most lanes left, until
there are none; both directions of a cycle carry a ring each. On a DGX-1V that finds the cycles of the cube mesh, which
together use all six lanes of every GPU.

Where all GPUs are joined to all others alike, and an even number of them cannot be covered by cycles in both
directions (each GPU of eight has seven links), cycles of single directions cover what those would leave over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from itertools import pairwise, permutations
from random import Random

from trainsim.hardware.constants import link_kinds
from trainsim.hardware.node import Cable, Node

Order = tuple[int, ...]
Edge = tuple[int, int]
Lanes = Mapping[Edge, int]
MOST_SEARCHED = 16  # members beyond which no cycle is searched for
STEPS = 200_000  # of a search, before it gives up
TRIES, SEED = 2000, 1  # of covering a full mesh by directed cycles


@cache
def rings(node: Node, members: Order) -> tuple[tuple[Order, float], ...]:
    """(Positions in *members* in ring order, part of the bytes) of each ring over local GPUs *members*."""
    n = len(members)
    straight: Order = tuple(range(n))
    lanes = _direct(node.cables, members)
    if not lanes or not 2 < n <= MOST_SEARCHED:
        return ((straight, 1.0),)
    alike = len(lanes) == n * (n - 1) and len(set(lanes.values())) == 1
    cycles = (_full_mesh(n) if alike else None) or _cycles(lanes, n)
    if not cycles:
        return ((_fewest_detours(lanes, n), 1.0),)
    counted = Counter(cycles)
    return tuple((order, number / counted.total()) for order, number in counted.items())


def _direct(cables: tuple[Cable, ...], members: Order) -> Lanes:
    """Lanes of every direct link between two of *members*, by their positions; of what is less than a lane, one."""
    position = {f"gpu{gpu}": i for i, gpu in enumerate(members)}
    rates: dict[Edge, float] = {}
    for cable in cables:
        if cable.a in position and cable.b in position:
            a, b = position[cable.a], position[cable.b]
            part = cable.bandwidth / link_kinds()[cable.kind].lane
            rates[a, b] = rates[b, a] = rates.get((a, b), 0.0) + part
    return {edge: max(1, round(rate)) for edge, rate in rates.items()}


def _cycles(lanes: Lanes, n: int) -> tuple[Order, ...]:
    """Cycles of one lane, each in both directions, as many as there are."""
    left, out = dict(lanes), list[Order]()
    while (cycle := _widest_cycle(left, n)) is not None:
        for order in (cycle, (cycle[0], *cycle[:0:-1])):
            out.append(order)
            for edge in pairwise((*order, order[0])):
                left[edge] -= 1
        left = {edge: number for edge, number in left.items() if number > 0}
    return tuple(out)


def _widest_cycle(lanes: Lanes, n: int) -> Order | None:
    """The Hamiltonian cycle whose weakest link has the most lanes, if there is one."""
    for least in sorted(set(lanes.values()), reverse=True):
        cycle = _cycle({edge: number for edge, number in lanes.items() if number >= least}, n)
        if cycle:
            return cycle
    return None


def _cycle(lanes: Lanes, n: int) -> Order | None:
    """A cycle through all of 0..n-1, by depth-first search along links with the most lanes first; None if there is none
    (or it is too deep)."""
    after: dict[int, list[int]] = {a: [] for a in range(n)}
    for a, b in sorted(lanes, key=lambda edge: (-lanes[edge], edge)):
        if (b, a) in lanes:
            after[a].append(b)
    path, steps, ways = [0], 0, [iter(after[0])]
    while ways:
        steps += 1
        following = next(ways[-1], None)
        if following is None or steps > STEPS:
            ways.pop()
            path.pop()
        elif following not in path:
            path.append(following)
            if len(path) == n and (following, 0) in lanes and (0, following) in lanes:
                return tuple(path)
            ways.append(iter(after[following]))
    return None


@cache
def _full_mesh(n: int) -> tuple[Order, ...] | None:
    """Cycles of one direction that use every link of *n* fully joined GPUs once; None where none are needed or found.

    An odd number of GPUs is covered in both directions. Of even numbers four and six cannot be covered at all (Tillson,
    1980); others are tried at random, from the same seed, so the answer is always the same.
    """
    if n % 2 or n < 8:
        return None
    random = Random(SEED)
    for _ in range(TRIES):
        free = {(a, b) for a in range(n) for b in range(n) if a != b}
        found: list[Order] = []
        while free and (cycle := _random_cycle(free, n, random)):
            free -= set(pairwise((*cycle, cycle[0])))
            found.append(cycle)
        if not free:
            return tuple(found)
    return None


def _random_cycle(free: set[Edge], n: int, random: Random) -> Order | None:
    """A directed cycle through all along *free* links, to the GPU with the fewest ways on first."""
    ways = {a: [b for b in range(n) if (a, b) in free] for a in range(n)}
    path, steps, tried = [0], 0, [iter(_narrow_first(ways, 0, {0}, random))]
    while tried:
        steps += 1
        following = next(tried[-1], None)
        if following is None or steps > 500:
            tried.pop()
            path.pop()
        else:
            path.append(following)
            if len(path) == n and (following, 0) in free:
                return tuple(path)
            tried.append(iter(_narrow_first(ways, following, set(path), random)))
    return None


def _narrow_first(ways: Mapping[int, list[int]], at: int, visited: set[int], random: Random) -> list[int]:
    left = [b for b in ways[at] if b not in visited]
    return sorted(left, key=lambda b: (len([c for c in ways[b] if c not in visited]), random.random()))


def _fewest_detours(lanes: Lanes, n: int) -> Order:
    """The order with the most direct neighbours; the order given where trying all would take long."""
    if n > 8:
        return tuple(range(n))
    orders = ((0, *rest) for rest in permutations(range(1, n)))
    return max(orders, key=lambda order: sum(edge in lanes for edge in pairwise((*order, order[0]))))
