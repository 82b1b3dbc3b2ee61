"""What a trace says of itself before its events: the job, its GPUs and its groups, as the PyTorch profiler does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from trainsim.analysis.analysis import Analysis
from trainsim.analysis.step_analysis import StepAnalysis
from trainsim.report.trace_kernels import Kernels

SCHEMA = 1
"""Version of Kineto's format."""


def head(analysis: StepAnalysis, kernels: Kernels, ranks: Sequence[int], *, about: dict[str, Any]) -> Iterator[str]:
    """Everything up to the list of events; *about* is what this program has to say. A file of one rank names it."""
    groups = list(kernels.of_rank(ranks[0])) if len(ranks) == 1 else []
    distributed = {
        "backend": "nccl",
        **({"rank": ranks[0]} if len(ranks) == 1 else {}),
        "world_size": analysis.trace.ranks,
        **({"pg_count": len(groups), "pg_config": groups} if groups else {}),
    }
    told = {
        "schemaVersion": SCHEMA,
        "distributedInfo": distributed,  # readers look for the rank in the first lines
        **({"deviceProperties": list(_devices(analysis))} if isinstance(analysis, Analysis) else {}),
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
        "otherData": {"name": analysis.name, **about},
    }
    yield "{\n" + "".join(f"{json.dumps(key)}: {json.dumps(value)},\n" for key, value in told.items())
    yield '"traceEvents":[\n'


def _devices(analysis: Analysis) -> Iterator[dict[str, Any]]:
    """The GPUs of a node."""
    gpu = analysis.job.cluster.gpu
    for k in range(analysis.job.cluster.gpus_per_node):
        yield {"id": k, "name": gpu.name.upper(), "totalGlobalMem": int(gpu.usable_memory), "numSms": gpu.sms}


def numbers_of(analysis: StepAnalysis) -> dict[str, Any]:
    """The numbers of a result that a trace repeats."""
    return {"step_time_s": analysis.step_time, **analysis.rates, "bubble": analysis.bubble.fraction}


def device_of(analysis: Analysis, rank: int) -> int:
    """The number of a rank's GPU in its node."""
    return int(analysis.job.allocation.gpu_of(np.array(rank))) % analysis.job.cluster.gpus_per_node
