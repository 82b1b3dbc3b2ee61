"""Random documents: each is refused in words, or runs and keeps the laws that no scenario may break.

A few seeds with every run of the tests, many with the slow ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.random_documents import document
from trainsim.errors import Deadlock, InvalidProgram, TrainsimError
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario
from trainsim.sharding import strategies

FAST, SLOW = range(60), range(60, 300)
SEEDS = [*FAST, *(pytest.param(seed, marks=pytest.mark.slow) for seed in SLOW)]
FEW = [*range(20), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(20, 120))]
ANOMALY = 0.02
"""A faster link may shift which collectives share it: so much longer may a step get (docs/accuracy.md)."""


@cache
def ran(seed: int) -> Result | None:
    """The run of a document, or None where it is refused."""
    try:
        return Scenario.from_dict(document(seed)).run()
    except TrainsimError:
        return None


def run_or_skip(seed: int) -> Result:
    result = ran(seed)
    if result is None:
        pytest.skip("refused")
    return result


def again(seed: int, **changes: Any) -> Result:
    return Scenario.from_dict(document(seed)).replace({k.replace("__", "."): v for k, v in changes.items()}).run()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_document_is_refused_in_words_or_runs(seed: int) -> None:
    """What resolves is a legal program; whoever is refused hears of a key, of a value or of a way out."""
    base = Scenario.from_dict(document(seed))
    try:
        base.run()
    except InvalidProgram as illegal:
        pytest.fail(f"accepted, and then: {illegal}")
    except Deadlock as stuck:
        assert base.spec.pipeline.p2p == "blocking"
        assert "p2p: async" in str(stuck)
    except TrainsimError as refused:
        assert len(str(refused)) > 20


def test_most_documents_run() -> None:
    """Laws that are asked of nobody hold always."""
    assert sum(ran(seed) is not None for seed in FAST) > len(FAST) / 3


@pytest.mark.parametrize("seed", SEEDS)
def test_parts_add_up(seed: int) -> None:
    result = run_or_skip(seed)
    data = result.to_dict()
    assert sum(data["breakdown_s"].values()) == pytest.approx(result.step_time, rel=1e-9)
    assert all(seconds >= -1e-12 for seconds in data["breakdown_s"].values())
    assert 0 < data["mfu"] <= data["hfu"] * (1 + 1e-12) <= 1
    for stage in result.memory.per_stage:
        assert stage.peak == pytest.approx(sum(stage.part(c) for c in stage.levels), rel=1e-9)
        for category, level in stage.levels.items():
            assert level.min() >= -1e-3, category
            assert category == "slack" or level[-1] == pytest.approx(level[0], abs=1.0), category
    assert result.memory.peak == max(stage.peak for stage in result.memory.per_stage)


@pytest.mark.parametrize("seed", FEW)
def test_folding_changes_no_number(seed: int) -> None:
    same_numbers(run_or_skip(seed), again(seed, simulation__fold=False))


SMALL = {"family": "llama", "layers": 4, "hidden": 256, "heads": 4, "kv_heads": 2, "ffn_hidden": 512, "vocab": 32000}
AWAY = {"strategy": "zero3", "reuse_distance": 2_000_000, "offload": {"optimizer": "cpu", "parameters": "nvme"}}
LATE = [{"delay": {"rank": 0, "at": "forward", "seconds": 0.01}}]


@pytest.mark.parametrize(
    "document",
    [
        {"sharding": AWAY | {"prefetch_bucket": "auto"}, "training": {"precision": "fp16", "global_batch": 32}},
        {"sharding": {"strategy": "zero2"}, "framework": "megatron-2020", "what_if": LATE},
    ],
    ids=["copies and gathers in one row", "pipelines that are as slow as each other"],
)
def test_folding_changes_no_number_where_moments_coincide(document: dict[str, Any]) -> None:
    length = {"sequence_length": 512}
    base = {"model": SMALL, "cluster": {"topology": "dgx_b200"}, **document}
    whole = Scenario.from_dict(base | {"training": length | document.get("training", {})})
    same_numbers(whole.run(), whole.replace({"simulation.fold": False}).run())


def same_numbers(folded: Result, plain: Result) -> None:
    """Two runs say the same, up to the order in which means add up."""
    left, right = folded.to_dict(), plain.to_dict()
    assert left["step_time_s"] == right["step_time_s"]
    for key in ("mfu", "hfu", "breakdown_s", "bubble", "memory", "communication"):
        pairs = zip(leaves(left[key]), leaves(right[key]), strict=True)
        assert all(a == b or a == pytest.approx(b, rel=1e-12) for a, b in pairs), key  # means add up in another order


def leaves(value: Any) -> Iterator[Any]:
    """The numbers and words of nested data."""
    if isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from leaves(inner)
    else:
        yield value


@pytest.mark.parametrize("seed", FEW)
def test_a_straggler_and_a_lost_moment_cost_what_they_cost(seed: int) -> None:
    """A delay is at most as long as itself, whichever GPU is slow; a slow GPU slows a step by no more than itself."""
    result = run_or_skip(seed)
    steps, lost = document(seed)["simulation"]["steps"], 0.003
    trouble = document(seed).get("what_if", [])
    later = again(seed, what_if=[*trouble, {"delay": {"rank": 1, "at": "backward", "seconds": lost}}])
    assert (later.step_time - result.step_time) * steps <= lost * (1 + ANOMALY) + ANOMALY * result.step_time
    slower = again(seed, what_if=[*trouble, {"slow": {"rank": 0, "factor": 1.5}}])
    assert (1 - ANOMALY) * result.step_time <= slower.step_time <= 1.5 * (1 + ANOMALY) * result.step_time


@pytest.mark.parametrize("seed", FEW)
def test_a_faster_network_is_not_slower(seed: int) -> None:
    run_or_skip(seed)
    slow, fast = (again(seed, cluster__nic_bandwidth=rate).step_time for rate in ("100Gbps", "200Gbps"))
    assert fast <= slow * (1 + ANOMALY)


def states(result: Result) -> float:
    """Bytes of what is there all the time: weights, gradients and optimizer, without buffers."""
    (program,) = result.simulation.programs
    return program.memory.weights + program.memory.gradients + program.memory.optimizer


@pytest.mark.parametrize("framework", ["deepspeed", "neutral", "megatron-core", "pytorch-ddp"])
@pytest.mark.parametrize("nodes", [1, 2])
def test_who_shares_more_holds_fewer_states(framework: str, nodes: int) -> None:
    """ddp >= zero1 >= zero2 >= zero3 holds of states, also in tiny models, whose peak is full of buffers.

    Gradients count as what a step holds of them at most: those that come fresh with every backward too.
    """
    held = {}
    for name in ("ddp", "zero1", "zero2", "zero3"):
        data = {
            "model": {"layers": 2, "hidden": 256, "heads": 4, "vocab": 1000},
            "framework": framework,
            "cluster": {"topology": "dgx_a100", "nodes": nodes},
            "sharding": {"strategy": name},
            "training": {"sequence_length": 64},
        }
        result = Scenario.from_dict(data).run()
        levels, memory = result.memory.per_stage[0].levels, result.simulation.programs[0].memory
        fresh = max(0.0, float(levels["gradients"].max()) - memory.gradients) if name in ("ddp", "zero1") else 0.0
        held[name] = states(result) + fresh
    assert held["ddp"] >= held["zero1"] >= held["zero2"] >= held["zero3"]


@pytest.mark.parametrize("strategy", [name for name in strategies if strategies[name].offloads])
@pytest.mark.parametrize("vocab", [1000, 50257, 250880])
def test_offload_costs_no_more_than_the_largest_tensor(strategy: str, vocab: int) -> None:
    """What leaves the GPU goes through a buffer of its largest tensor, which may be more than what leaves."""
    base = Scenario.from_dict(
        {
            "model": {"layers": 2, "hidden": 512, "heads": 8, "vocab": vocab},
            "cluster": {"topology": "dgx_a100", "nodes": 2},
            "sharding": {"strategy": strategy, "overlap": False},
            "training": {"sequence_length": 256},
        }
    )
    keys = strategies[strategy].offloads if strategies[strategy].moves_together else ("optimizer",)
    moved = base.replace({f"sharding.offload.{key}": "cpu" for key in keys})
    here, there = base.run(), moved.run()
    largest = 2.0 * np.ceil(vocab / 128) * 128 * 512
    slack = here.memory.peak / sum(here.memory.fullest.part(c) for c in here.memory.fullest.levels if c != "slack")
    assert there.memory.peak <= here.memory.peak + largest * slack * (1 + 1e-9)
