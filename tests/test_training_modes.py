"""Modes of training: results that the caller keeps, steps that are captured as graphs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs import run_small, same_spans, scenario, small
from trainsim.errors import NotBuilt
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario
from trainsim.sharding import strategies
from trainsim.study.ways import MEMORY, suggestions

ALONE: dict[str, Any] = {"parallel__tp": 1, "parallel__pp": 1}
OFFLOADED = {"sharding": {"strategy": "zero2", "offload": {"optimizer": "cpu"}}}
WAYS = ("chunked", "standard")


def logits(**changes: Any) -> float:
    """The most that any rank holds of logits, bytes."""
    levels = [stage.levels.get("logits") for stage in scenario(**changes).run().memory.per_stage]
    return max(float(level.max()) for level in levels if level is not None)


@pytest.mark.parametrize("detail", ["op", "layer", "block"])
@pytest.mark.parametrize("strategy", strategies)
def test_kept_logits_are_two_bytes_each(strategy: str, detail: str) -> None:
    """1,024 tokens x 32,000 logits in 16 bits, beside the loss's own, until the whole backward is over."""
    changes = {**ALONE, "sharding__strategy": strategy, "simulation__detail": detail}
    assert logits(**changes, training__kept_logits=True) - logits(**changes) == 2 * 1024 * 32000


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1", "interleaved-1f1b"])
@pytest.mark.parametrize("way", WAYS)
def test_kept_logits_are_given_back(schedule: str, way: str) -> None:
    changes = {"pipeline__schedule": schedule, "training__cross_entropy": way, "simulation__steps": 2}
    if schedule == "interleaved-1f1b":
        changes |= {"pipeline__chunks": 2}
    for stage in scenario(**changes, training__kept_logits=True).run().memory.per_stage:
        assert float(stage.levels.get("logits", [0.0])[-1]) == pytest.approx(0.0, abs=1e-3)


def test_a_compiled_loss_in_chunks_keeps_the_same_logits() -> None:
    """They are held once, and longer."""
    changes = {**ALONE, "training__cross_entropy": "chunked"}
    assert logits(**changes, training__kept_logits=True) == logits(**changes)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_kept_outputs_are_keys_and_values_of_recomputed_layers(recompute: str) -> None:
    """8 layers x 2 x 8 heads x 64 numbers x 1,024 tokens in 16 bits, where the backward does not need them anyway."""

    def activations(kept: bool | str) -> float:
        run = scenario(**ALONE, training__recompute=recompute, training__kept_logits=kept).run()
        return float(run.memory.fullest.levels["activations"].max())

    assert activations("outputs") - activations(True) == (8 * 2 * 8 * 64 * 1024 * 2 if recompute == "full" else 0)


@pytest.mark.parametrize("mode", [{"training__kept_logits": True}, {"training__cuda_graphs": True}])
def test_folded_is_unfolded(mode: dict[str, Any]) -> None:
    folded, whole = (run_small(**mode, cluster__nodes=1, simulation__fold=fold) for fold in (True, False))
    assert same_spans(folded.trace, whole.trace)


def test_graphs_take_the_host_away() -> None:
    """Launches, data and logging; of other things there are the sums that all ranks agree on."""

    def other(**changes: Any) -> float:
        return float(scenario(**changes).run().breakdown["other"])

    assert 0 < other(training__cuda_graphs=True) < 1e-4 < other()
    graphed = {"framework": {"base": "megatron-core", "host": {"cuda_graph": True}}}
    assert other(**graphed) < 1e-4 < other(**graphed, training__cuda_graphs=False)
    assert same_spans(run_small(**graphed).trace, run_small(training__cuda_graphs=True).trace)


MIXTURE = {"experts": 8, "top_k": 2, "expert_ffn_hidden": 512}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training__cuda_graphs": True, "framework": "megatron-deepspeed-2022-launch-blocking"}, ["every launch"]),
        (
            {
                "training__cuda_graphs": True,
                "sharding": {"strategy": "zero2", "offload": {"optimizer": "cpu"}},
                **ALONE,
            },
            ["offloaded states", "sharding.offload: none"],
        ),
        ({"training__cuda_graphs": True, "pipeline__p2p": "blocking"}, ["waits for messages", "async"]),
        ({"training__cuda_graphs": True, "model__moe": MIXTURE}, ["the number of tokens", "pad_to_capacity: true"]),
        ({"training__kept_logits": True, "training__cross_entropy": "fused_linear"}, ["never holds all logits"]),
        ({"training__kept_logits": True, "pipeline__vocabulary_parallel": True}, ["vocabulary_parallel"]),
        ({"training__kept_logits": "outputs"}, ["keys and values", "pp: 1"]),
    ],
)
def test_what_cannot_be_says_why(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(NotBuilt) as caught:
        small(**changes)
    assert all(word in str(caught.value) for word in words), caught.value


def test_experts_with_a_fixed_capacity_can_be_captured() -> None:
    capacity = {"capacity_factor": 1.25, "pad_to_capacity": True}
    small(training__cuda_graphs=True, model__moe=MIXTURE, training__moe=capacity)


def test_resolved_modes_are_read_again() -> None:
    one = scenario(training__kept_logits=True, training__cuda_graphs=True)
    again = Scenario.from_dict(one.resolved).resolve()
    assert (again.training, again.framework.host.cuda_graph) == (one.resolve().training, True)


def active(run: Result) -> float:
    """What the allocator has given out at the peak, GB."""
    full = run.memory.fullest
    return (full.needed - full.part("framework")) / 1e9


@pytest.mark.parametrize(("kept", "gigabytes"), [("outputs", 20.20), (False, 15.22)])
def test_outputs_kept_by_a_training_loop(kept: bool | str, gigabytes: float) -> None:
    """FSDP with adapters, Llama-2-7B in bf16, 4 A100-40GB, 4 x 2048 tokens, checkpointed: peak active GB of
    meta-llama/llama-cookbook pull request 41, before and after its loop let go of the model's output."""
    given = {
        "framework": "transformers",
        "model": {"name": "llama-2-7b", "lora": {"rank": 8, "targets": ["q", "v"]}},
        "cluster": {"topology": "dgx_a100", "nodes": 1, "gpus_per_node": 4, "gpu": "a100-sxm4-40gb"},
        "sharding": {"strategy": "fsdp"},
        "training": {
            "sequence_length": 2048, "micro_batch": 4, "global_batch": 16, "recompute": "full", "optimizer": "adamw",
            "attention": "eager", "kept_logits": kept,
        },
    }  # fmt: skip
    assert active(Scenario.from_dict(given).run()) == pytest.approx(gigabytes, rel=0.02)


def test_what_fits_knows_the_modes() -> None:
    """Each is offered where it changes something, and can be made."""
    alone = {"framework": "pytorch-fsdp2", **ALONE, "training__global_batch": 16, "sharding__strategy": "fsdp"}
    base = scenario(**alone)
    offered = [change for change in suggestions(base, MEMORY) if change.kind in ("loss", "update", "optimizer")]
    keys = [key for change in offered for key in change.values]
    assert {"training.cross_entropy", "training.optimizer_in_backward", "training.optimizer"} == set(keys)
    for change in offered:
        changed = base.replace(change.values)
        assert changed.resolve() != base.resolve()
        again = {c.title for c in suggestions(changed, MEMORY)}
        assert change.title not in again or change.kind == "optimizer"
    megatron = scenario(**alone | {"framework": "megatron-core"})
    assert not [change for change in suggestions(megatron, MEMORY) if change.kind in ("loss", "update")]
