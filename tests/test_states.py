"""What a rank holds of the model: the bytes per parameter that each framework is known to keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from tests.jobs import run_small, scenario, small
from trainsim.contracts.job import Job
from trainsim.frameworks import framework_names, load_framework
from trainsim.optimizers import load_optimizer, optimizer_names
from trainsim.program.parts import work_out
from trainsim.program.rank import RankPlan
from trainsim.program.states import States, states
from trainsim.sharding.parameter_groups import ChunkParameters, Held, ParameterGroup, Shards

P = 1_000_000  # parameters of a rank
SHARES = (2, 8, 64)
WHOLE = {"optimizer": 1}


def all_shared(n: int) -> dict[str, int]:
    return {"optimizer": n, "gradients": n, "weights": n}


class Row(NamedTuple):
    """``resident`` bytes per parameter, and above them ``step`` in the update."""

    framework: str
    precision: str
    shares: Callable[[int], dict[str, int]]
    resident: Callable[[int], float]
    step: Callable[[int], float] = lambda n: 0.0
    training: Mapping[str, Any] = MappingProxyType({})


def none(n: int) -> dict[str, int]:
    return {}


def optimizer(n: int) -> dict[str, int]:
    return {"optimizer": n}


def gradients(n: int) -> dict[str, int]:
    return {"optimizer": n, "gradients": n}


ROWS = {
    "DDP in fp32, with its buckets": Row("pytorch-ddp", "fp32", none, lambda n: 16 + 4, lambda n: 4),
    "DDP under autocast": Row("pytorch-ddp", "bf16", none, lambda n: 16 + 4 + 2, lambda n: 4),
    "Megatron-LM fp16": Row("megatron-2021", "fp16", none, lambda n: 20),
    "Megatron-LM fp16, distributed optimizer": Row("megatron-2021", "fp16", optimizer, lambda n: 4 + 16 / n),
    "Megatron-LM bf16": Row("megatron-core", "bf16", none, lambda n: 18),
    "Megatron-LM bf16, distributed optimizer": Row("megatron-core", "bf16", optimizer, lambda n: 6 + 12 / n),
    "Megatron-LM --grad-reduce-in-bf16": Row("nemo", "bf16", optimizer, lambda n: 4 + 16 / n),
    "the same by the scenario": Row(
        "megatron-core", "bf16", optimizer, lambda n: 4 + 16 / n, training={"accumulation_dtype": "bf16"}
    ),
    "Megatron-LM fp32": Row("megatron-core", "fp32", optimizer, lambda n: 8 + 8 / n),
    "Megatron-LM tf32": Row("megatron-core", "tf32", optimizer, lambda n: 8 + 8 / n),
    "DeepSpeed ZeRO-1 bf16": Row("deepspeed", "bf16", optimizer, lambda n: 4 + 12 / n, lambda n: 4 / n),
    "DeepSpeed ZeRO-1 fp16": Row("deepspeed", "fp16", optimizer, lambda n: 4 + 12 / n, lambda n: 4 / n),
    "DeepSpeed BF16_Optimizer": Row("megatron-deepspeed-2022", "bf16", optimizer, lambda n: 8 + 12 / n),
    "DeepSpeed ZeRO-2": Row(
        "deepspeed", "bf16", gradients, lambda n: 2 + 14 / n, lambda n: 4 / n, training={"microbatches": 1}
    ),
    "DeepSpeed ZeRO-2, accumulating": Row(
        "deepspeed", "bf16", gradients, lambda n: 2 + 16 / n, lambda n: 4 / n, training={"microbatches": 4}
    ),
    "DeepSpeed ZeRO-3": Row("deepspeed", "bf16", all_shared, lambda n: 16 / n, lambda n: 4 / n),
    "FSDP1": Row("pytorch-fsdp1", "bf16", all_shared, lambda n: 16 / n, lambda n: 4 / n),
    "FSDP2": Row("pytorch-fsdp2", "bf16", all_shared, lambda n: 16 / n),
    "FSDP2, all bf16": Row("pytorch-fsdp2-bf16", "bf16", all_shared, lambda n: 8 / n),
    "llm-foundry on FSDP": Row("llm-foundry", "bf16", all_shared, lambda n: 16 / n),
    "MLPerf, weights in fp8 twice": Row("mlperf", "fp8", optimizer, lambda n: 4 + 12 / n),
    "today's common ground": Row("neutral", "bf16", optimizer, lambda n: 6 + 12 / n),
}
"""Sources: Megatron-LM docs/source/api-guide/dist_optimizer.md and distrib_optimizer.py; DeepSpeed
stage_1_and_2.py, bf16_optimizer.py, stage3.py; PyTorch's FSDP documentation; Rajbhandari et al. 2020; ZeRO++
(arXiv 2306.10209)."""


def job(framework: str, precision: str, **changes: Any) -> Job:
    base, training = small(), dict(changes.get("training", {}))
    if "optimizer" in training:
        training["optimizer"] = load_optimizer(training["optimizer"])
    return replace(
        base,
        framework=load_framework(framework, precision),
        sharding=replace(base.sharding, **changes.get("sharding", {})),
        training=replace(base.training, precision=precision, **training),
    )


def held(one: Job, shares: dict[str, int], trainable: int = P) -> States:
    return states(one, groups(shares, trainable, P))


def groups(shares: dict[str, int], trainable: int, parameters: int) -> list[Held]:
    """Parameters that are trained and parameters that are not, shared alike."""
    shards = Shards(**shares)
    return [
        Held(ParameterGroup(name=name, chunks=(ChunkParameters(0, (count,), 0),), replicas=64, trained=trained), shards)
        for name, count, trained in (("dense", trainable, True), ("frozen", parameters - trainable, False))
    ]


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("n", SHARES)
def test_bytes_per_parameter(name: str, n: int) -> None:
    row = ROWS[name]
    found = held(job(row.framework, row.precision, training=row.training), row.shares(n))
    assert found.resident / P == pytest.approx(row.resident(n))
    assert found.step_transient / P == pytest.approx(row.step(n))


@pytest.mark.parametrize("framework", framework_names())
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "fp8", "mxfp8"])
@pytest.mark.parametrize("optimizer_name", optimizer_names())
def test_sharing_divides_each_part_by_itself(framework: str, precision: str, optimizer_name: str) -> None:
    one = job(framework, precision, training={"optimizer": optimizer_name})
    alone, shared = held(one, WHOLE), held(one, {"optimizer": 8})
    assert alone.optimizer == pytest.approx(8 * shared.optimizer)
    assert alone.weights == shared.weights
    assert alone.gradients == shared.gradients
    assert held(one, all_shared(8)).resident < shared.resident


def test_a_sub_group_bounds_the_cast() -> None:
    """Stage 3 casts 1e9 gradients at once; stage 1, all of the shard."""
    one, parameters = job("deepspeed", "bf16"), 40 * 10**9
    for shares, cast in ((all_shared(8), 1e9), (optimizer(8), 5e9)):
        found = states(one, groups(shares, parameters, parameters))
        assert found.step_transient == 4 * cast


def test_fp8_keeps_linear_layers_twice_more() -> None:
    """Transformer Engine's copies are of the layers' matrices, not of the embedding or the norms; mxfp8 has scales."""
    plain, one, scaled = (held(job("megatron-core", p), WHOLE).weights for p in ("bf16", "fp8", "mxfp8"))
    extra = one - plain
    assert (scaled - plain) / extra == pytest.approx(33 / 32)
    h, keys, ffn, layers, table = 1024, 512, 2816, 8, 32000 * 1024
    linear = layers * (2 * h * h + 2 * h * keys + 3 * h * ffn)
    assert extra == pytest.approx(2 * P * linear / (linear + 2 * table), rel=0.002)


def test_frozen_parameters_are_held_in_16_bits_and_no_more() -> None:
    for framework in ("megatron-core", "pytorch-ddp", "deepspeed", "pytorch-fsdp2"):
        found = held(job(framework, "bf16"), WHOLE, trainable=0)
        assert found == States(weights=2 * P, gradients=0, optimizer=0)


@pytest.mark.parametrize("changes", [{}, {"model__tied_embeddings": True}, {"pipeline__vocabulary_parallel": True}])
def test_the_tensors_of_a_rank_are_its_parameters(changes: dict[str, Any]) -> None:
    parts = work_out(small(**changes))
    for rank in range(4):
        assert parts.holdings.trained(rank).total == RankPlan(parts=parts, rank=rank).parameters


def test_a_run_holds_what_the_states_say() -> None:
    """Pipeline ranks hold their own parts; the update is where temporaries of the step are."""
    result = run_small(framework="deepspeed")
    parts = result.plan.parts
    for rank, program in enumerate(result.plan.system.programs):
        said = RankPlan(parts=parts, rank=rank).states()
        assert program.memory.weights == 2 * program.parameters == said.weights
        assert program.memory.optimizer == 12 * program.parameters / 2
        update = program.chains["compute"][-1].template
        taken = [hold.nbytes for _, hold in update.holds if hold.category == "temporary"]
        assert taken == [said.step_transient, -said.step_transient]
        assert said.step_transient == 4 * program.parameters / 2


def test_a_run_of_fsdp_holds_its_shards() -> None:
    """4 bytes of parameters, 4 of gradients (FSDP1: from the first reduction to the update) and 8 of states, over 16
    ranks; all else comes and goes."""
    for framework, kept in (("pytorch-fsdp1", 0), ("pytorch-fsdp2", 4)):
        changes = {"framework": framework, "parallel": {"tp": 1, "pp": 1}, "sharding": {"strategy": "fsdp"}}
        (program,) = run_small(**changes).plan.system.programs
        held = program.memory
        each = program.parameters / 16
        assert (held.weights, held.gradients, held.optimizer) == (4 * each, kept * each, 8 * each)
        assert held.gathered == 0


def test_a_state_costs_what_its_optimizer_says() -> None:
    adam = held(job("megatron-core", "bf16"), WHOLE)
    for name in optimizer_names():
        other = held(job("megatron-core", "bf16", training={"optimizer": name}), WHOLE)
        assert (other.weights, other.gradients) == (adam.weights, adam.gradients)
        assert other.optimizer >= 4 * P, "the master copy stays"
        if name == "sgd":
            assert other.optimizer == 4 * P
        assert (other.optimizer < adam.optimizer) == (name not in ("adam", "adamw", "paged-adam"))


def levels(**changes: Any) -> dict[str, float]:
    """The most bytes per parameter of each category that a rank of 16 replicas holds."""
    result = scenario(parallel={"tp": 1, "pp": 1}, **changes).run()
    (program,) = result.simulation.programs
    (stage,) = result.memory.per_stage
    return {category: float(held.max()) / program.parameters for category, held in stage.levels.items()}


def test_weights_that_stay_whole_for_the_backward() -> None:
    """SHARD_GRAD_OP: 2 + 16/N; without synchronisation 4 more, for sums of gradients that are not reduced yet."""
    base = {"framework": "pytorch-fsdp1", "training__global_batch": 32}
    kept = levels(**base, sharding={"strategy": "fsdp", "reshard_after_forward": False})
    assert kept["gathered"] == pytest.approx(2)
    late = levels(**base, sharding={"strategy": "fsdp", "reshard_after_forward": False, "sync": "last"})
    assert late["gradients"] == pytest.approx(4 + 4 / 16, rel=0.35), "the last unit's in 16 bits beside them"
    assert late["gradients"] >= 4 + 4 / 16
    for held in (kept, late):
        assert held["weights"] + held["optimizer"] == pytest.approx(12 / 16)


def test_a_secondary_partition_is_held_besides() -> None:
    """hpZ: 2 more bytes per parameter, over the ranks of a node."""
    base = {"framework": "deepspeed", "training__global_batch": 16}
    plain = levels(**base, sharding={"strategy": "zero3"})
    second = levels(**base, sharding={"strategy": "zero3", "secondary_partition": 8})
    assert plain["weights"] == pytest.approx(2 / 16)
    assert second["weights"] == pytest.approx(2 / 16 + 2 / 8, rel=1e-3)
    assert plain["optimizer"] == second["optimizer"] == pytest.approx(12 / 16)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1", "interleaved-1f1b", "dualpipe"])
def test_fresh_gradients_come_with_the_first_backward_and_go_with_the_update(schedule: str) -> None:
    """``set_to_none``: between steps there are none; a second microbatch finds those of the first."""
    changes = {"framework": "pytorch-ddp", "pipeline__schedule": schedule, "sharding__strategy": "ddp"}
    changes |= {"pipeline__chunks": 2} if schedule == "interleaved-1f1b" else {}
    result = scenario(**changes, simulation__steps=2).run()
    for stage in result.memory.per_stage:
        level = stage.levels["gradients"]
        kept = level[0]  # the buckets that are sent
        assert level[-1] == pytest.approx(kept)
        assert level.max() == pytest.approx(2 * kept)
        assert level.min() >= kept * (1 - 1e-9)


def test_one_microbatch_has_its_gradients_after_its_activations() -> None:
    peaks = []
    for batch in (1, 2):
        base = {"framework": "transformers", "parallel": {"tp": 1, "pp": 1, "dp": 16}, "sharding__strategy": "ddp"}
        stage = scenario(**base, training__global_batch=16 * batch).run().memory.fullest
        peaks.append(stage.peak)
        most = stage.levels["gradients"].max()
        assert (stage.part("gradients") == 0.0) == (batch == 1)
    assert peaks[1] == pytest.approx(peaks[0] + most * 1.05, rel=0.02)
