"""Families of models beyond dense decoders: configurations of Hugging Face against their counts, laws of the parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trainsim as ts
from trainsim.errors import ScenarioError, TrainsimError
from trainsim.models.calls import modules
from trainsim.models.counts import megatron_flops, parameters_per_rank
from trainsim.models.hugging_face import classes
from trainsim.models.known import model_names
from trainsim.models.layer_kind import QK_NORMS, counted, layer_parameters
from trainsim.models.matrices import expert_tensors, tensors
from trainsim.models.reading import load_model, transformer
from trainsim.models.transformer import BIASES, NORMS, Transformer

DATA = Path(__file__).parent / "data"
CASES = [json.loads(line) for line in (DATA / "hugging_face_configs.jsonl").read_text().splitlines()]
"""Configurations, and their parameters as transformers 4.57.6 builds them on PyTorch's meta device: those of published
models with what does not matter left out, and small ones with what their classes' keys can say."""
SMALL = {"layers": 4, "hidden": 64, "heads": 4, "vocab": 100, "family": "llama"}
LATENT = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 12, "qk_rope_head_dim": 4, "v_head_dim": 8}
EXPERTS = {"experts": 8, "top_k": 2, "expert_ffn_hidden": 32, "shared_experts": 1}


def write(folder: Path, config: object, name: str = "config.json") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(config if isinstance(config, str) else json.dumps(config))
    return folder / name


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_parameters_are_those_that_transformers_builds(case: dict[str, Any], tmp_path: Path) -> None:
    model = ts.model(str(write(tmp_path / "some", case["config"])))
    assert model.name == "some"
    assert model.parameters == case["parameters"]
    assert transformer(model.to_dict()) == model
    assert sum(modules(model, padded_vocab=model.vocab).sizes) == model.parameters
    dense = tensors(model, 1, model.kinds, embedding=True, head=True, vocab=model.vocab).total
    assert dense + expert_tensors(model.kinds, 1).total == model.parameters


def test_every_class_has_a_case() -> None:
    told = {case["config"]["model_type"] for case in CASES}
    aliases = {"RefinedWebModel", "phi-msft"}
    assert told - aliases == set(classes()) - {"qwen"}


def test_qwen_1_writes_the_width_of_gate_and_up_together(tmp_path: Path) -> None:
    config = {"model_type": "qwen", "hidden_size": 2048, "intermediate_size": 11008, "num_attention_heads": 16}
    file = write(tmp_path, {**config, "num_hidden_layers": 24, "kv_channels": 128, "vocab_size": 151936})
    assert ts.model(file).parameters == ts.model("qwen-1.8b").parameters == 1_836_828_672


def test_missing_and_null_differ(tmp_path: Path) -> None:
    config = {"model_type": "mistral", "num_hidden_layers": 2}
    missing, null = (
        ts.model(write(tmp_path, {**config, **more}))
        for more in ({}, {"num_key_value_heads": None, "sliding_window": None})
    )
    assert (missing.kv_heads, missing.window) == (8, 4096)
    assert (null.kv_heads, null.window) == (32, None)


def test_a_configuration_can_be_a_base(tmp_path: Path) -> None:
    file = write(tmp_path, {"model_type": "deepseek_v3", "num_nextn_predict_layers": 1})
    assert ts.model(file).mtp_layers == 0
    model = load_model({"base": str(file), "mtp_layers": 1, "name": "mine"})
    assert (model.name, model.mtp_layers) == ("mine", 1)
    assert model.parameters == load_model({"base": "deepseek-v3", "mtp_layers": 1}).parameters == 682_636_472_320


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("{", "cannot be read as JSON"),
        ("[1]", "is a mapping"),
        ({}, "no model_type"),
        ({"model_type": "lama"}, "the nearest known is 'llama'"),
        ({"model_type": "qwen2_moe", "architectures": ["Qwen3MoeForCausalLM"]}, "change the one that is wrong"),
        ({"model_type": "llama", "hidden_size": "4096"}, "hidden_size is '4096'"),
        ({"model_type": "llama", "hidden_act": "gelu_neww"}, "did you mean 'gelu_new'"),
        ({"model_type": "llama", "num_attention_heads": 3}, "is not divisible"),
        ({"model_type": "gemma2", "layer_types": ["full_attention"]}, "one entry for each"),
        ({"model_type": "gemma2", "num_hidden_layers": 1, "layer_types": ["other"]}, "'other' is not simulated"),
        ({"model_type": "mpt", "attn_config": {"attn_type": "grouped_query_attention"}}, "not simulated"),
        ({"model_type": "t5", "feed_forward_proj": "gated-swoosh"}, "gated-swoosh"),
        ({"model_type": "deepseek_v2"}, "num_experts_per_tok is None"),
        ({"model_type": "gemma3", "text_config": {}, "vision_config": {"depth": 2}}, "only text is simulated"),
    ],
)
def test_what_is_no_configuration_is_told(config: object, words: str, tmp_path: Path) -> None:
    with pytest.raises(TrainsimError, match=words):
        ts.model(write(tmp_path, config))


def test_a_missing_file_is_told() -> None:
    with pytest.raises(ScenarioError, match="no such file"):
        ts.model("nowhere/config.json")


VALUES = st.one_of(st.none(), st.booleans(), st.integers(-2, 300), st.floats(), st.text(max_size=4), st.just([1, 2]))
KEYS = sorted({key for table in classes().values() for key in table["defaults"]} | {"layer_types", "attn_config"})


@given(st.sampled_from(sorted(classes())), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4))
@settings(deadline=None, max_examples=200)
def test_any_configuration_is_a_model_or_a_clear_error(
    tmp_path_factory: Any, kind: str, values: dict[str, Any]
) -> None:
    file = write(tmp_path_factory.getbasetemp(), {"model_type": kind, **values}, "any.json")
    try:
        model = ts.model(file)
    except TrainsimError as error:
        assert str(error)
    else:
        assert transformer(model.to_dict()) == model


@pytest.mark.parametrize("name", model_names())
def test_the_whole_is_the_sum_over_kinds(name: str) -> None:
    model = load_model(name)
    layers = sum(n * kind.parameters for kind, n in counted(model.kinds).items())
    assert model.layers_parameters == layers
    for kind in counted(model.kinds):
        dense, experts = layer_parameters(kind, 1)
        assert dense + experts == kind.parameters
        assert (experts > 0) == (kind.moe is not None)
        resting = kind.parameters - kind.active_parameters
        assert resting == (experts * (kind.moe.experts - kind.moe.top_k) // kind.moe.experts if kind.moe else 0)


@pytest.mark.parametrize("name", [n for n in model_names() if load_model(n).moe])
def test_experts_are_dealt_and_cut(name: str) -> None:
    """ep ranks hold all experts between them, and etp ranks their columns; what is not an expert is on every rank."""
    model = load_model(name)
    kind, one = model.kinds[-1], layer_parameters(model.kinds[-1], 1)
    for ep in (2, 4):
        part = layer_parameters(kind, 1, ep=ep)
        assert (part.dense, ep * part.experts) == one
    whole = parameters_per_rank(model, 1, model.kinds, embedding=True, head=True)
    half = parameters_per_rank(model, 1, model.kinds, embedding=True, head=True, ep=2)
    sparse = sum(layer_parameters(k, 1).experts for k in model.kinds)
    assert whole - half == sparse // 2
    assert expert_tensors(model.kinds, 1, ep=2).total == sparse // 2
    if model.biases != "all":
        assert 2 * layer_parameters(kind, 1, etp=2).experts == one.experts


def latent(model: Transformer) -> int:
    """Matrices and norms of latent attention in closed form (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""
    h, a, m = model.hidden, model.heads, model.mla
    assert m is not None
    queries = a * (m.qk_nope_head_dim + m.qk_rope_head_dim)
    first = h * queries if m.q_lora_rank is None else m.q_lora_rank * (h + queries + 1)
    keys = h * (m.kv_lora_rank + m.qk_rope_head_dim) + m.kv_lora_rank * (1 + a * (m.qk_nope_head_dim + m.v_head_dim))
    return first + keys + a * m.v_head_dim * h


@pytest.mark.parametrize("lora_rank", [None, 24])
def test_latent_attention_in_closed_form(lora_rank: int | None) -> None:
    model = transformer({**SMALL, "ffn_hidden": 96, "mla": {**LATENT, "q_lora_rank": lora_rank}})
    assert model.kind.parameters == latent(model) + 3 * 64 * 96 + 2 * 64
    scores = model.kind.scores_flops(sequence_length=32)
    assert scores == 2 * 32**2 * 4 * (16 + 8)


def test_a_window_as_long_as_the_sequence_is_full_attention() -> None:
    full = transformer(SMALL).kind
    for key in ("window", "chunk"):
        for length in (128, 512):
            local = transformer({**SMALL, key: length}).kind
            assert local.pairs(128) == full.pairs(128)
            assert local.flops(sequence_length=128, causal=True) == full.flops(sequence_length=128, causal=True)
    window, chunk = (transformer({**SMALL, key: 16}).kind for key in ("window", "chunk"))
    assert window.pairs(128) == 16 * 128 - 16**2 / 2
    assert chunk.pairs(128) == 128 * 16 / 2
    assert window.flops(sequence_length=128) == full.flops(sequence_length=128)  # as an unfused kernel with a mask


def test_reported_flops_of_a_window_join_those_of_the_square() -> None:
    def reported(**more: Any) -> float:
        return megatron_flops(transformer({**SMALL, **more}), sequence_length=128, batch=2, recompute="none")

    assert reported(window=128) == reported() == reported(chunk=128)
    assert reported(window=16) < reported(window=64) < reported()


def test_a_layer_that_predicts_further_is_counted_once() -> None:
    plain, further = (transformer({**SMALL, "moe": EXPERTS, "mla": LATENT, "mtp_layers": n}) for n in (0, 1))
    layer = plain.kind.parameters + 2 * 64**2 + 3 * 64
    assert further.parameters - plain.parameters == further.mtp_parameters == layer
    resting = 6 * 3 * 64 * 32
    assert further.active_parameters - plain.active_parameters == layer - resting
    size = {"sequence_length": 16, "batch": 2}
    work = plain.kind.flops(**size) + plain.logits_flops(**size) + 2 * 32 * 2 * 64**2
    assert further.flops_forward(**size) - plain.flops_forward(**size) == work
    last = {"head": True, "padded_vocab": 100}
    stages = [parameters_per_rank(m, 1, m.kinds, **last) for m in (plain, further)]
    assert stages[1] - stages[0] == layer + 100 * 64, "a last stage holds a copy of the embedding for it"


@pytest.mark.parametrize("first", [0, 1, 3])
def test_dense_layers_at_the_start_are_counted_once(first: int) -> None:
    sparse = transformer({**SMALL, "moe": EXPERTS})
    model = transformer({**SMALL, "moe": {**EXPERTS, "first_dense": first}})
    dense = transformer(SMALL)
    assert sparse.parameters - model.parameters == first * (sparse.kind.parameters - dense.kind.parameters)
    assert sum(kind.moe is None for kind in model.kinds) == first


def test_an_encoder_and_a_decoder() -> None:
    """T5: 12 h d a for the three attentions of a pair of layers, two MLPs, five norms, and two tables of biases."""
    model = load_model("t5-3b")
    h, inner, ffn, layers = 1024, 32 * 128, 16384, 24
    assert model.layers_parameters == layers * (12 * h * inner + 2 * 2 * h * ffn + 5 * h)
    assert model.position_parameters == 2 * 32 * 32
    s, d = 512, 114
    encoder, decoder = model.kinds[0], model.kinds[-1]
    assert encoder.flops(sequence_length=s) == 2 * s * (4 * h * inner + 2 * h * ffn) + 4 * s * s * inner
    crossed = 2 * d * 2 * h * inner + 2 * s * 2 * h * inner + 4 * s * d * inner
    own = 2 * d * (4 * h * inner + 2 * h * ffn) + 4 * d * d * inner
    assert decoder.flops(sequence_length=d, memory=s) == own + crossed
    whole = model.flops_forward(sequence_length=s, decoder_length=d)
    assert whole == layers * (encoder.flops(sequence_length=s) + own + crossed) + 2 * d * h * 32128


@pytest.mark.parametrize(
    ("name", "billions"),
    [  # as their reports and model cards say
        ("gpt-neox-20b", 20.6), ("falcon-40b", 41.3), ("deepseek-v2", 236), ("kimi-k2", 1026), ("llama-4-scout", 107.8),
        ("llama-4-maverick", 400.7), ("gpt-oss-20b", 20.9), ("gpt-oss-120b", 116.8), ("grok-1", 316),
        ("nemotron-15b", 15.6), ("nemotron-340b", 341), ("qwen2-57b-a14b", 57.4), ("gemma-3-27b", 27.0),
        ("opt-175b", 175), ("starcoder-15b", 15.5), ("phi-3.5-moe", 41.9), ("t5-11b", 11.3),
    ],
)  # fmt: skip
def test_published_sizes(name: str, billions: float) -> None:
    assert load_model(name).parameters / 1e9 == pytest.approx(billions, rel=0.004)


@pytest.mark.parametrize(
    ("name", "billions"),
    [("deepseek-v2", 21), ("deepseek-v3", 37), ("kimi-k2", 32), ("llama-4-scout", 17), ("llama-4-maverick", 17)],
)
def test_published_active_sizes(name: str, billions: float) -> None:
    assert load_model(name).active_parameters / 1e9 == pytest.approx(billions, rel=0.03)


FAMILIES = ("gpt", "llama", "gemma2", "falcon", "deepseek", "gpt-oss", "phi", "olmo2", "mpt")
SWITCHED = ("norm_bias", "tied_embeddings", "head_bias", "final_norm", "attention_sinks")
MIXTURES = st.fixed_dictionaries(
    {"experts": st.integers(2, 9), "top_k": st.integers(1, 2), "expert_ffn_hidden": st.integers(1, 64)},
    optional={
        "shared_experts": st.integers(0, 2),
        "shared_gate": st.booleans(),
        "first_dense": st.integers(0, 1),
    },
)
SIZES = st.fixed_dictionaries(
    {
        "layers": st.sampled_from([2, 4, 6]),
        "hidden": st.sampled_from([64, 96]),
        "heads": st.sampled_from([2, 4]),
        "vocab": st.just(100),
    },
    optional={
        "family": st.sampled_from(FAMILIES),
        "kv_heads": st.sampled_from([1, 2]),
        "ffn_hidden": st.integers(1, 300),
        "biases": st.sampled_from(BIASES),
        "qk_norm": st.sampled_from(QK_NORMS),
        "norm": st.sampled_from(NORMS),
        **{key: st.booleans() for key in SWITCHED},
        "rotary_share": st.floats(0.01, 1.0),
        "embedding_size": st.integers(1, 64),
        "window": st.integers(1, 100),
        "mtp_layers": st.integers(0, 2),
        "moe": MIXTURES,
    },
)


@given(SIZES)
@settings(deadline=None, max_examples=150)
def test_any_model_is_read_back_and_adds_up(sizes: dict[str, Any]) -> None:
    model = transformer(sizes)
    assert transformer(model.to_dict()) == model
    assert sum(modules(model, padded_vocab=model.vocab).sizes) == model.parameters
    dense = tensors(model, 1, model.kinds, embedding=True, head=True, vocab=model.vocab).total
    kinds = model.kinds + model.kinds[-1:] * model.mtp_layers
    assert dense + expert_tensors(kinds, 1).total == model.parameters
    assert parameters_per_rank(model, 1, model.kinds, embedding=True, head=True, padded_vocab=100) == model.parameters
    assert 0 < model.active_parameters <= model.parameters
    half, full = (model.flops_forward(sequence_length=64, causal=causal) for causal in (True, False))
    assert 0 < half < full
