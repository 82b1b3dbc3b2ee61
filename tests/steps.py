"""Named steps on which every saving of engine and fold must change no bit."""

from __future__ import annotations

from tests.workload import Hardware, Job, build
from trainsim.contracts.system import System

BASE = {"tp": 2, "pp": 4, "dp": 4, "microbatches": 6, "layers": (2, 2, 2, 2)}

STEPS: dict[str, tuple[dict, dict]] = {
    "plain": ({}, {}),
    "uneven stages": ({"layers": (1, 3, 2, 4)}, {}),
    "straggler": ({"slow": {5: 1.37}}, {}),
    "two stragglers": ({"slow": {5: 1.37, 18: 1.11}}, {}),
    "slow NIC": ({}, {"slow_nic": {3: 0.4}}),
    "NICs shared by 2": ({}, {"gpus_per_nic": 2}),
    "NICs shared by 4, straggler, slow NIC": ({"slow": {9: 1.2}}, {"gpus_per_nic": 4, "slow_nic": {2: 0.6}}),
    "messages cross nodes for some stages": ({"order": "tp pp dp"}, {"gpus_per_node": 4, "gpus_per_nic": 2}),
    "messages cross nodes for some replicas": (
        {"order": "tp pp dp", "pp": 3, "layers": (2, 1, 2)}, {"gpus_per_node": 4, "gpus_per_nic": 2},
    ),
    "pipeline inside the node": ({"order": "pp tp dp"}, {"gpus_per_nic": 2}),
    "tensor parallelism across nodes": ({"tp": 4, "dp": 2}, {"gpus_per_node": 2}),
    "messages share NICs with the gradients": (
        {"activation": 400e6, "gradients": 2e9}, {"gpus_per_nic": 2, "gpus_per_node": 2},
    ),
    "messages take SMs": ({"p2p_sm": 0.1, "activation": 200e6}, {"gpus_per_nic": 2}),
    "many messages in flight": ({"activation": 2e9, "p2p_sm": 0.05, "microbatches": 9}, {"gpus_per_nic": 2}),
    "blocking messages": ({"blocking": True, "activation": 200e6, "slow": {3: 1.3}}, {"gpus_per_nic": 2}),
    "gradients under the backward pass": ({"pp": 1, "layers": (6,), "gradients": 4e9, "microbatches": 3}, {}),
    "gradients under the backward pass, straggler": (
        {"pp": 1, "layers": (6,), "gradients": 4e9, "microbatches": 3, "slow": {2: 1.5}, "dp_sm": 0.3},
        {"gpus_per_nic": 2},
    ),
    "sequence parallelism, ZeRO-1, gradient norm": (
        {"sequence_parallel": True, "zero1": True, "norm": True, "slow": {6: 1.2}}, {"ramp": 2e-5},
    ),
    "NICs shared by 6, tp 3": (
        {"tp": 3, "order": "tp pp dp", "p2p_sm": 0.05, "microbatches": 20}, {"gpus_per_node": 6, "gpus_per_nic": 6},
    ),
    "chaotic": (
        {"slow": {9: 1.2}, "microbatches": 64, "activation": 400e6, "gradients": 2e9},
        {"gpus_per_nic": 4, "slow_nic": {2: 0.6}},
    ),
    "alone or in company at full speed": (  # what is left has to be whole ticks either way
        {"pp": 2, "dp": 2, "microbatches": 1, "layers": (1, 1), "buckets": 1, "order": "pp tp dp", "gradients": 1e8,
         "recompute": False, "dp_sm": 0.0},
        {"gpus_per_node": 2, "gpus_per_nic": 2},
    ),
    "all of it": (
        {"p2p_sm": 0.1, "order": "tp pp dp", "layers": (1, 3, 2, 4), "slow": {9: 1.2, 22: 1.01}, "norm": True,
         "zero1": True, "sequence_parallel": True},
        {"gpus_per_node": 4, "gpus_per_nic": 2, "slow_nic": {1: 0.7}, "ramp": 1e-5},
    ),
}  # fmt: skip

LARGE: dict[str, tuple[dict, dict]] = {
    "1,024 ranks, straggler": (
        {"tp": 8, "pp": 8, "dp": 16, "microbatches": 12, "layers": (1,) * 8, "slow": {500: 1.1}}, {},
    ),
    "1,024 ranks, shared NICs, slow NIC": (
        {"tp": 4, "pp": 8, "dp": 32, "microbatches": 10, "layers": (1,) * 8, "activation": 300e6},
        {"gpus_per_nic": 2, "slow_nic": {17: 0.5}},
    ),
    "512 ranks, all of it": (
        {"tp": 4, "pp": 8, "dp": 16, "microbatches": 10, "layers": (1, 2, 1, 1, 1, 1, 2, 1), "slow": {77: 1.2},
         "p2p_sm": 0.05, "zero1": True, "sequence_parallel": True, "norm": True, "order": "tp pp dp"},
        {"gpus_per_nic": 4, "ramp": 1e-5},
    ),
}  # fmt: skip


def step(name: str) -> System:
    """The system of a named step."""
    changes, hardware = (STEPS | LARGE)[name]
    job = Job(**{**BASE, **changes})
    return build(job, Hardware(ranks=job.ranks, **hardware))
