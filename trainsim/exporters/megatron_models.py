"""
A model as arguments of Megatron-LM.
"""

from __future__ import annotations

from trainsim.exporters.exporter import Writer

POSITIONS = {"learned": "learned_absolute", "rotary": "rope", "none": "none"}
NORMS = {"layernorm": ("LayerNorm", False), "rmsnorm": ("RMSNorm", False), "layernorm1p": ("LayerNorm", True),
         "rmsnorm1p": ("RMSNorm", True)}  # fmt: skip
BIASES = {"all": (), "none": ("disable-bias-linear",), "qkv": ("disable-bias-linear", "add-qkv-bias")}
LATENT = {"q_lora_rank": "q-lora-rank", "kv_lora_rank": "kv-lora-rank", "qk_nope_head_dim": "qk-head-dim",
          "qk_rope_head_dim": "qk-pos-emb-head-dim", "v_head_dim": "v-head-dim"}  # fmt: skip
PLAIN = {
    "parallel_residual": False, "shared_norm": False, "post_norms": False, "attention_softcap": None,
    "logits_softcap": None, "linear_attention": None, "window": None, "chunk": None, "attention_gate": False,
    "attention_sinks": False, "encoder_layers": 0, "embedding_size": None, "layer_kinds": None, "final_norm": True,
    "head_bias": False, "lora": None,
}  # fmt: skip
"""What of a model Megatron-LM's GPT is without, or this exporter does not write."""


def say_model(writer: Writer) -> None:
    """The sizes and what the layers are made of; a model that Megatron-LM's GPT cannot be is left out as a whole."""
    model = writer.value("model")
    odd = {key: model[key] for key, usual in PLAIN.items() if model.get(key) not in (None, usual)}
    odd |= {} if model.get("positions") in POSITIONS else {"positions": model.get("positions")}
    odd |= {} if model.get("biases") in BIASES else {"biases": model.get("biases")}
    odd |= {} if model.get("norm") in NORMS else {"norm": model.get("norm")}
    odd |= {} if _activation(model) is not None else {"activation": model.get("activation")}
    if odd:
        words = ", ".join(f"{key}: {value}" for key, value in odd.items())
        writer.leave("model", f"arguments of Megatron-LM say no model with {words}")
        return
    _sizes(writer)
    _layers(writer)
    if writer.value("model.mla"):
        writer.write("multi-latent-attention", True, "model.mla")
        for key, name in LATENT.items():
            if (size := writer.value(f"model.mla.{key}")) is not None:
                writer.write(name, size, f"model.mla.{key}")
    if writer.value("model.moe"):
        _experts(writer)
    writer.say("model", words="sizes and layers, argument by argument")


def _sizes(writer: Writer) -> None:
    """Layers, widths, heads and words."""
    for key, name in {"layers": "num-layers", "hidden": "hidden-size", "ffn_hidden": "ffn-hidden-size",
                      "heads": "num-attention-heads"}.items():  # fmt: skip
        writer.write(name, writer.value(f"model.{key}"), f"model.{key}")
    if not writer.value("model.mla"):
        writer.write("kv-channels", writer.value("model.head_dim"), "model.head_dim")
    if writer.value("model.kv_heads") != writer.value("model.heads"):
        writer.write("group-query-attention", True, "model.kv_heads")
        writer.write("num-query-groups", writer.value("model.kv_heads"), "model.kv_heads")
    writer.write("tokenizer-type", "NullTokenizer", "model.vocab")
    writer.write("vocab-size", writer.value("model.vocab") - 1, "model.vocab")
    if not writer.value("model.tied_embeddings"):
        writer.write("untie-embeddings-and-output-weights", True, "model.tied_embeddings")
    if layers := writer.value("model.mtp_layers"):
        writer.write("mtp-num-layers", layers, "model.mtp_layers")


def _activation(model: dict[str, object]) -> list[str] | None:
    """The arguments for the activation of the MLP; None where Megatron-LM has none for it."""
    known = {("silu", True): ["swiglu"], ("gelu", False): [], ("relu2", False): ["squared-relu"],
             ("gelu_tanh", False): ["openai-gelu"]}  # fmt: skip
    return known.get((str(model.get("activation")), bool(model.get("gated_mlp"))))


def _layers(writer: Writer) -> None:
    """Positions, norms, biases, the activation and dropout."""
    positions = writer.value("model.positions")
    writer.write("position-embedding-type", POSITIONS[positions], "model.positions")
    longest = writer.value("model.max_positions") or writer.value("training.sequence_length")
    writer.write("max-position-embeddings", longest, "model.max_positions")
    share = writer.value("model.rotary_share", 1.0)
    if positions == "rotary" and share != 1.0:
        writer.write("rotary-percent", share, "model.rotary_share")
    norm, shifted = NORMS[writer.value("model.norm")]
    writer.write("normalization", norm, "model.norm")
    names = [*BIASES[writer.value("model.biases")], *(_activation(writer.value("model")) or [])]
    names += ["apply-layernorm-1p"] if shifted else []
    names += ["embed-layernorm"] if writer.value("model.embedding_norm") else []
    for name in names:
        writer.write(name, True, "model.biases", "model.activation", "model.gated_mlp", "model.embedding_norm")
    kind = writer.value("model.qk_norm", "none")
    if kind in ("head", "l2") and not writer.value("model.mla"):
        writer.write("qk-layernorm" if kind == "head" else "qk-l2-norm", True, "model.qk_norm")
    rate = 0.1 if writer.value("model.dropout") else 0.0
    for name in ("attention-dropout", "hidden-dropout"):
        writer.write(name, rate, "model.dropout")


def _experts(writer: Writer) -> None:
    """The mixture of experts."""
    moe, layers = writer.value("model.moe"), writer.value("model.layers")
    writer.write("num-experts", moe["experts"], "model.moe.experts")
    writer.write("moe-router-topk", moe["top_k"], "model.moe.top_k")
    width = moe.get("expert_ffn_hidden") or writer.value("model.ffn_hidden")
    writer.write("moe-ffn-hidden-size", width, "model.moe.expert_ffn_hidden")
    shared = moe.get("shared_ffn_hidden") or moe.get("shared_experts", 0) * width
    if shared:
        writer.write("moe-shared-expert-intermediate-size", shared, "model.moe.shared_ffn_hidden")
    if moe.get("shared_gate"):
        writer.write("moe-shared-expert-gate", True, "model.moe.shared_gate")
    dense, every = moe.get("first_dense", 0), moe.get("every", 1)
    if every > 1 or dense:
        has = [int(k >= dense and (k - dense) % every == 0) for k in range(layers)]
        writer.write("moe-layer-freq", f"([{','.join(map(str, has))}])".replace("([", "[").replace("])", "]"),
                     "model.moe.first_dense", "model.moe.every")  # fmt: skip
