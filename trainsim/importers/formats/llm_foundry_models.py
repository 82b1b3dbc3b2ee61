"""
Models of llm-foundry: MPT by its sizes, others by their names on Hugging Face's hub.
"""

from __future__ import annotations

from trainsim.errors import shorten
from trainsim.importers import hub
from trainsim.importers.reader import Reader
from trainsim.importers.tables import table

MPT, HUB = "mpt_causal_lm", "hf_causal_lm"
MIXTURES = ("mb_moe", "mb_dmoe", "torch_dmoe")
SIZES = {"n_layers": "layers", "d_model": "hidden", "n_heads": "heads", "vocab_size": "vocab"}
WHOSE = "MPTConfig's default"


def say_model(reader: Reader) -> None:
    """Say the model and its adapters."""
    kind = reader.text("model.name")
    if kind == HUB or reader.has("model.pretrained_model_name_or_path"):
        _from_hub(reader)
    elif kind in (MPT, None):
        if reader.mapping("model"):
            _mpt(reader)
    else:
        reader.warn("model.name", f"{kind} is not modelled, so the model is left open: --set model=NAME")
    _adapters(reader)


def _from_hub(reader: Reader) -> None:
    """A model by its name on the hub."""
    reader.use("model.name", "a model of Hugging Face")
    hub.say_model(reader, "model.pretrained_model_name_or_path")
    if reader.mapping("model.config_overrides"):
        reader.warn("model.config_overrides", "not modelled: sizes are those of the name; --set model.KEY=...")


def _mpt(reader: Reader) -> None:
    """An MPT by its sizes."""
    defaults = table("llm_foundry")["defaults"]
    reader.say("model.family", "mpt", "model.name")
    for key, to in SIZES.items():
        value = reader.whole(f"model.{key}")
        if value is None:
            reader.assume(f"model.{to}", defaults[key], WHOSE)
        else:
            reader.say(f"model.{to}", value, f"model.{key}")
    positions = reader.whole("model.max_seq_len") or defaults["max_seq_len"]
    reader.say("model.max_positions", positions, "model.max_seq_len")
    _mlp(reader)
    _attention(reader)
    biased = not reader.flag("model.no_bias")
    said = (("model.biases", "all" if biased else "none"), ("model.norm_bias", biased))
    norms = table("llm_foundry")["norms"]
    norm = reader.word("model.norm_type", norms)
    reader.say("model.norm", norms[norm] if norm else None, "model.norm_type")
    for key, value in said:
        if reader.has("model.no_bias"):
            reader.say(key, value, "model.no_bias")
        else:
            reader.assume(key, value, WHOSE)
    if (tied := reader.flag("model.tie_word_embeddings")) is not None:
        reader.say("model.tied_embeddings", tied, "model.tie_word_embeddings")


def _mlp(reader: Reader) -> None:
    """Width and kind of the MLP."""
    kind = reader.word(
        "model.ffn_config.ffn_type", ("mptmlp", "mptglu", "te_ln_mlp", "mb_moe", "mb_dmoe", "torch_dmoe")
    )
    width, ratio = reader.whole("model.ffn_config.ffn_hidden_size"), reader.number("model.expansion_ratio", low=0.01)
    hidden = reader.whole("model.d_model") or table("llm_foundry")["defaults"]["d_model"]
    if width:
        reader.say("model.ffn_hidden", width, "model.ffn_config.ffn_hidden_size")
    elif ratio:
        reader.say("model.ffn_hidden", int(hidden * ratio), "model.expansion_ratio")
    if kind == "mptglu":
        reader.say("model.gated_mlp", True, "model.ffn_config.ffn_type")
    elif kind in MIXTURES:
        for key, to in {"moe_num_experts": "experts", "moe_top_k": "top_k"}.items():
            reader.say(f"model.moe.{to}", reader.whole(f"model.ffn_config.{key}"), f"model.ffn_config.{key}")
        reader.use("model.ffn_config.ffn_type", "model.moe")


def _attention(reader: Reader) -> None:
    """Heads, positions, windows and the kernel."""
    section = "model.attn_config"
    kinds = ("multihead_attention", "multiquery_attention", "grouped_query_attention")
    kind = reader.word(f"{section}.attn_type", kinds)
    if kind == "multiquery_attention":
        reader.say("model.kv_heads", 1, f"{section}.attn_type")
    else:
        reader.say("model.kv_heads", reader.whole(f"{section}.kv_n_heads"), f"{section}.kv_n_heads")
    alibi, rope = reader.flag(f"{section}.alibi"), reader.flag(f"{section}.rope")
    learned = reader.flag("model.learned_pos_emb")
    if alibi or rope:
        reader.say("model.positions", "alibi" if alibi else "rotary", f"{section}.{'alibi' if alibi else 'rope'}")
    elif learned is not None:
        reader.say("model.positions", "learned" if learned else "none", "model.learned_pos_emb")
    else:
        reader.assume("model.positions", "learned", WHOSE)
    kernels = table("llm_foundry")["attention"]
    if kernel := reader.word(f"{section}.attn_impl", kernels):
        reader.say("training.attention", kernels[kernel], f"{section}.attn_impl")
    if (window := reader.whole(f"{section}.sliding_window_size", low=-1)) and window > 0:
        reader.say("model.window", window, f"{section}.sliding_window_size")
    for key, norm in {"qk_ln": "full", "qk_gn": "head"}.items():
        if reader.flag(f"{section}.{key}"):
            reader.say("model.qk_norm", norm, f"{section}.{key}")
    if reader.flag(f"{section}.attn_uses_sequence_id"):
        words = "attention stays in documents; how long they are is in no key: --set training.documents=N"
        reader.warn(f"{section}.attn_uses_sequence_id", words)
    if reader.number("model.resid_pdrop") or reader.number("model.emb_pdrop"):
        reader.say("model.dropout", True, "model.resid_pdrop", "model.emb_pdrop")


def _adapters(reader: Reader) -> None:
    """Low-rank adapters of the PEFT section."""
    section, known = "model.peft_config", table("llm_foundry")["adapters"]
    if reader.mapping(section) is None:
        return
    kind = reader.text(f"{section}.peft_type")
    if kind and kind.upper() != "LORA":
        reader.warn(f"{section}.peft_type", f"{kind} is not modelled: all parameters are trained here")
        return
    rank, names = reader.whole(f"{section}.r"), reader.raw(f"{section}.target_modules")
    reader.say("model.lora.rank", rank or 8, f"{section}.r", f"{section}.peft_type")
    names = names if isinstance(names, list) else []
    targets = [known[name] for name in names if isinstance(name, str) and name in known]
    if targets:
        reader.say("model.lora.targets", targets, f"{section}.target_modules")
    if others := [name for name in names if not (isinstance(name, str) and name in known)]:
        reader.warn(f"{section}.target_modules", f"{shorten(others)} take no adapters here")
