"""
Colour refinement: the coarsest equitable partition of a labelled graph, in rounds over numpy columns.

In an equitable partition all nodes of a colour see the same number of neighbours of each colour over edges of each
label, so whatever is deterministic and fair treats them alike for all time. A round looks only at neighbours of what
the round before renamed, and of each class that splits the largest part keeps its name: a straggler's wave costs what
it touches and no more (Hopcroft 1971; Berkholz, Bonsma and Grohe 2017).

Neighbourhoods are compared by 64-bit sums of hashes; after the partition has settled, a second salt has to find it
equitable too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trainsim.contracts.system import Ints

Hashes = npt.NDArray[np.uint64]
SALTS = (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03)  # odd 64-bit constants without structure


class Adjacency(NamedTuple):
    """Both directions of every edge, sorted by node: those of node n are ``first[n]`` to ``first[n + 1]``."""

    first: Ints
    neighbour: npt.NDArray[np.int32]
    label: Hashes


def refine(colour: Ints, a: Ints, b: Ints, label: Ints) -> tuple[Ints, int]:
    """The coarsest equitable partition finer than *colour* of the graph with edges (a, b, label), and the rounds.

    >>> star = np.zeros(4, np.int64), np.array([1, 2, 3, 4])
    >>> colour, rounds = refine(np.zeros(5, np.int64), *star, label=np.zeros(4, np.int64))
    >>> colour[0] != colour[1], colour[1:] == colour[1]
    (np.True_, array([ True,  True,  True,  True]))
    """
    edges = _adjacency(len(colour), a, b, label)
    colour = np.unique(colour, return_inverse=True)[1].astype(np.int64)
    connected = np.flatnonzero(np.diff(edges.first))
    colours, rounds = int(colour.max(initial=-1)) + 1, 0
    for salt in SALTS:
        todo = connected
        while len(todo):
            rounds += 1
            colours, moved = _split(colour, colours, todo, _signatures(colour, todo, edges, salt))
            touched = np.zeros(len(colour), bool)
            touched[edges.neighbour[_edges_of(moved, edges)[0]]] = True
            todo = np.flatnonzero(touched)
    return colour, rounds


def _adjacency(nodes: int, a: Ints, b: Ints, label: Ints) -> Adjacency:
    node = np.concatenate([a, b]).astype(
        np.int32
    )  # every edge twice: as seen from a, then as seen from b, with labels that differ
    order = np.argsort(node)  # in which order neighbours stand does not matter
    first = np.concatenate([[0], np.cumsum(np.bincount(node, minlength=nodes))])
    mixed = _mix(np.arange(1, 2 * int(label.max(initial=0)) + 3, dtype=np.uint64))  # none is 0: all neighbours count
    directed = np.concatenate([2 * label, 2 * label + 1])
    return Adjacency(first, np.concatenate([b, a]).astype(np.int32)[order], mixed[directed[order]])


def _signatures(colour: Ints, nodes: Ints, edges: Adjacency, salt: int) -> Hashes:
    """One number per node for the multiset of (label, colour) around it."""
    pick, starts = _edges_of(nodes, edges)
    seen = colour[edges.neighbour[pick]].astype(np.uint64)
    seen *= np.uint64(salt)
    seen ^= edges.label[pick]
    return np.add.reduceat(_mix(seen), starts)


def _edges_of(nodes: Ints, edges: Adjacency) -> tuple[Ints | slice, Ints]:
    """Where the edges of *nodes* (each has some) are, one node after the other, and where each node's start."""
    first = edges.first
    size = first[nodes + 1] - first[nodes]
    starts = np.cumsum(size) - size
    total = int(size.sum())
    if total == len(edges.neighbour):
        return slice(None), starts
    # Edge k of the answer is edge k - starts[n] of its node n, which is edge first[n] + k - starts[n] of all.
    return np.arange(total) + np.repeat(first[nodes] - starts, size), starts


def _split(colour: Ints, colours: int, nodes: Ints, signature: Hashes) -> tuple[int, Ints]:
    """Rename in place the parts of each class that *signature* tells apart; the new number of colours, who moved."""
    old = colour[nodes]
    part = np.unique(signature, return_inverse=True)[1]
    parts = int(part.max()) + 1
    # A part of a class is a pair (class, signature), as one number; ``where`` is the part of each of *nodes*.
    key, where, count = np.unique(old * parts + part, return_inverse=True, return_counts=True)
    parent = key // parts
    # Nodes of the class that were not looked at are a part of their own, and it keeps the name.
    unseen = np.bincount(colour, minlength=colours)[parent] - np.bincount(old, minlength=colours)[parent]
    # Parts sorted by class, the largest first: where the class changes stands the largest part of the next one.
    by_size = np.lexsort((-count, parent))
    largest = np.zeros(len(key), bool)
    largest[by_size[np.diff(parent[by_size], prepend=-1) != 0]] = True
    keeps = largest & (unseen == 0)
    name = np.where(keeps, parent, colours + np.cumsum(~keeps) - 1)  # the others are numbered on from the last colour
    colour[nodes] = name[where]
    return colours + int((~keeps).sum()), nodes[~keeps[where]]


def _mix(x: Hashes) -> Hashes:
    """A 64-bit finaliser, in place: sums of mixed values tell multisets apart (Steele, Lea and Flood 2014)."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x
