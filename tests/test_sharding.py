"""Strategies of sharding on real layers: laws over all of them, then bytes and memory against closed forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.jobs import same_spans
from trainsim.contracts.instructions import Meet, Program, Wait
from trainsim.contracts.job import Job
from trainsim.engine import run
from trainsim.errors import InvalidPlan, NotBuilt
from trainsim.fold import fold, prune, unfolded
from trainsim.program.lower import lower
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario
from trainsim.sharding import strategies

GPUS, NODES, MICROBATCHES = 4, 2, 3
REPLICAS = GPUS * NODES
BASE: dict[str, Any] = {
    "model": {"family": "llama", "layers": 4, "hidden": 512, "heads": 8, "ffn_hidden": 1408, "vocab": 8192},
    "cluster": {"topology": "dgx_a100", "nodes": NODES, "gpus_per_node": GPUS},
    "training": {"sequence_length": 512, "global_batch": REPLICAS * MICROBATCHES},
}
SMALL = {"reduce_bucket": 4_000_000}
AHEAD = {"prefetch_bucket": 2_000_000, "max_live_parameters": 8_000_000, "reuse_distance": 0}
GATHERS = SMALL | AHEAD | {"persistence_threshold": 600}
ALWAYS = SMALL | {"prefetch_bucket": 0, "reuse_distance": 0, "persistence_threshold": 0}
KEPT = {"reshard_after_forward": False}

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ddp": ("neutral", "ddp", {}),
    "ddp of torch": ("pytorch-ddp", "ddp", {}),
    "zero1": ("neutral", "zero1", {}),
    "zero1 of DeepSpeed": ("deepspeed", "zero1", SMALL),
    "zero1, 2 instances": ("neutral", "zero1", {"instances": 2}),
    "zero1, each for itself": ("neutral", "zero1", {"instances": REPLICAS}),
    "zero2": ("deepspeed", "zero2", SMALL),
    "zero2, overlapped": ("deepspeed", "zero2", SMALL | {"overlap": True}),
    "zero3": ("deepspeed", "zero3", GATHERS),
    "zero3, all kept": ("deepspeed", "zero3", SMALL),
    "zero3, nothing ahead": ("deepspeed", "zero3", ALWAYS),
    "zero3, serial": ("deepspeed", "zero3", GATHERS | {"overlap": False}),
    "zeropp": ("deepspeed", "zeropp", GATHERS),
    "hpZ": ("deepspeed", "zero3", GATHERS | {"secondary_partition": GPUS}),
    "mics": ("deepspeed", "mics", GATHERS),
    "mics of pairs": ("deepspeed", "mics", GATHERS | {"shard_size": 2}),
    "fsdp1": ("pytorch-fsdp1", "fsdp", {}),
    "fsdp1, post": ("pytorch-fsdp1", "fsdp", {"backward_prefetch": "post"}),
    "fsdp1, no prefetch": ("pytorch-fsdp1", "fsdp", {"backward_prefetch": "none"}),
    "fsdp1, no sync": ("pytorch-fsdp1", "fsdp", {"sync": "last"}),
    "fsdp1, kept, no sync": ("pytorch-fsdp1", "fsdp", KEPT | {"sync": "last"}),
    "fsdp2": ("pytorch-fsdp2", "fsdp", {}),
    "fsdp2, kept": ("pytorch-fsdp2", "fsdp", KEPT),
    "fsdp2, kept, no sync": ("pytorch-fsdp2", "fsdp", KEPT | {"sync": "last"}),
    "fsdp2, within a node": ("pytorch-fsdp2", "fsdp", {"reshard_after_forward": GPUS}),
    "fsdp2, serial": ("pytorch-fsdp2", "fsdp", {"overlap": False}),
    "megatron-fsdp": ("megatron-fsdp", "fsdp", {}),
    "megatron-fsdp, no sync": ("megatron-fsdp", "fsdp", {"sync": "last"}),
    "hsdp": ("pytorch-fsdp2", "hsdp", {}),
    "hsdp, pairs, no sync": ("pytorch-fsdp1", "hsdp", {"shard_size": 2, "sync": "last"}),
    "hsdp, within pairs": ("pytorch-fsdp2", "hsdp", {"reshard_after_forward": 2}),
}


def scenario(case: str, **changes: Any) -> Scenario:
    framework, strategy, options = CASES[case]
    text = BASE | {"framework": framework, "sharding": {"strategy": strategy, **options}}
    return Scenario.from_dict(text).replace({k.replace("__", "."): v for k, v in changes.items()})


@cache
def result(case: str) -> Result:
    return scenario(case).run()


def folding_changes_no_bit(job: Job) -> bool:
    plan = lower(job)
    return same_spans(run(fold(prune(plan.system))), run(unfolded(plan.system), merge=False))


SHORT = {"model__layers": 2, "training__global_batch": 2 * REPLICAS}


def test_every_strategy_is_tested() -> None:
    assert {strategy for _, strategy, _ in CASES.values()} == set(strategies)


# laws


@pytest.mark.parametrize("case", CASES)
def test_folding_and_marks_change_no_bit(case: str) -> None:
    assert folding_changes_no_bit(scenario(case, **SHORT).resolve())


@pytest.mark.parametrize("case", CASES)
def test_a_straggler_is_waited_for_and_folding_changes_no_bit(case: str) -> None:
    healthy = scenario(case, **SHORT).resolve()
    job = scenario(case, what_if=[{"slow": {"rank": 3, "factor": 1.5}}], **SHORT).resolve()
    assert folding_changes_no_bit(job)
    assert run(fold(prune(lower(job).system))).duration > run(fold(prune(lower(healthy).system))).duration


def levels_are_sound(one: Result) -> None:
    for stage in one.memory.per_stage:
        for category, level in stage.levels.items():
            assert level.min() >= -1e-3, category
            assert category == "slack" or level[-1] == pytest.approx(level[0], abs=1.0), category


@pytest.mark.parametrize("case", CASES)
def test_memory_comes_back_and_is_never_negative(case: str) -> None:
    levels_are_sound(result(case))


@pytest.mark.parametrize("case", ["zero3, nothing ahead", "zero3, serial", "mics"])
def test_what_is_gathered_for_no_kernel_is_there_before_it_goes(case: str) -> None:
    """A frozen embedding is gathered for its backward, which has nothing to do."""
    levels_are_sound(scenario(case, model__lora={"rank": 4, "targets": ["q", "o"]}).run())


@pytest.mark.parametrize("detail", ["layer", "block"])
@pytest.mark.parametrize("case", CASES)
def test_coarse_detail_has_the_same_peak(case: str, detail: str) -> None:
    coarse = scenario(case, simulation__detail=detail).run()
    assert coarse.memory.peak == pytest.approx(result(case).memory.peak, rel=1e-9)
    levels_are_sound(coarse)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("case", ["zero2", "zero2, overlapped", "zero3, serial", "fsdp2, serial", "fsdp1"])
def test_coarse_detail_has_the_same_peak_where_the_ends_are_largest(case: str, nodes: int, tied: bool) -> None:
    large = {"model__tied_embeddings": tied, "model__vocab": 32000, "training__precision": "fp32"}
    few = {"cluster__nodes": nodes, "cluster__gpus_per_node": 1, "training__sequence_length": 128}
    changes = large | few | {"training__global_batch": 2}
    peaks = [scenario(case, simulation__detail=d, **changes).run().memory.peak for d in ("op", "layer", "block")]
    assert max(peaks) == pytest.approx(min(peaks), rel=1e-9)


@pytest.mark.parametrize("threshold", [0, 600, 10**9])
def test_the_next_micro_batch_waits_for_the_last_reduction(threshold: int) -> None:
    """DeepSpeed synchronises its reduction stream at the end of every backward, also if no parameter is gathered."""
    frame = (
        scenario("zero3", cluster__nic_bandwidth="10Gbps", sharding__persistence_threshold=threshold)
        .run()
        .timeline([0])
    )
    reduced = frame[frame["name"].str.startswith("reduce")].groupby("microbatch")["end"].max()
    started = frame[frame["kind"] == "forward"].groupby("microbatch")["start"].min()
    assert all(started[k + 1] >= reduced[k] for k in range(MICROBATCHES - 1))


@pytest.mark.parametrize("case", ["zero2", "zero2, overlapped", "zero3", "zero3, serial", "mics", "fsdp1", "fsdp2"])
def test_gradients_are_in_the_buffer_before_they_are_sent(case: str) -> None:
    (program,) = result(case).simulation.programs
    backward = next(t for t, _ in program.chains["compute"] if t.work == "B")
    names = [getattr(i, "event", getattr(i, "name", "")) for i in backward.instructions if not isinstance(i, Wait)]
    sent = [k for k, name in enumerate(names) if "reduce" in name]
    copied = [k for k, name in enumerate(names) if name == "copy"]
    assert sent
    assert copied
    assert max(copied) < max(sent)


@pytest.mark.parametrize("case", CASES)
def test_overlap_never_hurts(case: str) -> None:
    with_it, without = (scenario(case, sharding__overlap=overlap).run().duration for overlap in (True, False))
    assert with_it <= without


@pytest.mark.parametrize("case", CASES)
def test_steps_back_to_back_are_alike(case: str) -> None:
    three = scenario(case, simulation__steps=3).run()
    second, third = np.diff(three.step_ends)
    assert second == pytest.approx(third, rel=1e-9)
    levels_are_sound(three)


def meets(program: Program) -> list[Meet]:
    every = (i for tasks in program.chains.values() for t, _ in tasks for i in t.instructions)
    return [i for i in every if isinstance(i, Meet)]


@pytest.mark.parametrize("case", CASES)
def test_one_replica_talks_to_nobody(case: str) -> None:
    alone = {"shard_size": None, "secondary_partition": None, "reshard_after_forward": None, "instances": None}
    changes = {f"sharding__{key}": value for key, value in alone.items() if CASES[case][2].get(key)}
    one = scenario(case, cluster__nodes=1, cluster__gpus_per_node=1, training__global_batch=2, **changes).run()
    (program,) = one.simulation.programs
    assert not meets(program)
    levels_are_sound(one)


def steady_peak(one: Result) -> float:
    """The most that is held beside what is on its way, which depends on when it arrives."""
    levels = one.memory.fullest.levels
    return float(sum(level for name, level in levels.items() if name not in ("gathered", "buffers", "slack")).max())


@pytest.mark.parametrize("case", CASES)
def test_more_replicas_save_no_more_than_their_shard(case: str) -> None:
    few, many = result(case), scenario(case, cluster__nodes=4, training__global_batch=4 * GPUS * MICROBATCHES).run()
    (program,) = few.simulation.programs
    held = program.memory
    shared = held.weights + held.gradients + held.optimizer + few.memory.fullest.part("temporary")
    assert 0.0 <= steady_peak(few) - steady_peak(many) + 1.0 <= shared / 2 + 2.0


@pytest.mark.parametrize("case", CASES)
def test_the_closed_form_is_near(case: str) -> None:
    assert result(case).estimate.seconds == pytest.approx(result(case).duration, rel=0.06)


@pytest.mark.parametrize("case", ["zero2", "zero3, nothing ahead", "fsdp2"])
def test_the_closed_form_knows_groups_that_share_a_nic(case: str) -> None:
    shared = {"cluster": {"topology": "dgx1_v100", "nodes": 4, "gpus_per_node": 4}, "parallel__tp": 2}
    short = {"training__precision": "fp16", "training__sequence_length": 128, "training__global_batch": 16}
    one = scenario(case, **shared, **short).run()
    assert one.estimate.seconds == pytest.approx(one.duration, rel=0.05)


# bytes on the wire


def part(ranks: int) -> float:
    """Of a full buffer what each of *ranks* sends to gather or to scatter it."""
    return (ranks - 1) / ranks


class Sizes(NamedTuple):
    """Elements of all parameters and of embedding, head and final norm together."""

    whole: int
    root: int


N, M, G, ACROSS = REPLICAS, MICROBATCHES, GPUS, NODES
LEDGER: dict[str, Callable[[Sizes], float]] = {
    "ddp": lambda s: 2 * 4 * s.whole * part(N),
    "ddp of torch": lambda s: 2 * 4 * s.whole * part(N),
    "zero1": lambda s: (4 + 2) * s.whole * part(N),
    "zero1 of DeepSpeed": lambda s: (2 * 2 + 2) * s.whole * part(N),
    "zero1, 2 instances": lambda s: (4 + 2) * s.whole * part(N // 2) + 2 * 4 * s.whole / (N // 2) * part(2),
    "zero1, each for itself": lambda s: 2 * 4 * s.whole * part(N),
    "zero2": lambda s: (M * 2 * 2 + 2) * s.whole * part(N),
    "zero2, overlapped": lambda s: (M * 2 * 2 + 2) * s.whole * part(N),
    "zero3, nothing ahead": lambda s: M * 3 * 2 * s.whole * part(N),
    "fsdp1": lambda s: M * (2 * s.whole + 2 * (s.whole - s.root) + 4 * s.whole) * part(N),
    "fsdp1, no sync": lambda s: (M * (2 * s.whole + 2 * (s.whole - s.root)) + 4 * s.whole) * part(N),
    "fsdp1, kept, no sync": lambda s: (2 + 4) * s.whole * part(N),
    "fsdp2": lambda s: M * (2 * s.whole + 2 * (s.whole - s.root) + 4 * s.whole) * part(N),
    "megatron-fsdp": lambda s: M * (2 * s.whole + 2 * (s.whole - s.root) + 4 * s.whole) * part(N),
    "fsdp2, kept": lambda s: M * (2 + 4) * s.whole * part(N),
    "fsdp2, kept, no sync": lambda s: (2 + 4) * s.whole * part(N),
    "fsdp2, within a node": lambda s: M * ((2 + 4) * s.whole * part(N) + 2 * (s.whole - s.root) * part(G)),
    "hsdp": lambda s: (
        M * ((2 + 4) * s.whole + 2 * (s.whole - s.root)) * part(G) + M * 2 * 4 * s.whole / G * part(ACROSS)
    ),
    "hsdp, pairs, no sync": lambda s: (
        (M * (2 * s.whole + 2 * (s.whole - s.root)) + 4 * s.whole) * part(2) + 2 * 4 * s.whole / 2 * part(N // 2)
    ),
}


def sizes(one: Result) -> Sizes:
    (program,), job = one.simulation.programs, one.job
    return Sizes(program.parameters, program.parameters - job.model.layers * job.model.kind.parameters)


@pytest.mark.parametrize("case", LEDGER)
def test_bytes_of_a_rank(case: str) -> None:
    one = result(case)
    assert one.communication["dp"].bytes_per_rank == pytest.approx(LEDGER[case](sizes(one)), rel=1e-6)


def always(strategy: str, **options: Any) -> Result:
    """ZeRO-3 that gathers everything for every pass, and its relatives."""
    text = BASE | {"framework": "deepspeed", "sharding": {"strategy": strategy, **ALWAYS, **options}}
    return Scenario.from_dict(text).run()


def test_zero3_sends_half_as_much_again_as_an_all_reduce() -> None:
    once = scenario("ddp", framework="deepspeed").run().communication["dp"].bytes_per_rank
    assert always("zero3").communication["dp"].bytes_per_rank == pytest.approx(1.5 * M * once)


def test_mics_gathers_within_its_groups_and_sums_over_them_once() -> None:
    one = always("mics")
    whole, sent = sizes(one).whole, one.communication["dp"]
    within, across = M * 3 * 2 * whole * part(G), 2 * 2 * whole / G * part(ACROSS)
    assert sent.bytes_per_rank == pytest.approx(within + across)
    assert sent.bytes_inter_node_per_rank == pytest.approx(across)


# of a node, in units of 2 bytes per parameter: forward gathers, backward gathers, reductions
ZEROPP = {
    "zero3": ({}, (1, 1, 1)),
    "qwZ": ({"quantized_weights": True}, (0.5, 0.5, 1)),
    "hpZ": ({"secondary_partition": G}, (1, 0, 1)),
    "qgZ": ({"quantized_gradients": True}, (1, 1, 0.25)),
    "all": ({"quantized_weights": True, "quantized_gradients": True, "secondary_partition": G}, (0.5, 0, 0.25)),
}


@pytest.mark.parametrize("case", ZEROPP)
def test_zeropp_sends_less_between_nodes(case: str) -> None:
    """Of 3 M between nodes 0.75 M are left (Wang et al. 2023); hpZ gathers anew once per step. Scales are 1 in 2000."""
    options, (forward, backward, reduced) = ZEROPP[case]
    one = always("zero3", **options)
    once = 1 if "secondary_partition" in options else M
    ring, direct = part(N) / G, part(ACROSS) / G  # of a rank: its hops that leave the node; its part of the gradient
    expected = once * forward * ring + M * backward * ring + M * reduced * (direct if reduced < 1 else ring)
    sent = one.communication["dp"].bytes_inter_node_per_rank / (2 * sizes(one).whole)
    assert sent == pytest.approx(expected, rel=2e-3)


def test_zeropp_is_all_three() -> None:
    options = {"quantized_weights": True, "quantized_gradients": True, "secondary_partition": G}
    assert always("zeropp").communication == always("zero3", **options).communication


# memory of what is on its way


def most(one: Result, category: str) -> float:
    return float(one.memory.fullest.levels[category].max())


def units(one: Result) -> tuple[float, float]:
    """Elements of the root and of a layer."""
    return sizes(one).root, one.job.model.kind.parameters


@pytest.mark.parametrize(("case", "layers"), [("fsdp1", 2), ("fsdp1, post", 1), ("fsdp1, no prefetch", 1)])
def test_fsdp1_gathers_the_root_and_one_unit_ahead(case: str, layers: int) -> None:
    """In backward only where it says so, and where the network is fast enough for it."""
    one = scenario(case, cluster__nodes=1, training__global_batch=GPUS).run()
    root, layer = units(one)
    assert most(one, "gathered") == 2 * (root + 2 * layer)
    assert gathered_in_backward(one) == 2 * (root + layers * layer)


def gathered_in_backward(one: Result) -> float:
    level, times = one.memory.fullest.levels["gathered"], one.memory.fullest.times
    frame = one.timeline([0])
    rows = frame[(frame["kind"] == "backward") & (frame["microbatch"] == 0) & (frame["layer"] == 1)]
    start, end = rows["start"].min(), rows["end"].max()
    return float(level[(times >= start) & (times <= end)].max())


def test_fsdp2_copies_out_of_buffers() -> None:
    one = result("fsdp2")
    root, layer = units(one)
    assert most(one, "gathered") == 2 * (root + layer)
    assert most(one, "buffers") >= 2 * (root + layer)  # the buffer of the root is free when the next unit is there


def copied(one: Result) -> float:
    """Seconds of the copies that sharding asks for."""
    frame = one.timeline()
    return float((frame["end"] - frame["start"])[frame["kind"] == "copy"].sum())


@pytest.mark.parametrize("case", ["megatron-fsdp", "megatron-fsdp, no sync"])
def test_megatron_fsdp_copies_nothing(case: str) -> None:
    """Gathers fill the parameters, and GEMMs the buffer that is reduced (NVIDIA/Megatron-LM docs, megatron_fsdp)."""
    assert copied(result(case)) == 0
    theirs = {"communication": {"fsdp": "fsdp2"}, "base": "megatron-fsdp"}
    other = scenario(case).replace({"framework": theirs}).run()
    assert copied(other) > 0
    assert result(case).step_time < other.step_time


@pytest.mark.parametrize("case", ["fsdp1, kept, no sync", "fsdp2, kept"])
def test_kept_parameters_are_whole_at_the_end_of_a_forward(case: str) -> None:
    assert most(result(case), "gathered") == 2 * sizes(result(case)).whole


@pytest.mark.parametrize("case", ["fsdp1, no sync", "hsdp, pairs, no sync"])
def test_sums_that_are_not_reduced_are_whole(case: str) -> None:
    one = result(case)
    (program,) = one.simulation.programs
    assert most(one, "gradients") >= program.memory.gradients + 4 * sizes(one).whole


@pytest.mark.parametrize(("overlap", "count"), [(False, 1), (True, 2)])
def test_zero2_holds_buckets_and_a_copy_of_the_one_that_is_sent(overlap: bool, count: int) -> None:
    one = scenario("zero2", sharding__overlap=overlap).run()
    bucket = 2 * SMALL["reduce_bucket"]
    assert count * bucket < most(one, "buffers") <= (count + 1) * bucket + 2 * 8192 * 512


@pytest.mark.parametrize("strategy", ["zero3", "zeropp", "mics"])
def test_zero3_holds_the_buffer_of_its_reductions_all_the_time(strategy: str) -> None:
    small, large = (always(strategy, reduce_bucket=size).simulation.programs[0].memory.buffers for size in (1e6, 3e6))
    assert large - small == 2 * (3e6 - 1e6)


def test_a_second_copy_is_held_all_the_time() -> None:
    plain, second = always("zero3"), always("zero3", secondary_partition=G)
    a, b = (one.simulation.programs[0].memory.weights for one in (plain, second))
    assert b - a == 2 * sizes(plain).whole / G


# what does not go together

REFUSED: list[tuple[str, Mapping[str, Any], type[Exception], str]] = [
    ("zero2", {"parallel__pp": 2}, InvalidPlan, "DeepSpeed rejects it with pp=2"),
    ("zero3", {"parallel__pp": 2}, InvalidPlan, "DeepSpeed rejects it with pp=2"),
    ("zeropp", {"parallel__pp": 2}, InvalidPlan, "DeepSpeed rejects it with pp=2"),
    ("mics", {"parallel__pp": 2}, InvalidPlan, "DeepSpeed rejects it with pp=2"),
    ("fsdp2", {"sharding__quantized_weights": True}, InvalidPlan, "fsdp does not use it; zero3, zeropp support it"),
    ("ddp", {"sharding__shard_size": 2}, InvalidPlan, "ddp does not use it"),
    ("hsdp", {"sharding__shard_size": 3}, InvalidPlan, "8 replicas do not divide into groups of 3"),
    ("mics", {"sharding__shard_size": 3}, InvalidPlan, "8 replicas do not divide into groups of 3"),
    ("mics", {"sharding__shard_size": 1}, InvalidPlan, "groups of one replica shard nothing"),
    ("hpZ", {"sharding__secondary_partition": 3}, InvalidPlan, "8 replicas do not divide into groups of 3"),
    ("zero1", {"sharding__instances": 3}, InvalidPlan, "8 replicas do not divide into 3 groups"),
    ("fsdp2", {"sharding__reshard_after_forward": 3}, InvalidPlan, "8 replicas are not divisible by 3"),
    ("hsdp", {"sharding__reshard_after_forward": 8}, InvalidPlan, "the 4 replicas that share parameters are not"),
    ("fsdp2", {"parallel__pp": 2, "sharding__reshard_after_forward": 2}, InvalidPlan, "leave it out"),
    ("fsdp2", {"parallel__pp": 2, "pipeline__schedule": "zb-h1"}, NotBuilt, "not simulated with zb-h1"),
    ("hsdp", {"parallel__pp": 2, "pipeline__schedule": "seq1f1b"}, NotBuilt, "not simulated with seq1f1b"),
    ("mics", {"sharding__offload": {"optimizer": "cpu"}}, InvalidPlan, "offloads nothing; zero3 would"),
    ("zero3", {"sharding__shard_size": 4}, InvalidPlan, "groups are those of quantized_gradients"),
    ("zeropp", {"sharding__shard_size": 4, "sharding__quantized_gradients": False}, InvalidPlan, "turn that on"),
    ("fsdp2, kept", {"sharding__backward_prefetch": "post"}, InvalidPlan, "nothing is gathered"),
    ("fsdp2", {"parallel__pp": 2, "sharding__backward_prefetch": "post"}, InvalidPlan, "nothing is gathered"),
    ("fsdp2", {"parallel__pp": 2, "sharding__sync": "last"}, InvalidPlan, "reduces gradients after the last"),
    ("fsdp2", {"framework": "megatron-core", "parallel__pp": 2}, InvalidPlan, "without a pipeline only"),
    ("hsdp", {"framework": "nemo", "training__precision": "fp16"}, InvalidPlan, "does not run PyTorch's FSDP2 in fp16"),
    ("ddp", {"sharding__prefetch_bucket": 0}, InvalidPlan, "ddp does not use it"),
    ("ddp", {"sharding__reshard_after_forward": False}, InvalidPlan, "ddp does not use it"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "changes", "error", "words"), REFUSED)
def test_what_does_not_go_together_is_refused(
    case: str, changes: Mapping[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        scenario(case, **changes).resolve()


@pytest.mark.parametrize(("nodes", "told"), [(1, True), (2, False)])
def test_quantizing_that_has_no_effect_is_told(nodes: int, told: bool) -> None:
    one = Scenario.from_dict(BASE | {"sharding": {"strategy": "zeropp"}}).replace({"cluster.nodes": nodes})
    assert ("without effect" in one.resolved["derived"].get("sharding.quantized_gradients", "")) == told


@pytest.mark.parametrize(
    "sharding",
    [
        *({"strategy": name} for name in strategies),
        *({"strategy": "zeropp", key: False} for key in ("quantized_weights", "quantized_gradients")),
        {"strategy": "zeropp", "secondary_partition": None},
        {"strategy": "zero3", "quantized_gradients": True, "offload": {"optimizer": "cpu", "ratio": 0.5}},
    ],
    ids=str,
)
def test_a_resolved_strategy_reads_back(sharding: dict[str, Any]) -> None:
    one = Scenario.from_dict(BASE | {"sharding": sharding})
    assert Scenario.from_dict(one.resolved).resolve() == one.resolve()


@pytest.mark.parametrize("case", ["fsdp1", "fsdp2", "hsdp"])
def test_in_a_pipeline_fsdp_gathers_once_and_reduces_in_one_burst(case: str) -> None:
    one = scenario(case, parallel__pp=2).run()
    for program in one.simulation.programs:
        works = {
            template.work: [i.operation for i in template.instructions if isinstance(i, Meet) and i.kind == "dp"]
            for tasks in program.chains.values()
            for template, _ in tasks
        }
        assert not works["F"]
        assert not works["B"]
        assert works["gather"] == ["all_gather"] * 3
        assert works["update"].count("reduce_scatter") == 3
    assert folding_changes_no_bit(one.job)
    levels_are_sound(one)
    for stage in one.memory.per_stage:
        whole = one.simulation.programs[stage.stage].parameters
        assert stage.levels["gathered"].min() == 2 * whole
        assert stage.levels["gradients"].min() > 4 * whole
