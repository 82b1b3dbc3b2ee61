"""The collectives of each strategy, phase by phase, against those that DeepSpeed, FSDP and DDP issued in real runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from tests.tables import rows
from trainsim.contracts.instructions import Meet, Program
from trainsim.contracts.job import Job
from trainsim.program.lower import lower
from trainsim.scenario.scenario import Scenario

MODEL = {"family": "llama", "layers": 4, "hidden": 64, "heads": 4, "ffn_hidden": 192, "vocab": 512}
TRACE = rows("collectives_trace.csv")
SMALL = {"reduce_bucket": 50_000}
ALL_SHARED = {"persistence_threshold": 0}


class Run(NamedTuple):
    """The scenario of a run: framework, strategy, options; ``clips`` tells whether its script took the norm."""

    framework: str
    strategy: str
    options: Mapping[str, Any] = MappingProxyType({})
    ranks: int = 2
    clips: bool = True


RUNS = {
    "ddp_cap0.2": Run("pytorch-ddp", "ddp", {"reduce_bucket": 0.2 * 2**20 / 4}),
    "ddp_default": Run("pytorch-ddp", "ddp"),
    "ddp_view": Run("pytorch-ddp", "ddp"),
    "fsdp1_full": Run("pytorch-fsdp1", "fsdp"),
    "fsdp1_full_nosync": Run("pytorch-fsdp1", "fsdp", {"sync": "last"}),
    "fsdp1_gradop": Run("pytorch-fsdp1", "fsdp", {"reshard_after_forward": False}),
    "fsdp1_gradop_nosync": Run("pytorch-fsdp1", "fsdp", {"reshard_after_forward": False, "sync": "last"}),
    "fsdp2_hsdp": Run("pytorch-fsdp2", "hsdp", {"shard_size": 2}, ranks=4, clips=False),
    "fsdp2_int2": Run("pytorch-fsdp2", "fsdp", {"reshard_after_forward": 2}, ranks=4, clips=False),
    "fsdp2_noreshard": Run("pytorch-fsdp2", "fsdp", {"reshard_after_forward": False}, clips=False),
    "fsdp2_reshard": Run("pytorch-fsdp2", "fsdp", clips=False),
    "fsdp2_reshard_nosync": Run("pytorch-fsdp2", "fsdp", {"sync": "last"}, clips=False),
    "z0_bf16": Run("deepspeed", "ddp"),
    "z1_default": Run("deepspeed", "zero1"),
    "z1_fp32_accum(BF16_Optimizer)": Run("deepspeed-bf16", "zero1"),
    "z1_overlap": Run("deepspeed", "zero1", {"overlap": True}),
    "z2_default": Run("deepspeed", "zero2"),
    "z2_reduce_scatter=false": Run("deepspeed", "zero2"),
    "z2_smallbuckets": Run("deepspeed", "zero2", SMALL),
    "z3_default": Run("deepspeed", "zero3"),
    "z3_noreuse": Run(
        "deepspeed",
        "zero3",
        {"prefetch_bucket": 20_000, "max_live_parameters": 40_000, "reuse_distance": 0} | SMALL | ALL_SHARED,
    ),
    "z3_persist": Run(
        "deepspeed", "zero3", {"prefetch_bucket": 0, "reuse_distance": 0, "persistence_threshold": 1000} | SMALL
    ),
}
LEFT_OUT = {  # what no scenario can say
    "z2_multi_rank_bucket_allreduce=false": "a reduction to each owner, which DeepSpeed has switched off by default",
    "z3_reduce_scatter=false": "all-reduce in ZeRO-3, an option for networks whose reduce-scatter fails",
}
NAMES = {
    "all_gather": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_reduce": "all_reduce",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
}
BYTES = {"uint8": 1, "bfloat16": 2, "float32": 4, "float64": 8}
PASSES = {"F": "fwd", "F beside": "fwd", "B": "bwd", "B beside": "bwd"}


def job(run: Run, microbatches: int) -> Job:
    text: dict[str, Any] = {
        "framework": run.framework,
        "model": MODEL,
        "cluster": {"topology": "dgx_a100", "nodes": 1, "gpus_per_node": run.ranks},
        "sharding": {"strategy": run.strategy, **run.options},
        "training": {"sequence_length": 64, "global_batch": microbatches * run.ranks},
    }
    return replace(Scenario.from_dict(text).resolve(), padded_vocab=MODEL["vocab"])


def issued(program: Program, microbatches: int) -> Iterator[tuple[str, str, float]]:
    """(Phase, collective, bytes) of everything but the loss, whose mean the runs did not take."""
    for tasks in program.chains.values():
        for template, microbatch in tasks:
            for i in template.instructions:
                if isinstance(i, Meet) and i.name != "loss":
                    if template.work in PASSES:
                        phase = f"{PASSES[template.work]} mb{microbatch}"
                    else:  # what is reduced once belongs to the last backward
                        phase = f"bwd mb{microbatches - 1}" if i.name.startswith("reduce") else "step"
                    yield phase, i.operation, i.nbytes


Counts = Counter[tuple[str, str]]


def expected(case: str) -> tuple[Counts, Counts]:
    calls, nbytes = Counts(), Counts()
    for row in TRACE:
        if row["case"] == case:
            phase = row["phase"] if row["phase"][:3] in ("fwd", "bwd") else "step"
            key = phase, NAMES[row["collective"]]
            calls[key] += int(row["calls"])
            nbytes[key] += int(row["elements"]) * BYTES[row["dtype"]]
    return calls, nbytes


@pytest.mark.parametrize("case", RUNS)
def test_collectives_of_real_runs(case: str) -> None:
    run = RUNS[case]
    microbatches = next(int(row["microbatches"]) for row in TRACE if row["case"] == case)
    (program,) = lower(job(run, microbatches)).system.programs
    calls, nbytes = Counts(), Counts()
    for phase, operation, size in issued(program, microbatches):
        if run.clips or (phase, operation) != ("step", "all_reduce"):
            calls[phase, operation] += 1
            nbytes[phase, operation] += round(size)
    assert (calls, nbytes) == expected(case)


def test_every_run_is_compared_or_left_out_for_a_reason() -> None:
    assert {row["case"] for row in TRACE} == {*RUNS, *LEFT_OUT}
