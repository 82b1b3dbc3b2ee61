"""Recomputation of a part of the layers, and policies of selective recomputation under any framework."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs import run_small, same_spans, scenario, small
from trainsim.errors import TrainsimError
from trainsim.models.calls import Module, calls
from trainsim.models.recompute import policies
from trainsim.program.stages import recompute_modes, virtual_stages

ONE: dict[str, Any] = {"cluster": {"topology": "dgx_a100", "nodes": 1, "gpus_per_node": 1}, "parallel": {}}


def every(k: int) -> dict[str, Any]:
    return {"training__recompute": {"mode": "full", "every": k}}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pipeline": {"chunks": 2}},
        {"pipeline__schedule": "zb-h1"},
        ONE,
        ONE | {"sharding__strategy": "zero3", "cluster__gpus_per_node": 4},
        ONE | {"sharding__strategy": "fsdp", "cluster__gpus_per_node": 4},
    ],
    ids=str,
)
def test_every_layer_is_full_and_none_is_none(changes: dict[str, Any]) -> None:
    for same, words in (("full", every(1)), ("none", every(99))):
        usual, said = scenario(**changes, training__recompute=same).run(), scenario(**changes, **words).run()
        assert usual.step_time == said.step_time
        assert usual.memory.peak == said.memory.peak
        assert usual.throughput.hfu == said.throughput.hfu


@pytest.mark.parametrize("k", [2, 3, 4, 8])
def test_a_kth_of_the_layers_costs_a_kth_of_the_recomputation(k: int) -> None:
    """On one GPU: 8 layers, of which 8 // k run forward twice."""
    seconds = {n: scenario(**ONE, **every(n)).run() for n in (1, k)}
    again = {n: result.breakdown["recompute"] for n, result in seconds.items()}
    assert again[k] / again[1] == pytest.approx((8 // k) / 8, rel=1e-6)
    none = scenario(**ONE, training__recompute="none").run()
    assert none.memory.fullest.most_activations > seconds[k].memory.fullest.most_activations
    assert seconds[k].memory.fullest.most_activations > seconds[1].memory.fullest.most_activations
    full = seconds[1].throughput.hfu / seconds[1].throughput.mfu - 1
    assert seconds[k].throughput.hfu / seconds[k].throughput.mfu - 1 == pytest.approx(full * (8 // k) / 8)


def test_layers_are_numbered_through_the_chunks_of_a_rank() -> None:
    """torchtitan counts the blocks that it wraps, model part after model part."""

    def modes(pp: int, chunks: int, **changes: Any) -> str:
        job = small(parallel={"tp": 1, "pp": pp}, pipeline={"chunks": chunks}, **changes)
        return "".join(mode[0] for mode in recompute_modes(job, virtual_stages(job)))

    assert modes(1, 1, **every(3)) == "nnfnnfnn"
    assert modes(2, 1, **every(3)) == "nnfnnnfn"
    assert modes(2, 4, **every(2)) == "nnffnnff", "one layer per chunk: chunks 1 and 3 of both ranks"
    assert modes(4, 2, training__recompute={"mode": "full", "layers": 1}) == "ffffffff"


def test_a_call_trace_runs_again_only_what_is_recomputed() -> None:
    layers = tuple(Module("layer", (k,)) for k in range(3))
    trace = calls(Module("root", (), layers), recompute=(True, False, True))
    back = [(c.parameters[0], c.forward) for c in trace[4:] if c.parameters]
    assert back == [(2, True), (2, False), (1, False), (0, True), (0, False)]


@pytest.mark.parametrize("policy", policies)
def test_a_policy_is_that_of_the_framework_whose_own_it_is(policy: str) -> None:
    said = {"training__recompute": {"mode": "selective", "policy": policy}}
    owner = {"attention": "megatron-core", "products": "torchtitan"}[policy]
    own = scenario(framework=owner, training__recompute="selective").run()
    assert scenario(framework=owner, **said).run().step_time == own.step_time
    other = {"attention": "torchtitan", "products": "megatron-core"}[policy]
    swapped = scenario(framework=other, **said).run()
    assert swapped.step_time != scenario(framework=other, training__recompute="selective").run().step_time


def test_op_is_a_name_of_torchtitans() -> None:
    one = scenario(training__recompute={"mode": "selective", "policy": "op"})
    assert one.resolved["training"]["recompute"] == {"mode": "selective", "policy": "products"}


@pytest.mark.parametrize("words", [{"mode": "full", "every": 2}, {"mode": "selective", "policy": "op"}])
def test_it_folds_and_is_read_back(words: dict[str, Any]) -> None:
    changes = {"training__recompute": words, "pipeline": {"chunks": 2}}
    folded, unfolded = (run_small(**changes, simulation__fold=fold).trace for fold in (True, False))
    assert same_spans(folded, unfolded)
    again = type(scenario()).from_dict(scenario(**changes).resolved)
    assert again.run().step_time == scenario(**changes).run().step_time


def test_a_frequency_that_reaches_no_layer_is_told() -> None:
    assert "without effect" in scenario(**every(3)).resolved["derived"]["training.recompute.every"]
    assert "training.recompute.every" not in scenario(**every(2)).resolved["derived"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"mode": "selective", "every": 2}, "every can only be given with mode: full"),
        ({"mode": "full", "every": 2, "layers": 1}, "layers and every both"),
        ({"mode": "full", "every": 0}, "every"),
        ({"mode": "full", "evry": 2}, "every"),
        ({"mode": "full", "policy": "op"}, "policy can only be given with mode: selective"),
        ({"mode": "selective", "policy": "op", "modules": ["mlp"]}, "modules and policy both"),
        ({"mode": "selective", "policy": "product"}, "Did you mean 'products'"),
    ],
)
def test_bad_words_are_told(words: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainsimError, match=message):
        scenario(training__recompute=words).resolve()
