"""Laws of whole steps: what must hold between two runs, or between a run and arithmetic, whatever the constants are."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import trainsim as ts
from tests.jobs import SMALL
from trainsim.schedules import schedules
from trainsim.schedules.lookup import facts

LAYERS, HIDDEN, SEQUENCE = 8, 1024, 1024
ELEMENT = 2  # bytes of an activation in bf16
QUIET = {"framework": "megatron-core", "sharding.strategy": "ddp", "sharding.overlap": False}


def scenario(**changes: Any) -> ts.Scenario:
    """The small Llama with dotted fields changed (``__`` for the dot), without replicas unless they are asked for."""
    base = {"cluster.nodes": 1, "cluster.gpus_per_node": 8, "parallel.tp": 1, "parallel.pp": 1, **QUIET}
    return ts.Scenario.from_dict(SMALL).replace(base | {k.replace("__", "."): v for k, v in changes.items()})


@cache
def _run(changes: tuple[tuple[str, Any], ...]) -> ts.Result:
    return scenario(**dict(changes)).run()


def run(**changes: Any) -> ts.Result:
    """The scenario, run once for all tests that want it."""
    return _run(tuple(sorted(changes.items())))


def alone(**changes: Any) -> ts.Result:
    """One replica: as many GPUs as tp x pp."""
    gpus = changes.get("parallel__tp", 1) * changes.get("parallel__pp", 1)
    return run(cluster__gpus_per_node=gpus, **changes)


# time


@pytest.mark.parametrize("detail", ["op", "layer", "block"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_on_one_gpu_every_microbatch_takes_the_same_time(detail: str, recompute: str) -> None:
    steps = [
        alone(training__global_batch=m, training__recompute=recompute, simulation__detail=detail).step_time
        for m in (2, 4, 6)
    ]
    assert steps[2] - steps[1] == pytest.approx(steps[1] - steps[0], rel=1e-9)
    assert steps[1] > steps[0]


@pytest.mark.parametrize("factor", [1.25, 2.0, 3.0])
def test_kernels_take_as_much_longer_as_their_gpu_is_slower(factor: float) -> None:
    usual, slow = (alone(**changes) for changes in ({}, {"what_if": _all_slow(factor)}))
    for part in ("compute", "optimizer"):
        assert slow.breakdown[part] == pytest.approx(factor * usual.breakdown[part], rel=1e-7)  # a tick a kernel


def _all_slow(factor: float) -> Any:
    return _Frozen([{"slow": {"node": 0, "factor": factor}}])


class _Frozen(list[Any]):
    """A list that may be part of a key."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(str(self))

    def __lt__(self, other: object) -> bool:
        return str(self) < str(other)


@pytest.mark.parametrize("pp", [1, 2, 4])
@pytest.mark.parametrize("tp", [1, 2])
def test_layers_take_the_same_time_wherever_they_are(pp: int, tp: int) -> None:
    """What all stages compute together does not depend on their number, but that of more GPUs the slowest is slower."""
    together, cut = (alone(parallel__pp=n, parallel__tp=tp) for n in (1, pp))
    assert pp * cut.breakdown["compute"] == pytest.approx(together.breakdown["compute"], rel=0.02)


@pytest.mark.parametrize("tp", [2, 4])
def test_tensor_parallelism_cuts_the_work_and_adds_communication(tp: int) -> None:
    whole, cut = alone(), alone(parallel__tp=tp)
    assert whole.breakdown["compute"] / tp < cut.breakdown["compute"] < whole.breakdown["compute"]
    assert whole.breakdown["tp"] == 0.0
    assert cut.breakdown["tp"] > 0.0


def _plain(name: str) -> bool:
    """Schedules that take a step apart in no other way than in slots."""
    found = facts(name)
    return found.replicas == 1 and not found.asynchronous and name not in ("seq1f1b", "terapipe")


@pytest.mark.parametrize("name", [name for name in schedules if _plain(name)])
def test_what_is_computed_does_not_depend_on_the_order(name: str) -> None:
    chunks = facts(name).chunks or 2
    other = alone(parallel__pp=4, pipeline__schedule=name, pipeline__chunks=chunks, training__global_batch=8)
    plain = alone(parallel__pp=4, pipeline__schedule="gpipe", training__global_batch=8)
    assert other.breakdown["compute"] == pytest.approx(plain.breakdown["compute"], rel=0.02)
    assert other.throughput.model_flops_per_gpu * other.step_time == pytest.approx(
        plain.throughput.model_flops_per_gpu * plain.step_time, rel=1e-9
    )


def test_gpipe_and_1f1b_take_the_same_time_and_hold_different_memory() -> None:
    gpipe, one = (
        alone(parallel__pp=4, pipeline__schedule=name, training__global_batch=16) for name in ("gpipe", "1f1b")
    )
    assert one.step_time == pytest.approx(gpipe.step_time, rel=0.01)
    assert one.memory.peak < gpipe.memory.peak


@pytest.mark.parametrize("microbatches", [4, 8, 16, 32])
@pytest.mark.parametrize("pp", [2, 4])
def test_the_window_of_1f1b_is_a_pass_through_all_stages_and_the_slowest_for_the_rest(
    pp: int, microbatches: int
) -> None:
    """The first micro-batch goes through every stage, each later one costs what the slowest stage takes."""
    b = alone(parallel__pp=pp, training__global_batch=microbatches).bubble
    busy = [stage.busy_s / microbatches for stage in b.stages]
    assert b.window_s == pytest.approx(sum(busy) + (microbatches - 1) * max(busy), rel=0.01)
    assert b.fraction == pytest.approx(1 - sum(busy) * microbatches / pp / b.window_s, rel=0.03)


class _Mapping(dict[str, Any]):
    """A mapping that may be part of a key."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(str(self))

    def __lt__(self, other: object) -> bool:
        return str(self) < str(other)


def _even() -> Any:
    """A model whose embedding and head weigh next to nothing."""
    return _Mapping(SMALL["model"] | {"vocab": 128, "hidden": 2048, "ffn_hidden": 8192})


@pytest.mark.parametrize("steps", [2, 3])
def test_steps_take_equally_long_where_nothing_goes_from_one_to_the_next(steps: int) -> None:
    first, several = alone(), alone(simulation__steps=steps)
    assert several.duration == pytest.approx(steps * first.step_time, rel=1e-12)
    assert several.step_time == pytest.approx(first.step_time, rel=1e-12)
    for part, seconds in first.breakdown.items():
        assert several.breakdown[part] == pytest.approx(seconds, rel=1e-9, abs=1e-12), part
    assert several.memory.peak == first.memory.peak


def test_a_longer_delay_delays_by_as_much() -> None:
    """On one GPU nobody hides it."""
    times = [
        alone(what_if=_Frozen([{"delay": {"rank": 0, "at": "backward", "seconds": s}}])).step_time for s in (0.5, 2.0)
    ]
    assert times[1] - times[0] == pytest.approx(1.5, abs=1e-9)


# bytes


@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("tp", [2, 4])
def test_bytes_of_tensor_parallelism(tp: int, sequence_parallel: bool) -> None:
    """Korthikanti et al. 2022: four all-reduces per layer and micro-batch, or as many bytes in halves of them."""
    m, layers = 4, 8
    few, many = (
        alone(
            parallel__tp=tp, parallel__sequence_parallel=sequence_parallel, training__global_batch=m,
            model=_Mapping(SMALL["model"] | {"layers": n}),
        ).communication["tp"].bytes_per_rank
        for n in (layers, 2 * layers)
    )  # fmt: skip
    buffer = SEQUENCE * HIDDEN * ELEMENT
    reduces = 4 * 2 * (tp - 1) / tp * buffer
    again = 2 * (tp - 1) / tp * buffer if sequence_parallel else 0.0  # inputs are gathered again for weight gradients
    assert many - few == pytest.approx(m * layers * (reduces + again), rel=1e-9)


@pytest.mark.parametrize("pp", [2, 4])
@pytest.mark.parametrize("chunks", [1, 2])
def test_bytes_of_the_pipeline(pp: int, chunks: int) -> None:
    """Every boundary between virtual stages is crossed once each way per micro-batch."""
    m = 8
    traffic = alone(
        parallel__pp=pp, training__global_batch=m, pipeline__chunks=chunks,
        pipeline__schedule="interleaved-1f1b" if chunks > 1 else "1f1b",
    ).communication["pp"]  # fmt: skip
    crossings = 2 * m * (pp * chunks - 1)
    assert traffic.bytes_per_rank * pp == pytest.approx(crossings * SEQUENCE * HIDDEN * ELEMENT, rel=1e-9)
    assert traffic.operations * pp == pytest.approx(crossings)


@pytest.mark.parametrize("dp", [2, 4, 8])
@pytest.mark.parametrize("strategy", ["ddp", "zero1"])
def test_bytes_of_data_parallelism(dp: int, strategy: str) -> None:
    """All gradients once, in the type in which they are sent; ZeRO-1 sends halves of it in two types."""
    result = run(cluster__gpus_per_node=dp, sharding__strategy=strategy, training__global_batch=2 * dp)
    parameters = result.parameters["total"]
    sent = result.scenario["training"]["gradient_dtype"]
    gradient = {"fp32": 4, "bf16": 2}[sent]
    halves = 2 * gradient if strategy == "ddp" else gradient + ELEMENT
    expected = halves * (dp - 1) / dp * parameters
    assert result.communication["dp"].bytes_per_rank == pytest.approx(expected, rel=0.01)


def test_bytes_of_replicas_do_not_depend_on_microbatches() -> None:
    few, many = (run(cluster__gpus_per_node=4, training__global_batch=b) for b in (4, 32))
    assert few.communication["dp"].bytes_per_rank == many.communication["dp"].bytes_per_rank


@pytest.mark.parametrize("detail", ["layer", "block"])
def test_detail_changes_no_byte_of_pipeline_and_replicas(detail: str) -> None:
    changes = {"parallel__pp": 2, "parallel__tp": 2, "cluster__gpus_per_node": 8}
    fine, coarse = run(**changes), run(**changes, simulation__detail=detail)
    for kind in ("pp", "dp"):
        assert coarse.communication[kind].bytes_per_rank == fine.communication[kind].bytes_per_rank


# memory


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_activations_grow_with_the_microbatch(recompute: str) -> None:
    """What is kept, and only that, is in proportion to the sequences of a micro-batch."""
    kept = [
        alone(training__micro_batch=b, training__global_batch=b * 2, training__recompute=recompute)
        .memory.per_stage[0]
        .most_activations
        for b in (1, 2, 3)
    ]
    assert kept[1] == pytest.approx(2 * kept[0], rel=1e-9)
    assert kept[2] == pytest.approx(3 * kept[0], rel=1e-9)


def test_recomputation_keeps_less_and_takes_longer() -> None:
    none, selective, full = (alone(training__recompute=r) for r in ("none", "selective", "full"))
    kept = [r.memory.per_stage[0].most_activations for r in (none, selective, full)]
    assert kept == sorted(kept, reverse=True)
    assert kept[2] < kept[0]
    assert full.step_time > none.step_time
    assert full.breakdown["recompute"] > selective.breakdown["recompute"] >= none.breakdown["recompute"] == 0.0


@pytest.mark.parametrize("pp", [2, 4])
def test_early_stages_keep_more_microbatches(pp: int) -> None:
    """p - s of them on stage s of 1F1B."""
    result = alone(parallel__pp=pp, training__global_batch=4 * pp, model=_even())
    kept = [stage.most_activations for stage in result.memory.per_stage]
    layers = kept[1] / (pp - 1) if pp > 2 else kept[0] / pp
    for stage in range(1, pp - 1):
        assert kept[stage] == pytest.approx((pp - stage) * layers, rel=0.03)
    assert kept == sorted(kept, reverse=True)


@pytest.mark.parametrize("dp", [2, 4, 8])
def test_zero1_shares_the_optimizer_s_states_and_nothing_else(dp: int) -> None:
    """12 bytes per parameter for Adam with an fp32 copy (Rajbhandari et al. 2020, figure 1)."""
    one, shared = (
        run(cluster__gpus_per_node=dp, sharding__strategy=s, training__global_batch=dp).memory.per_stage[0]
        for s in ("ddp", "zero1")
    )
    assert shared.part("optimizer") == pytest.approx(one.part("optimizer") / dp, rel=1e-3)
    for states in ("weights", "gradients"):
        assert shared.part(states) == one.part(states)


# symmetry


@pytest.mark.parametrize("order", [["tp", "cp", "ep", "dp", "pp"], ["dp", "tp", "cp", "ep", "pp"]])
def test_behind_one_switch_it_does_not_matter_where_ranks_are(order: list[str]) -> None:
    usual = run(parallel__tp=2, parallel__pp=2)
    other = run(parallel__tp=2, parallel__pp=2, parallel__order=_Frozen(order))
    assert other.step_time == pytest.approx(usual.step_time, rel=1e-12)


@pytest.mark.parametrize("rank", [0, 3, 7])
def test_behind_one_switch_it_does_not_matter_which_replica_is_slow(rank: int) -> None:
    first, other = (
        run(what_if=_Frozen([{"slow": {"gpu": gpu, "factor": 1.3}}]), training__global_batch=16) for gpu in (0, rank)
    )
    assert other.step_time == first.step_time


@pytest.mark.parametrize("changes", [{}, {"parallel__tp": 2}, {"parallel__pp": 2}, {"sharding__strategy": "zero1"}])
def test_folding_is_exact(changes: dict[str, Any]) -> None:
    folded, every = run(**changes), run(**changes, simulation__fold=False)
    assert folded.step_time == every.step_time
    assert folded.breakdown == pytest.approx(every.breakdown, rel=1e-12, abs=1e-15)
    assert folded.memory.peak == every.memory.peak


# the closed form compared with the simulation


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"parallel__tp": 2},
        {"parallel__pp": 4, "parallel__tp": 2},
        {"sharding__strategy": "zero3", "framework": "deepspeed"},
        {"training__recompute": "full", "parallel__pp": 2},
    ],
    ids=str,
)
def test_phases_of_the_estimate_add_up_on_both_sides(changes: dict[str, Any]) -> None:
    """What the closed form says of each phase sums to it, and what the critical path has of each sums to the step."""
    result = run(**changes)
    phases = result.estimate.phases
    assert sum(p.closed_form for p in phases) == pytest.approx(result.estimate.seconds, rel=1e-9)
    assert sum(p.simulated for p in phases) == pytest.approx(result.step_time, rel=1e-9)
    assert all(p.closed_form >= 0 and p.simulated >= 0 for p in phases)


@pytest.mark.parametrize("p2p", ["async", "blocking"])
@pytest.mark.parametrize(("schedule", "chunks"), [("1f1b", 1), ("gpipe", 1), ("interleaved-1f1b", 2)])
def test_idle_time_of_a_stage_adds_up_three_ways(schedule: str, chunks: int, p2p: str) -> None:
    """What is not busy, the phases in which it is idle, and what it waits for: the same seconds."""
    result = alone(
        parallel__pp=4, pipeline__schedule=schedule, pipeline__chunks=chunks, pipeline__p2p=p2p,
        training__global_batch=8, framework="megatron-2021",
    )  # fmt: skip
    for stage in result.bubble.stages:
        assert stage.busy_s + stage.idle_s == pytest.approx(stage.window_s, rel=1e-9)
        assert stage.warmup_s + stage.steady_s + stage.cooldown_s == pytest.approx(stage.idle_s, rel=1e-9)
        waits = (stage.activations_s, stage.gradients_s, stage.network_s, stage.peers_s, stage.finished_s)
        assert sum(waits) == pytest.approx(stage.idle_s, rel=1e-9)
        assert all(seconds >= 0 for seconds in waits)
