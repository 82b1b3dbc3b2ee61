"""Small jobs that tests lower and run: a few layers of a small model on a few nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainsim.contracts.job import Job
from trainsim.contracts.trace import Trace
from trainsim.fold import unfolded
from trainsim.scenario.scenario import Scenario
from trainsim.simulate import Simulation, simulate

SMALL: dict[str, Any] = {
    "name": "small",
    "framework": "megatron-core",
    "model": {
        "family": "llama",
        "layers": 8,
        "hidden": 1024,
        "heads": 16,
        "kv_heads": 8,
        "ffn_hidden": 2816,
        "vocab": 32000,
    },
    "cluster": {"topology": "dgx_a100", "nodes": 2},
    "parallel": {"tp": 2, "pp": 4},
    "pipeline": {"schedule": "1f1b"},
    "sharding": {"strategy": "zero1"},
    "training": {"sequence_length": 1024, "micro_batch": 1, "global_batch": 16, "recompute": "none"},
}

TORCHTUNE: dict[str, Any] = {
    "framework": "pytorch-fsdp2-bf16",
    "model": "llama-3.2-3b",
    "cluster": {"topology": "dgx_a100", "nodes": 1, "gpus_per_node": 1},
    "sharding": {"strategy": "ddp"},
    "training": {"sequence_length": 4096, "micro_batch": 2, "global_batch": 2, "optimizer": "adamw"},
}


def small(**changes: Any) -> Job:
    """The small job with dotted fields changed (``__`` for the dot)."""
    return scenario(**changes).resolve()


def scenario(**changes: Any) -> Scenario:
    """The scenario behind ``small``."""
    return Scenario.from_dict(SMALL).replace({k.replace("__", "."): v for k, v in changes.items()})


def torchtune(**changes: Any) -> Scenario:
    """Llama-3.2-3B all in bf16 on one A100, two packed sequences of 4,096 tokens, as in torchtune's README."""
    return Scenario.from_dict(TORCHTUNE).replace({k.replace("__", "."): v for k, v in changes.items()})


def run_small(**changes: Any) -> Simulation:
    """The small job, run."""
    return simulate(small(**changes))


def same_spans(a: Trace, b: Trace) -> bool:
    """Whether every span of every rank has the same times in both, to the last bit."""
    ranks = len(a.rank_class)
    for rank in range(ranks):
        chains = list(a.chain_names(rank))
        if chains != list(b.chain_names(rank)):
            return False
        for chain in chains:
            x, y = a.spans(rank, chain), b.spans(rank, chain)
            names = [[trace.labels[k] for k in spans.label] for trace, spans in ((a, x), (b, y))]
            if names[0] != names[1] or not all(
                np.array_equal(getattr(x, field), getattr(y, field))
                for field in ("microbatch", "posted", "start", "end")
            ):
                return False
    return True


__all__ = ["SMALL", "run_small", "same_spans", "scenario", "small", "unfolded"]
