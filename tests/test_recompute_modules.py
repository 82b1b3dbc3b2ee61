"""Modules of a layer that are recomputed: what each saves, and what it does again."""

from __future__ import annotations

from typing import Any

import pytest

from trainsim import Scenario
from trainsim.errors import InvalidPlan, ScenarioError
from trainsim.models.recompute_modules import recompute_modules

MODEL = {
    "name": "small", "family": "deepseek", "layers": 2, "hidden": 1024, "heads": 16, "head_dim": 64, "vocab": 32000,
    "ffn_hidden": 4096,
    "mla": {"q_lora_rank": 384, "kv_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64},
    "moe": {"experts": 16, "top_k": 4, "expert_ffn_hidden": 512, "shared_experts": 1, "first_dense": 1},
}  # fmt: skip


def run(recompute: Any, **training: Any) -> dict[str, Any]:
    values = {"sequence_length": 2048, "micro_batch": 1, "global_batch": 8, "recompute": recompute, **training}
    cluster = {"topology": "dgx_h100", "nodes": 1}
    spec = {"framework": "megatron-core", "model": MODEL, "cluster": cluster, "training": values}
    return Scenario.from_dict({**spec, "parallel": {"ep": 8}}).run().to_dict()


def activations(result: dict[str, Any]) -> float:
    return float(result["memory"]["per_stage"][0]["activations"])


@pytest.mark.parametrize("module", [name for name in recompute_modules if name != "core_attn"])
def test_a_module_saves_memory_and_takes_time(module: str) -> None:
    """Between no recomputation and all of it."""
    none, full, some = run("none"), run("full"), run({"mode": "selective", "modules": [module]})
    assert activations(full) < activations(some) < activations(none)
    assert 0 < some["breakdown_s"]["recompute"] < full["breakdown_s"]["recompute"]
    assert none["step_time_s"] < some["step_time_s"]


def test_modules_add_up() -> None:
    """What two modules save is what each of them saves."""
    none = activations(run("none"))
    pair = ["mla_up_proj", "moe_act"]
    each = [none - activations(run({"mode": "selective", "modules": [name]})) for name in pair]
    assert none - activations(run({"mode": "selective", "modules": pair})) == pytest.approx(sum(each))


def test_scores_are_those_of_selective_recomputation() -> None:
    named = run({"mode": "selective", "modules": ["core_attn"]}, attention="eager")
    usual = run("selective", attention="eager")
    assert named["step_time_s"] == usual["step_time_s"]
    assert named["hfu"] == usual["hfu"] > usual["mfu"]


def test_tokens_are_sent_again_with_the_whole_mixture() -> None:
    sent = [
        run(r)["communication"]["ep"]["bytes_per_rank"] for r in ("none", {"mode": "selective", "modules": ["moe"]})
    ]
    assert sent[1] == pytest.approx(1.5 * sent[0])


def test_bad_modules() -> None:
    with pytest.raises(ScenarioError, match="Did you mean 'moe_act'"):
        run({"mode": "selective", "modules": ["moe_akt"]})
    with pytest.raises(InvalidPlan, match="only be given with mode: selective"):
        run({"mode": "full", "modules": ["moe_act"]})
    with pytest.raises(ScenarioError, match="take shared_experts out of training"):
        run({"mode": "selective", "modules": ["shared_experts"]}, moe={"shared_overlap": True})


@pytest.mark.parametrize("module", ["moe", "moe_act"])
def test_modules_save_the_same_with_shared_experts_under_the_exchange(module: str) -> None:
    """Bytes of the experts' inner results do not depend on when the shared ones run."""
    recompute = {"mode": "selective", "modules": [module]}
    apart, under = ([run(r, moe={"shared_overlap": s}) for r in ("none", recompute)] for s in (False, True))
    saved = [activations(none) - activations(some) for none, some in (apart, under)]
    assert saved[0] > 0
    assert saved[1] == pytest.approx(saved[0])
