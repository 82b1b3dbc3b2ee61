"""Groups of parameters: what fewer ranks hold alike is reduced and shared among fewer, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.jobs import small
from trainsim.contracts.groups import REPLICAS, Across
from trainsim.contracts.job import Job
from trainsim.frameworks import framework_names
from trainsim.program.holdings import Holdings
from trainsim.program.lower import lower
from trainsim.program.parts import work_out
from trainsim.program.rank import RankPlan
from trainsim.program.states import states
from trainsim.result.result import Result
from trainsim.sharding import strategies
from trainsim.sharding.parameter_groups import ADAPTERS, DENSE, FROZEN, ChunkParameters, Held, ParameterGroup, Shards
from trainsim.sharding.plan import Bucket
from trainsim.simulate import simulate

ALL, FEW = 8, 2  # replicas of the dense parameters, and of the experts: four neighbours hold different ones
EXPERTS = "experts"
LAYERS = 4


def job(**changes: Any) -> Job:
    base = {"cluster": {"topology": "dgx_a100", "nodes": 1}, "parallel": {"tp": 1, "pp": 1}, "model__layers": LAYERS}
    return small(**base, training__global_batch=16, **changes)


def halves(holdings: Holdings, rank: int, *, tp: int | None = None) -> tuple[ParameterGroup, ...]:
    """The parameters of a rank as if every layer gave up half of them to experts."""
    (chunk,) = (holdings.held(stage) for stage in holdings.of_rank(rank))
    experts = tuple(elements // 2 for elements in chunk.layers)
    dense = tuple(a - b for a, b in zip(chunk.layers, experts, strict=True))
    return (
        ParameterGroup(name=DENSE, chunks=(chunk._replace(layers=dense),), replicas=ALL),
        ParameterGroup(
            name=EXPERTS, chunks=(ChunkParameters(0, experts, 0),), replicas=FEW, over=REPLICAS.only(Across(ALL // FEW))
        ),
    )


def sent(chunks: tuple[tuple[Bucket, ...], ...], group: str) -> float:
    return sum(bucket.nbytes for chunk in chunks for bucket in chunk if bucket.group == group)


@pytest.mark.parametrize("framework", ["neutral", "megatron-core", "pytorch-ddp", "deepspeed"])
@pytest.mark.parametrize("strategy", ["ddp", "zero1"])
def test_each_group_is_reduced_by_those_who_hold_it(strategy: str, framework: str) -> None:
    one = job(framework=framework, sharding__strategy=strategy)
    groups = halves(work_out(one).holdings, 0)
    plan = strategies[strategy].plan(one, 0, groups)
    for group in groups:
        assert sent(plan.reductions, group.name) == group.total * one.training.gradient_bytes
        assert {b.over for chunk in plan.reductions for b in chunk if b.group == group.name} == {group.over}
        if strategy == "zero1":
            assert sent(plan.gathers, group.name) == group.total * one.training.stream_bytes
            assert plan.shards[group.name] == Shards(optimizer=group.replicas)
    ready = [bucket.after for chunk in plan.reductions for bucket in chunk]
    assert ready == sorted(ready), "buckets leave as they fill, whosever they are"
    (whole,) = work_out(one).holdings.groups(0)
    assert sum(group.total for group in groups) == whole.total


def test_each_group_is_held_as_it_is_shared() -> None:
    """Megatron-Core in bf16: 6 bytes per parameter on every rank, 12 shared by those who hold them alike."""
    one = job(framework="megatron-core", sharding__strategy="zero1")
    groups = halves(work_out(one).holdings, 0)
    dense, experts = (group.total for group in groups)
    found = states(one, strategies["zero1"].plan(one, 0, groups).held(groups))
    assert found.weights == 2 * (dense + experts)
    assert found.gradients == 4 * (dense + experts)
    assert found.optimizer == pytest.approx(12 * (dense / ALL + experts / FEW))
    shards = {DENSE: Shards.of_all(ALL), EXPERTS: Shards.of_all(FEW)}
    every = states(job(framework="deepspeed"), [Held(group, shards[group.name]) for group in groups])
    assert every.resident == pytest.approx(16 * (dense / ALL + experts / FEW))


def run(one: Job, monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.setattr(Holdings, "groups", halves)
    return Result(simulation=simulate(one), scenario={})


@pytest.mark.parametrize("strategy", ["ddp", "zero1"])
def test_a_step_sends_each_group_among_its_own(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among n, (n - 1) / n of a buffer for a reduce-scatter or a gather, and twice that for an all-reduce."""
    one = job(sharding__strategy=strategy)
    result = run(one, monkeypatch)
    bytes_each = 2 * 4 if strategy == "ddp" else 4 + 2
    groups = halves(work_out(one).holdings, 0)
    expected = sum(bytes_each * group.total * (1 - 1 / group.replicas) for group in groups)
    loss = 2 * 4 * (1 - 1 / ALL)
    assert result.to_dict()["communication"]["dp"]["bytes_per_rank"] == pytest.approx(expected + loss)
    held = result.memory.per_stage[0]
    shard = {DENSE: ALL, EXPERTS: FEW} if strategy == "zero1" else {DENSE: 1, EXPERTS: 1}
    assert held.levels["optimizer"].max() == pytest.approx(sum(12 * g.total / shard[g.name] for g in groups))


def test_an_update_is_as_long_as_what_a_rank_owns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Experts that fewer share are more to update; offloaded, more goes to the host."""
    one = job(sharding__strategy="zero1")
    whole = RankPlan(parts=work_out(one), rank=0)
    assert whole.owned == whole.parameters / ALL
    monkeypatch.setattr(Holdings, "groups", halves)
    split = RankPlan(parts=work_out(one), rank=0)
    dense, experts = (group.total for group, _ in split.held)
    assert split.owned == dense / ALL + experts / FEW > whole.owned
    assert split.parameters == whole.parameters


@pytest.mark.parametrize("framework", framework_names())
@given(
    counts=st.lists(st.integers(1, 10**9), min_size=1, max_size=4),
    degrees=st.tuples(*[st.integers(1, 96)] * 3),
    frozen=st.booleans(),
)
def test_parameters_that_are_shared_alike_can_be_one_group(
    framework: str, counts: list[int], degrees: tuple[int, int, int], frozen: bool
) -> None:
    one, shards = JOBS[framework], Shards(*degrees)

    def held(name: str, count: int, trained: bool = True) -> Held:
        return Held(
            ParameterGroup(name=name, chunks=(ChunkParameters(0, (count,), 0),), replicas=96, trained=trained), shards
        )

    rest = [held(FROZEN, 7_000_003, trained=False)] * frozen
    parts = states(one, [*(held(str(k), count) for k, count in enumerate(counts)), *rest])
    whole = states(one, [held(DENSE, sum(counts)), *rest])
    assert (parts.weights, parts.gradients, parts.step_transient) == (
        whole.weights,
        whole.gradients,
        whole.step_transient,
    )
    assert parts.optimizer == pytest.approx(whole.optimizer)


JOBS = {name: job(framework=name, sharding__strategy="ddp") for name in framework_names()}


def test_adapters_and_what_they_are_put_on_are_two_groups() -> None:
    lora = {"model__lora": {"rank": 8, "targets": ["q", "v"]}}
    for strategy in ("ddp", "zero1", "zero2", "zero3", "fsdp"):
        mine = RankPlan(parts=work_out(job(sharding__strategy=strategy, framework="neutral", **lora)), rank=0)
        (adapters, shards), (frozen, frozen_shards) = mine.held
        assert (adapters.name, frozen.name) == (ADAPTERS, FROZEN)
        assert mine.trainable == adapters.total < frozen.total
        assert shards.optimizer == (1 if strategy == "ddp" else ALL)
        assert frozen_shards.weights == (ALL if strategies[strategy].shares_parameters else 1)
        low = 2 * frozen.total / frozen_shards.weights
        assert mine.states().weights == pytest.approx(low + 2 * adapters.total / shards.weights)
        lower(mine.parts.job)
