"""Activations as frameworks keep them: against bytes that PyTorch's autograd was counted to save, and closed forms."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from trainsim.errors import TrainsimError
from trainsim.frameworks import framework_names, load_framework
from trainsim.models.layers import Shape, Style, embedding_operations, head_operations, layer_operations, style_of
from trainsim.models.operations import Operation
from trainsim.models.reading import load_model, transformer
from trainsim.models.transformer import Transformer

DATA = Path(__file__).parent / "data" / "saved_activations.csv"
ROWS = list(csv.DictReader(line for line in DATA.read_text().splitlines() if not line.startswith("#")))
TRANSFORMERS, MEGATRON = load_framework("transformers"), load_framework("megatron-2022")


UNCOMPILED = tuple(name for name in framework_names() if load_framework(name).compiled is False)
LOSS = {  # bytes per logit, forward and backward, where the loss is not in place; else 16-bit and fp32 ones
    **dict.fromkeys(UNCOMPILED, (10, 12)),
    "llm-foundry": (6, 6),  # a kernel of its own
    "megatron-deepspeed-2020": (14, 6),
    "megatron-deepspeed-2022": (10, 6),
    "megatron-deepspeed-2022-launch-blocking": (10, 6),
    **dict.fromkeys(("megatron-core-fused-loss", "nemo", "megatron-bridge", "megatron-bridge-2026"), (2, 2)),
    "torchtitan": (2, 4),
    "torchtitan-2024": (10, 12),
    **dict.fromkeys(("nanotron", "nanotron-collectives-wait", "nanotron-messages-wait"), (8, 6)),
    **dict.fromkeys(("internevo", "llm-c"), (2, 2)),
    "megatron-deepspeed-2024": (10, 6),
}


def shape_of(model: Transformer, *, s: int = 2048, b: int = 1, tp: int = 1, precision: str = "bf16") -> Shape:
    return Shape(micro_batch=b, sequence_length=s, tp=tp, padded_vocab=model.vocab, precision=precision)


def saved(operations: tuple[Operation, ...]) -> float:
    return sum(o.saved for o in operations)


def plain(model: Transformer) -> Transformer:
    """The model as it was counted: without dropout."""
    return transformer(model.to_dict() | {"dropout": False})


def whole(model: Transformer, shape: Shape, style: Style) -> tuple[float, float]:
    """Bytes kept by one layer, and by embedding and head."""
    ends = (*embedding_operations(model, shape, style), *head_operations(model, shape, style))
    return saved(layer_operations(model.kind, shape, style)), saved(ends)


@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r['model']}-{r['attention']}-{r['sequence_length']}")
def test_counted_bytes(row: dict[str, str]) -> None:
    """To within the weights that Gemma's norms keep and the integers (tokens, labels, random states) of a model."""
    model = plain(load_model(row["model"]))
    shape = shape_of(model, s=int(row["sequence_length"]))
    layer, other = whole(model, shape, style_of(TRANSFORMERS, row["attention"]))
    sbh = 2 * shape.tokens * model.hidden
    layer, other = layer + int(row["beside_layer"]) * sbh, other + int(row["beside_other"]) * sbh
    rotated = model.head_dim * (model.positions == "rotary") * model.rotary_share
    other += 2 * 2 * shape.tokens * rotated  # cosines and sines, once
    assert layer == pytest.approx(int(row["layer"]), rel=1.1e-4)
    assert other == pytest.approx(int(row["other"]), rel=3e-4)
    assert model.layers * layer + other == pytest.approx(int(row["total"]), rel=1e-4)


@pytest.mark.parametrize("row", [r for r in ROWS if r["model"].startswith("llama-2-7b")], ids=lambda r: r["attention"])
def test_layers_of_llama_to_the_byte(row: dict[str, str]) -> None:
    """The fused kernel keeps 24 bytes of random state besides."""
    model = load_model(row["model"])
    layer, _ = whole(model, shape_of(model, s=int(row["sequence_length"])), style_of(TRANSFORMERS, row["attention"]))
    assert int(row["layer"]) - layer == (24 if row["attention"] == "flash2" else 0)


def test_one_model_by_kind_of_attention() -> None:
    """7 B parameters, 2048 tokens: 28.5 GiB by the closed form with dropout, 39.3 GB and 13.5 GB as counted."""
    qwen = load_model("qwen1.5-7b")
    sizes = {"layers": qwen.layers, "hidden": qwen.hidden, "heads": qwen.heads, "vocab": qwen.vocab}
    gpt = transformer(sizes | {"family": "gpt"})  # the closed form's layer: ffn = 4 h with GELU, masks of dropout
    assert gpt.layers * whole(gpt, shape_of(gpt), style_of(MEGATRON, "eager"))[0] == 28.5 * 2**30
    totals = []
    for attention in ("eager", "flash2"):
        layer, other = whole(qwen, shape_of(qwen), style_of(TRANSFORMERS, attention))
        totals.append(round((qwen.layers * layer + other) / 1e9, 1))
    assert totals == [39.3, 13.5]


@pytest.mark.parametrize("name", ["llama-2-7b", "llama-3-8b", "gemma-2b"])
def test_unfused_formula(name: str) -> None:
    """Norms 16 (Gemma's 20), attention 4q + 4kv or 8q + 6 n s / h, gated MLP 8f, in units of s b h."""
    model = load_model(name)
    shape = shape_of(model)
    sbh, statistics = shape.tokens * model.hidden, 8 * shape.tokens
    q, kv, f = (w / model.hidden for w in (model.kind.query_width, model.kind.kv_width, model.ffn_hidden))
    norms = 20 if name == "gemma-2b" else 16
    flash = norms + 4 * q + 4 * kv + 8 * f
    eager = norms + 8 * f + 6 * model.heads * 2048 / model.hidden + (4 * q + 4 * kv if model.kv_heads == 1 else 8 * q)
    sums = 4 * model.heads * shape.tokens
    assert whole(model, shape, style_of(TRANSFORMERS, "flash2"))[0] == pytest.approx(flash * sbh + statistics + sums)
    assert whole(model, shape, style_of(TRANSFORMERS, "eager"))[0] == pytest.approx(eager * sbh + statistics)


def test_dropout_of_scores_replaces_their_copy() -> None:
    """fp32 softmax 4, mask 1 and what is left 2: the 16-bit copy in between is not kept."""
    gpt = load_model("gpt2-xl")
    shape, style = shape_of(gpt), style_of(TRANSFORMERS, "eager")
    scores = gpt.heads * 2048**2
    more = saved(layer_operations(gpt.kind, shape, style)) - saved(layer_operations(plain(gpt).kind, shape, style))
    assert more == scores + 2 * shape.tokens * gpt.hidden  # masks: one of the scores, two of the residual


@pytest.mark.parametrize("attention", ["eager", "flash2"])
def test_single_precision_keeps_no_second_copy(attention: str) -> None:
    """What is kept in fp32 anyway does not double."""
    model = load_model("llama-3-8b")
    style = style_of(TRANSFORMERS, attention)
    half, single = (saved(layer_operations(model.kind, shape_of(model, precision=p), style)) for p in ("bf16", "fp32"))
    assert half < single < 2 * half


@pytest.mark.parametrize("name", framework_names())
def test_loss_needs_more_than_it_keeps(name: str) -> None:
    """10 bytes per logit forward if nothing is in place: 16-bit and fp32 ones, log-softmax. Divided over tp
    where the loss is parallel."""
    model, style = load_model("llama-3-8b"), style_of(load_framework(name))
    parts = 2 if style.loss_parallel else 1
    one, two = (head_operations(model, shape_of(model, tp=tp), style)[-1] for tp in (1, 2))
    logits = 2048 * model.vocab
    forward, backward = ((one.saved + more) / logits for more in (one.transient_forward, one.transient))
    assert (forward, backward) == LOSS.get(name, (6, 6))
    assert (two.saved, two.transient_forward, two.transient) == (
        one.saved / parts,
        one.transient_forward / parts,
        one.transient / parts,
    )


@pytest.mark.parametrize("name", framework_names())
@pytest.mark.parametrize("attention", ["eager", "flash2"])
def test_unfused_frameworks_keep_more(name: str, attention: str) -> None:
    for model in map(plain, map(load_model, ("gpt2-xl", "llama-3-8b", "gemma-2b"))):
        shape = shape_of(model)
        fused, unfused = (
            saved(layer_operations(model.kind, shape, style_of(f, attention)))
            for f in (load_framework(name), TRANSFORMERS)
        )
        assert fused <= unfused


@pytest.mark.parametrize("name", ["gpt2-xl", "llama-3-8b", "qwen2.5-7b"])
@pytest.mark.parametrize("attention", ["eager", "flash2"])
@pytest.mark.parametrize("profile", framework_names())
def test_selective_recomputation_is_between_none_and_full(name: str, attention: str, profile: str) -> None:
    model = load_model(name)
    shape = shape_of(model)
    layer = layer_operations(model.kind, shape, style_of(load_framework(profile), attention))
    kept = sum(o.saved - o.dropped for o in layer)
    again, forward = (sum(w.flops for o in layer for w in getattr(o, part)) for part in ("again", "forward"))
    assert 2 * shape.tokens * model.hidden <= kept <= saved(layer)
    assert 0 <= again < forward


def test_every_second_product() -> None:
    """Of Llama 3 8B: input 2, wq 2, wv 2 kv, attention 2 (+ sums), w1 2 f, w2 2, in units of s b h (torchtitan)."""
    model = load_model("llama-3-8b")
    shape = shape_of(model)
    layer = layer_operations(model.kind, shape, style_of(load_framework("torchtitan"), "flash2"))
    kept = sum(o.saved - o.dropped for o in layer)
    sums = 4 * model.heads * shape.tokens
    kv, f = model.kind.kv_width / model.hidden, model.ffn_hidden / model.hidden
    assert kept - sums == (2 + 2 + 2 * kv + 2 + 2 * f + 2) * shape.tokens * model.hidden
    wk, wo, w3 = model.kind.kv_width, model.kind.query_width, model.ffn_hidden
    assert sum(w.flops for o in layer for w in o.again) == 2 * shape.tokens * model.hidden * (wk + wo + w3)


def test_tables_are_complete() -> None:
    table = {"layernorm": {}, "soft": {}}
    with pytest.raises(TrainsimError, match=r"memory\.saved\.soft: unknown key 'soft'. Did you mean 'softmax'"):
        load_framework({"base": "neutral", "memory": {"saved": table}})
