"""
Seconds that a collective takes beside moving its bytes: start, steps, hops; and how slowly its bytes get going.

``t = latency + x + 2 * sqrt(x * ramp)`` with x the seconds at full speed (T0 and tau below): the form that fits
730 points of 37 nccl-tests sweeps best with three parameters. T0 follows the latency terms of NCCL's own tuning
model (NCCL src/graph/tuning.cc, protocol LL).

A ring over several nodes takes more: ``chain``, its steps with the protocol of large buffers (Simple), of which each
waits for the one before however few bytes it carries. That is why gathers and reductions slow down with scale: their
steps are as many as their ranks, and their bytes per step fewer. Measured rates depend on the bytes per step alone
(``chunk_step``), and at 16 MiB per rank 1,024 GPUs reach what 16 do. The constants are the machine's, with their
sources in its data:

``latency_scale``; ``ring_base``, ``ring_step``, ``ring_network_step``; ``tree_base``, ``tree_step``,
``tree_one_node``, ``network_hop`` (seconds); ``ramp`` (seconds, for ``ramp_gpus`` ranks of a domain),
``ramp_gather`` (factor of all_gather and reduce_scatter), ``ramp_network`` (seconds), ``ramp_network_power``;
``chunk_step``, ``chunk_network_step`` (seconds), ``chunk_bytes`` (bytes per rank);
``nvls_ramp`` (seconds), ``nvls_ramp_growth``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trainsim.collectives import Floats, PlacedGroups

GATHERS = ("all_gather", "reduce_scatter")


def ring_latency(operation: str, placement: PlacedGroups) -> Floats:
    """T0 of a ring: every byte goes round all ranks, twice in an all-reduce. Seconds per group."""
    constants = placement.machine.constants
    steps, hops = _steps(operation, placement)
    seconds = constants["ring_base"] + constants["ring_step"] * steps
    return scaled(placement, seconds + constants["ring_network_step"] * hops)


def ring_steps(operation: str, placement: PlacedGroups) -> tuple[str, Floats, Floats]:
    """The steps of a ring: (whose protocols, those within domains, those between)."""
    steps, hops = _steps(operation, placement)
    return "ring", np.asarray(steps - hops, np.float64), hops


def tree_steps(operation: str, placement: PlacedGroups) -> tuple[str, Floats, Floats]:
    """The steps of a tree, up and down."""
    return "tree", np.asarray(2.0 * (placement.local - 1), np.float64), np.asarray(2.0 * np.log2(placement.domains))


def ring_chain(operation: str, placement: PlacedGroups) -> Floats:
    """What a ring takes beside bytes and T0 once it carries more than few bytes per rank: steps of the protocol LL128
    within a domain, of Simple over several."""
    constants = placement.machine.constants
    steps, hops = _steps(operation, placement)
    far = constants["ring_base"] + constants["chunk_step"] * (steps - hops) + constants["chunk_network_step"] * hops
    near = constants["domain_chunk_base"] + constants["domain_chunk_step"] * steps
    seconds = np.where(placement.domains > 1, far, near)
    beyond = np.maximum(seconds - ring_latency(operation, placement), 0.0)
    return beyond if placement.ranks > 1 else np.zeros_like(beyond)


def _steps(operation: str, placement: PlacedGroups) -> tuple[int, Floats]:
    """(Steps of a ring, those of them between domains per group): an all-reduce goes round twice."""
    rounds = 2 if operation == "all_reduce" else 1
    return rounds * (placement.ranks - 1), rounds * (placement.domains - 1).astype(np.float64)


def tree_latency(operation: str, placement: PlacedGroups) -> Floats:
    """T0 of a tree: a chain inside a domain, and as many hops as a binary tree of the domains is deep."""
    constants = placement.machine.constants
    seconds = constants["tree_step"] * (placement.local - 1) + constants["network_hop"] * np.log2(placement.domains)
    alone = np.where(placement.domains == 1, constants["tree_one_node"], 0.0)
    return scaled(placement, constants["tree_base"] + 2.0 * seconds + alone)


def tree_chain(operation: str, placement: PlacedGroups) -> Floats:
    """What a tree takes beside bytes and T0 where buffers are not small: hops of the protocol Simple."""
    constants = placement.machine.constants
    down = constants["tree_chunk_step"] * (placement.local - 1)
    whole = constants["tree_chunk_base"] + 2.0 * (down + constants["network_chunk_hop"] * np.log2(placement.domains))
    beyond = np.maximum(whole - tree_latency(operation, placement), 0.0)
    return beyond if placement.ranks > 1 else np.zeros_like(beyond)


def least_latency(operation: str, placement: PlacedGroups) -> Floats:
    """T0 where the library picks ring or tree by size, as NCCL does for small ones.

    Between nodes gathers and scatters have a tree (PAT) only where a group has one GPU per node, broadcasts have none.
    """
    ring, tree = ring_latency(operation, placement), tree_latency(operation, placement)
    if operation in GATHERS:
        tree = np.where(
            placement.domains > 1, np.where(placement.local > 1, np.inf, pat_latency(operation, placement)), tree
        )
    elif operation in ("broadcast", "reduce"):
        tree = np.where(placement.domains > 1, np.inf, tree)
    return np.minimum(ring, tree)


def pat_latency(operation: str, placement: PlacedGroups) -> Floats:
    """T0 of PAT: steps as many as the logarithm of the ranks, and some time per rank."""
    constants = placement.machine.constants
    seconds = np.log2(placement.domains) * constants["pat_step"] + placement.ranks * constants["pat_rank"]
    return scaled(placement, seconds)


def ring_ramp(operation: str, placement: PlacedGroups) -> Floats:
    """tau of a ring: the pipeline of chunks inside a domain. Seconds per group."""
    constants = placement.machine.constants
    gathers = constants["ramp_gather"] if operation in GATHERS else 1.0
    return np.full(len(placement.members), constants["ramp"] * gathers)


def tree_ramp(operation: str, placement: PlacedGroups) -> Floats:
    """tau of a tree: the pipeline of chunks fills more slowly over the network. Seconds per group."""
    return np.asarray(ring_ramp(operation, placement) + _network_ramp(placement))


def _network_ramp(placement: PlacedGroups) -> Floats:
    constants = placement.machine.constants
    depth = np.log2(np.maximum(placement.domains, 2)) ** constants["ramp_network_power"]
    return np.asarray(np.where(placement.domains > 1, constants["ramp_network"] * depth, 0.0))


def nvls_ramp(operation: str, placement: PlacedGroups) -> Floats:
    """tau where the switch reduces: nearly that of few ranks, however many there are."""
    constants = placement.machine.constants
    beyond = np.maximum(placement.local - constants["ramp_gpus"], 0.0)
    near = constants["nvls_ramp"] * (1.0 + constants["nvls_ramp_growth"] * beyond)
    return np.asarray(near + _network_ramp(placement))


def nvls_tree_chain(operation: str, placement: PlacedGroups) -> Floats:
    """What switches that reduce within domains and a tree between them take beside bytes and the latency of a tree."""
    constants = placement.machine.constants
    levels = np.log2(placement.domains)
    whole = constants["nvls_base"] + 2.0 * constants["nvls_network_step"] * levels
    return np.maximum(whole - tree_latency(operation, placement), 0.0)


def scaled(placement: PlacedGroups, seconds: npt.ArrayLike) -> Floats:
    """*seconds* as they are measured; nothing for a rank alone."""
    if placement.ranks == 1:
        return np.zeros(len(placement.members))
    return np.asarray(seconds, np.float64) * placement.machine.constants["latency_scale"]
