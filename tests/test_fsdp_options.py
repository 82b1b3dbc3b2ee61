"""Options of fully sharded data parallelism: units, gathers ahead and without a limit, types on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.jobs import scenario
from trainsim.cli import app
from trainsim.errors import InvalidPlan, ScenarioError
from trainsim.models.layers import style_of
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario
from trainsim.sharding.fsdp_units import units
from trainsim.sharding.launches import launches_of, shape_of
from trainsim.sharding.run_ahead import run_ahead

N = 16
PLAIN: Mapping[str, Any] = {"parallel": {"tp": 1, "pp": 1}, "training__global_batch": N}
SOFTWARE = ("pytorch-fsdp1", "pytorch-fsdp2", "megatron-fsdp")


def sharded(framework: str = "pytorch-fsdp2", *, strategy: str = "fsdp", **changes: object) -> Scenario:
    """The small job on 16 GPUs; keys without a section are those of sharding."""
    keys = {key if "__" in key or key == "parallel" else f"sharding__{key}": value for key, value in changes.items()}
    return scenario(framework=framework, sharding__strategy=strategy, **{**PLAIN, **keys})


@cache
def run(framework: str = "pytorch-fsdp2", **changes: Any) -> Result:
    return sharded(framework, **changes).run()


def most(one: Result, category: str) -> float:
    return float(one.memory.fullest.levels[category].max())


def passing(one: Result) -> float:
    """The most bytes at once of what comes and goes with units."""
    levels = one.memory.fullest.levels
    return float(np.max(levels["gathered"] + levels["buffers"] + levels["gradients"]))


def held(one: Result) -> tuple[int, int]:
    """Elements of the whole model, and of embedding and head."""
    model = one.job.model
    return model.parameters, model.parameters - model.layers * model.kind.parameters


# units


@pytest.mark.parametrize("kind", ["layers", "layers_and_embeddings", "model", 1, 2, 3, 5, 8])
@pytest.mark.parametrize("framework", SOFTWARE)
def test_units_are_the_model_once(framework: str, kind: str | int) -> None:
    job = sharded(framework, units=kind).resolve()
    every = units(job)
    assert sum(unit.elements for unit in every) == sum(unit.trained for unit in every) == job.model.parameters
    assert len({unit.name for unit in every}) == len(every)
    layers = job.model.layers
    count = {"layers": layers + 1, "layers_and_embeddings": layers + 2, "model": 1}
    assert len(every) == (count[kind] if isinstance(kind, str) else -(-layers // kind) + 1)
    if kind == 1:
        assert every == units(sharded(framework, units="layers").resolve())


@pytest.mark.parametrize("framework", SOFTWARE)
def test_larger_units_hold_more_and_send_as_much(framework: str) -> None:
    """Law: memory grows with the layers of a unit, and what is sent is the same but for what need not come back."""
    by_size = [run(framework, units=size) for size in (1, 2, 4, 8)]
    levels = [passing(one) for one in by_size]
    assert levels == sorted(levels)
    assert levels[0] < levels[-1] / 1.5
    whole, root = held(by_size[0])
    share = (N - 1) / N
    for one in by_size:
        assert one.communication["dp"].bytes_per_rank == pytest.approx(
            (2 * whole + 2 * (whole - root) + 4 * whole) * share, rel=1e-6
        )
    at_once = run(framework, units="model")
    assert at_once.communication["dp"].bytes_per_rank == pytest.approx((2 + 4) * whole * share, rel=1e-6)
    assert most(at_once, "gathered") == 2 * whole


def test_one_unit_is_gathered_and_reduced_at_once() -> None:
    """Nothing runs under anything: a step waits for the whole gather, and for the whole reduction."""
    one = run(units="model", training__global_batch=N)
    frame = one.timeline([0])
    sent = frame[(frame["stream"] == "dp") & frame["name"].isin(["gather model", "reduce model"])]
    assert sorted(sent["name"]) == ["gather model", "reduce model"]
    forward, backward = (frame[frame["kind"] == kind] for kind in ("forward", "backward"))
    assert sent.loc[sent["name"] == "gather model", "end"].item() <= forward["start"].min()
    assert sent.loc[sent["name"] == "reduce model", "start"].item() >= backward["end"].max()


def test_embedding_and_head_of_their_own() -> None:
    """The embedding is given back after its forward and comes again for its backward, as FSDP2 does it."""
    apart, root = run(units="layers_and_embeddings"), run()
    _, both = held(root)
    table = root.job.model.hidden * root.job.padded_vocab
    extra = apart.communication["dp"].bytes_per_rank - root.communication["dp"].bytes_per_rank
    assert extra == pytest.approx(2 * table * (N - 1) / N, rel=1e-6)
    assert most(apart, "gathered") < most(root, "gathered")
    first = run("pytorch-fsdp1", units="layers_and_embeddings").communication["dp"].bytes_per_rank
    again = run("pytorch-fsdp1").communication["dp"].bytes_per_rank
    assert first - again == pytest.approx(2 * both * (N - 1) / N, rel=1e-6), "FSDP1 gives the head back too"


def test_one_matrix_is_in_one_unit() -> None:
    tied = {"model__tied_embeddings": True}
    one, root = run(units="layers_and_embeddings", **tied), run(**tied)
    assert one.step_time == root.step_time
    assert "one matrix" in one.scenario["derived"]["sharding.units"]


@pytest.mark.parametrize(("framework", "part"), [("pytorch-fsdp2", 0.0), ("pytorch-fsdp1", 1.0)])
def test_frozen_and_trained_parameters_in_one_unit(framework: str, part: float) -> None:
    """FSDP2 has gradients of adapters alone; the flat parameter of FSDP1 is one tensor, and has all (huggingface/
    accelerate issues 3474 and 3844, transformers issue 39795: one unit with frozen weights takes much memory)."""
    lora = {"model__lora": {"rank": 8, "targets": ["q", "v"]}}
    one = run(framework, units="model", **{k: _frozen(v) for k, v in lora.items()})
    whole, adapters = one.job.model.parameters, 8 * 8 * (2 * 1024 + 1024 + 512)
    assert most(one, "gathered") == pytest.approx(2 * (whole + adapters), rel=1e-6)
    trained = adapters + part * whole
    assert most(one, "buffers") == pytest.approx(max(4 * trained, 2 * (whole + adapters) * (1 - part)), rel=1e-6)


def _frozen(value: Any) -> Any:
    return _Hashed(value)


class _Hashed(dict[str, Any]):
    """A mapping that can be a key of a cache."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(str(self))


# gathers ahead


def test_gathers_ahead_take_memory() -> None:
    """Law: the more units ahead, the more buffers, and the same bytes."""
    fast = {"training__sequence_length": 4096}  # the network is ahead of the layers
    for option in ("forward_prefetch", "backward_prefetch"):
        by_count = [run(**{option: count}, **fast) for count in (1, 2, 4)]
        levels = [passing(one) for one in by_count]
        assert levels == sorted(levels)
        assert len({one.communication["dp"].bytes_per_rank for one in by_count}) == 1
    assert run(backward_prefetch=1).step_time == run(backward_prefetch="pre").step_time == run().step_time
    assert run(forward_prefetch=True).step_time == run(forward_prefetch=False).step_time == run().step_time


def test_nothing_is_gathered_before_its_pass() -> None:
    fast = {"training__sequence_length": 4096}  # the host is ahead of the layers
    one = run(forward_prefetch=100, backward_prefetch=100, **fast)
    assert one.step_time <= run(**fast).step_time * 1.01
    assert most(one, "buffers") <= 2 * 2 * one.job.model.parameters


# limit_all_gathers


@pytest.mark.parametrize(
    "changes", [{}, {"reshard_after_forward": False}, {"sync": "last", "training__global_batch": 3 * N}]
)
@pytest.mark.parametrize("units_of", ["layers", 2, "model"])
def test_without_a_limit_never_less_memory_and_never_other_bytes(units_of: str | int, changes: dict[str, Any]) -> None:
    limited, free = (
        run("pytorch-fsdp1", units=units_of, limit_all_gathers=limit, **changes) for limit in (True, False)
    )
    assert most(free, "gathered") >= most(limited, "gathered")
    assert free.communication["dp"].bytes_per_rank == limited.communication["dp"].bytes_per_rank
    assert free.memory.fullest.levels["gathered"][-1] == limited.memory.fullest.levels["gathered"][-1] == 0


@pytest.mark.parametrize("kernels", [10, 50, 120])
def test_as_many_units_as_kernels_can_be_queued(kernels: int) -> None:
    """400 launches of 100 kernels per layer are 4 layers: those, the one that is computed, and the root are held."""
    host = {
        "base": "pytorch-fsdp1",
        "host": {"operations_forward": kernels, "operations_backward": 1000, "launch_queue": 400},
    }
    one = sharded("pytorch-fsdp1", limit_all_gathers=False).replace({"framework": host}).run()
    layers, (_, root) = one.job.model.layers, held(one)
    shape, style = shape_of(one.job), style_of(one.job.framework, one.job.training.attention)
    launched = launches_of(one.job, one.job.model.kind, shape, style)["forward"]
    assert launched >= kernels, "those of the profile, and what nothing fuses"
    there = min(layers, -(-400 // launched) + 1)
    assert most(one, "gathered") == pytest.approx(2 * (root + there * one.job.model.kind.parameters), rel=1e-6)


def test_a_host_that_cannot_run_ahead() -> None:
    blocking = {"base": "pytorch-fsdp1", "host": {"blocking": True}}
    job = sharded(limit_all_gathers=False).replace({"framework": blocking}).resolve()
    assert run_ahead(job).queue == 0


COOKBOOK = {True: 20.20e9, False: 25.86e9}
"""Peak active memory with and without limit_all_gathers: meta-llama/llama-cookbook pull request 41, Llama-2-7B with
adapters, FSDP on 4 A100 of 40 GB; batches of 4 x 2048 and checkpointing are that repository's defaults of the time."""


def test_the_published_cost_of_no_limit() -> None:
    base: dict[str, Any] = {
        "framework": {"base": "transformers", "communication": {"fsdp": "fsdp1"}},
        "model": {"name": "llama-2-7b", "lora": {"rank": 8, "targets": ["q", "v"]}},
        "cluster": {"topology": "dgx_a100", "nodes": 1, "gpus_per_node": 4, "gpu": "a100-sxm4-40gb"},
        "training": {
            "sequence_length": 2048,
            "micro_batch": 4,
            "global_batch": 16,
            "recompute": "full",
            "optimizer": "adamw",
            "attention": "eager",
            "autocast": False,
        },
    }
    peaks = {}
    for limit in COOKBOOK:
        one = Scenario.from_dict(base | {"sharding": {"strategy": "fsdp", "limit_all_gathers": limit}}).run()
        levels = one.memory.fullest.levels
        peaks[limit] = float(np.max(sum(level for name, level in levels.items() if name not in ("slack", "framework"))))
    assert peaks[False] - peaks[True] == pytest.approx(COOKBOOK[False] - COOKBOOK[True], rel=0.25)


# gather_dtype


def test_eight_bits_of_linear_layers() -> None:
    """1 byte of each weight of a layer's linear layers, 2 of the rest, on the wire and gathered."""
    fp8 = {"cluster__topology": "dgx_h100", "training__precision": "fp8"}
    one, usual = run(gather_dtype="fp8", **fp8), run(**fp8)
    model = one.job.model
    linear = model.layers * (model.kind.parameters - 2 * model.hidden)
    saved = usual.communication["dp"].bytes_per_rank - one.communication["dp"].bytes_per_rank
    assert saved == pytest.approx(2 * linear * (N - 1) / N, rel=1e-6), "in forward and in backward"
    assert most(usual, "gathered") - most(one, "gathered") == pytest.approx(linear / model.layers, rel=1e-6)


def test_four_bytes_twice_as_much() -> None:
    one, usual = run(gather_dtype="fp32"), run(gather_dtype="bf16")
    whole, root = held(one)
    more = one.communication["dp"].bytes_per_rank - usual.communication["dp"].bytes_per_rank
    assert more == pytest.approx(2 * (2 * whole - root) * (N - 1) / N, rel=1e-6)
    assert most(one, "gathered") == 2 * most(usual, "gathered")
    assert usual.step_time == run().step_time


# words


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("pytorch-fsdp2", {"units": 9}, "9 layers per unit, and the model has 8; 8 would work, or model"),
    ("pytorch-fsdp2", {"limit_all_gathers": False}, "PyTorch's FSDP2 has no such limit.*pytorch-fsdp1 has it"),
    ("megatron-fsdp", {"limit_all_gathers": False}, "Megatron-FSDP has no such limit"),
    ("pytorch-fsdp1", {"forward_prefetch": 2}, "knows true and false"),
    ("pytorch-fsdp1", {"backward_prefetch": 2}, "knows pre, post and none"),
    ("pytorch-fsdp2", {"gather_dtype": "fp8"}, "training.precision: fp8 would go with it"),
    ("pytorch-fsdp2", {"gather_dtype": "fp16"}, "bf16 or fp32 would work"),
    ("pytorch-fsdp2", {"parallel": {"tp": 1, "pp": 2}, "forward_prefetch": 2}, "leave it out"),
    (
        "pytorch-fsdp1",
        {"gather_dtype": "fp8", "training__precision": "fp8", "cluster__topology": "dgx_h100"},
        "flat parameters of one type",
    ),
]


@pytest.mark.parametrize(("framework", "changes", "words"), REFUSED)
def test_what_nobody_can_do_is_refused(framework: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidPlan, match=words):
        sharded(framework, **changes).resolve()


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("units", "layer", "'layers'"),
        ("units", 0, "at least 1"),
        ("gather_dtype", "int8", "fp8, bf16, fp16, fp32"),
        ("backward_prefetch", "before", "pre, post, none"),
    ],
)
def test_what_is_no_value_is_refused(option: str, value: object, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        sharded(**{option: value}).resolve()
    with pytest.raises(InvalidPlan, match="fsdp, hsdp support it"):
        scenario(sharding__strategy="zero1", sharding__units="model").resolve()


TOLD: list[tuple[str, dict[str, Any], str, str]] = [
    ("pytorch-fsdp2", {"limit_all_gathers": True}, "limit_all_gathers", "without effect"),
    ("pytorch-fsdp2", {"forward_prefetch": True}, "forward_prefetch", "one unit ahead by itself"),
    ("pytorch-fsdp2", {"backward_prefetch": 2, "overlap": False}, "backward_prefetch", "overlap is false"),
    ("pytorch-fsdp2", {"parallel": {"tp": 1, "pp": 2}, "units": "model"}, "units", "in a pipeline"),
    ("pytorch-fsdp1", {"limit_all_gathers": False}, "limit_all_gathers", "1000 kernels ahead, 23 layers"),
]


@pytest.mark.parametrize(("framework", "changes", "option", "words"), TOLD)
@pytest.mark.parametrize("strategy", ["fsdp", "hsdp"])
def test_what_changes_nothing_is_told(
    framework: str, changes: dict[str, Any], option: str, words: str, strategy: str
) -> None:
    assert words in sharded(framework, strategy=strategy, **changes).resolved["derived"][f"sharding.{option}"]


def test_a_command(tmp_path: Path) -> None:
    path = tmp_path / "unit.yaml"
    path.write_text(sharded("pytorch-fsdp1", units=2, limit_all_gathers=False).to_yaml())
    result = CliRunner().invoke(app, ["run", str(path)])
    assert result.exit_code == 0, result.output
    wrong = CliRunner().invoke(app, ["run", str(path), "--set", "sharding.units=20"])
    assert "20 layers per unit" in str(wrong.exception)
