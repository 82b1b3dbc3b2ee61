"""Host lists and rank files: a line per node (``node3``), or per rank (``node3.gpu2``), in the order of the ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from trainsim.errors import InvalidTopology, shorten

if TYPE_CHECKING:
    from trainsim.hardware.cluster import Cluster

_LINE = re.compile(r"node(\d{1,9})(?:\.gpu(\d{1,9}))?", re.ASCII)


def host_lines(text: str) -> tuple[str, ...]:
    """The lines of a host list that say something.

    >>> host_lines("# ours\\nnode3\\n\\nnode1.gpu2  # the last\\n")
    ('node3', 'node1.gpu2')
    """
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return tuple(filter(None, lines))


def listed_gpus(cluster: Cluster, lines: Iterable[object]) -> tuple[int, ...]:
    """The GPU of each rank, as *lines* name them: all of a node, or one. Raises InvalidTopology that names the line.

    >>> from trainsim.hardware.cluster import load_topology
    >>> listed_gpus(load_topology("pcie_4gpu"), ["node0.gpu3", "node0.gpu1"])
    (3, 1)
    """
    gpus = [gpu for line in lines for gpu in _gpus_of(cluster, line)]
    if not gpus:
        raise InvalidTopology("names no node; a line is node3 for all its GPUs, or node3.gpu2 for a rank")
    if twice := _twice(gpus):
        node, gpu = divmod(twice[0], cluster.gpus_per_node)
        raise InvalidTopology(f"names node{node}.gpu{gpu} twice; a GPU runs one rank")
    return tuple(gpus)


def _gpus_of(cluster: Cluster, line: object) -> Sequence[int]:
    match = _LINE.fullmatch(line) if isinstance(line, str) else None
    if not match:
        raise InvalidTopology(
            f"{shorten(line)} is no place; a line is node3 for a whole node, or node3.gpu2 for a rank"
        )
    node, each = int(match[1]), cluster.gpus_per_node
    if node >= cluster.nodes:
        have = f"the nodes are node0 to node{cluster.nodes - 1}" if cluster.nodes > 1 else "the only node is node0"
        raise InvalidTopology(f"there is no {match[0].partition('.')[0]}; {have}")
    if match[2] is None:
        return range(node * each, (node + 1) * each)
    if int(match[2]) >= each:
        raise InvalidTopology(f"there is no {match[0]}; a node has the GPUs 0 to {each - 1}")
    return (node * each + int(match[2]),)


def _twice(gpus: Sequence[int]) -> list[int]:
    return [gpu for k, gpu in enumerate(gpus) if gpu in set(gpus[:k])] if len(set(gpus)) < len(gpus) else []
