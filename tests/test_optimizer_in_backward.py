"""Updates in the backward pass: as much work, fewer gradients at once, and what they do not go together with."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs import run_small, same_spans, scenario, small, torchtune
from trainsim.errors import NotBuilt
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario
from trainsim.sharding import strategies

EARLY: dict[str, Any] = {"training__optimizer_in_backward": True}
PYTORCH = {"framework": "pytorch-fsdp2", "parallel__pp": 1, "parallel__tp": 1, "training__global_batch": 16}
SHARED = {
    "fsdp": {"sharding__strategy": "fsdp"},
    "fsdp without overlap": {"sharding__strategy": "fsdp", "sharding__overlap": False},
    "fsdp1": {"sharding__strategy": "fsdp", "framework": "pytorch-fsdp1"},
    "fsdp of a framework that drops gradients": {"sharding__strategy": "fsdp", "framework": "transformers"},
    "hsdp": {"sharding__strategy": "hsdp"},
    "hsdp without overlap": {"sharding__strategy": "hsdp", "sharding__overlap": False},
    "tensor parallel": {"sharding__strategy": "fsdp", "parallel__tp": 2, "training__global_batch": 8},
    "adapters": {"sharding__strategy": "fsdp", "model__lora": {"rank": 8, "targets": ["q", "v"]}},
}
SINGLE = {"cluster__nodes": 1, "cluster__gpus_per_node": 1, "training__global_batch": 1}
ALONE = {
    "one GPU": {**SINGLE, "sharding__strategy": "ddp"},
    "one GPU, tied": {**SINGLE, "sharding__strategy": "ddp", "model__tied_embeddings": True},
    "one GPU, transformers": {**SINGLE, "sharding__strategy": "ddp", "framework": "transformers"},
    "one GPU, fsdp": {**SINGLE, "sharding__strategy": "fsdp"},
    "eight tensor shards": {
        "cluster__nodes": 1, "parallel__tp": 8, "training__global_batch": 1, "sharding__strategy": "ddp"
    },
}  # fmt: skip
CASES = {**SHARED, **ALONE}


def run(case: str, **changes: Any) -> Result:
    return scenario(**{**PYTORCH, **CASES[case], **changes}).run()


def gradients(result: Result) -> float:
    """The most that any rank holds of gradients, bytes."""
    return max(float(s.levels["gradients"].max()) if "gradients" in s.levels else 0.0 for s in result.memory.per_stage)


def updated(result: Result) -> float:
    """Seconds of the optimizer's kernels on rank 0."""
    spans = result.timeline([0])
    some = spans[spans.kind == "optimizer"]
    return float((some.end - some.start).sum())


@pytest.mark.parametrize("case", CASES)
def test_updates_move_as_many_bytes(case: str) -> None:
    """Each by itself, so a little slower, and those of a small model much: its kernels are short."""
    late, early = run(case), run(case, **EARLY)
    assert updated(early) >= updated(late) * 0.999


@pytest.mark.parametrize("case", CASES)
def test_fewer_gradients_are_there_at_once(case: str) -> None:
    late, early = run(case), run(case, **EARLY)
    assert gradients(early) < gradients(late)
    assert early.memory.needed <= late.memory.needed


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("detail", ["op", "layer", "block"])
def test_everything_is_given_back(case: str, detail: str) -> None:
    for stage in run(case, **EARLY, simulation__steps=2, simulation__detail=detail).memory.per_stage:
        for category in ("gradients", "temporary", "gathered"):
            level = stage.levels.get(category)
            assert level is None or float(level[-1]) == pytest.approx(float(level[0]), abs=1e-3)
            assert level is None or float(level.min()) >= -1e-3


def test_only_a_tied_table_waits_on_one_gpu() -> None:
    """A gradient is counted while it is made; a table that is head and embedding waits for its second half."""
    assert gradients(run("one GPU", **EARLY)) == 0
    assert gradients(run("one GPU, tied", **EARLY)) == 2 * 32000 * 1024


def test_a_sharded_gradient_is_there_for_one_unit() -> None:
    """Two shards of units at most, each as long as sums are, and the whole gradients of the units at work."""
    result = run("fsdp", **EARLY)
    stage = result.memory.fullest
    assert float(stage.levels["gradients"][0]) == 0


@pytest.mark.parametrize("case", ["fsdp", "hsdp", "hsdp without overlap", "eight tensor shards"])
def test_folded_is_unfolded(case: str) -> None:
    changes = {**PYTORCH, **CASES[case], **EARLY, "model__layers": 3}
    folded, whole = (run_small(**changes, simulation__fold=fold) for fold in (True, False))
    assert same_spans(folded.trace, whole.trace)


@pytest.mark.parametrize("case", CASES)
def test_the_closed_form_knows_it(case: str) -> None:
    """As well as it knows the same job with its update at the end: what shares links takes longer than it says."""
    late, early = (r.simulation.estimate.seconds / r.step_time for r in (run(case), run(case, **EARLY)))
    assert early == pytest.approx(late, abs=0.03)


@pytest.mark.parametrize("name", strategies)
def test_every_strategy_does_it_or_says_why(name: str) -> None:
    changes = {**PYTORCH, **EARLY, "sharding__strategy": name}
    if strategies[name].updates_in_backward:
        assert small(**changes).training.optimizer_in_backward
        return
    with pytest.raises(NotBuilt, match=r"fsdp, hsdp would work, or a single replica"):
        small(**changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training__gradient_accumulation": 2, "training__global_batch": 32}, ["2 micro-batches", "global_batch: 16"]),
        ({"parallel__pp": 2, "training__global_batch": 1, "sharding__strategy": "ddp", "parallel__tp": 8}, ["pp: 1"]),
        ({"training__optimizer": "muon"}, ["muon", "whole matrices"]),
        ({"framework": "megatron-core", "sharding__strategy": "fsdp"}, ["megatron-core", "one contiguous buffer"]),
        ({"training__precision": "fp16"}, ["overflow", "loss_scaling: none"]),
        ({"what_if": [{"skip": {"step": 0}}]}, ["skips an update"]),
        ({"sharding__offload": {"optimizer": "cpu", "parameters": "cpu"}}, ["sharding.offload: none"]),
    ],
)
def test_what_cannot_be_says_why(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(NotBuilt) as caught:
        small(**{**PYTORCH, "sharding__strategy": "fsdp", **EARLY, **changes})
    assert all(word in str(caught.value) for word in words), caught.value


def test_clipping_is_noted() -> None:
    one = scenario(**PYTORCH, sharding__strategy="fsdp", **EARLY)
    assert "clipping" in one.resolved["derived"]["training.optimizer_in_backward"]
    assert Scenario.from_dict(one.resolved).resolve() == one.resolve()


@pytest.mark.parametrize(
    ("more", "gib", "within"),
    [
        ({}, 23.1, 0.05),
        ({"activation_offload": "cpu"}, 21.8, 0.05),
        ({"activation_offload": "cpu", "optimizer": "adam8bit"}, 17.6, 0.16),  # states alone are 5.9 GiB less, not 4.2
    ],
)
def test_torchtune_on_one_gpu(more: dict[str, Any], gib: float, within: float) -> None:
    """Llama-3.2-3B, one A100-80GB, 2 x 4096 tokens in bf16, chunked loss, checkpointed, optimizer in the backward: peak
    active GiB of the README of meta-pytorch/torchtune, optimizations added one by one."""
    tight = {"recompute": "full", "cross_entropy": "chunked", "optimizer_in_backward": True, **more}
    full = torchtune(**{f"training__{key}": value for key, value in tight.items()}).run().memory.fullest
    assert (full.needed - full.part("framework")) / 2**30 == pytest.approx(gib, rel=within)
