"""A machine for tests, as simple as can be: domains of GPUs on a switch, a NIC for so many of them, an ideal fabric."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

CONSTANTS = {
    "latency_scale": 1.16, "ring_base": 6.6e-6, "ring_step": 0.6e-6, "ring_network_step": 2.7e-6, "tree_base": 6.8e-6,
    "tree_step": 0.6e-6, "tree_one_node": 4e-6, "network_hop": 5e-6, "chunk_step": 3.4e-6,
    "chunk_network_step": 14e-6, "chunk_bytes": 7e3, "domain_chunk_base": 14e-6, "domain_chunk_step": 1.9e-6,
    "tree_chunk_base": 8.4e-6, "tree_chunk_step": 4e-6, "network_chunk_hop": 14e-6, "tree_rails": 1000.0,
    "tree_small_rate": 0.08, "ramp": 10e-6, "ramp_gpus": 8.0, "ramp_gather": 1.7, "ramp_network": 12e-6,
    "ramp_network_power": 0.0, "nvls_rate": 1.09, "nvls_rate_power": 0.047, "nvls_base": 25e-6,
    "nvls_network_step": 20.9e-6, "nvls_ramp": 10.9e-6, "nvls_ramp_growth": 0.04, "nvls_minimum_ranks": 5.0,
    "tree_rate": 0.92, "auto_mib": 256.0, "group_rate": 1e15, "message_latency": 8e-6,
    "message_network_latency": 12e-6, "message_network_gain": 1.0,
    "collnet_rate": 0.85, "collnet_network": 31e-6, "collnet_peer": 0.4e-6, "pat_rate": 0.75, "pat_step": 4e-6,
    "pat_rank": 2.8e-6,
}  # fmt: skip
WITHOUT = (
    "latency_scale", "ring_base", "ramp", "ramp_network", "nvls_ramp", "nvls_base", "nvls_network_step", "chunk_step",
    "chunk_network_step", "domain_chunk_base", "domain_chunk_step", "tree_chunk_base", "tree_chunk_step",
    "network_chunk_hop",
)  # fmt: skip
ZERO = dict.fromkeys(WITHOUT, 0.0)


@dataclass(frozen=True, eq=False)
class SwitchedNodes:
    """``nodes`` domains of ``gpus`` each. Rates in bytes/s: ``line`` of a GPU's NVLinks, ``nic`` of each NIC."""

    nodes: int
    gpus: int = 8
    nics: int = 8
    line: float = 300e9
    nic: float = 25e9
    reached: float = 0.835
    nic_reached: float = 0.96
    nvls: bool = False
    sharp: bool = False
    constants: dict[str, float] = field(default_factory=lambda: CONSTANTS)

    def without_constants(self, **changes: float) -> SwitchedNodes:
        """The same machine without latencies and ramps."""
        return replace(self, constants=CONSTANTS | ZERO | changes)

    @property
    def gpus_per_node(self) -> int:
        return self.gpus

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus

    @property
    def bandwidth(self) -> np.ndarray:
        node = [self.line * self.reached] * 2 * self.gpus + [self.nic * self.nic_reached] * 2 * self.nics
        return np.tile(node, self.nodes)

    @property
    def line_rate(self) -> np.ndarray:
        return np.where(self.is_network, self.nic, self.line)

    @property
    def is_network(self) -> np.ndarray:
        return np.tile([False] * 2 * self.gpus + [True] * 2 * self.nics, self.nodes)

    def domain_of(self, rank: np.ndarray) -> np.ndarray:
        return rank // self.gpus

    def rings(self, members: np.ndarray) -> tuple[tuple[np.ndarray, float], ...]:
        return ((members, 1.0),)

    @property
    def flows_per_pair(self) -> int:
        return 1

    def routes(self, src: np.ndarray, dst: np.ndarray, flow: int = 0) -> tuple[np.ndarray, np.ndarray]:
        size = 2 * self.gpus + 2 * self.nics
        (a, i), (b, j) = np.divmod(src, self.gpus), np.divmod(dst, self.gpus)
        inside = np.stack([a * size + 2 * i, b * size + 2 * j + 1], axis=1)
        nic_i, nic_j = i * self.nics // self.gpus, j * self.nics // self.gpus
        outside = np.stack([a * size + 2 * self.gpus + 2 * nic_i, b * size + 2 * self.gpus + 2 * nic_j + 1], axis=1)
        pairs = np.repeat(np.arange(len(src)), 2)
        links = np.where((a == b)[:, None], inside, outside).ravel()
        moves = np.repeat(src != dst, 2)
        return pairs[moves], links[moves]
