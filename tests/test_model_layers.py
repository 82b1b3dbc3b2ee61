"""Operations of a layer: bytes kept against closed forms, shapes against the model's FLOPs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from trainsim.frameworks import framework_names, load_framework
from trainsim.models.context_parallel import context_parallelisms
from trainsim.models.layers import (
    Shape,
    Style,
    embedding_operations,
    head_operations,
    layer_operations,
    parameters_per_rank,
    style_of,
)
from trainsim.models.operations import Gemm, MemoryBound, Operation, Work
from trainsim.models.operations import works as flattened
from trainsim.models.reading import load_model, transformer
from trainsim.models.transformer import Transformer, padded_vocab

MEGATRON = load_framework("megatron-2022")


def shape_of(model: Transformer, *, tp: int = 1, b: int = 2, s: int = 2048, **more: object) -> Shape:
    vocab = padded_vocab(model.vocab, tp)
    return Shape(micro_batch=b, sequence_length=s, tp=tp, padded_vocab=vocab, **more)  # type: ignore[arg-type]


def saved(operations: Sequence[Operation], *, core: bool = True) -> float:
    return sum(o.saved - (0 if core else o.dropped) for o in operations)


def works(operations: Sequence[Operation], *parts: str) -> list[Work]:
    return [w for o in operations for part in parts for w in getattr(o, part)]


ALL = ("forward", "input_gradient", "weight_gradient")


@pytest.mark.parametrize("tp", [1, 2, 8])
@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("attention", ["eager", "flash2"])
def test_saved_bytes_are_korthikantis(tp: int, sequence_parallel: bool, attention: str) -> None:
    """Korthikanti et al. 2022, table 2: sbh(10 + 24/t + 5as/ht), the 10 over t as well with sequence parallelism."""
    model = load_model("gpt-22b")
    shape = shape_of(model, tp=tp, sequence_parallel=sequence_parallel)
    operations = layer_operations(model.kind, shape, style_of(MEGATRON, attention))
    sbh, a, s = shape.tokens * model.hidden, model.heads, shape.sequence_length
    linear = sbh * ((10 / tp if sequence_parallel else 10) + 24 / tp)
    scores = sbh * 5 * a * s / model.hidden / tp if attention == "eager" else 0
    assert saved(operations) == pytest.approx(linear + scores, rel=1e-12)
    assert saved(operations, core=False) == pytest.approx(linear, rel=1e-12)  # selective recomputation


@pytest.mark.parametrize("name", ["llama-2-7b", "llama-3-8b", "llama-3-70b", "mistral-7b"])
def test_saved_bytes_of_a_fused_llama(name: str) -> None:
    """Norms and their outputs 8, attention 4q + 4kv, gated MLP 6f; in units of s b h (q, kv, f: widths over hidden)."""
    model, framework = load_model(name), load_framework("megatron-core")
    operations = layer_operations(model.kind, shape_of(model), style_of(framework, "cudnn"))
    q, kv, f = (w / model.hidden for w in (model.kind.query_width, model.kind.kv_width, model.ffn_hidden))
    assert saved(operations) / (2 * 2048 * model.hidden) == pytest.approx(8 + 4 * q + 4 * kv + 6 * f)


def test_first_figures_of_korthikanti() -> None:
    """Their figure 1: 9.5625 GiB of activations for 22B with both savings, 59.25 without (mind 2sbh of input each)."""
    model = load_model("gpt-22b")
    both = shape_of(model, tp=8, b=4, sequence_parallel=True)
    neither = shape_of(model, tp=8, b=4)
    style = style_of(MEGATRON, "eager")
    assert model.layers * saved(layer_operations(model.kind, both, style), core=False) / 2**30 == 9.5625
    assert model.layers * saved(layer_operations(model.kind, neither, style)) / 2**30 == 59.25


def test_logits_are_kept_once_in_32_bits() -> None:
    """Korthikanti et al. 2022, section 4.3: 4sbh/t (1 + V/h) with the input of the final norm and of the head."""
    model, tp = load_model("gpt-22b"), 8
    shape = shape_of(model, tp=tp, sequence_parallel=True)
    kept = saved(head_operations(model, shape, style_of(MEGATRON)))
    h = model.hidden
    assert kept == 4 * shape.tokens * h / tp * (1 + shape.padded_vocab / h)


@pytest.mark.parametrize("name", ["gpt-22b", "llama-3-8b", "bloom-176b", "qwen2.5-7b", "gemma-7b"])
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_gemms_are_the_models_flops(name: str, tp: int) -> None:
    """Forward products are a tp-th of the layer's; each gradient of a linear layer costs as much again."""
    model = load_model(name)
    if model.kv_heads % tp:
        pytest.skip("does not divide")
    shape = shape_of(model, tp=tp)
    operations = layer_operations(model.kind, shape, style_of(MEGATRON, "eager"))
    forward, inputs, weights = (sum(w.flops for w in works(operations, part)) for part in ALL)
    assert tp * forward == model.kind.flops(sequence_length=2048, batch=2)
    assert inputs + weights == 2 * forward
    head = head_operations(model, shape, style_of(MEGATRON))
    assert tp * sum(w.flops for w in works(head, "forward")) == 2.0 * shape.tokens * model.hidden * shape.padded_vocab


def test_weights_are_the_layers_matrices() -> None:
    """What weight gradients write is what the rank holds, but for biases and norms."""
    model, tp = load_model("llama-3-70b"), 8
    operations = layer_operations(model.kind, shape_of(model, tp=tp), style_of(MEGATRON))
    written = sum(w.m * w.n for w in works(operations, "weight_gradient") if isinstance(w, Gemm))
    assert written == parameters_per_rank(model, tp, model.kinds[:1]) - 2 * model.norm_parameters


def test_tensor_parallel_boundaries() -> None:
    """Column before row, twice; the full activation crosses."""
    model = load_model("gpt-22b")
    shape = shape_of(model, tp=8, sequence_parallel=True)
    cut = [o for o in layer_operations(model.kind, shape, style_of(MEGATRON)) if o.parallel != "none"]
    assert [(o.name, o.parallel) for o in cut] == [
        ("qkv", "column"),
        ("proj", "row"),
        ("fc1", "column"),
        ("fc2", "row"),
    ]
    assert {o.boundary for o in cut} == {2.0 * shape.tokens * model.hidden}
    assert embedding_operations(model, shape, style_of(MEGATRON))[0].parallel == "row"


def test_accumulation_is_fused_or_a_kernel() -> None:
    model = load_model("gpt-22b")
    for name, fused in (("megatron-2022", True), ("megatron-2021", False)):
        found = works(layer_operations(model.kind, shape_of(model), style_of(load_framework(name))), "weight_gradient")
        assert all(w.accumulates == fused for w in found if isinstance(w, Gemm))
        assert any(w.name.endswith("accumulation") for w in found) != fused


def test_bloom_adds_its_bias_and_its_norm() -> None:
    """ALiBi costs 4 bytes per score in eager attention and nothing in a fused kernel."""
    model, gpt = load_model("bloom-176b"), transformer({**load_model("bloom-176b").to_dict(), "positions": "none"})
    shape, style = shape_of(model, tp=4), style_of(MEGATRON, "eager")
    extra = set(works(layer_operations(model.kind, shape, style), *ALL)) - set(
        works(layer_operations(gpt.kind, shape, style), *ALL)
    )
    (alibi,) = extra
    assert isinstance(alibi, MemoryBound)
    assert alibi.nbytes == 4 * 2 * 28 * 2048**2
    fused = style_of(MEGATRON, "flash2")
    assert layer_operations(model.kind, shape, fused) == layer_operations(gpt.kind, shape, fused)
    assert [o.name for o in embedding_operations(model, shape, style)] == ["embedding", "embedding norm"]


def test_dropout_needs_the_model_and_the_framework() -> None:
    gpt, llama = load_model("gpt-22b"), load_model("llama-2-7b")
    with_it, without = style_of(MEGATRON, "eager"), style_of(load_framework("neutral"), "eager")

    def drops(model: Transformer, style: Style) -> bool:
        return any("dropout" in o.name for o in layer_operations(model.kind, shape_of(model), style))

    assert [drops(gpt, with_it), drops(gpt, without), drops(llama, with_it)] == [True, False, False]


@pytest.mark.parametrize("precision", ["fp8", "mxfp8"])
def test_fp8_reaches_the_linear_layers_only(precision: str) -> None:
    model = load_model("llama-3-8b")
    style = style_of(load_framework("megatron-core"), "eager")
    for w in works(layer_operations(model.kind, shape_of(model, precision=precision), style), *ALL):
        if isinstance(w, Gemm):
            assert w.precision == ("bf16" if w.batch > 1 else None)
    low, high = (saved(layer_operations(model.kind, shape_of(model, precision=p), style)) for p in (precision, "bf16"))
    assert low < high


def test_mxfp8_keeps_a_scale_per_32_numbers_and_casts_in_blocks() -> None:
    """Of the bytes that fp8 saves of an activation, one 32nd comes back as scales (OCP microscaling formats 1.0)."""
    model, style = load_model("llama-3-8b"), style_of(load_framework("megatron-core"), "flash2")
    recipes = {"bf16": None, "fp8": "tensorwise", "mxfp8": "mxfp8"}
    shapes = {p: replace(shape_of(model, precision=p), fp8_recipe=recipe) for p, recipe in recipes.items()}
    layers = {p: layer_operations(model.kind, shape, style) for p, shape in shapes.items()}
    spared = [saved(layers["bf16"]) - saved(layers[p]) for p in ("fp8", "mxfp8")]
    assert spared[1] / spared[0] == pytest.approx(31 / 32)
    casts = {p: {w.kind for w in works(layers[p], *ALL) if w.name.endswith(" cast")} for p in layers}
    assert casts == {"bf16": set(), "fp8": {"cast"}, "mxfp8": {"block_cast"}}


def test_32_bits_move_and_keep_twice_as_much() -> None:
    model, style = load_model("llama-3-8b"), style_of(load_framework("megatron-core"))
    half, full = (layer_operations(model.kind, shape_of(model, precision=p), style) for p in ("bf16", "fp32"))
    assert saved(full) == 2 * saved(half)
    moved = [sum(w.nbytes for w in works(o, *ALL) if isinstance(w, MemoryBound)) for o in (half, full)]
    assert moved[1] == 2 * moved[0]


@pytest.mark.parametrize("way", context_parallelisms)
def test_context_parallelism_divides_what_is_done_and_kept(way: str) -> None:
    model, style = load_model("llama-3-8b"), style_of(MEGATRON, "flash2")
    cuts: tuple[dict[str, object], ...] = ({}, {"cp": 2, "context_parallel": way, "ulysses": 2})
    whole, half = (layer_operations(model.kind, shape_of(model, **cut), style) for cut in cuts)  # type: ignore[arg-type]
    twice = {o.name: o.saved for o in half}.get("to tokens", 0.0)  # the result, by heads and by tokens
    assert saved(half) == saved(whole) / 2 + twice
    flops = [sum(w.flops for w in flattened(works(o, *ALL))) for o in (whole, half)]
    assert flops[1] == flops[0] / 2


@pytest.mark.parametrize("name", framework_names())
@pytest.mark.parametrize("attention", ["eager", "flash2", None])
def test_every_framework_runs_every_part(name: str, attention: str | None) -> None:
    style = style_of(load_framework(name), attention)
    for model in (load_model("gpt2"), load_model("llama-3-8b"), load_model("qwen1.5-7b")):
        shape = shape_of(model)
        for operations in (
            layer_operations(model.kind, shape, style),
            embedding_operations(model, shape, style),
            head_operations(model, shape, style),
        ):
            assert all(w.flops > 0 or w.nbytes > 0 for w in works(operations, *ALL))
            assert saved(operations) >= 0
            assert sum(w.flops for w in works(operations, "input_gradient")) >= 0
