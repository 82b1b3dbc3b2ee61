"""Where the ranks of a measured group lie on a topology."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from trainsim.calibration.measurements import CollectiveSweep
from trainsim.collectives import Ints
from trainsim.collectives.pattern import pattern
from trainsim.documents.catalogue import Spec
from trainsim.errors import InvalidPlan, ScenarioError, TrainsimError
from trainsim.hardware.cluster import Cluster, load_topology
from trainsim.hardware.topology import find_topology
from trainsim.units import format_number_of

BOARDS_OF_A_HOST = 2
"""A host has two baseboards at most (DGX-2); what has more is a rack of hosts."""


@dataclass(frozen=True, eq=False)
class Placed:
    """A sweep and the ranks of *cluster* that it ran on: ``members`` [1, ranks]."""

    sweep: CollectiveSweep
    cluster: Cluster
    members: Ints
    algorithm: str

    @property
    def nodes(self) -> int:
        """Nodes of the topology that the group touches."""
        return len(np.unique(self.cluster.node_of(self.members.ravel())))

    def called(self, title: str) -> Placed:
        """The same under another title."""
        return replace(self, sweep=replace(self.sweep, title=title))

    @property
    def title(self) -> str:
        """The collective and its group in words."""
        forced = f", {self.algorithm}" if self.algorithm != "auto" else ""
        if self.sweep.title:
            return self.sweep.title
        where = f" on {self.nodes} nodes" if self.nodes > 1 else ""
        return f"{self.sweep.operation} of {format_number_of(self.members.size, 'GPU')}{where}{forced}"


def place_sweeps(sweeps: Sequence[CollectiveSweep], topology: Spec) -> tuple[list[Placed], list[str]]:
    """Each sweep on as many nodes of *topology* as it needs, and a word about each that cannot be placed.

    Raises ScenarioError if none can.
    """
    placed, left = [], []
    for sweep in sweeps:
        try:
            placed.append(_placed(sweep, topology))
        except TrainsimError as error:
            left.append(f"{sweep.file}: {sweep.operation} is left out: {error.reason}")
    if not placed:
        raise ScenarioError("; ".join(left))
    titles = [group.title for group in placed]
    named = [
        group if titles.count(group.title) == 1 else group.called(f"{group.title} ({Path(group.sweep.file).name})")
        for group in placed
    ]
    return named, left


def _placed(sweep: CollectiveSweep, topology: Spec) -> Placed:
    data = find_topology(topology).data
    whole = int(data.get("gpus_per_node", 1))
    ranks = sweep.ranks or (whole if sweep.nodes <= 1 else 0)
    hosts = sweep.nodes or -(-ranks // whole)
    if not ranks or ranks < 2:
        raise InvalidPlan("the log does not say how many GPUs took part; keep its header (the lines '# Rank ...')")
    if ranks % hosts:
        raise InvalidPlan(f"{ranks} GPUs do not share {hosts} nodes evenly")
    each = ranks // hosts
    if _is_rack(data, whole, each):
        hosts, each = -(-ranks // whole), min(ranks, whole)
    if each > whole:
        raise InvalidPlan(f"{each} GPUs on a node, where {topology} has {whole}; name another machine with --base")
    cluster = load_topology(topology, nodes=hosts)
    members = (np.arange(hosts)[:, None] * whole + np.arange(each)).ravel()[None, :ranks]
    return Placed(sweep, cluster, members, _algorithm(sweep, cluster, members))


def _is_rack(data: object, whole: int, each: int) -> bool:
    """Whether what a log calls a host is one board of many that are one node here: a tray of an NVL72."""
    node = data.get("node", {}) if isinstance(data, dict) else {}
    boards = int(node.get("boards", 1)) if isinstance(node, dict) else 1
    return boards > BOARDS_OF_A_HOST and each < whole


def _algorithm(sweep: CollectiveSweep, cluster: Cluster, members: Ints) -> str:
    """The algorithm that was forced, where it serves the group here."""
    try:
        pattern(cluster, sweep.operation, members, algorithm=sweep.algorithm)
    except InvalidPlan:
        return "auto"
    return sweep.algorithm
