"""Parameter and FLOP counts against published ones, and what a model's mapping may say."""

from __future__ import annotations

import csv
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainsim.errors import InvalidPlan, ScenarioError, TrainsimError, UnknownName
from trainsim.frameworks import load_framework
from trainsim.models.counts import megatron_flops, parameters_per_rank
from trainsim.models.known import family_names, model_names
from trainsim.models.layer_kind import GATED, LayerKind, counted, layer_parameters_per_rank
from trainsim.models.layers import Shape, layer_operations, style_of
from trainsim.models.linears import linears, vectors
from trainsim.models.reading import load_model, transformer
from trainsim.models.transformer import Transformer, padded_vocab

DATA = Path(__file__).parent / "data"


MEGATRON = ("gpt-175b", "gpt-1t", "gpt-22b", "gpt-530b")
LATENT = {"kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32}
DELTA = {"key_heads": 2, "value_heads": 4, "key_head_dim": 32, "value_head_dim": 32}


def rows(name: str) -> list[dict[str, str]]:
    lines = [line for line in (DATA / name).read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama-2-7b", 6_738_415_616),
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("llama-3.1-405b", 405_853_388_800),
        ("gpt2", 124_439_808),
        ("gpt2-xl", 1_557_611_200),
        ("bloom-176b", 176_247_271_424),
        ("qwen1.5-7b", 7_721_324_544),
    ],
)
def test_published_parameter_counts(name: str, parameters: int) -> None:
    assert load_model(name).parameters == parameters


@pytest.mark.parametrize("row", rows("param_counts.csv"), ids=lambda r: r["model"])
def test_parameters_by_part(row: dict[str, str]) -> None:
    model = load_model(row["model"])
    assert (model.parameters, model.active_parameters) == (int(row["parameters"]), int(row["active"]))
    assert (model.layers, model.kinds[-1].parameters) == (int(row["layers"]), int(row["layer"]))
    assert model.embedding_parameters == int(row["embedding"])
    assert model.position_parameters == int(row["positions"])
    assert model.head_parameters == int(row["head"])
    assert model.final_norm_parameters + model.embedding_norm_parameters == int(row["other_norms"])


@pytest.mark.parametrize("row", rows("flops_forward.csv"), ids=lambda r: f"{r['model']}-{r['sequence_length']}")
def test_counted_flops(row: dict[str, str]) -> None:
    model, s, b = load_model(row["model"]), int(row["sequence_length"]), int(row["batch"])
    assert model.flops_forward(sequence_length=s, batch=b) == int(row["flops"])
    assert model.logits_flops(sequence_length=s, batch=b) == int(row["logits"])
    assert model.kinds[-1].flops(sequence_length=s, batch=b) == int(row["layer"])


@pytest.mark.parametrize(
    "name", [n for n in model_names() if load_model(n).family == "gpt" and not n.startswith(("gpt2", "gpt3"))]
)
def test_megatron_models_are_as_large_as_their_names(name: str) -> None:
    size = name.split("-")[1]
    billions = float(size[:-1]) * (1000 if size.endswith("t") else 1)
    assert load_model(name).parameters / 1e9 == pytest.approx(billions, rel=0.03)


def test_causal_attention_counts_half_of_the_scores() -> None:
    model = load_model("llama-3-8b")
    full, half = (model.flops_forward(sequence_length=8192, causal=c) for c in (False, True))
    assert full - half == model.layers * 2 * 8192**2 * model.kind.query_width


@pytest.mark.parametrize(("recompute", "passes", "logits"), [("full", 96, 16), ("none", 72, 12)])
def test_megatron_formula(recompute: str, passes: int, logits: int) -> None:
    model, s, b = load_model("megatron-145.6b"), 2048, 2304
    h, layers = model.hidden, model.layers
    formula = passes * b * s * layers * h**2 * (1 + s / (6 * h) + model.vocab / (logits * layers * h))
    assert megatron_flops(model, sequence_length=s, batch=b, recompute=recompute) == pytest.approx(formula, rel=1e-12)


def test_selective_recomputation_repeats_the_scores_only() -> None:
    model, size = load_model("gpt-22b"), {"sequence_length": 2048, "batch": 4}
    none, selective = (megatron_flops(model, recompute=r, **size) for r in ("none", "selective"))
    assert selective - none == model.layers * 4 * 4 * 2048**2 * model.hidden


def on_every_rank(kind: LayerKind, tp: int) -> int:
    """Parameters of a layer that tensor parallelism does not cut."""
    matrices = [w for w in linears(kind, tp) if w.parallel == "none"]
    sums = sum(w.biases for w in linears(kind, tp) if w.parallel == "row")
    cut = [("sinks", "convolution", "decay"), ("sinks", "convolution", "decay", "q norm", "k norm")][
        kind.qk_norm == "full"
    ]
    uncut = sum(v.weight + v.bias for v in vectors(kind, tp) if v.name not in cut)
    return sum(w.elements for w in matrices) + sums + uncut


@pytest.mark.parametrize("name", model_names())
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_ranks_hold_the_whole_model(name: str, tp: int) -> None:
    """Over a tensor-parallel group: every matrix once, norms and the biases after sums on each rank."""
    model = load_model(name)
    if model.heads % tp or model.kv_heads % tp or model.ffn_hidden % tp or model.vocab % tp:
        pytest.skip("does not divide")
    repeated = {kind: on_every_rank(kind, tp) for kind in counted(model.kinds)}
    for kind, parameters in repeated.items():
        shard = layer_parameters_per_rank(kind, tp)
        assert tp * (shard - parameters) + parameters == kind.parameters
    whole = parameters_per_rank(model, tp, model.kinds, embedding=True, head=True, padded_vocab=model.vocab)
    everywhere = sum(repeated[kind] for kind in model.kinds) + model.position_parameters
    everywhere += model.embedding_norm_parameters + model.final_norm_parameters + 2 * model.projection_parameters
    assert tp * (whole - everywhere) + everywhere == model.parameters


def test_pipeline_stages_hold_the_whole_model_and_a_copy_of_a_tied_embedding() -> None:
    for name, copies in (("gpt-22b", 1), ("llama-2-7b", 0)):
        model = load_model(name)
        first = parameters_per_rank(
            model, 1, model.kinds[: model.layers // 2], embedding=True, padded_vocab=model.vocab
        )
        last = parameters_per_rank(model, 1, model.kinds[model.layers // 2 :], head=True, padded_vocab=model.vocab)
        assert first + last == model.parameters + copies * model.embedding_parameters


def test_padding_of_the_vocabulary() -> None:
    assert padded_vocab(50257, 8) == 51200
    assert padded_vocab(250880, 4) == 250880


@given(vocab=st.integers(1, 10**6), tp=st.integers(1, 64))
@settings(deadline=None)
def test_padding_is_the_next_multiple(vocab: int, tp: int) -> None:
    padded = padded_vocab(vocab, tp)
    assert padded % (128 * tp) == 0
    assert 0 <= padded - vocab < 128 * tp


@pytest.mark.parametrize("name", model_names())
def test_catalogue_survives_a_round_trip(name: str) -> None:
    model = load_model(name)
    assert transformer(model.to_dict()) == model


@pytest.mark.parametrize("family", family_names())
def test_families_fill_in_what_is_left_out(family: str) -> None:
    model = transformer({"family": family, "layers": 2, "hidden": 1024, "heads": 8, "vocab": 1000})
    assert (model.kv_heads, model.head_dim) == (8, 128)
    assert model.parameters > 2 * model.kind.parameters


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"hiden": 4}, ScenarioError, "Did you mean 'hidden'"),
        ({"heads": 3}, InvalidPlan, "heads=2 or heads=4 would"),
        ({"kv_heads": 3}, InvalidPlan, "kv_heads=2 or kv_heads=4 would"),
        ({"family": "lama"}, UnknownName, "Did you mean 'llama'"),
        ({"layers": -1}, InvalidPlan, "layers is -1"),
        ({"heads": "8"}, InvalidPlan, "heads is '8'"),
        ({"layers": True}, InvalidPlan, "layers is True"),
        ({"tied_embeddings": "yes"}, InvalidPlan, "true or false"),
        ({"norm": "batchnorm"}, UnknownName, "layernorm"),
        ({"vocab": None}, ScenarioError, "vocab must be given"),
        ({"max_positions": 0}, InvalidPlan, "max_positions"),
        ({"moe": {"experts": 0}}, InvalidPlan, "experts is 0"),
        ({"moe": {"experts": 8, "top_k": 9}}, InvalidPlan, "top_k=8 or less would"),
        ({"mla": {"q_lora_rank": 1}}, ScenarioError, "kv_lora_rank, qk_nope_head_dim, .* must be given"),
        ({"lora": {"rank": 0}}, InvalidPlan, "rank is 0"),
        ({"lora": {"rank": 8, "targets": []}}, InvalidPlan, "list of linear layers"),
        ({"lora": {"rank": 8, "targets": ["downn"]}}, UnknownName, "Did you mean 'down'"),
        ({"lora": {"rank": 8, "targets": ["qkv", "k"]}}, InvalidPlan, "both put an adapter on k"),
        ({"lora": {"rnk": 8}}, ScenarioError, "did you mean 'rank'"),
        ({"lora": 8}, ScenarioError, "expected a mapping"),
        ({"encoder_layers": 12}, InvalidPlan, "leave no decoder"),
        ({"encoder_layers": 1, "mtp_layers": 1}, InvalidPlan, "mtp_layers is not simulated in a model with an encoder"),
        ({"window": 0}, InvalidPlan, "window is 0"),
        ({"window": 8, "chunk": 8}, InvalidPlan, "leave window or chunk out"),
        ({"rotary_share": 1.5}, InvalidPlan, "rotary_share is 1.5"),
        ({"attention_softcap": 0.0}, InvalidPlan, "attention_softcap is 0.0"),
        ({"qk_norm": "heads"}, UnknownName, "Did you mean 'head'"),
        ({"shared_norm": True}, InvalidPlan, "parallel_residual: true"),
        ({"parallel_residual": True, "post_norms": True}, InvalidPlan, "leave one out"),
        ({"mla": LATENT, "kv_heads": 2}, InvalidPlan, "leave kv_heads out"),
        ({"mla": LATENT, "attention_sinks": True}, InvalidPlan, "has no attention_sinks"),
        ({"mla": LATENT, "lora": {"rank": 8}}, InvalidPlan, "has no v"),
        ({"mla": {**LATENT, "v_head_dim": 0}}, InvalidPlan, "v_head_dim is 0"),
        ({"linear_attention": {**DELTA, "key_heads": 3}}, InvalidPlan, "are not divisible by key_heads=3"),
        ({"moe": {"experts": 8, "shared_experts": 1, "first_dense": 2}}, InvalidPlan, "leave no layer"),
    ],
)
def test_bad_models_say_what_to_change(change: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        transformer({"layers": 2, "hidden": 1024, "heads": 8, "vocab": 1000, **change})


def test_what_is_not_built_may_be_switched_off() -> None:
    small = {"layers": 2, "hidden": 1024, "heads": 8, "vocab": 1000}
    assert transformer({**small, "moe": None, "encoder_layers": 0}) == transformer(small)


def test_unknown_model_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="llama-2-7b"):
        load_model("llama2-7b")


GEGLU = ("gemma", "gemma2", "gemma3", "grok", "t5")
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 10**12),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
)
KEYS = st.sampled_from([*Transformer.__dataclass_fields__, "moe", "encoder_layers", "typo", "source"])


@pytest.mark.parametrize("name", model_names())
def test_the_activation_that_is_shown_is_the_one_that_runs(name: str) -> None:
    model = load_model(name)
    style = style_of(load_framework("neutral"))
    shape = Shape(micro_batch=1, sequence_length=128, tp=1, padded_vocab=model.vocab)
    shown, names = model.to_dict()["activation"], [o.name for o in layer_operations(model.kind, shape, style)]
    assert (GATED[shown] if model.gated_mlp else shown.removesuffix("_tanh")) in names
    assert (shown == "silu") == (model.gated_mlp and model.family not in GEGLU), "SwiGLU, and GeGLU of some"


@given(st.dictionaries(KEYS, VALUES))
@settings(deadline=None, max_examples=200)
def test_any_mapping_is_a_model_or_a_clear_error(mapping: dict[str, object]) -> None:
    base = {"layers": 2, "hidden": 1024, "heads": 8, "vocab": 1000}
    with suppress(TrainsimError):
        assert transformer({**base, **mapping}).parameters > 0
