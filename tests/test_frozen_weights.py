"""Frozen weights that are stored in a type of their own: bytes, kernels that unpack them, what is sharded and sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.jobs import run_small, same_spans, scenario, small, torchtune
from trainsim.contracts.instructions import Kernel, Meet
from trainsim.errors import TrainsimError
from trainsim.models.frozen import UNPACKED, quantised
from trainsim.models.layers import layer_operations
from trainsim.models.linears import linears
from trainsim.models.operations import MemoryBound, Operation
from trainsim.models.reading import transformer
from trainsim.models.weight_types import WEIGHT_TYPES, weight_type
from trainsim.program.layer_work import style_for
from trainsim.program.lower import lower
from trainsim.program.parts import work_out
from trainsim.program.pieces import Piece
from trainsim.program.rank import RankPlan
from trainsim.scenario.scenario import Scenario
from trainsim.sharding.launches import shape_of

QUANTISED = [name for name in WEIGHT_TYPES.names() if weight_type(name).quantised]
ONE: dict[str, Any] = {"cluster": {"topology": "dgx_a100", "nodes": 1, "gpus_per_node": 1}, "parallel": {}}
FOUR: dict[str, Any] = {"cluster": {"topology": "dgx_a100", "nodes": 1, "gpus_per_node": 4}, "parallel": {}}


def lora(base_dtype: str | None = None, **more: Any) -> dict[str, Any]:
    stored = {} if base_dtype is None else {"base_dtype": base_dtype}
    return {"model__lora": {"rank": 16, "targets": ["q", "v"], **stored, **more}}


def weights(**changes: Any) -> float:
    plan = RankPlan(parts=work_out(small(**changes)), rank=0)
    return plan.states().weights


def test_a_quantised_parameter_takes_the_bits_of_its_paper() -> None:
    """4 bits, 8 / 64 for its scale and 32 / (64 x 256) for the scale of scales: 4.127 (arXiv 2305.14314, section 3)."""
    assert weight_type("nf4").bits_per_parameter == 4 + 8 / 64 + 32 / (64 * 256)
    assert weight_type("nf4").bits_per_parameter - 4 == pytest.approx(0.127, abs=5e-4)


@pytest.mark.parametrize("tp", [1, 2])
def test_bytes_by_hand(tp: int) -> None:
    """8 layers of hidden 1024, 16 heads and 8 of keys, MLP 2816: matrices in 4.127 bits, all else in 16."""
    matrices = 8 * (1024 * (1024 + 512 + 512 + 1024) + 3 * 1024 * 2816) // tp
    others = 2 * 32000 * 1024 // tp + 17 * 1024
    adapters = 8 * 16 * ((1024 + 1024 // tp) + (1024 + 512 // tp))
    changes = ONE | {"cluster__gpus_per_node": tp, "parallel": {"tp": tp}, "framework": "pytorch-fsdp2-bf16"}
    changes |= {"sharding__strategy": "ddp"}
    held = weights(**changes, **lora("nf4"))
    assert held == pytest.approx(matrices * (0.5 + 1 / 64 + 4 / (64 * 256)) + 2 * others + 2 * adapters, rel=1e-12)
    assert weights(**changes, **lora()) == 2 * (matrices + others + adapters)
    assert weights(**changes, **lora("fp32")) == 4 * (matrices + others) + 2 * adapters


@pytest.mark.parametrize("base_dtype", ["bf16", None])
def test_sixteen_bits_are_what_passes_use(base_dtype: str | None) -> None:
    assert scenario(**lora(base_dtype)).run().step_time == scenario(**lora()).run().step_time


def unpacking(pieces: Iterable[Piece], kind: str) -> float:
    return sum(p.seconds for p in pieces if isinstance(p, Kernel) and p.name.endswith(UNPACKED) and p.kind == kind)


@pytest.mark.parametrize("name", QUANTISED)
@pytest.mark.parametrize("recompute", ["none", "full", "selective"])
def test_matrices_are_unpacked_once_for_each_use(name: str, recompute: str) -> None:
    """Forward, backward, and in a forward that runs again."""
    parts = work_out(small(**ONE, **lora(name), training__recompute=recompute))
    block = parts.layers[-1]
    once = unpacking(block.forward, "forward")
    assert once > 0
    assert unpacking(block.backward, "backward") == pytest.approx(once)
    assert unpacking(block.backward, "recompute") == pytest.approx(once * (recompute == "full"))
    kind, stored = parts.job.model.kind, weight_type(name)
    moved = sum(stored.nbytes(w.outputs, w.inputs) + 2 * w.outputs * w.inputs for w in linears(kind, 1))
    bandwidth = parts.job.cluster.gpu.memory_bandwidth
    assert moved / bandwidth < once < 4 * moved / bandwidth + 7 * 1e-5, "not faster than the memory, nor far from it"


def operations(**changes: Any) -> tuple[Operation, ...]:
    job = small(**ONE, **changes)
    return layer_operations(job.model.kind, shape_of(job), style_for(job))


def unpacked_bytes(steps: Iterable[object]) -> float:
    return sum(w.nbytes for w in steps if isinstance(w, MemoryBound) and w.name.endswith(UNPACKED))


def test_of_a_product_that_runs_again_in_part_a_part_is_unpacked() -> None:
    """torchtitan's policy runs k of qkv again, the output of attention and w3, the half of fc1."""
    layer = operations(**lora("nf4"), training__recompute={"mode": "selective", "policy": "op"})
    again = sum(unpacked_bytes(o.again) for o in layer)
    kind = small().model.kind
    part = kind.kv_width / (kind.query_width + 2 * kind.kv_width)
    shares = {"qkv": part, "proj": 1.0, "fc1": 0.5, "fc2": 0.0}
    assert again == pytest.approx(sum(share * _of(layer, name) for name, share in shares.items()))


def _of(layer: Iterable[Operation], name: str) -> float:
    return sum(unpacked_bytes(o.forward) for o in layer if o.name == name)


@pytest.mark.parametrize("name", QUANTISED)
def test_one_matrix_at_a_time_is_there_in_sixteen_bits(name: str) -> None:
    largest = {"qkv": 1024 * 1024, "proj": 1024 * 1024, "fc1": 1024 * 2816, "fc2": 1024 * 2816}
    for stored, plain in zip(operations(**lora(name)), operations(**lora()), strict=True):
        there = 2 * largest.get(stored.name, 0)
        assert stored.transient - plain.transient == there
        assert stored.transient_forward - plain.transient_forward == there
        assert stored.saved == plain.saved


@pytest.mark.parametrize("strategy", ["fsdp", "hsdp"])
def test_quantised_weights_are_gathered_as_they_are_stored(strategy: str) -> None:
    def gathered(name: str | None) -> tuple[float, float]:
        program = lower(small(**FOUR, sharding__strategy=strategy, **lora(name))).system.programs[0]
        meets = {
            i.name: i.nbytes
            for chain in program.chains.values()
            for task in chain
            for i in task.template.instructions
            if isinstance(i, Meet) and i.operation == "all_gather"
        }
        return meets["gather unit 1"], program.memory.weights

    kind = transformer(small().model.to_dict()).kind
    elements = sum(w.outputs * w.inputs for w in linears(kind, 1))
    plain, packed, single = (gathered(name) for name in (None, "nf4", "fp32"))
    less = elements * (2 - weight_type("nf4").bits_per_parameter / 8)
    assert plain[0] - packed[0] == pytest.approx(less)
    assert plain[1] - packed[1] == pytest.approx(8 * less / 4)
    assert single[0] == plain[0], "gathered in the type of the passes"
    frozen = small().model.parameters
    assert single[1] - plain[1] == pytest.approx(2 * frozen / 4, rel=1e-3)


def test_single_precision_that_nobody_gathers_is_cast_and_the_copies_stay() -> None:
    plain, single = (work_out(small(**ONE, **lora(name))) for name in (None, "fp32"))
    elements = sum(w.outputs * w.inputs for w in linears(plain.job.model.kind, 1))
    assert single.layers[-1].saved - plain.layers[-1].saved == 2 * elements
    assert unpacking(single.layers[-1].forward, "forward") > 0
    assert unpacking(single.layers[-1].backward, "backward") == 0
    assert single.head.saved - plain.head.saved == 2 * 1024 * 32000


def with_adapters(base_dtype: str) -> Scenario:
    """torchtune's Llama-3.2-3B with LoRA on all linear layers but the keys', layers recomputed."""
    lora = {"rank": 8, "targets": ["q", "v", "o", "gate", "up", "down"], "base_dtype": base_dtype}
    return torchtune(model={"name": "llama-3.2-3b", "lora": lora}, training__recompute="full")


def test_qlora_saves_what_torchtune_measured() -> None:
    """torchtune's README: 8.5 GiB with LoRA, 4.6 GiB with QLoRA, all else alike; 3.90 GiB of weights."""
    plain, packed = (with_adapters(name).run().memory for name in ("bf16", "nf4"))
    assert (plain.needed - packed.needed) / 2**30 == pytest.approx(8.5 - 4.6, abs=0.1)


def test_unpacking_costs_little_of_a_long_step() -> None:
    plain, packed = (with_adapters(name).run().step_time for name in ("bf16", "nf4"))
    matrices = quantised(transformer(with_adapters("nf4").resolve().model.to_dict()).kinds, 1)
    least = 3 * (matrices.nbytes + 2 * matrices.elements) / 2.039e12  # forward, recomputation and backward
    assert least < packed - plain < 2 * least


@pytest.mark.parametrize("name", WEIGHT_TYPES.names())
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"parallel__sequence_parallel": True},
        {"training__tp_overlap": "userbuffers", "parallel__sequence_parallel": True},
        {"pipeline__schedule": "zb-h1"},
        FOUR | {"sharding__strategy": "fsdp", "sharding__overlap": True},
        FOUR | {"sharding__strategy": "zero2"},
        {"simulation__detail": "layer"},
    ],
    ids=str,
)
def test_it_folds_and_the_closed_form_agrees(name: str, changes: dict[str, Any]) -> None:
    folded, unfolded = (run_small(**lora(name), **changes, simulation__fold=fold).trace for fold in (True, False))
    assert same_spans(folded, unfolded)
    assert abs(scenario(**lora(name), **changes).run().estimate.difference) < 0.2


@pytest.mark.parametrize("name", WEIGHT_TYPES.names())
def test_it_is_read_back_and_told(name: str) -> None:
    one = scenario(**lora(name))
    again = Scenario.from_dict(one.resolved)
    assert again.resolve().model == one.resolve().model
    assert one.resolve().model.kind.lora is not None
    assert one.resolved["derived"]["model.lora.base_dtype"].startswith(name)


MOE = {"model__moe": {"experts": 8, "top_k": 2, "expert_ffn_hidden": 64}, "model__ffn_hidden": 256}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (lora("nf3"), "Did you mean 'nf4'"),
        (lora("nf4") | FOUR | {"sharding__strategy": "zero3"}, "gathers all parameters in one type.*fsdp"),
        (lora("fp32") | FOUR | {"sharding__strategy": "mics"}, "gathers all parameters in one type"),
        (lora("nf4") | {"training__precision": "fp8", "cluster__topology": "dgx_h100"}, "precision: bf16 would work"),
        (lora("bf16") | {"training__precision": "fp32"}, "precision: bf16 would work"),
        (lora("nf4") | MOE, "experts"),
        (
            lora("nf4")
            | FOUR
            | {"sharding": {"strategy": "fsdp", "offload": {"optimizer": "cpu", "parameters": "cpu"}}},
            "offload.parameters: none would work",
        ),
        (lora("nf4") | {"sharding__strategy": "fsdp", "framework": "pytorch-fsdp2"}, "pp=1"),
        ({"model__lora": {"rank": 8, "base_dtyp": "nf4"}}, "base_dtype"),
    ],
)
def test_what_cannot_be_is_told(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(TrainsimError, match=words):
        scenario(**changes).resolve()
