"""16 bits by torch.autocast over fp32 weights: bytes by hand, what is on the wire, laws, and a published series."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.jobs import small
from tests.test_operators import allocated, dlrover, layer, shape_of
from trainsim.cli import app
from trainsim.errors import ScenarioError
from trainsim.frameworks import load_framework
from trainsim.models.layers import layer_operations, style_of
from trainsim.models.operations import works
from trainsim.models.reading import load_model
from trainsim.program.parts import work_out
from trainsim.sharding.flights import FlightStep

EAGER = style_of(load_framework("pytorch-fsdp1"))
PARAMETERS = 6738415616  # of Llama-2-7B


def test_bytes_kept_by_hand() -> None:
    """A layer of Llama-2-7B, per number of the residual stream: RMSNorm keeps its input and the normalised one in fp32
    (8, twice); q, k and v, gate and up each keep their own cast of its result (2 each); queries, keys, values and their
    result in 16 bits (8); gate, its activation, up and their product, of 11,008 numbers each, in 16 bits. Cast weights
    stay beside them where no cache has them."""
    tokens, h, f = 2048, 4096, 11008
    kept = sum(o.saved for o in layer("llama-2-7b", EAGER, autocast=True))
    rows = 2 * 4 * tokens  # the reciprocal deviation of each norm
    assert kept == tokens * (h * (2 * 8 + 5 * 2 + 8) + f * 8) + rows
    casts = sum(o.saved for o in layer("llama-2-7b", replace(EAGER, casts_kept=True), autocast=True)) - kept
    assert casts == 2 * (4 * h * h + 3 * h * f)


def test_casts_of_a_compiled_model_are_made_once() -> None:
    compiled = style_of(load_framework("pytorch-fsdp2"))
    once, each = (
        sum(
            w.nbytes
            for o in layer("llama-2-7b", style, autocast=True)
            for w in works(o.forward)
            if w.name == "qkv cast"
        )  # type: ignore[union-attr]
        for style in (compiled, EAGER)
    )
    assert (once, each) == (6 * 2048 * 4096, 3 * 6 * 2048 * 4096)


@pytest.mark.parametrize("model", ["llama-3-8b", "gpt2-xl", "mixtral-8x7b", "gemma-2b"])
@pytest.mark.parametrize("framework", ["pytorch-ddp", "pytorch-fsdp2", "transformers"])
def test_autocast_keeps_and_moves_no_less(model: str, framework: str) -> None:
    style = style_of(load_framework(framework))
    cast, low = (layer_operations(load_model(model).kind, shape_of(autocast=on), style) for on in (True, False))
    for a, b in zip(cast, low, strict=True):
        assert a.saved >= b.saved, a.name
        assert a.transient >= b.transient, a.name


@pytest.mark.parametrize("framework", ["pytorch-fsdp1", "pytorch-fsdp2"])
def test_gathers_and_gradients_are_in_fp32(framework: str) -> None:
    """FSDP without a mixed precision policy."""
    changes: dict[str, Any] = {"framework": framework, "parallel": {"tp": 1, "pp": 1}, "sharding": {"strategy": "fsdp"}}
    sent = {}
    for on in (True, False):
        parts = work_out(small(training__autocast=on, **changes))
        flights = [f for beside in parts.sharding(0).flights.values() for f in beside.flights]
        steps = [s for f in flights for s in f.steps if isinstance(s, FlightStep)]
        for operation in ("all_gather", "reduce_scatter"):
            sent[operation, on] = sum(s.nbytes for s in steps if s.operation == operation)
    assert sent["all_gather", True] == 2 * sent["all_gather", False] > 0
    assert sent["reduce_scatter", True] == sent["reduce_scatter", False] > 0


def test_checkpoints_and_messages_are_the_fp32_stream() -> None:
    changes: dict[str, Any] = {"framework": "pytorch-ddp", "training__recompute": "full", "sharding__strategy": "ddp"}
    cast, low = (work_out(small(training__autocast=on, **changes)) for on in (True, False))
    assert cast.message_bytes == 2 * low.message_bytes
    assert cast.layers[0].saved == 2 * low.layers[0].saved


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"framework": "megatron-core"}, "casts weights that are in fp32, and megatron-core keeps them in bf16"),
        ({"framework": "neutral", "training__precision": "fp16"}, "neutral keeps them in fp16"),
        ({"framework": "pytorch-ddp", "training__precision": "fp8", "cluster__topology": "dgx_h100"}, "not fp8"),
        (
            {"framework": "transformers", "sharding__strategy": "zero3", "parallel": {"tp": 1, "pp": 1}},
            "zero3 exchanges weights and gradients in 16 bits.*fsdp",
        ),
    ],
)
def test_what_has_no_fp32_weights_refuses(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        small(training__autocast=True, **changes)


@pytest.mark.parametrize(
    ("framework", "precision", "on"),
    [("pytorch-ddp", "bf16", True), ("pytorch-ddp", "fp32", False), ("transformers", "bf16", False),
     ("megatron-core", "bf16", False)],
)  # fmt: skip
def test_the_framework_says_what_is_usual(framework: str, precision: str, on: bool) -> None:
    job = small(framework=framework, training__precision=precision, sharding__strategy="ddp")
    assert job.training.autocast is on


def test_single_precision_has_nothing_to_cast() -> None:
    given = {"framework": "pytorch-ddp", "sharding__strategy": "ddp", "training__precision": "tf32"}
    assert small(training__autocast=True, **given) == small(**given)


def test_commands_say_it() -> None:
    command = ["show", "scenario", "fsdp_llama", "--set", "framework=pytorch-fsdp1", "--set", "training.autocast=true"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "autocast" in result.output
    wrong = CliRunner().invoke(app, ["show", "memory", "bloom_3d", "--set", "training.autocast=true"])
    assert wrong.exit_code != 0
    assert "Traceback" not in wrong.output


def test_states_of_fsdp_are_twelve_bytes_over_the_ranks() -> None:
    """At the peak of Llama-2-7B, in the loss, no gradient is there yet: parameters and Adam's states, 12 bytes each.
    Published peaks on 8, 16, 32 and 64 GPUs (dlrover, atorch/examples/llama2) have that slope: 39,596, 34,777, 32,367
    and 31,162 MiB."""
    peaks = [allocated(dlrover(nodes, training__autocast=True)) for nodes in (1, 2, 4, 8)]
    published = [39596.3 / 1024, 34776.7 / 1024, 32366.8 / 1024, 31161.9 / 1024]
    for pair in (peaks, published):
        for a, b, nodes in zip(pair, pair[1:], (1, 2, 4), strict=False):
            assert (a - b) * 2**30 / (PARAMETERS / (8 * nodes) / 2) == pytest.approx(12, rel=0.01)
