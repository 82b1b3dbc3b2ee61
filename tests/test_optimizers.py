"""Optimizers: data that adds up, and steps that take as long as what they move and compute."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import pytest

from tests.jobs import run_small, same_spans, scenario, small
from trainsim.contracts.groups import REPLICAS, TENSOR, Group, Within
from trainsim.contracts.instructions import Kernel, Meet
from trainsim.errors import InvalidPlan, NotBuilt, ScenarioError, UnknownName
from trainsim.models.counts import parameters_per_rank
from trainsim.models.known import model_names
from trainsim.models.linears import linears
from trainsim.models.matrices import Matrix, Tensors, expert_tensors, tensors
from trainsim.models.reading import load_model
from trainsim.optimizers import OPTIMIZERS, load_optimizer, optimizer_names
from trainsim.program.lower import lower
from trainsim.program.optimizer import newton_schulz, optimizer_step
from trainsim.program.parts import work_out
from trainsim.scenario.scenario import Scenario
from trainsim.sharding.parameter_groups import DENSE, Shards
from trainsim.sharding.plan import ShardingPlan

LAYER = tensors(load_model("llama-3-8b"), 1, load_model("llama-3-8b").kinds[:1])
MODEL = tensors(load_model("llama-3-8b"), 1, load_model("llama-3-8b").kinds, embedding=True, head=True)


def shared(ranks: int) -> ShardingPlan:
    """States of the optimizer, shared by so many *ranks*."""
    return ShardingPlan(reductions=(), shards={DENSE: Shards(optimizer=ranks)})


def step(rank: int = 0, shard: int = 1, **changes: Any) -> list[Kernel | Meet]:
    return list(optimizer_step(work_out(small(**changes)), rank, shared(shard)))


def seconds(some: list[Kernel | Meet]) -> float:
    return sum(i.seconds for i in some if isinstance(i, Kernel))


@pytest.mark.parametrize("name", optimizer_names())
def test_optimizers_are_complete(name: str) -> None:
    one = load_optimizer(name)
    assert one.name == name
    assert len(one.source) > 40
    assert one.state_bytes(MODEL) >= 0
    assert one.moved_bytes(MODEL) >= 14 * MODEL.total, "master copy, gradient and weight at least"


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("adam", 8, 8), ("adamw", 8, 8), ("sgd", 0, 0), ("sgd-momentum", 4, 4), ("adafactor", 0.001, 0.01),
     ("adam8bit", 2.03, 2.04), ("adam4bit", 1.06, 1.07), ("lion", 4, 4), ("lion8bit", 1.01, 1.02), ("muon", 4, 5)],
)  # fmt: skip
def test_bytes_of_states_per_parameter(name: str, low: float, high: float) -> None:
    assert low <= load_optimizer(name).state_bytes(MODEL) / MODEL.total <= high


def test_adafactor_keeps_a_row_and_a_column() -> None:
    """(rows + columns) / (rows x columns) x 4 bytes per parameter; vectors in full."""
    held = Tensors((Matrix(4096, 1024, 3),), (Matrix(32000, 4096, 1),), 100)
    assert load_optimizer("adafactor").state_bytes(held) == 4 * (3 * (4096 + 1024) + 32000 + 4096 + 100)


def test_adam8bit_has_two_scales_per_block() -> None:
    block = Tensors((Matrix(16, 16, 1),), (), 0)
    assert load_optimizer("adam8bit").state_bytes(block) == 2 * 256 + 2 * 4


def test_muon_keeps_one_momentum_for_matrices_only() -> None:
    held = Tensors((Matrix(10, 10, 1),), (Matrix(7, 10, 1),), 3)
    assert load_optimizer("muon").state_bytes(held) == 4 * 100 + 8 * (70 + 3)


@pytest.mark.parametrize("name", model_names())
@pytest.mark.parametrize("tp", [1, 2])
def test_tensors_add_up_to_the_parameters(name: str, tp: int) -> None:
    model = load_model(name)
    if model.heads % tp or model.ffn_hidden % tp:
        pytest.skip("does not divide")
    for layers, embedding, head in product((0, 3), (False, True), (False, True)):
        ends = {"embedding": embedding, "head": head}
        kinds = model.kinds[:layers]
        experts = expert_tensors(kinds, tp).total
        assert tensors(model, tp, kinds, **ends).total + experts == parameters_per_rank(model, tp, kinds, **ends)


def test_linears_are_cut_over_tensor_parallelism() -> None:
    whole, half = (linears(load_model("gpt-22b").kind, tp) for tp in (1, 2))
    for a, b in zip(whole, half, strict=True):
        assert a.outputs * a.inputs == 2 * b.outputs * b.inputs
        assert (a.outputs > b.outputs) == (a.parallel == "column")


def test_newton_schulz_flops() -> None:
    """4 s^2 l + 2 s^3 per iteration for a matrix with sides s <= l, either way round."""
    for rows, columns in ((1024, 4096), (4096, 1024)):
        work = newton_schulz(Matrix(rows, columns, 1))
        assert sum(w.flops for w in work) == 4 * 1024**2 * 4096 + 2 * 1024**3


@pytest.mark.parametrize("name", optimizer_names())
@pytest.mark.parametrize("framework", ["neutral", "megatron-core", "pytorch-fsdp1"])
def test_traffic_is_relative_to_adam(name: str, framework: str) -> None:
    """The profile's fitted number is Adam's; others move what they move of it."""
    change = {"framework": framework, "training__optimizer": name}
    assert load_optimizer(name).traffic(LAYER) * load_optimizer("adam").moved_bytes(LAYER) == pytest.approx(
        load_optimizer(name).moved_bytes(LAYER)
    )
    own, adam = seconds(step(**change)), seconds(step(framework=framework))
    if name in ("adam", "adamw", "paged-adam"):
        assert own == adam
    elif name not in ("adafactor", "muon"):
        assert own < adam
    else:
        assert own > adam


@pytest.mark.parametrize("name", optimizer_names())
def test_only_states_made_like_parameters_follow_their_type(name: str) -> None:
    """In pure bf16 Adam of PyTorch keeps 16-bit states; 8-bit Adam keeps what it keeps under fp32 weights."""
    one = load_optimizer(name)
    sizes = [
        run_small(framework=framework, training__optimizer=name).programs[0].memory.optimizer
        for framework in ("pytorch-fsdp2", "pytorch-fsdp2-bf16")
    ]
    assert sizes[1] == pytest.approx(sizes[0] * (1.0 if one.own_types else 0.5))
    low, full = (one.moved_bytes(LAYER, like=like) * like for like in (0.5, 1.0))
    assert (low > full / 2) if one.own_types and one.state_bytes(LAYER) > LAYER.total else (low >= full / 2)


@pytest.mark.parametrize(
    ("model", "name", "gib"),
    [("llama-3.2-3b", "adam8bit", 6.08), ("llama-3-8b", "adam8bit", 15.19), ("llama-3.2-3b", "adamw", 11.97)],
)
def test_states_under_pure_bf16(model: str, name: str, gib: float) -> None:
    """2 x 1 byte and two scales per 256 values, of 3.21 and 8.03 billion parameters (arXiv 2110.02861, section 2)."""
    given = {
        "model": model,
        "framework": "pytorch-fsdp2-bf16",
        "cluster": {"topology": "dgx_a100", "nodes": 1, "gpus_per_node": 1},
        "training": {"optimizer": name, "sequence_length": 512},
    }
    assert Scenario.from_dict(given).run().memory.fullest.part("optimizer") / 2**30 == pytest.approx(gib, rel=2e-3)


@pytest.mark.parametrize("name", optimizer_names())
def test_frameworks_names_are_names_too(name: str) -> None:
    others = OPTIMIZERS.aliases()[name]
    assert all(load_optimizer(other) == load_optimizer(name) for other in others)
    assert all(OPTIMIZERS.written(other) == name for other in others)
    assert not set(others) & set(optimizer_names())


def test_no_two_optimizers_share_a_name() -> None:
    every = [other for others in OPTIMIZERS.aliases().values() for other in others]
    assert len(every) == len(set(every)) > 20


def test_adam_moves_what_the_profile_says() -> None:
    parts = work_out(small())
    held, framework = parts.holdings.trained(0).total, parts.job.framework
    moved = framework.kernels.optimizer_bytes_per_parameter / 4 + framework.kernels.gradient_copy_bytes_per_parameter
    assert list(optimizer_step(parts, 0, shared(4))) == [parts.blocks.traffic("optimizer", moved * held, "optimizer")]


def test_muon_gathers_momenta_where_they_are_shared() -> None:
    """2 bytes per parameter of the matrices over the replicas, and of the whole ones over the tensor-parallel group."""
    parts = work_out(small(training__optimizer="muon"))
    matrices = sum(m.elements for m in parts.holdings.trained(1).matrices)
    meets = [i for i in optimizer_step(parts, 1, shared(2)) if isinstance(i, Meet)]
    assert [(m.communicator, m.operation, m.nbytes) for m in meets] == [
        (REPLICAS, "all_gather", 2 * matrices),
        (TENSOR, "all_gather", 2 * matrices * 2 / 2),
    ]
    alone = [i for i in optimizer_step(parts, 1, shared(1)) if isinstance(i, Meet)]
    assert [m.communicator for m in alone] == [TENSOR]


@pytest.mark.parametrize(
    ("sharding", "group"),
    [({"strategy": "zero1", "instances": 2}, REPLICAS.only(Within(4))), ({"strategy": "fsdp"}, REPLICAS),
     ({"strategy": "hsdp", "shard_size": 2}, REPLICAS.only(Within(2)))],
)  # fmt: skip
def test_muon_gathers_among_those_who_share(sharding: dict[str, Any], group: Group) -> None:
    change = {"training__optimizer": "muon", "parallel": {"tp": 2, "pp": 1}, "sharding": sharding}
    parts = work_out(small(**change))
    meets = [i for i in optimizer_step(parts, 0, parts.sharding(0)) if isinstance(i, Meet)]
    assert [m.communicator for m in meets] == [group, TENSOR]
    assert scenario(**change).run().step_time > 0


def test_muon_shares_the_matrices_out() -> None:
    """Twice the ranks do half each, until one matrix is all that is left for one."""
    alone, two, many, more = (
        next(i.seconds for i in step(1, shard, training__optimizer="muon") if i.name == "newton-schulz")
        for shard in (1, 2, 1000, 2000)
    )
    assert alone == pytest.approx(2 * two)
    assert two > many == more > 0


def test_muon_costs_more_than_adam_in_a_run() -> None:
    adam, muon = (scenario(training__optimizer=name).run() for name in ("adam", "muon"))
    assert muon.breakdown["optimizer"] > adam.breakdown["optimizer"]
    assert muon.step_time > adam.step_time
    assert muon.memory.peak < adam.memory.peak


def test_unknown_optimizers_name_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'adamw'"):
        load_optimizer("adamww")
    with pytest.raises(ScenarioError, match=r"training.optimizer = 'adamx'.*Did you mean"):
        scenario(training__optimizer="adamx").resolve()


def test_smaller_sums_are_added_with_less_traffic() -> None:
    """A bf16 gradient into an fp32 sum moves 2 + 4 + 4 bytes per parameter, into a bf16 sum 2 + 2 + 2."""
    base = {"framework": "neutral"}
    own, full, low = (
        work_out(small(**base, **change)).layers[0].backward_seconds
        for change in ({}, {"training__accumulation_dtype": "fp32"}, {"training__accumulation_dtype": "bf16"})
    )
    assert own == full > low


@pytest.mark.parametrize(
    ("precision", "dtype", "wrong"),
    [("bf16", "bf16", False), ("bf16", "fp32", False), ("bf16", "fp16", True), ("fp16", "bf16", True),
     ("fp16", "fp16", False), ("fp32", "bf16", True), ("fp32", "fp32", False)],
)  # fmt: skip
def test_sums_are_in_fp32_or_the_training_precision(precision: str, dtype: str, wrong: bool) -> None:
    one = scenario(training__precision=precision, training__accumulation_dtype=dtype)
    if wrong:
        with pytest.raises(ScenarioError, match="accumulation_dtype"):
            one.resolve()
    else:
        assert one.resolve().training.accumulation_dtype == dtype


FP16 = {"training__precision": "fp16", "framework": "megatron-2021", "simulation__steps": 2}
SKIPPED = {"what_if": [{"skip": {"step": 0}}]}


def labels(step: int, **changes: Any) -> Counter[str]:
    """Names of all collectives and of what the optimizer does on rank 0, of one of two steps."""
    program = lower(small(**changes)).system.programs[0]
    found: Counter[str] = Counter()
    for chain in program.chains.values():
        for task in (t for t in chain if t.microbatch == step and t.template.work in ("update", "gather")):
            found.update(i.name for i in task.template.instructions if isinstance(i, Meet | Kernel))
    return found


@pytest.mark.parametrize("overlap", [False, True])
def test_a_skipped_step_reduces_and_agrees_and_does_no_more(overlap: bool) -> None:
    change = {"sharding__overlap": overlap, "framework": "megatron-core" if overlap else "megatron-2021"}
    whole, skipped = (labels(0, **{**FP16, **change, **other}) for other in ({}, SKIPPED))
    assert whole["optimizer"] == whole["gradient norm"] == whole["overflow check"] == 1
    assert skipped["optimizer"] == skipped["gradient norm"] == 0
    assert skipped["overflow check"] == 2, "the pass over the gradients, and the all-reduce"
    reduces, kept = ({n: c for n, c in some.items() if n.startswith("reduce")} for some in (whole, skipped))
    assert reduces == kept
    late = 1 if overlap else 0  # gathers under the next forward pass are those of its step
    before, after = (labels(late, **{**FP16, **change, **other}) for other in ({}, SKIPPED))
    assert sum(c for n, c in before.items() if n.startswith("gather")) > 0
    assert not any(n.startswith("gather") for n in after)


@pytest.mark.parametrize("framework", ["megatron-2021", "megatron-core", "deepspeed"])
def test_a_skipped_step_is_shorter(framework: str) -> None:
    change = {**FP16, "framework": framework}
    whole, skipped = (scenario(**{**change, **other}).run() for other in ({}, SKIPPED))
    assert skipped.step_time < whole.step_time
    assert skipped.breakdown["optimizer"] < whole.breakdown["optimizer"]
    assert skipped.breakdown["compute"] == pytest.approx(whole.breakdown["compute"], rel=1e-2)
    assert skipped.estimate.seconds < whole.estimate.seconds


def test_only_steps_that_are_run_can_be_skipped() -> None:
    with pytest.raises(ScenarioError, match=r"what_if.0.skip.step.*there are 2 steps"):
        scenario(**FP16, what_if=[{"skip": {"step": 2}}]).resolve()
    with pytest.raises(InvalidPlan, match="with a flush"):
        scenario(pipeline__schedule="pipedream", sharding__strategy="ddp", what_if=[{"skip": {"step": 0}}]).resolve()


def test_a_step_whose_update_runs_beside_the_passes_is_not_skipped() -> None:
    skip = {"what_if": [{"skip": {"step": 0}}], "framework": "neutral", "sharding__strategy": "zero1"}
    offload = {"optimizer": "cpu"}
    assert scenario(sharding__offload=offload, **skip).run().step_time > 0
    with pytest.raises(NotBuilt, match=r"skip.*delayed_update"):
        scenario(sharding__offload={**offload, "delayed_update": True}, **skip).resolve()


def test_a_skipped_step_folds() -> None:
    folded, every = (run_small(**FP16, **SKIPPED, simulation__fold=fold).trace for fold in (True, False))
    assert same_spans(folded, every)


def test_the_host_runs_adam_only() -> None:
    with pytest.raises(NotBuilt, match=r"training.optimizer = 'muon'.*adam and adamw"):
        scenario(training__optimizer="muon", sharding__offload={"optimizer": "cpu"}).resolve()
