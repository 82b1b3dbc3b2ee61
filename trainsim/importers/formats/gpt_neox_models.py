"""
Models of GPT-NeoX: Megatron's sizes, with the residual of GPT-J beside it.
"""

from __future__ import annotations

from trainsim.errors import shorten
from trainsim.importers.reader import Reader
from trainsim.importers.tables import table

SIZES = {"num_layers": "layers", "hidden_size": "hidden", "num_attention_heads": "heads", "num_kv_heads": "kv_heads",
         "padded_vocab_size": "vocab"}  # fmt: skip
WIDTHS = ("intermediate_size", "feedforward_size", "mlp_hidden_size")
WHOSE = "GPT-NeoX' default"
FUSIONS = {"bias_gelu_fusion": "bias", "bias_dropout_fusion": "residual", "rope_fusion": "rotary",
           "layernorm_fusion": "norm", "rmsnorm_fusion": "norm"}  # fmt: skip


def say_model(reader: Reader) -> None:
    """Say the sizes and what the layers are made of."""
    if not reader.has("num_layers") and not reader.has("hidden_size"):
        return  # the other half of a job: a local setup
    reader.say("model.family", "gpt-neox")
    for key, to in SIZES.items():
        reader.say(f"model.{to}", reader.whole(key), key)
    width = next((key for key in WIDTHS if reader.has(key)), WIDTHS[0])
    reader.say("model.ffn_hidden", reader.whole(width), width)
    _layers(reader)
    _positions(reader)
    _attention(reader)
    apart = reader.flag("no_weight_tying")
    if apart is None:
        reader.assume("model.tied_embeddings", True, WHOSE)
    else:
        reader.say("model.tied_embeddings", not apart, "no_weight_tying")
    if (experts := reader.whole("moe_num_experts")) and experts > 1:
        reader.say("model.moe.experts", experts, "moe_num_experts")
        reader.say("model.moe.top_k", reader.whole("moe_top_k"), "moe_top_k")
        reader.say("model.moe.every", reader.whole("moe_expert_interval"), "moe_expert_interval")
    multiple = reader.whole("make_vocab_size_divisible_by")
    if not reader.has("padded_vocab_size"):
        reader.say("framework.kernels.vocab_multiple", multiple, "make_vocab_size_divisible_by")


def _layers(reader: Reader) -> None:
    """Norms, activation, residuals, biases, dropout and fusions."""
    words = table("gpt_neox")
    norm = reader.word("norm", words["norms"])
    if norm:
        reader.say("model.norm", words["norms"][norm], "norm")
    else:
        reader.assume("model.norm", "layernorm", WHOSE)
    kind = reader.word("activation", words["activations"]) or "gelu"
    for key, value in words["activations"][kind].items():
        if reader.has("activation"):
            reader.say(f"model.{key}", value, "activation")
        else:
            reader.assume(f"model.{key}", value, WHOSE)
    parallel = reader.flag("gpt_j_residual")
    if parallel is None:
        reader.assume("model.parallel_residual", False, WHOSE)
    else:
        reader.say("model.parallel_residual", parallel, "gpt_j_residual")
    if parallel and (tied := reader.flag("gpt_j_tied")) is not None:
        reader.say("model.shared_norm", tied, "gpt_j_tied")
    _biases(reader)
    rates = [key for key in ("attention_dropout", "hidden_dropout") if reader.number(key, high=1) is not None]
    if rates:
        reader.say("model.dropout", any(reader.number(key) for key in rates), *rates)
    for key, fused in FUSIONS.items():
        if (on := reader.flag(key)) is not None:
            reader.say(f"framework.kernels.fused.{fused}", on, key)


def _biases(reader: Reader) -> None:
    """Which linear layers and norms have biases."""
    attention, mlp = reader.flag("use_bias_in_attn_linear"), reader.flag("use_bias_in_mlp")
    given = [key for key in ("use_bias_in_attn_linear", "use_bias_in_mlp") if reader.has(key)]
    if given:
        names = {(True, True): "all", (True, False): "attention", (False, True): "mlp", (False, False): "none"}
        reader.say("model.biases", names[attention is not False, mlp is not False], *given)
    if (biased := reader.flag("use_bias_in_norms")) is not None:
        reader.say("model.norm_bias", biased, "use_bias_in_norms")


def _positions(reader: Reader) -> None:
    """Positions, and the rotated part of each head."""
    words = table("gpt_neox")["positions"]
    kind = reader.word("pos_emb", words)
    if kind:
        reader.say("model.positions", words[kind], "pos_emb")
    else:
        reader.assume("model.positions", "learned", WHOSE)
    reader.say("model.max_positions", reader.whole("max_position_embeddings"), "max_position_embeddings")
    if kind == "rotary":
        share = reader.number("rotary_pct", low=0.0, high=1.0)
        if share is None:
            reader.assume("model.rotary_share", 1.0, WHOSE)
        else:
            reader.say("model.rotary_share", share, "rotary_pct")


def _attention(reader: Reader) -> None:
    """The kernel of attention: ``[[["flash"], 24]]`` names one for so many layers."""
    kinds = reader.listing("attention_config")
    window = reader.whole("sliding_window_width")
    reader.say("model.window", window, "sliding_window_width")
    if kinds is None:
        reader.assume("training.attention", "eager", f"{WHOSE}: global")
        return
    names = {name for entry in kinds for name in _names(entry)}
    known = table("gpt_neox")["attention"]
    if len(names) == 1 and (name := names.pop()) in known:
        reader.say("training.attention", known[name], "attention_config")
    else:
        words = "attention that differs from layer to layer, or that is sparse"
        reader.warn("attention_config", f"{shorten(kinds)}: {words}, is not modelled; here it is whole and eager")


def _names(entry: object) -> list[str]:
    """The kinds in one entry of attention_config."""
    first = entry[0] if isinstance(entry, list) and entry else entry
    return [str(name) for name in first] if isinstance(first, list) else [str(first)]
