"""Context parallelism: who does how much of attention, what is sent, and what all else makes of a cut sequence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from benchmarks.memory import cases
from benchmarks.memory import scenario as published
from tests.agreement import assert_same
from tests.jobs import scenario, small
from trainsim.engine import run
from trainsim.errors import InvalidPlan, NotBuilt, ScenarioError
from trainsim.fold import fold, unfolded
from trainsim.frameworks import load_framework
from trainsim.models.context_parallel import context_parallelisms
from trainsim.models.layers import Shape, layer_operations, style_of
from trainsim.models.operations import Attention, Exchange, Operation, Step, Under, works
from trainsim.models.reading import load_model
from trainsim.program.layer_work import style_for
from trainsim.program.lower import lower
from trainsim.report.drawn_ranks import drawn_ranks
from trainsim.report.scene import scene
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario
from trainsim.sharding import strategies
from trainsim.sharding.launches import shape_of as local_shape
from trainsim.study.ways import MEMORY, TIME, suggestions

WAYS = tuple(context_parallelisms)
MODEL = load_model("llama-3-8b")  # 32 heads, 8 of keys, 128 numbers each
STYLE = style_of(load_framework("megatron-core"))
WHOLE = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all")
PASSES = ("forward", "input_gradient")
FACTORS = {"forward": 1.0, "input_gradient": 2.5}
LONG: dict[str, Any] = {
    "parallel__pp": 1,
    "parallel__cp": 4,
    "training__sequence_length": 8192,
    "training__global_batch": 4,
}


LATENT = {"kv_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64}


def changed(way: str) -> dict[str, Any]:
    """A long sequence on four ranks, by *way*."""
    return LONG | {"parallel__context_parallel": way} | ({"parallel__ulysses": 2} if way == "hybrid" else {})


def long_run(way: str, **changes: Any) -> Result:
    return scenario(**(changed(way) | changes)).run()


def shape_of(cp: int, way: str = "ring", *, tp: int = 1, s: int = 16384, ulysses: int = 2) -> Shape:
    return Shape(
        micro_batch=2, sequence_length=s, tp=tp, cp=cp, context_parallel=way, ulysses=ulysses, padded_vocab=1024
    )


def layer(cp: int, way: str = "ring", **more: Any) -> tuple[Operation, ...]:
    return layer_operations(MODEL.kind, shape_of(cp, way, **more), STYLE)


def steps(operations: tuple[Operation, ...], half: str) -> Iterator[Step]:
    for operation in operations:
        yield from getattr(operation, half)


def exchanges(operations: tuple[Operation, ...], half: str) -> list[Exchange]:
    found = (step.exchange if isinstance(step, Under) else step for step in steps(operations, half))
    return [step for step in found if isinstance(step, Exchange)]


def sent(operations: tuple[Operation, ...], half: str, cp: int) -> float:
    """Bytes that a rank sends for the exchanges of one layer."""
    total = 0.0
    for exchange in exchanges(operations, half):
        ranks = cp
        if exchange.part:
            ranks = exchange.part[1] if exchange.part[0] == "within" else cp // exchange.part[1]
        total += exchange.nbytes * ((ranks - 1) / ranks if exchange.operation in WHOLE else 1.0)
    return total


# ---- work


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cp", [2, 4, 8])
@pytest.mark.parametrize("half", PASSES)
def test_every_rank_has_its_part_of_the_triangle(way: str, cp: int, half: str) -> None:
    """S^2 / 2 scores in all, S^2 / (2 cp) each, to the last one: the zigzag is exactly even."""
    shape = shape_of(cp, way)
    kernels = [work for work in works(steps(layer(cp, way), half)) if isinstance(work, Attention)]
    scores = sum(k.flops / (4 * k.batch * k.heads * k.head_dim) * k.heads / MODEL.heads for k in kernels)
    assert scores == FACTORS[half] * shape.sequence_length**2 / (2 * cp)


def test_chunks_i_and_its_mirror_make_all_ranks_equal() -> None:
    """What the last rank does in ``all_gather`` is what each of them does: c^2 (i + 1/2) for each of its chunks."""
    cp, c = 8, 1024
    work = [c * c * ((i + 0.5) + (2 * cp - 1 - i + 0.5)) for i in range(cp)]
    assert work == [(2 * cp * c) ** 2 / (2 * cp)] * cp


@pytest.mark.parametrize("way", WAYS)
def test_twice_the_sequence_is_four_times_the_attention(way: str) -> None:
    def attention(s: int) -> float:
        found = works(steps(layer(4, way, s=s), "forward"))
        return sum(work.flops for work in found if isinstance(work, Attention))

    assert attention(32768) == 4 * attention(16384)


@pytest.mark.parametrize("way", WAYS)
def test_all_else_works_on_the_tokens_of_the_rank(way: str) -> None:
    """Norms, products and the MLP: as of a sequence that is so much shorter."""
    cut, short = layer(4, way), layer_operations(MODEL.kind, shape_of(1, s=4096), STYLE)
    names = {o.name for o in short} - {"attention"}
    assert [o for o in cut if o.name in names] == [o for o in short if o.name in names]


# ---- bytes


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("cp", [2, 4, 8])
def test_volumes_of_a_layer(cp: int, tp: int) -> None:
    """Ring and gather: all keys and values but the own ones forward, and twice that backward; all-to-alls: all but one
    cp-th of the own queries, keys, values and result."""
    element, tokens = 2, 2 * 16384 // cp
    own = element * tokens * 2 * 8 * 128 // tp
    for way in ("ring", "all_gather"):
        operations = layer(cp, way, tp=tp)
        assert sent(operations, "forward", cp) == (cp - 1) * own
        assert sent(operations, "input_gradient", cp) == 2 * (cp - 1) * own
    if 8 // tp >= cp:
        queries = element * tokens * 32 * 128 // tp
        for half in PASSES:
            assert sent(layer(cp, "ulysses", tp=tp), half, cp) == (cp - 1) / cp * (2 * queries + own)


@pytest.mark.parametrize("neighbours", [1, 2, 4])
def test_a_hybrid_sends_within_and_across(neighbours: int) -> None:
    """Of the heads that a rank then has, the tokens of all its neighbours go round the ring."""
    cp, own, queries = 4, 2 * 8192 * 2 * 8 * 128, 2 * 8192 * 32 * 128
    operations = layer(cp, "hybrid", ulysses=neighbours)
    within = (neighbours - 1) / neighbours * (2 * queries + own)
    assert sent(operations, "forward", cp) == within + (cp // neighbours - 1) * own


@pytest.mark.parametrize("way", ["ring", "all_gather"])
def test_keys_and_values_of_latent_attention_are_sent_unfolded(way: str) -> None:
    job = small(**(changed(way) | {"model__mla": LATENT, "model__kv_heads": 16}))
    operations = layer_operations(job.model.kind, local_shape(job), style_for(job))
    own = 2 * (8192 // 4) * (16 // 2) * (64 + 32 + 64)
    assert sent(operations, "forward", 4) == 3 * own


def test_windows_go_with_all_to_alls() -> None:
    whole, window = (long_run("ulysses", **more) for more in ({}, {"model__window": 512}))
    assert window.breakdown["compute"] < whole.breakdown["compute"]
    assert window.communication["cp"].bytes_per_rank == whole.communication["cp"].bytes_per_rank


def test_fewer_heads_of_keys_than_ranks_are_copied() -> None:
    """16 ranks of 8 heads of keys: two ranks get each head, so twice the keys are sent."""
    element, tokens, cp = 2, 2 * 16384 // 16, 16
    total = sent(layer(cp, "ulysses"), "forward", cp)
    assert total == (cp - 1) / cp * element * tokens * 128 * (2 * 32 + 2 * cp)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("detail", ["op", "block"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_result_counts_the_bytes_of_the_layers(way: str, recompute: str, detail: str) -> None:
    """Full recomputation sends again what the forward pass sends."""
    job = small(**changed(way))
    operations = layer_operations(job.model.kind, local_shape(job), style_for(job))
    cp, times = job.parallel.cp, 2 if recompute == "full" else 1
    each = times * sent(operations, "forward", cp) + sent(operations, "input_gradient", cp)
    traffic = long_run(way, training__recompute=recompute, simulation__detail=detail).communication["cp"]
    assert traffic.bytes_per_rank == pytest.approx(each * job.model.layers * job.training.microbatches, rel=1e-12)


@pytest.mark.parametrize("way", WAYS)
def test_bytes_between_nodes_follow_from_the_layout(way: str) -> None:
    """Inside a node nothing; with tensor parallelism of a whole node, everything."""
    near = long_run(way).communication["cp"]
    changes = {"parallel__tp": 8, "cluster__nodes": 4, "model__kv_heads": 16, "model__heads": 32}
    far = long_run(way, **changes).communication["cp"]
    assert near.bytes_inter_node_per_rank == 0.0
    assert far.bytes_inter_node_per_rank == pytest.approx(far.bytes_per_rank)


# ---- time


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"parallel__tp": 2, "parallel__sequence_parallel": True, "training__recompute": "full"},
        {"parallel__pp": 2, "pipeline__schedule": "zb-h1", "parallel__tp": 1},
        {"parallel__pp": 2, "parallel__tp": 1, "pipeline__vocabulary_parallel": True},
        {"parallel__pp": 2, "parallel__tp": 1, "pipeline__schedule": "dualpipe", "training__global_batch": 8},
        {"parallel__order": ["cp", "tp", "ep", "dp", "pp"]},
        {"what_if": [{"slow": {"rank": 3, "factor": 1.2}}]},
    ],
    ids=str,
)
def test_folded_is_unfolded(way: str, changes: dict[str, Any]) -> None:
    system = lower(small(**(changed(way) | changes))).system
    assert_same(run(fold(system)), run(unfolded(system)))


@pytest.mark.parametrize("way", WAYS)
def test_one_rank_of_a_sequence_needs_nobody(way: str) -> None:
    alone, plain = (scenario(**changes).run() for changes in ({"parallel__context_parallel": way}, {}))
    assert alone.step_time == plain.step_time
    assert alone.memory.peak == plain.memory.peak
    assert alone.communication["cp"].bytes_per_rank == 0.0


@pytest.mark.parametrize("way", WAYS)
def test_the_breakdown_adds_up(way: str) -> None:
    result = long_run(way, parallel__pp=2, parallel__tp=1)
    assert sum(result.breakdown.values()) == pytest.approx(result.step_time, rel=1e-9)
    assert result.breakdown["cp"] == pytest.approx(result.communication["cp"].exposed_s, rel=1e-9)


def test_a_ring_is_hidden_by_long_sequences_and_sticks_out_of_short_ones() -> None:
    """Attention grows with the square of the sequence, what is sent with the sequence."""
    far = {"parallel__tp": 8, "cluster__nodes": 4, "training__global_batch": 1}
    shares = []
    for length in (2048, 16384, 131072):
        traffic = long_run("ring", training__sequence_length=length, **far).communication["cp"]
        shares.append(traffic.exposed_s / traffic.time_s)
    assert shares[0] > shares[1] >= shares[2]
    assert shares[2] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("way", ["all_gather", "ulysses"])
def test_what_attention_waits_for_is_exposed(way: str) -> None:
    traffic = long_run(way).communication["cp"]
    assert traffic.exposed_s == pytest.approx(traffic.time_s + traffic.waiting_s, rel=1e-9)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("detail", ["layer", "block"])
def test_coarser_detail_takes_as_long(way: str, detail: str) -> None:
    fine, coarse = (long_run(way, sharding__overlap=False, simulation__detail=d) for d in ("op", detail))
    assert coarse.step_time == pytest.approx(fine.step_time, rel=1e-3)


@pytest.mark.parametrize("way", WAYS)
def test_the_closed_form_agrees(way: str) -> None:
    """Which does not know that kernels are slower beside what is sent."""
    result = long_run(way, cluster__nodes=1)
    assert result.estimate.seconds == pytest.approx(result.step_time, rel=0.03)


def test_the_lane_of_a_ring_is_beside_the_kernels() -> None:
    trace = run(fold(lower(small(**changed("ring"))).system))
    assert "cp" in trace.chain_names(0)
    gathered = run(fold(lower(small(**changed("all_gather"))).system))
    assert "cp" not in gathered.chain_names(0)


def test_the_chart_of_a_ring_shows_its_messages_beside_the_kernels() -> None:
    """Three messages forward; backward one of keys, two of keys and gradients, one of gradients."""
    result = Scenario.load("ring_attention").run()
    drawn = scene(result, drawn_ranks(result, result.pipeline), (0.0, result.duration), detailed=True)
    assert "cp" in [row.stream for row in drawn.rows]
    boxes = drawn.beside["cp"]
    lengths = boxes.right - boxes.left
    assert lengths == pytest.approx(lengths[0] * np.array([1, 1, 1, 1, 2, 2, 1]), rel=0.02)


# ---- memory and replicas


@pytest.mark.parametrize("way", WAYS)
def test_activations_are_cut_and_buffers_come_on_top(way: str) -> None:
    """A rank keeps what a sequence keeps that is so much shorter; while attention runs it holds keys of others too.

    With all-to-alls the result is kept twice: by heads for attention, and by tokens for the product that follows.
    """
    cut, short = layer(4, way), layer_operations(MODEL.kind, shape_of(1, s=4096), STYLE)
    result = 2 * 2 * 4096 * 32 * 128 if way in ("ulysses", "hybrid") else 0
    assert sum(o.saved for o in cut) == sum(o.saved for o in short) + result
    own = 2 * 2 * 4096 * 2 * 8 * 128
    most = max(o.transient_forward for o in cut)
    assert most >= {"all_gather": 2 * 4 * own, "ring": 4 * own}.get(way, own)


@pytest.mark.parametrize("strategy", strategies)
def test_ranks_of_a_sequence_are_replicas_of_the_parameters(strategy: str) -> None:
    """Gradients and parameters are sent as among as many replicas that do not cut sequences."""
    changes = {"parallel__pp": 1, "parallel__tp": 1, "sharding__strategy": strategy, "cluster__nodes": 1}
    changes |= {"training__sequence_length": 4096}
    cut = scenario(**changes, parallel__cp=2, training__global_batch=8).run()
    whole = scenario(**changes, training__global_batch=16).run()
    sent_cut, sent_whole = (r.communication["dp"].bytes_per_rank for r in (cut, whole))
    assert sent_cut == pytest.approx(sent_whole, rel=1e-12)
    states = [sum(stage.part(c) for c in ("weights", "gradients", "optimizer")) for stage in cut.memory.per_stage]
    assert states == pytest.approx(
        [sum(stage.part(c) for c in ("weights", "gradients", "optimizer")) for stage in whole.memory.per_stage]
    )


def test_a_batch_counts_sequences_not_their_parts() -> None:
    job = small(**changed("ring"))
    assert job.training.global_batch == job.training.micro_batch * job.parallel.dp * job.training.microbatches
    assert job.parallel.dp * job.parallel.cp * job.parallel.tp == 16


# ---- what grows with the square


@pytest.mark.parametrize("cp", [1, 4])
def test_a_mask_is_a_byte_per_pair_of_tokens_on_every_rank(cp: int) -> None:
    """8 bytes while it is made on the GPU; no time is counted for it."""
    runs = [
        long_run("ring", parallel__cp=cp, training__global_batch=8, training__attention_mask=where)
        for where in ("none", "host", "gpu")
    ]
    none, host, gpu = (run.memory.per_stage[0] for run in runs)
    assert host.part("buffers") - none.part("buffers") == 8192**2
    assert max(gpu.levels["temporary"]) == max(*none.levels["temporary"], 8 * 8192**2)
    assert max(host.levels["temporary"]) == max(none.levels["temporary"])
    assert runs[0].step_time == runs[1].step_time == runs[2].step_time


def test_positions_that_are_cut_take_a_part_of_the_states() -> None:
    """2 bytes of weights, 4 of gradients, 12 of states: of half of the table less, with two ranks."""
    changes = {"model__family": "gpt", "model__max_positions": 1 << 16, "parallel__sequence_parallel": True}
    changes |= {"parallel__pp": 1, "sharding__strategy": "ddp"}
    whole, cut = (scenario(**changes, parallel__position_parallel=cuts).run() for cuts in (False, True))
    parts = ("weights", "gradients", "optimizer")
    states = [sum(run.memory.per_stage[0].part(part) for part in parts) for run in (whole, cut)]
    assert states[0] - states[1] == pytest.approx(18 * (1 << 16) * 1024 / 2)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model__family": "gpt", "model__max_positions": 2048}, "sequence_parallel: true would work"),
        ({"parallel__sequence_parallel": True}, "rotary positions have no table"),
        (
            {"model__family": "gpt", "model__max_positions": 2049, "parallel__sequence_parallel": True},
            "2049 positions (max_positions) are not divisible by tp=2",
        ),
    ],
    ids=str,
)
def test_positions_that_cannot_be_cut(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidPlan, match=r"parallel\.position_parallel") as refusal:
        small(**changes, parallel__position_parallel=True)
    assert says in str(refusal.value)


# ---- anchors

MEASURED_MS = {  # MooreThreads/SimuMax docs/b200/b200_release_v1.2_summary.md: Megatron-Core, Transformer Engine's a2a
    "simumax-09": 1758.0,
    "simumax-10": 1768.1,
    "simumax-11": 1984.7,
    "simumax-12": 2003.6,
    "simumax-13": 11315.7,
    "simumax-14": 11301.9,
    "simumax-15": 10577.6,
}
FURTHEST = {"simumax-14": 0.155}
"""Of those that are further off than 15 %."""


@pytest.mark.parametrize("case", MEASURED_MS)
def test_measured_steps_of_long_sequences(case: str) -> None:
    """32k and 131k tokens on 8 B200, by all-to-alls: all short (that laboratory's attention is slower)."""
    (row, *_) = cases([case])
    result = published(row).replace({"training.global_batch": 4, "simulation.detail": "block"}).run()
    assert result.step_time * 1e3 == pytest.approx(MEASURED_MS[case], rel=FURTHEST.get(case, 0.15))


def test_llama_3_405b_at_131072_tokens() -> None:
    """380 TFLOP/s per GPU (arXiv 2407.21783, table 4), which does not say how it counts attention."""
    result = Scenario.load("llama3_405b_131k").run()
    assert result.throughput.model_flops_per_gpu == pytest.approx(380e12, rel=0.05)
    assert result.communication["cp"].bytes_inter_node_per_rank == result.communication["cp"].bytes_per_rank


ULYSSES_S = {  # arXiv 2309.14509, tables 2 and 3: (GPUs, tokens) -> seconds of a step of GPT-7B, 8 sequences
    (64, 131072): 32.432,
    (128, 131072): 17.052,
    (256, 131072): 9.887,
    (64, 65536): 9.677,
    (256, 262144): 33.487,
}


@pytest.mark.parametrize(("gpus", "tokens"), ULYSSES_S)
def test_steps_of_the_ulysses_paper(gpus: int, tokens: int) -> None:
    """6 to 18 % short, with as many ranks for a sequence as leave one to each."""
    changes = {"cluster.nodes": gpus // 8, "parallel.cp": gpus // 8, "training.sequence_length": tokens}
    result = Scenario.load("long_context_ulysses").replace({**changes, "simulation.detail": "block"}).run()
    assert result.step_time == pytest.approx(ULYSSES_S[gpus, tokens], rel=0.2)


# ---- studies


def test_changes_to_a_long_sequence_are_suggested_and_run() -> None:
    base = scenario(**(changed("hybrid") | {"parallel__tp": 1, "training__sequence_length": 16384}))
    tried = {change.title: change.values for goal in (TIME, MEMORY) for change in suggestions(base, goal)}
    assert {"cp 8", "cp 2", *(f"{way} for keys and values" for way in WAYS if way != "hybrid")} <= set(tried)
    for title in ("cp 8", "cp 2", "ring for keys and values"):
        job = base.replace(tried[title]).resolve()
        assert job.training.sequence_length == 16384
        assert job.parallel.ranks == 16


def test_short_sequences_are_not_cut_for_a_try() -> None:
    assert not any(change.title.startswith("cp") for change in suggestions(scenario(), TIME))


# ---- what does not go together


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"training__sequence_length": 4098}, InvalidPlan, "do not divide into 2 x cp parts for cp=4"),
        ({"parallel__context_parallel": "rings"}, ScenarioError, "Did you mean 'ring'"),
        ({"parallel__context_parallel": "ring", "training__attention": "eager"}, InvalidPlan, "needs a fused kernel"),
        (
            {"parallel__context_parallel": "all_gather", "training__attention": "eager"},
            InvalidPlan,
            "flash2 would",
        ),
        (
            {
                "parallel__context_parallel": "ulysses",
                "model__heads": 12,
                "model__kv_heads": 12,
                "model__head_dim": 64,
                "parallel__cp": 8,
                "parallel__tp": 1,
            },
            InvalidPlan,
            "12 heads are not divisible by cp=8",
        ),
        ({"parallel__context_parallel": "hybrid", "parallel__ulysses": 3}, InvalidPlan, "1, 2, 4 would"),
        ({"parallel__context_parallel": "ring", "parallel__ulysses": 2}, InvalidPlan, "hybrid does"),
        ({"model__window": 512}, InvalidPlan, "ring is not simulated with attention in sliding windows; ulysses is"),
        (
            {"model__mla": LATENT, "model__kv_heads": 16, "parallel__context_parallel": "ulysses"},
            InvalidPlan,
            "ring would work",
        ),
        (
            {"parallel__pp": 2, "parallel__tp": 1, "pipeline__schedule": "seq1f1b", "pipeline__group": 2},
            NotBuilt,
            "cuts sequences in time",
        ),
    ],
    ids=str,
)
def test_a_refusal_says_what_would_work(changes: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error) as refusal:
        small(**(LONG | changes))
    assert says in str(refusal.value)


def test_eager_attention_goes_with_ulysses() -> None:
    result = long_run("ulysses", training__attention="eager", training__sequence_length=2048)
    assert result.communication["cp"].bytes_per_rank > 0


def test_neighbours_of_a_hybrid_are_those_of_a_node_that_divide_the_heads() -> None:
    resolved = scenario(**changed("hybrid"), parallel__tp=4).resolve()
    assert resolved.parallel.ulysses == 2
