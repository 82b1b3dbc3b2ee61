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
    return tuple(line for _, line in _said(text))


def host_line_numbers(text: str) -> tuple[int, ...]:
    """The number, from 1, of each of these lines.

    >>> host_line_numbers("# ours\\nnode3\\n\\nnode1.gpu2  # the last\\n")
    (2, 4)
    """
    return tuple(number for number, _ in _said(text))


def _said(text: str) -> list[tuple[int, str]]:
    lines = ((number, line.partition("#")[0].strip()) for number, line in enumerate(text.splitlines(), 1))
    return [(number, line) for number, line in lines if line]


def listed_gpus(cluster: Cluster, lines: Iterable[object], numbers: Sequence[int] = ()) -> tuple[int, ...]:
    """The GPU of each rank, as *lines* name them: all of a node, or one. Raises InvalidTopology that names the line,
    with its number if the *numbers* of the lines are given.

    >>> from trainsim.hardware.cluster import load_topology
    >>> listed_gpus(load_topology("pcie_4gpu"), ["node0.gpu3", "node0.gpu1"])
    (3, 1)
    """
    gpus: list[int] = []
    line_of: list[str] = []
    for k, line in enumerate(lines):
        place = f"line {numbers[k]}: " if k < len(numbers) else ""
        try:
            here = _gpus_of(cluster, line)
        except InvalidTopology as error:
            raise InvalidTopology(f"{place}{error}") from None
        gpus += here
        line_of += [place] * len(here)
    if not gpus:
        raise InvalidTopology("names no node; a line is node3 for all its GPUs, or node3.gpu2 for a rank")
    if twice := _twice(gpus):
        node, gpu = divmod(gpus[twice[0]], cluster.gpus_per_node)
        raise InvalidTopology(f"{line_of[twice[0]]}names node{node}.gpu{gpu} twice; a GPU runs one rank")
    return tuple(gpus)


def _gpus_of(cluster: Cluster, line: object) -> Sequence[int]:
    match = _LINE.fullmatch(line) if isinstance(line, str) else None
    if not match:
        raise InvalidTopology(
            f"{shorten(line)} is not a place; a line is node3 for a whole node, or node3.gpu2 for a rank"
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
    """The positions of those that stood before."""
    first = dict(zip(reversed(gpus), reversed(range(len(gpus))), strict=True))
    return [k for k, gpu in enumerate(gpus) if first[gpu] < k]
