"""
Seconds that a collective takes beside moving its bytes: start, steps, hops; and how slowly its bytes get going.

``t = latency + x + 2 * sqrt(x * ramp)`` with x the seconds at full speed (T0 and tau below): the form that fits
730 points of 37 nccl-tests sweeps best with three parameters. T0 follows the latency terms of NCCL's own tuning
model (NCCL src/graph/tuning.cc, protocol LL). The constants are the machine's, with their sources in its data:

``latency_scale``; ``ring_base``, ``ring_step``, ``ring_network_step``; ``tree_base``, ``tree_step``,
``tree_one_node``, ``network_hop`` (seconds); ``ramp`` (seconds, for ``ramp_gpus`` ranks of a domain),
``ramp_gather`` (factor of all_gather and reduce_scatter), ``ramp_network`` (seconds), ``ramp_network_power``;
``nvls_ramp`` (seconds), ``nvls_ramp_growth``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trainsim.collectives import Floats, PlacedGroups


def ring_latency(operation: str, placement: PlacedGroups) -> Floats:
    """T0 of a ring: every byte goes round all ranks, twice in an all-reduce. Seconds per group."""
    constants = placement.machine.constants
    steps = (2 if operation == "all_reduce" else 1) * (placement.ranks - 1)
    seconds = constants["ring_base"] + constants["ring_step"] * steps
    hops = 2.0 * (placement.domains - 1)
    return _scaled(placement, seconds + constants["ring_network_step"] * hops)


def tree_latency(operation: str, placement: PlacedGroups) -> Floats:
    """T0 of a tree: a chain inside a domain, and as many hops as a binary tree of the domains is deep."""
    constants = placement.machine.constants
    seconds = constants["tree_step"] * (placement.local - 1) + constants["network_hop"] * np.log2(placement.domains)
    alone = np.where(placement.domains == 1, constants["tree_one_node"], 0.0)
    return _scaled(placement, constants["tree_base"] + 2.0 * seconds + alone)


def least_latency(operation: str, placement: PlacedGroups) -> Floats:
    """T0 where the library picks ring or tree (PAT for a gather or a scatter) by size, as NCCL does for small ones."""
    return np.minimum(ring_latency(operation, placement), tree_latency(operation, placement))


def ramp(operation: str, placement: PlacedGroups) -> Floats:
    """tau: the pipeline of chunks fills more slowly the longer it is. Seconds per group."""
    constants = placement.machine.constants
    gathers = operation in ("all_gather", "reduce_scatter")
    domain = (
        constants["ramp"] * placement.local / constants["ramp_gpus"] * (constants["ramp_gather"] if gathers else 1.0)
    )
    far = placement.domains > 1
    depth = np.log2(np.maximum(placement.domains, 2)) ** constants["ramp_network_power"]
    return np.asarray(domain + np.where(far, constants["ramp_network"] * depth, 0.0))


def direct_ramp(operation: str, placement: PlacedGroups) -> Floats:
    """tau where every rank sends to all others at once: within a domain of many GPUs no chunk waits for another one's.

    All-to-all over 64 GPUs of a GB300 NVL72 reaches 649 GB/s at 8 GiB and 667 at 16 GiB, over 8 of them 680 and 685
    (NVIDIA's figures): one tau is within 3 % of all four, one that grows with the ranks 8 % too slow over 64.
    """
    constants = placement.machine.constants
    beyond = np.maximum(placement.local - constants["ramp_gpus"], 0.0)
    return np.asarray(ramp(operation, placement) - constants["ramp"] * beyond / constants["ramp_gpus"])


def nvls_ramp(operation: str, placement: PlacedGroups) -> Floats:
    """tau where the switch reduces: nearly that of few ranks, however many there are."""
    constants = placement.machine.constants
    beyond = np.maximum(placement.local - constants["ramp_gpus"], 0.0)
    return np.asarray(constants["nvls_ramp"] * (1.0 + constants["nvls_ramp_growth"] * beyond))


def _scaled(placement: PlacedGroups, seconds: npt.ArrayLike) -> Floats:
    if placement.ranks == 1:
        return np.zeros(len(placement.members))
    return np.asarray(seconds, np.float64) * placement.machine.constants["latency_scale"]
