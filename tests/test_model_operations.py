"""Operations of layers that are not a dense GPT's: products against counted FLOPs, masks, norms, bytes kept, jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import trainsim as ts
from tests.test_model_layers import MEGATRON, saved, shape_of, works
from trainsim.errors import NotBuilt
from trainsim.frameworks import load_framework
from trainsim.models.known import model_names
from trainsim.models.layer_kind import counted
from trainsim.models.layers import embedding_operations, head_operations, layer_operations, style_of
from trainsim.models.linears import linears
from trainsim.models.operations import Attention, Gemm, Work
from trainsim.models.reading import load_model, transformer
from trainsim.models.transformer import Transformer

EAGER, FUSED = style_of(MEGATRON, "eager"), style_of(load_framework("neutral"), "flash2")
SMALL = {"layers": 4, "hidden": 256, "heads": 4, "vocab": 1024, "family": "llama"}
LATENT = {"q_lora_rank": 96, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32}


def simulated(name: str) -> bool:
    model = load_model(name)
    return not (model.encoder_layers or any(kind.moe or kind.linear_attention for kind in model.kinds))


def small(**changes: Any) -> Transformer:
    return transformer({**SMALL, **changes})


def names(model: Transformer, style: Any = FUSED) -> list[str]:
    return [o.name for o in layer_operations(model.kind, shape_of(model), style)]


@pytest.mark.parametrize("name", [name for name in model_names() if simulated(name)])
@pytest.mark.parametrize("tp", [1, 2])
def test_products_are_the_counted_flops_and_the_weights(name: str, tp: int) -> None:
    """What every rank of a group does alike counts once; gradients cost as much again, of inputs and of weights."""
    model = load_model(name)
    if model.heads % tp or model.kv_heads % tp or model.ffn_hidden % tp:
        pytest.skip("does not divide")
    shape = shape_of(model, tp=tp)
    for kind in counted(model.kinds):
        alike = sum(2.0 * shape.tokens * w.outputs * w.inputs for w in linears(kind, tp) if w.parallel == "none")
        operations = layer_operations(kind, shape, EAGER)
        parts = ("forward", "input_gradient", "weight_gradient")
        forward, inputs, weights = (sum(w.flops for w in works(operations, part)) for part in parts)
        assert tp * (forward - alike) + alike == kind.flops(sequence_length=2048, batch=2)
        assert inputs + weights == 2 * forward
        written = sum(w.m * w.n for w in works(operations, "weight_gradient") if isinstance(w, Gemm))
        assert written == sum(w.outputs * w.inputs for w in linears(kind, tp))


@pytest.mark.parametrize("key", ["window", "chunk"])
def test_a_fused_kernel_leaves_out_what_the_mask_hides(key: str) -> None:
    full = small()

    def kernels(model: Transformer, style: Any) -> list[Work]:
        return works(layer_operations(model.kind, shape_of(model), style), "forward", "input_gradient")

    def attended(length: int | None, style: Any = FUSED) -> float:
        return sum(w.flops for w in kernels(small(**({key: length} if length else {})), style))

    assert attended(2048) == attended(4096) == attended(None)
    assert attended(256) < attended(1024) < attended(None)
    assert attended(256, EAGER) == attended(None, EAGER)
    whole, local = (
        sum(w.flops for w in kernels(model, FUSED) if isinstance(w, Attention)) for model in (full, small(**{key: 384}))
    )
    pairs = small(**{key: 384}).kind.pairs(2048)
    assert local == pytest.approx(whole * pairs / full.kind.pairs(2048), rel=1e-12)


@pytest.mark.parametrize("window", [64, 300, 1024, 2048, None])
@pytest.mark.parametrize("slices", [2, 4, 8])
def test_slices_of_a_window_are_the_whole_window(window: int | None, slices: int) -> None:
    """What slices see before themselves and in themselves adds up, but for whole keys."""
    model = small(window=window)
    length = 2048 // slices

    def attended(shape: Any) -> float:
        operations = layer_operations(model.kind, shape, FUSED)
        return sum(w.flops for w in works(operations, "forward") if isinstance(w, Attention))

    cut = sum(attended(shape_of(model, s=length, context=k * length)) for k in range(slices))
    assert cut == pytest.approx(attended(shape_of(model)), rel=2e-3)


def test_latent_attention_has_small_vectors_and_heads_of_two_sizes() -> None:
    model = small(mla=LATENT)
    assert names(model)[:8] == ["norm1", "q_a", "q_a norm", "q_b", "kv_a", "kv_a norm", "kv_b", "rope"]
    direct = small(mla={**LATENT, "q_lora_rank": None})
    assert names(direct)[:5] == ["norm1", "q", "kv_a", "kv_a norm", "kv_b"]
    (forward, backward) = [
        w for w in works(layer_operations(model.kind, shape_of(model), FUSED), "forward", "input_gradient")
        if isinstance(w, Attention)
    ]  # fmt: skip
    assert (forward.head_dim, forward.values) == (48, 32)
    assert forward.flops == 2 * 4 * 2048**2 * (48 + 32)
    assert backward.flops == 2 * 4 * 2048**2 * (3 * 48 + 2 * 32)


def test_latent_vectors_cross_in_the_place_of_the_hidden_state() -> None:
    """Products up from them are cut by heads: with tensor parallelism their inputs' gradients are summed, not h's."""
    model = small(mla=LATENT)
    shape = shape_of(model, tp=2, sequence_parallel=True)
    cut = {o.name: (o.parallel, o.boundary) for o in layer_operations(model.kind, shape, FUSED)}
    tokens = 2.0 * shape.tokens
    assert cut["q_a"][0] == cut["kv_a"][0] == "none"
    assert (cut["q_b"], cut["kv_b"]) == (("column", tokens * 96), ("column", tokens * 64))
    assert (cut["proj"], cut["fc1"]) == (("row", tokens * 256), ("column", tokens * 256))


def test_norms_of_a_layer_are_those_that_it_has() -> None:
    assert names(small(qk_norm="head"))[:3] == ["norm1", "qkv", "qk norm"]
    four = [name for name in names(small(post_norms=True)) if "norm" in name]
    assert four == ["norm1", "attention norm", "norm2", "mlp norm"]
    beside = small(parallel_residual=True)
    assert [name for name in names(beside) if "norm" in name or "add" in name] == ["norm1", "norm2", "add2"]
    shared = small(parallel_residual=True, shared_norm=True)
    assert [name for name in names(shared) if "norm" in name or "add" in name] == ["norm1", "add2"]
    shape = shape_of(shared)
    apart, together = (saved(layer_operations(m.kind, shape, FUSED)) for m in (beside, shared))
    assert apart - together == 2 * 2 * shape.tokens * 256, "a norm's input, and the MLP's, which is attention's"


def test_a_norm_over_all_heads_is_agreed_on() -> None:
    for kind, sums in (("head", 0), ("l2", 0), ("full", 1)):
        model = small(qk_norm=kind)
        (norm,) = [o for o in layer_operations(model.kind, shape_of(model, tp=2), FUSED) if o.name == "qk norm"]
        assert len(norm.reduced) == sums


def test_softcaps_keep_what_they_bend() -> None:
    plain, bent = small(), small(attention_softcap=50.0, logits_softcap=30.0)
    shape = shape_of(plain)
    scores = 2 * 2 * 4 * 2048**2
    kept = [saved(layer_operations(m.kind, shape, EAGER)) for m in (plain, bent)]
    assert kept[1] - kept[0] == scores
    assert layer_operations(plain.kind, shape, FUSED) == layer_operations(bent.kind, shape, FUSED)
    ends = [saved(head_operations(m, shape, FUSED)) for m in (plain, bent)]
    assert ends[1] - ends[0] == 2 * shape.tokens * shape.padded_vocab


def test_a_part_of_each_head_is_rotated() -> None:
    whole, part = (small(rotary_share=share) for share in (1.0, 0.25))
    moved = [
        sum(w.nbytes for o in layer_operations(m.kind, shape_of(m), FUSED) if o.name == "rope" for w in o.forward)  # type: ignore[union-attr]
        for m in (whole, part)
    ]
    assert moved[1] == moved[0] / 4


def test_words_of_another_width_are_projected() -> None:
    model = load_model("opt-350m")
    shape = shape_of(model)
    assert [o.name for o in embedding_operations(model, shape, FUSED)] == ["embedding", "word projection"]
    assert [o.name for o in head_operations(model, shape, FUSED)] == ["head projection", "logits", "loss"]


def test_a_layer_that_predicts_further_is_a_layer_and_a_head() -> None:
    plain, further = small(mla=LATENT), small(mla=LATENT, mtp_layers=1)
    shape = shape_of(plain)
    layer, head = layer_operations(plain.kind, shape, FUSED), head_operations(plain, shape, FUSED)
    more = head_operations(further, shape, FUSED)
    assert more[: len(head)] == head
    rest = [o.name for o in more[len(head) :]]
    assert rest == ["embedding", "hidden norm", "input norm", "further projection", *(o.name for o in (*layer, *head))]
    flops = [sum(w.flops for w in works(o, "forward") if isinstance(w, Gemm)) for o in (head, layer, more)]
    assert flops[2] == 2 * flops[0] + flops[1] + 2.0 * shape.tokens * 2 * 256**2


def test_biases_are_where_the_model_has_them() -> None:
    def biased(biases: str) -> set[str]:
        model = small(biases=biases)
        summed = works(layer_operations(model.kind, shape_of(model), FUSED), "weight_gradient")
        return {w.name.split()[0] for w in summed if "bias" in w.name}

    assert biased("all") == {"qkv", "proj", "fc1", "fc2"}
    assert biased("attention") == {"qkv", "proj"}
    assert (biased("qkv"), biased("mlp"), biased("none")) == ({"qkv"}, {"fc1", "fc2"}, set())


SELECTIVE = {"training__recompute": "selective"}
JOBS: dict[str, dict[str, Any]] = {
    "gemma-2": {"family": "gemma2", "layer_kinds": {"local": {"window": 128}}, "layer_pattern": ["local", "default"]},
    "falcon": {"family": "falcon", "shared_norm": True, "kv_heads": 2},
    "latent": {"family": "deepseek", "mla": LATENT},
    "further": {"family": "deepseek", "mla": LATENT, "mtp_layers": 1},
    "olmo": {"family": "olmo2"},
    "nemotron": {"family": "nemotron"},
    "opt": {"family": "opt", "embedding_size": 64, "final_norm": False},
    "chunks": {"chunk": 128, "attention_sinks": True},
}


def job(of_model: dict[str, Any], /, **changes: Any) -> ts.Scenario:
    base = {
        "model": {**SMALL, "name": "small", **of_model},
        "cluster": {"topology": "dgx_a100", "nodes": 1},
        "training": {"sequence_length": 512, "global_batch": 16},
        "parallel": {"tp": 2, "pp": 2},
    }
    return ts.Scenario.from_dict(base).replace({key.replace("__", "."): value for key, value in changes.items()})


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pipeline__schedule": "zb-h1", "parallel__sequence_parallel": True},
        {
            "framework": "torchtitan",
            "sharding__strategy": "fsdp",
            "parallel__pp": 1,
            "training__recompute": "selective",
        },
        {"sharding__strategy": "zero3", "parallel__pp": 1, "parallel__tp": 1, "training__recompute": "full"},
        {"framework": "transformers", "sharding__strategy": "ddp", "parallel__pp": 1, "parallel__tp": 1},
        {"simulation__detail": "block", "training__precision": "fp32"},
    ],
    ids=str,
)
def test_models_run_with_every_kind_of_parallelism(name: str, changes: dict[str, Any]) -> None:
    scenario = job(JOBS[name], **changes)
    seconds = scenario.run().step_time
    assert seconds > 0
    assert ts.Scenario.from_dict(scenario.resolved).run().step_time == seconds


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "zero3"])
def test_folding_changes_nothing(strategy: str) -> None:
    times = [
        job(JOBS["gemma-2"], sharding__strategy=strategy, parallel__pp=1, simulation__fold=fold).run().step_time
        for fold in (True, False)
    ]
    assert times[0] == times[1]


def test_a_window_makes_a_long_sequence_quicker() -> None:
    def seconds(**model: Any) -> float:
        return job(model, training__sequence_length=16384, training__attention="flash2").run().step_time

    full, local = seconds(), seconds(window=1024)
    assert local < 0.9 * full
    assert seconds(window=16384) == full == seconds(chunk=16384)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "qwen3-next-80b-a3b"}, "not simulated"),
        ({"model__chunk": 128, "pipeline__schedule": "seq1f1b"}, "chunks of the sequence"),
        ({"model__mtp_layers": 1, "pipeline__vocabulary_parallel": True}, "mtp_layers"),
    ],
)
def test_what_is_not_simulated_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(NotBuilt, match=words):
        job({}, **change).resolve()


def test_every_framework_runs_every_family() -> None:
    for name in ("nemotron-15b", "gemma-2-9b", "falcon-7b", "phi-2"):
        model = load_model(name)
        for framework in ("megatron-core", "transformers", "torchtitan"):
            style = style_of(load_framework(framework))
            for kind in counted(model.kinds):
                operations = layer_operations(replace(kind), shape_of(model), style)
                assert saved(operations) > 0
