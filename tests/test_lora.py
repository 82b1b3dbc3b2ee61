"""Adapters on a frozen model: what is computed, kept, trained and sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.jobs import run_small, same_spans, scenario, small
from trainsim.contracts.instructions import Meet, Program
from trainsim.errors import ScenarioError, UnknownName
from trainsim.frameworks import load_framework
from trainsim.models.counts import megatron_flops
from trainsim.models.layers import (
    Shape,
    embedding_operations,
    head_operations,
    layer_operations,
    style_of,
)
from trainsim.models.lora import adapter_tensors, adapters, first_layer
from trainsim.models.operations import Gemm, Operation, Work
from trainsim.models.reading import load_model, transformer
from trainsim.models.transformer import Transformer
from trainsim.program.lower import lower
from trainsim.program.parts import work_out
from trainsim.program.rank import RankPlan

SHAPE = Shape(micro_batch=2, sequence_length=1024, tp=1, padded_vocab=32000)
STYLE = style_of(load_framework("neutral"), "flash2")
BASE = load_model("llama-2-7b")
EVERY = ("q", "k", "v", "o", "gate", "up", "down")
SMALL = {"model__lora": {"rank": 16, "targets": ["q", "v"]}}


def with_lora(rank: int = 8, targets: Iterable[str] = ("q", "v"), base: str = "llama-2-7b") -> Transformer:
    return transformer({"name": base, "lora": {"rank": rank, "targets": list(targets)}})


def gemm_flops(works: Iterable[Work]) -> float:
    return sum(w.flops for w in works if isinstance(w, Gemm))


def passes(operations: Iterable[Operation]) -> tuple[float, float, float]:
    """FLOP of the matrix products of linear layers: forward, input gradients, weight gradients."""
    linear = [o for o in operations if any(isinstance(w, Gemm) for w in o.forward)]
    return (
        sum(gemm_flops(o.forward) for o in linear),
        sum(gemm_flops(o.input_gradient) for o in linear),
        sum(gemm_flops(o.weight_gradient) for o in linear),
    )


@pytest.mark.parametrize("targets", [("q", "v"), ("qkv",), EVERY, ("fc2",)])
@pytest.mark.parametrize("rank", [1, 8, 64])
def test_frozen_weights_cost_two_passes_and_adapters_three(rank: int, targets: tuple[str, ...]) -> None:
    model = with_lora(rank, targets)
    frozen = passes(layer_operations(BASE.kind, SHAPE, STYLE))[0]
    small_ones = 2.0 * SHAPE.tokens * adapter_tensors(model.kinds[:1], 1).total
    assert passes(layer_operations(model.kind, SHAPE, STYLE)) == (frozen + small_ones, frozen + small_ones, small_ones)


def test_parameters_are_rank_times_both_sides() -> None:
    h, ffn, r = 4096, 11008, 16
    assert adapter_tensors(with_lora(r).kinds, 1).total == 32 * 2 * r * (h + h)
    assert adapter_tensors(with_lora(r, EVERY).kinds, 1).total == 32 * r * (4 * (h + h) + 3 * (h + ffn))
    assert adapter_tensors(with_lora(r, ["qkv", "fc1"]).kinds[:1], 1).total == r * (h + 3 * h) + r * (h + 2 * ffn)


def test_peft_counts_the_same() -> None:
    """4,194,304 trainable parameters of Llama-2-7B with rank 8 on q and v, as peft prints them."""
    assert adapter_tensors(with_lora(8).kinds, 1).total == 4_194_304


def test_one_side_of_an_adapter_is_cut_over_tensor_parallelism() -> None:
    for one, half in zip(adapters(with_lora(8, EVERY).kind, 1), adapters(with_lora(8, EVERY).kind, 2), strict=True):
        cut = one.on.outputs if one.on.parallel == "column" else one.on.inputs
        assert one.parameters - half.parameters == 8 * cut / 2


@pytest.mark.parametrize("attention", ["flash2", "eager"])
def test_a_frozen_linear_without_an_adapter_keeps_no_input(attention: str) -> None:
    style = style_of(load_framework("neutral"), attention)
    rank, tokens = 8, SHAPE.tokens
    model = with_lora(rank, ["q", "down"])
    kept = {o.name: o.saved for o in layer_operations(model.kind, SHAPE, style)}
    full = {o.name: o.saved for o in layer_operations(BASE.kind, SHAPE, style)}
    h = BASE.hidden
    assert full["fc1"] - kept["fc1"] == 2 * tokens * h
    assert full["proj"] - kept["proj"] == (2 * tokens * h if attention == "eager" else 0), "flash keeps its output"
    for name in ("qkv", "fc2"):
        assert kept[name] - full[name] == 2 * tokens * rank, "what is between the adapter's matrices"
    for name in ("norm1", "norm2", "swiglu"):
        assert kept[name] == full[name]


def test_embedding_and_head_are_frozen() -> None:
    model = with_lora()
    for operations in (embedding_operations(model, SHAPE, STYLE), head_operations(model, SHAPE, STYLE)):
        assert not any(o.weight_gradient for o in operations)
    forward, back, _ = passes(head_operations(model, SHAPE, STYLE))
    assert forward == back > 0


def test_nothing_below_the_first_adapter_has_a_gradient() -> None:
    layer = layer_operations(with_lora(8, ["down"]).kind, SHAPE, STYLE)
    first = first_layer(layer)
    names = [o.name for o in first]
    at = names.index("fc2")
    assert not any(o.input_gradient for o in first[:at])
    assert [w.name for w in first[at].input_gradient] == ["down B dgrad"]
    assert first[at].weight_gradient == layer[at].weight_gradient
    assert first[at + 1 :] == layer[at + 1 :]


def test_only_the_first_layer_of_the_model_is_spared() -> None:
    parts = work_out(small(**SMALL))
    blocks = [parts.layer_blocks(stage) for stage in parts.stages]
    first, *others = [block for some in blocks for block in some]
    assert all(block is others[0] for block in others)
    assert first is not others[0]
    assert first.backward_seconds < others[0].backward_seconds


def test_flops_are_4n_and_not_6n() -> None:
    """Per token and parameter of the matrices: 2 forward, 2 for the input gradient; scores and adapters come on top."""
    size = {"sequence_length": 128, "batch": 1, "recompute": "none"}
    full, frozen = megatron_flops(BASE, **size), megatron_flops(with_lora(1, ["q"]), **size)
    matrices = BASE.parameters - BASE.embedding_parameters
    assert full == pytest.approx(6 * 128 * matrices, rel=0.01)
    assert frozen == pytest.approx(4 * 128 * matrices, rel=0.02)


@pytest.mark.parametrize("framework", ["neutral", "megatron-core", "deepspeed", "pytorch-ddp"])
def test_states_are_those_of_the_adapters(framework: str) -> None:
    """Frozen weights take 2 bytes, under autocast 4; gradients and states are as of a model of the adapters' size."""
    parts = work_out(small(framework=framework, **SMALL))
    whole = work_out(small(framework=framework))
    for rank in range(4):
        mine, all_of_it = RankPlan(parts=parts, rank=rank), RankPlan(parts=whole, rank=rank)
        trained = parts.holdings.trained(rank).total
        assert mine.parameters == all_of_it.parameters + trained
        held, full = mine.states(), all_of_it.states()
        share = trained / all_of_it.parameters
        assert held.gradients == pytest.approx(full.gradients * share)
        assert held.optimizer == pytest.approx(full.optimizer * share)
        assert held.weights == pytest.approx(
            parts.job.training.stream_bytes * all_of_it.parameters + full.weights * share
        )


def test_only_adapters_are_reduced_and_gathered() -> None:
    for strategy, wire in (("ddp", 4), ("zero1", 4)):
        parts = work_out(small(sharding__strategy=strategy, **SMALL))
        for rank in range(4):
            sharding = parts.sharding(rank)
            sent = sum(bucket.nbytes for chunk in sharding.reductions for bucket in chunk)
            assert sent == wire * parts.holdings.trained(rank).total
            gathered = sum(bucket.nbytes for chunk in sharding.gathers for bucket in chunk)
            assert gathered == (2 * parts.holdings.trained(rank).total if strategy == "zero1" else 0)


def test_a_tied_embedding_is_not_reduced() -> None:
    def meets(**changes: Any) -> set[str]:
        programs = run_small(model__tied_embeddings=True, **changes).plan.system.programs
        tasks = (t for p in programs for chain in p.chains.values() for t in chain)
        return {i.name for t in tasks for i in t.template.instructions if isinstance(i, Meet)}

    assert "tied embedding" in meets()
    assert "tied embedding" not in meets(**SMALL)


def test_a_run_is_faster_and_smaller_than_full_training() -> None:
    longer = {"training__sequence_length": 4096}  # the host is ahead of the layers
    full, tuned = scenario(**longer).run(), scenario(**SMALL, **longer).run()
    assert tuned.step_time < full.step_time
    assert tuned.memory.peak < full.memory.peak
    assert tuned.parameters["trainable"] == 8 * 2 * 16 * 1024 + 8 * 16 * (1024 + 512)
    assert tuned.parameters["total"] == full.parameters["total"] + tuned.parameters["trainable"]
    assert full.parameters["trainable"] == full.parameters["total"]
    assert abs(tuned.estimate.difference) < 0.2


@pytest.mark.parametrize(
    "changes",
    [
        {"parallel__sequence_parallel": True},
        {"parallel__tp": 4},
        {"training__recompute": "full"},
        {"pipeline__schedule": "zb-h1"},
        {"pipeline__schedule": "seq1f1b"},
        {"pipeline__vocabulary_parallel": True},
        {"training__optimizer": "muon"},
        {"parallel__pp": 1, "parallel__tp": 1},
    ],
)
def test_adapters_go_with_everything_else(changes: dict[str, Any]) -> None:
    folded, every = (run_small(**SMALL, **changes, simulation__fold=fold).trace for fold in (True, False))
    assert same_spans(folded, every)


def test_a_frozen_column_gathers_no_input_for_a_gradient_it_has_not() -> None:
    """With sequence parallelism the input of a column layer is gathered again for its weight's gradient alone."""

    def gathers(targets: list[str]) -> int:
        lora = {"rank": 8, "targets": targets}
        parts = work_out(small(parallel__sequence_parallel=True, training__tp_overlap="none", model__lora=lora))
        return sum(isinstance(p, Meet) and p.operation == "all_gather" for p in parts.layers[-1].backward)

    assert gathers(["o"]) == 2, "the gradients of both row layers"
    assert gathers(["q", "o"]) == 3
    assert gathers(["q", "gate"]) == 4


def test_models_with_adapters_are_read_back() -> None:
    model = with_lora(8, EVERY)
    assert transformer(model.to_dict()) == model
    assert "lora" not in BASE.to_dict()
    one = scenario(**SMALL)
    again = scenario(model=dict(one.resolved["model"]))
    assert again.resolve().model == one.resolve().model


@pytest.mark.parametrize(
    ("lora", "error", "message"),
    [
        ({"rank": 8, "targets": ["k_proj"]}, ScenarioError, "No linear layer for an adapter is called 'k_proj'"),
        ({"rank": 8, "targets": ["gatt"]}, ScenarioError, "Did you mean 'gate'"),
        ({"rank": 0}, ScenarioError, "rank = 0"),
        ({"targets": ["q"]}, ScenarioError, "rank"),
    ],
)
def test_bad_adapters_name_the_nearest(lora: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        scenario(model__lora=lora).resolve()


def test_targets_follow_the_model() -> None:
    with pytest.raises(UnknownName, match="gate"):
        with_lora(8, ["gate"], base="gpt2")
    assert adapters(with_lora(8, ["up"], base="gpt2").kind, 1)[0].on.outputs == 4 * 768


FLAT = {"parallel": {"tp": 2, "pp": 1}, "sharding__overlap": True}


@pytest.mark.parametrize("strategy", ["zero2", "zero3", "fsdp", "hsdp", "mics", "zeropp"])
def test_sharded_models_reduce_adapters_only(strategy: str) -> None:
    """Frozen parameters are gathered like all others; gradients and states are those of the adapters."""
    changes = FLAT | {"sharding__strategy": strategy}
    frozen, whole = lower(scenario(**changes, **SMALL).resolve()), lower(scenario(**changes).resolve())
    sent = [_bytes(p.system.programs[0], "reduce") for p in (frozen, whole)]
    gathered = [_bytes(p.system.programs[0], "gather") for p in (frozen, whole)]
    assert 0 < sent[0] < 0.1 * sent[1]
    assert gathered[0] >= gathered[1] * (strategy != "zero2")
    assert frozen.system.programs[0].memory.optimizer <= 12 * RankPlan(parts=frozen.parts, rank=0).trainable


def _bytes(program: Program, work: str) -> float:
    """What all collectives of a kind move in a step."""
    return sum(
        i.nbytes
        for chain in program.chains.values()
        for task in chain
        for i in task.template.instructions
        if isinstance(i, Meet) and i.kind == "dp" and i.name.startswith(work)
    )


def test_the_host_updates_adapters_only() -> None:
    away = {"sharding__strategy": "zero3", "sharding__offload": {"optimizer": "cpu", "parameters": "cpu"}}
    frozen = lower(scenario(**FLAT, **away, **SMALL).resolve()).system.programs[0].memory
    whole = lower(scenario(**FLAT, **away).resolve()).system.programs[0].memory
    assert frozen.weights == 0.0
    assert frozen.host < 0.3 * whole.host  # parameters in 16 bits, and next to no states


@pytest.mark.parametrize("strategy", ["ddp", "zero1", "fsdp"])
def test_frozen_experts_are_held_and_not_reduced(strategy: str) -> None:
    """A rank holds its share of the experts under adapters, however they are dealt: fsdp as much as with ep 1."""
    moe = {"model__moe": {"experts": 8, "top_k": 2, "expert_ffn_hidden": 64}, "model__ffn_hidden": 256}
    jobs = {ep: scenario(sharding__strategy=strategy, parallel={"ep": ep}, **moe, **SMALL).resolve() for ep in (1, 2)}
    program = {ep: lower(job).system.programs[0] for ep, job in jobs.items()}
    experts = 2.0 * jobs[1].model.layers * 8 * 3 * 64 * jobs[1].model.hidden  # bytes
    saved = 0.0 if strategy == "fsdp" else experts / 2
    assert program[1].memory.weights - program[2].memory.weights == pytest.approx(saved)
    assert _bytes(program[2], "reduce") == pytest.approx(_bytes(program[1], "reduce"))
