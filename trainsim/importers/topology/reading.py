"""
A machine by its name, or from a file that describes one in whatever format.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainsim.documents.catalogue import Spec, exists
from trainsim.hardware.cluster import Cluster, load_topology
from trainsim.hardware.topology import OVERRIDES
from trainsim.importers.importing import import_config

OURS = (".yaml", ".yml", "")
"""Endings of topology files; a file with any other is one of another tool."""


def topology(
    topology: Spec, *, nodes: int | None = None, overrides: Mapping[str, Any] | None = None, **fields: Any
) -> Cluster:
    """The cluster that *topology* describes (a name, a path, or a mapping with a ``base``), with some of its fields
    replaced: by keyword or in *overrides*, all that a scenario's ``cluster:`` takes.

    A path may be that of a file of another tool: NCCL's topology, nvidia-smi topo -m, a graph (docs/importing.md).

    >>> cluster = topology("dgx_h100", nodes=4, nic_bandwidth="200Gbps")
    >>> cluster.ranks, cluster.link_name(int(cluster.find_links("node3.nic0")[0]))
    (32, 'node3.pcie0>nic0')
    """
    if not is_foreign(topology):
        return load_topology(topology, nodes=nodes, overrides=overrides, **fields)
    values = {**(overrides or {}), **fields}
    before = {f"cluster.{key}": value for key, value in values.items() if key in OVERRIDES and key != "gpus_per_node"}
    rest = {key: value for key, value in values.items() if f"cluster.{key}" not in before}
    machine = import_config(str(topology), before).cluster
    if nodes is None and not rest:
        return machine
    return load_topology(_described(str(topology), before), nodes=nodes, overrides=rest)


def is_foreign(spec: Spec) -> bool:
    """Whether *spec* is a file that is no topology of trainsim's own by its ending."""
    if isinstance(spec, Mapping):
        return False
    path = Path(spec)
    return path.suffix.lower() not in OURS and exists(path) and path.is_file()


def _described(file: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    described = import_config(file, changes).topology
    assert described is not None
    return described
