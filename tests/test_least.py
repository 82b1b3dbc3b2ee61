"""The bounds of the planner: never above what is simulated, exact where nothing depends on the clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.jobs import scenario
from tests.random_documents import document
from trainsim.contracts.job import Job
from trainsim.errors import TrainsimError
from trainsim.program.least_memory import ENOUGH, Moments, _moments, least_bytes, least_states
from trainsim.program.least_time import least_seconds
from trainsim.program.parts import Parts, work_out
from trainsim.program.rearranged import Rearranging, rearranged
from trainsim.scenario.loading import scenario_names
from trainsim.scenario.scenario import Scenario
from trainsim.schedules import schedules

SEEDS = [*range(40), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(40, 400))]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_run_takes_less_time_or_memory(seed: int) -> None:
    try:
        result = Scenario.from_dict(document(seed)).run()
    except TrainsimError:
        pytest.skip("refused")
    parts = work_out(result.job)
    assert 0 < least_seconds(parts) <= result.step_time * (1 + 1e-9)
    assert 0 < least_states(parts) <= least_bytes(parts) <= result.memory.needed * (1 + 1e-9)


@pytest.mark.parametrize(("pp", "schedule"), [(1, "1f1b"), (2, "1f1b"), (4, "1f1b"), (4, "gpipe"), (4, "zb-h1")])
def test_the_least_time_is_near_where_little_is_shared(pp: int, schedule: str) -> None:
    """Of a plain pipeline only waits for others are left out: filling, work, draining and update are there."""
    changes = {"parallel__tp": 1, "parallel__pp": pp, "sharding__strategy": "ddp", "training__global_batch": 64}
    result = scenario(**changes, pipeline={"schedule": schedule}).run()
    assert 0.93 < least_seconds(work_out(result.job)) / result.step_time <= 1


SMALL = [name for name in scenario_names() if name not in ("scale_131072", "rlhf_7b")]


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_no_scenario_takes_less(name: str) -> None:
    result = Scenario.load(name).replace({"simulation.detail": "block"}).run()
    parts = work_out(result.job)
    assert least_seconds(parts) <= result.step_time
    assert least_bytes(parts) <= result.memory.needed * (1 + 1e-9)


EXPERTS = {"parallel__tp": 1, "parallel__pp": 4, "parallel__ep": 2, "model__moe": {"experts": 4, "top_k": 2}}


@pytest.mark.parametrize("detail", ["op", "block"])
@pytest.mark.parametrize("changes", [{}, EXPERTS], ids=["dense", "experts"])
@pytest.mark.parametrize("schedule", [n for n in schedules if schedules.traits(n).paired])
def test_passes_in_pairs_take_no_less(schedule: str, changes: dict[str, object], detail: str) -> None:
    """Kernels of one pass hide the exchanges of the other, as far as they go; and the bound is no idle one."""
    pipeline = {"schedule": schedule, "chunks": 2}
    try:
        result = scenario(pipeline=pipeline, simulation__detail=detail, training__global_batch=32, **changes).run()
    except TrainsimError:
        pytest.skip("not with these numbers")
    least = least_seconds(work_out(result.job))
    assert 0.6 * result.step_time < least <= result.step_time


@pytest.mark.parametrize("sharding", ["ddp", "zero1"])
@pytest.mark.parametrize("order", [("1f1b", 1), ("interleaved-1f1b", 2), ("gpipe", 1)])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_memory_is_exact_where_the_clock_has_no_say(sharding: str, order: tuple[str, int], recompute: str) -> None:
    schedule, chunks = order
    pipeline = {"schedule": schedule, "chunks": chunks}
    result = scenario(pipeline=pipeline, sharding__strategy=sharding, training__recompute=recompute).run()
    assert least_bytes(work_out(result.job)) == pytest.approx(result.memory.needed, rel=1e-12)


def test_the_fullest_rank_may_be_one_in_the_middle() -> None:
    """Ranks with more layers than the first ones hold more, though fewer micro-batches are in flight there."""
    base = scenario(pipeline={"schedule": "1f1b", "layout": [1, 1, 5, 1]}, parallel__pp=4, model__layers=8)
    result = base.replace({"training.micro_batch": 4, "training.global_batch": 64}).run()
    assert least_bytes(work_out(result.job)) == pytest.approx(result.memory.needed, rel=1e-12)


@pytest.mark.parametrize(("pp", "chunks"), [(1, 1), (2, 1), (4, 1), (4, 2)])
@pytest.mark.parametrize("framework", ["megatron-core", "deepspeed", "pytorch-fsdp2", "neutral"])
def test_rearranged_parts_are_those_that_are_worked_out(framework: str, pp: int, chunks: int) -> None:
    """Blocks of one job stand for those of another pipeline; nothing is left of the first one."""
    first = scenario(framework=framework).resolve()
    pipeline = {"schedule": "interleaved-1f1b" if chunks > 1 else "1f1b", "chunks": chunks}
    other = _of(first, scenario(framework=framework, parallel__pp=pp, pipeline=pipeline).resolve())
    parts = rearranged(work_out(first), other)
    usual = work_out(other)
    assert _numbers(parts) == _numbers(usual)


def test_blocks_are_not_taken_from_a_job_that_runs_its_layers_otherwise() -> None:
    first = work_out(scenario().resolve())
    for change in ({"training__micro_batch": 2}, {"parallel__tp": 1}, {"training__recompute": "full"}):
        other = _of(first.job, scenario(**change).resolve())
        assert Rearranging(first).serves(other) == ("training__recompute" in change)
        assert _numbers(rearranged(first, other)) == _numbers(work_out(other))


def _of(first: Job, other: Job) -> Job:
    """*other* with the machine, model and software of *first*, as a search has it."""
    return replace(other, model=first.model, cluster=first.cluster, framework=first.framework)


def _numbers(parts: Parts) -> tuple[object, ...]:
    layers = [(block.forward_seconds, block.backward_seconds, block.saved) for block in parts.layers]
    return least_seconds(parts), least_bytes(parts), layers, parts.holdings.stages


@pytest.mark.parametrize("name", [n for n in schedules if not schedules.traits(n).planned])
def test_with_more_microbatches_as_many_are_in_flight(name: str) -> None:
    """Memory is looked at with ENOUGH microbatches per rank: with twice as many nothing less is held at once."""
    shape, ranks = schedules.traits(name), 4
    chunks, few = shape.chunks or 2, ENOUGH * ranks * shape.replicas
    try:
        schedules.check(name, ranks, microbatches=few, chunks=chunks)
    except TrainsimError:
        pytest.skip("not with these numbers")
    for rank in (0, 1, ranks - 1):
        some, more = (_moments(name, rank, ranks, times * few, chunks, None) for times in (1, 2))
        assert _most(some) <= _most(more)


def _most(moments: Moments) -> float:
    chunks = moments.held.shape[1] // 3
    return float(moments.held[:, : 2 * chunks].sum(axis=1).max())
