"""Activations on the host between forward and backward: bytes, what they free, what their copies cost."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.jobs import run_small, same_spans, scenario, torchtune
from trainsim.errors import TrainsimError
from trainsim.program.parts import work_out
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario

FAST = {
    "base": "dgx_a100",
    "node": {
        "devices": {"nvswitch": 6, "host": 1},
        "links": [
            {"from": "gpu[*]", "to": "nvswitch[0-5]", "kind": "nvlink3", "lanes": 2},
            {"from": "gpu[*]", "to": "host0", "kind": "pcie4", "bandwidth": "90TB/s"},
        ],
        "nics": {"count": 1, "bandwidth": "200Gbps", "attach": "host0", "kind": "pcie4"},
    },
    "hosts": {"memory": "2TB", "memory_bandwidth": "90TB/s"},
}
"""A DGX A100 whose PCIe and host memory take no time worth counting."""
ONE: dict[str, Any] = {
    "cluster": {"topology": "dgx_a100", "nodes": 1, "gpus_per_node": 1},
    "parallel": {},
    "training__global_batch": 1,
    "training__sequence_length": 4096,
}
QUICK: dict[str, Any] = ONE | {"cluster": {"topology": FAST, "nodes": 1, "gpus_per_node": 1}}
AWAY = {"training__activation_offload": "cpu"}
RECOMPUTE = ["none", "full", {"mode": "full", "every": 2}]


def run(**changes: Any) -> Result:
    return scenario(**changes).run()


def saved(**changes: Any) -> float:
    """Bytes that the layers of one microbatch save."""
    return sum(block.saved for block in work_out(scenario(**changes).resolve()).layers)


def most(result: Result) -> float:
    return max(stage.most_activations for stage in result.memory.per_stage)


@pytest.mark.parametrize("recompute", RECOMPUTE, ids=str)
@pytest.mark.parametrize("batch", [1, 3])
def test_all_that_layers_save_goes_and_comes_back(recompute: Any, batch: int) -> None:
    changes = ONE | {"training__recompute": recompute, "training__global_batch": batch}
    result = run(**changes, **AWAY)
    assert result.communication["offload"].bytes_per_rank == pytest.approx(2 * batch * saved(**changes))
    assert result.memory.host.peak_per_node == pytest.approx(saved(**changes))
    assert run(**changes).memory.host.peak_per_node == 0


@pytest.mark.parametrize("recompute", RECOMPUTE, ids=str)
def test_copies_that_take_no_time_cost_none_and_free_all_that_waits(recompute: Any) -> None:
    """What is there at once: the layer that runs, and the one that comes back meanwhile."""
    changes = QUICK | {"training__recompute": recompute, "model__vocab": 128}
    stays, away = run(**changes), run(**changes, **AWAY)
    assert away.step_time == pytest.approx(stays.step_time, rel=1e-9)
    assert away.breakdown["offload"] == 0.0
    parts = work_out(scenario(**changes).resolve())
    layers, two = sum(b.saved for b in parts.layers), max(a.saved + b.saved for a, b in pairwise(parts.layers))
    assert most(stays) == layers + parts.head.saved
    assert most(away) <= two + parts.head.saved


def test_slow_copies_set_the_pace() -> None:
    """Both ways over one stream: no step is shorter than its bytes over PCIe."""
    result = run(**ONE, **AWAY)
    one = result.job.cluster
    pcie = one.bandwidth[one.find_links("node0.gpu0>pcie0")[0]]
    copies = 2 * saved(**ONE) / pcie
    update = run(**ONE).breakdown["optimizer"]
    assert copies + update < result.step_time
    # what is not under them: the forward of the first layer, the head's, and the backward of the last one back
    assert result.step_time < 1.25 * (copies + update) + 0.002
    assert result.breakdown["offload"] == pytest.approx(result.communication["offload"].exposed_s)
    assert sum(result.breakdown.values()) == pytest.approx(result.step_time)


def test_twice_the_bandwidth_halves_what_sticks_out_and_more() -> None:
    slow = [{"slow": {"link": "node0.gpu0", "factor": 0.5}}]
    usual, halved = run(**ONE, **AWAY), run(**ONE, **AWAY, what_if=slow)
    assert halved.communication["offload"].time_s == pytest.approx(2 * usual.communication["offload"].time_s, rel=0.02)
    assert halved.breakdown["offload"] > 2 * usual.breakdown["offload"] > 0


def test_the_stash_limits_how_far_a_forward_runs_ahead() -> None:
    """Without recomputation a layer may be on its way while the next one runs, so that no more than two are there."""
    block = work_out(scenario(**ONE).resolve()).layers[0]
    assert most(run(**ONE | {"model__vocab": 128}, **AWAY)) == pytest.approx(2 * block.saved, rel=0.1)
    assert most(run(**ONE | {"model__vocab": 128})) == pytest.approx(8 * block.saved, rel=0.1)


PIPELINES: dict[str, dict[str, Any]] = {
    "1f1b": {},
    "gpipe": {"pipeline__schedule": "gpipe"},
    "interleaved": {"pipeline": {"chunks": 2}},
    "zb-h1": {"pipeline__schedule": "zb-h1"},
    "zb-v": {"pipeline__schedule": "zb-v"},
}


def test_what_waits_for_another_stage_does_not_wait_for_copies() -> None:
    """The first layer of a backward is fetched while its gradient is on its way: bubble stays bubble."""
    small: dict[str, Any] = {"training__recompute": "full", "training__sequence_length": 4096}
    plain, away = run(**small), run(**small, **AWAY)
    assert away.breakdown["bubble"] >= 0.95 * plain.breakdown["bubble"]
    assert away.step_time == pytest.approx(plain.step_time, rel=0.02)


WAYS: dict[str, dict[str, Any]] = PIPELINES | {
    "recomputed": {"training__recompute": "full"},
    "steps": {"simulation__steps": 3},
    "fsdp": {"parallel": {"tp": 2, "pp": 1}, "sharding__strategy": "fsdp", "framework": "pytorch-fsdp2"},
    "zero3": {"parallel": {"tp": 1, "pp": 1}, "sharding__strategy": "zero3", "framework": "deepspeed"},
    "and the optimizer": {
        "parallel": {"tp": 1, "pp": 1},
        "sharding": {"strategy": "zero2", "offload": {"optimizer": "cpu"}},
        "framework": "deepspeed",
    },
    "straggler": {"what_if": [{"slow": {"rank": 3, "factor": 1.3}}]},
}


CLOSED_FORM = {"straggler": 0.3, **dict.fromkeys(("1f1b", "gpipe", "interleaved", "zb-v", "steps"), 0.18)}
"""How far it may be off where stages wait for PCIe: it does not know what is fetched while they wait for each other."""


@pytest.mark.parametrize("way", WAYS)
def test_it_folds_adds_up_and_the_closed_form_agrees(way: str) -> None:
    changes = WAYS[way] | AWAY
    folded, unfolded = (run_small(**changes, simulation__fold=fold).trace for fold in (True, False))
    assert same_spans(folded, unfolded)
    result = run(**changes)
    assert result.estimate.seconds == pytest.approx(result.step_time, rel=CLOSED_FORM.get(way, 0.12))
    assert sum(result.breakdown.values()) == pytest.approx(result.step_time)
    assert most(result) < most(run(**WAYS[way]))


@pytest.mark.parametrize("way", ["1f1b", "gpipe", "interleaved", "zb-h1"])
def test_the_host_has_as_many_microbatches_as_are_in_flight(way: str) -> None:
    """tp 2 and dp 2 on 16 GPUs of 2 nodes: one has the four ranks of stage 0 and of stage 1, of two layers each."""
    each = saved(**PIPELINES[way]) / 8  # of a layer, all alike
    layers = {"1f1b": 2 * (4 + 3), "gpipe": 2 * (8 + 8), "interleaved": 11 + 9, "zb-h1": 2 * (4 + 3)}
    found = run(**PIPELINES[way], **AWAY).memory.host.peak_per_node
    assert found == pytest.approx(4 * layers[way] * each)


@pytest.mark.parametrize("detail", ["layer", "block"])
def test_coarser_programs_take_as_long(detail: str) -> None:
    assert run(**AWAY, simulation__detail=detail).step_time == pytest.approx(run(**AWAY).step_time, rel=1e-6)


def test_torchtune_measured_what_it_frees() -> None:
    """Llama-3.2-3B in bf16 on one A100 with activation checkpointing, 2 x 4096 tokens, a loss in chunks and the
    optimizer in the backward: 23.1 GiB, and 21.8 GiB with activation offload (torchtune's README); and as they found,
    copies of inputs are hidden."""
    base = torchtune(
        training__recompute="full", training__cross_entropy="chunked", training__optimizer_in_backward=True
    )
    stays, away = base.run(), base.replace({"training.activation_offload": "cpu"}).run()
    assert (stays.memory.needed - away.memory.needed) / 2**30 == pytest.approx(23.1 - 21.8, abs=0.1)
    assert away.step_time == pytest.approx(stays.step_time, rel=1e-3)


def test_it_is_told_and_read_back() -> None:
    one = scenario(**AWAY)
    assert "what layers save" in one.resolved["derived"]["training.activation_offload"]
    assert Scenario.from_dict(one.resolved).run().step_time == one.run().step_time


def test_a_host_that_is_too_small_is_told() -> None:
    memory = run(**AWAY, cluster={"topology": "dgx_a100", "nodes": 2, "hosts": {"memory": "100MB"}}).memory
    assert not memory.fits
    assert memory.gpus_fit


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training__activation_offload": "nvme"}, "cpu"),
        (AWAY | {"pipeline__schedule": "dualpipe"}, "dualpipe; 1f1b"),
        (AWAY | {"pipeline__schedule": "seq1f1b"}, "seq1f1b; 1f1b"),
        (AWAY | {"pipeline__schedule": "pipedream", "sharding__strategy": "ddp"}, "pipedream; 1f1b"),
        (AWAY | {"pipeline__vocabulary_parallel": True}, "vocabulary_parallel"),
        (AWAY | {"pipeline__p2p": "blocking"}, "p2p: async"),
    ],
)
def test_what_cannot_be_is_told(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(TrainsimError, match=words):
        scenario(**changes).resolve()


@pytest.mark.parametrize("detail", ["op", "layer", "block"])
def test_nothing_leaves_before_it_is_there(detail: str) -> None:
    """Also where the forward then waits longer for its next layer than the copy takes."""
    slow = {"cluster__topology": "pcie_box", "cluster__nodes": 2, "cluster__gpus_per_node": 4}
    short = {"training__sequence_length": 64, "training__micro_batch": 1, "training__global_batch": 8}
    result = scenario(
        **slow,
        **short,
        parallel__tp=1,
        parallel__pp=1,
        sharding__strategy="fsdp",
        framework="pytorch-fsdp2",
        training__activation_offload="cpu",
        simulation__detail=detail,
    ).run()
    assert min(float(stage.levels["activations"].min()) for stage in result.memory.per_stage) >= -1e-3
