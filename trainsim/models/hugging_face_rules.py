"""
What the dense classes of transformers make of their configurations beyond sizes: biases, norms, kinds of layers.

Each rule is that of ``modeling_*.py`` of transformers 4.57.6 (huggingface/transformers).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainsim.errors import ScenarioError
from trainsim.models.hugging_face_config import (
    ACTIVATIONS,
    FULL,
    Config,
    Values,
    all_but,
    late_windows,
    windows,
)


def _llama(config: Config) -> Values:
    return {"biases": config.biases("attention_bias", "mlp_bias")}


def _mistral(config: Config) -> Values:
    return {"window": config.get("sliding_window")}


def _qwen1(config: Config) -> Values:
    """The width in the file is that of gate and up together."""
    return {"ffn_hidden": config.size("intermediate_size") // 2, "biases": "qkv"}


def _qwen2(config: Config) -> Values:
    return windows(config, config.types(late_windows(config)))


def _qwen3(config: Config) -> Values:
    return {"biases": config.biases("attention_bias", False), **_qwen2(config)}


def _gemma(config: Config) -> Values:
    return {"biases": config.biases("attention_bias", False)}


def _gemma2(config: Config) -> Values:
    scores, logits = config.get("attn_logit_softcapping"), config.get("final_logit_softcapping")
    caps = {"attention_softcap": scores, "logits_softcap": logits}
    step = 2 if config.kind == "gemma2" else config.get("sliding_window_pattern") or 6
    return {**_gemma(config), **caps, **windows(config, config.types(all_but(config, step)))}


def _phi(config: Config) -> Values:
    heads, share = config.size("num_attention_heads"), config.get("partial_rotary_factor")
    if config.get("rotary_dim"):
        share = min(1.0, config.size("rotary_dim") * heads / config.size("hidden_size"))
    return {"qk_norm": "head" if config.get("qk_layernorm") else "none", "rotary_share": share}


def _phi3(config: Config) -> Values:
    return {"window": config.get("sliding_window"), "rotary_share": config.get("partial_rotary_factor")}


def _gpt_bigcode(config: Config) -> Values:
    return {"kv_heads": 1 if config.get("multi_query") else config.size("num_attention_heads")}


def _gptj(config: Config) -> Values:
    heads = config.size("num_attention_heads")
    rotated = config.size("rotary_dim") if config.get("rotary_dim") else config.size("hidden_size") // heads
    return {"rotary_share": min(1.0, rotated * heads / config.size("hidden_size"))}


def _gpt_neox(config: Config) -> Values:
    return {
        "biases": config.biases("attention_bias", True),
        "parallel_residual": bool(config.get("use_parallel_residual")),
        "rotary_share": config.get("partial_rotary_factor"),
    }


def _opt(config: Config) -> Values:
    width, hidden = config.get("word_embed_proj_dim") or config.size("hidden_size"), config.size("hidden_size")
    return {
        "max_positions": config.size("max_position_embeddings") + 2,
        "biases": "all" if config.get("enable_bias") else "none",
        "embedding_size": None if width == hidden else width,
        "final_norm": bool(config.get("do_layer_norm_before")) and not config.get("_remove_final_layer_norm"),
    }


def _bloom(config: Config) -> Values:
    return {"kv_heads": config.size("num_attention_heads")}


def _falcon(config: Config) -> Values:
    heads, parallel = config.size("num_attention_heads"), bool(config.get("parallel_attn"))
    grouped = bool(config.get("new_decoder_architecture"))
    kv_heads = (config.get("num_key_value_heads") or heads) if grouped else 1 if config.get("multi_query") else heads
    norms = config.get("num_ln_in_parallel_attn") or (2 if grouped else 1)
    return {
        "kv_heads": kv_heads,
        "biases": "all" if config.get("bias") else "none",
        "positions": "alibi" if config.get("alibi") else "rotary",
        "parallel_residual": parallel,
        "shared_norm": parallel and norms != 2,
    }


def _mpt(config: Config) -> Values:
    attention = config.get("attn_config") or {}
    kind = attention.get("attn_type", "multihead_attention")
    if kind != "multihead_attention":
        raise ScenarioError(f"{config.path}: attn_type {kind!r} is not simulated; multihead_attention is")
    return {
        "ffn_hidden": config.size("expansion_ratio") * config.size("hidden_size"),
        "kv_heads": config.size("num_attention_heads"),
        "positions": "alibi" if attention.get("alibi", True) else "none",
    }


def _nemotron(config: Config) -> Values:
    return {**_llama(config), "rotary_share": config.get("partial_rotary_factor")}


def _arcee(config: Config) -> Values:
    return {**_llama(config), "norm": "rmsnorm", "rotary_share": 1.0}


def _t5(config: Config) -> Values:
    encoder = config.size("num_hidden_layers")
    gate, _, name = str(config.get("feed_forward_proj")).rpartition("-")
    name = "gelu_new" if name == "gelu" and gate else name
    if name not in ACTIVATIONS or gate not in ("", "gated"):
        written = config.get("feed_forward_proj")
        raise ScenarioError(f"{config.path}: feed_forward_proj is {written!r}; relu and gated-gelu are simulated")
    return {
        "layers": encoder + (config.size("num_decoder_layers") if config.get("num_decoder_layers") else encoder),
        "encoder_layers": encoder,
        "kv_heads": config.size("num_attention_heads"),
        "gated_mlp": gate == "gated",
        "activation": ACTIVATIONS[name],
        "max_positions": 0,
    }


def _cohere(config: Config) -> Values:
    layout = {"norm": "layernorm", "norm_bias": False, "parallel_residual": True, "shared_norm": True}
    layout |= {
        "biases": config.biases("attention_bias", False),
        "qk_norm": "full" if config.get("use_qk_norm") else "none",
    }
    if config.kind == "cohere2":
        layout |= windows(config, config.types(all_but(config, config.get("sliding_window_pattern") or 4)))
    return layout


def _stablelm(config: Config) -> Values:
    config.refuse("qk_layernorm")
    parallel = bool(config.get("use_parallel_residual"))
    return {
        "norm": "layernorm",
        "biases": "qkv" if config.get("use_qkv_bias") else "none",
        "parallel_residual": parallel,
        "shared_norm": parallel,
        "rotary_share": config.get("partial_rotary_factor"),
    }


def _starcoder2(config: Config) -> Values:
    biases = "all" if config.get("use_bias") else "none"
    return {"positions": "rotary", "biases": biases, "window": config.get("sliding_window")}


def _glm(config: Config) -> Values:
    return {
        "biases": "qkv" if config.get("attention_bias") else "none",
        "rotary_share": config.get("partial_rotary_factor"),
        "post_norms": config.kind == "glm4",
    }


def _smollm3(config: Config) -> Values:
    rotated = config.get("no_rope_layers")
    interval = config.size("no_rope_layer_interval")
    rotated = rotated or [int((k + 1) % interval != 0) for k in config.layers]
    unrotated: list[Values] = [{} if rotated[k] else {"positions": "none"} for k in config.layers]
    return {**_llama(config), **windows(config, config.types([FULL] * len(config.layers)), unrotated=unrotated)}


def _seed_oss(config: Config) -> Values:
    if config.get("attention_bias") and not config.get("attention_out_bias"):
        config.refuse("mlp_bias")
        return {"biases": "qkv"}
    return {"biases": config.biases("attention_bias", "mlp_bias")}


def _ernie(config: Config) -> Values:
    return {"biases": config.biases("use_bias", "use_bias")}


RULES: Mapping[str, Callable[[Config], Values]] = {
    "llama": _llama,
    "mistral": _mistral,
    "granite": _llama,
    "qwen": _qwen1,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma2,
    "phi": _phi,
    "phi3": _phi3,
    "gpt_bigcode": _gpt_bigcode,
    "gptj": _gptj,
    "gpt_neox": _gpt_neox,
    "opt": _opt,
    "bloom": _bloom,
    "falcon": _falcon,
    "mpt": _mpt,
    "nemotron": _nemotron,
    "arcee": _arcee,
    "t5": _t5,
    "mt5": _t5,
    "olmo2": _gemma,
    "cohere": _cohere,
    "cohere2": _cohere,
    "stablelm": _stablelm,
    "starcoder2": _starcoder2,
    "glm": _glm,
    "glm4": _glm,
    "smollm3": _smollm3,
    "seed_oss": _seed_oss,
    "ernie4_5": _ernie,
}
"""What each class has beyond the numbers that all have; GPT-2 has nothing."""
