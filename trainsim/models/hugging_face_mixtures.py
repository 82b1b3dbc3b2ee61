"""
What transformers' classes with experts make of their configurations: which layers have experts, and what kind.

Each rule is that of ``modeling_*.py`` of transformers 4.57.6 (huggingface/transformers).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainsim.errors import ScenarioError
from trainsim.models.hugging_face_config import (
    CHUNKED,
    FULL,
    LINEAR,
    Config,
    Values,
    all_but,
    experts,
    late_windows,
    layered,
    windows,
)


def _mixtral(config: Config) -> Values:
    return {"moe": experts(config, "intermediate_size"), "window": config.get("sliding_window")}


def _granite_moe(config: Config) -> Values:
    return {"moe": experts(config, "intermediate_size"), "biases": config.biases("attention_bias", False)}


def _qwen_experts(config: Config) -> tuple[Values, list[Values]]:
    """The experts, and what layers without them have for themselves."""
    step, dense = config.size("decoder_sparse_step"), config.get("mlp_only_layers") or []
    sparse = [k not in dense and (k + 1) % step == 0 for k in config.layers]
    shared = config.get("shared_expert_intermediate_size") or 0
    moe = experts(config, "moe_intermediate_size", shared_ffn_hidden=shared, shared_gate=bool(shared))
    return moe, [{} if has else {"moe": None} for has in sparse]


def _qwen2_moe(config: Config) -> Values:
    moe, dense = _qwen_experts(config)
    biases = "qkv" if config.get("qkv_bias") else "none"
    return {"moe": moe, "biases": biases, **windows(config, config.types(late_windows(config)), dense=dense)}


def _qwen3_moe(config: Config) -> Values:
    moe, dense = _qwen_experts(config)
    kinds = windows(config, config.types(late_windows(config)), dense=dense)
    return {"biases": config.biases("attention_bias", False), "moe": moe, **kinds}


def _qwen3_next(config: Config) -> Values:
    moe, dense = _qwen_experts(config)
    interval = config.get("full_attention_interval") or 4
    types = config.types([FULL if (k + 1) % interval == 0 else LINEAR for k in config.layers])
    delta = {
        "key_heads": config.size("linear_num_key_heads"),
        "value_heads": config.size("linear_num_value_heads"),
        "key_head_dim": config.size("linear_key_head_dim"),
        "value_head_dim": config.size("linear_value_head_dim"),
        "kernel": config.size("linear_conv_kernel_dim"),
    }
    linear: list[Values] = [{"linear_attention": delta} if name == LINEAR else {} for name in types]
    share = config.get("partial_rotary_factor")
    biases = config.biases("attention_bias", False)
    return {"moe": moe, "biases": biases, "rotary_share": share, **windows(config, types, linear=linear, dense=dense)}


def _phimoe(config: Config) -> Values:
    return {
        **_mixtral(config),
        "biases": config.biases("attention_bias", False),
        "head_bias": bool(config.get("lm_head_bias")),
    }


def _deepseek_experts(config: Config) -> Values:
    """Experts in all layers but the first few, and some that all tokens meet."""
    width, first = config.size("moe_intermediate_size"), config.get("first_k_dense_replace") or 0
    dense: list[Values] = [{"moe": None} if k < first else {} for k in config.layers]
    shared = width * (config.get("n_shared_experts") or 0)
    return {"moe": experts(config, "moe_intermediate_size", shared_ffn_hidden=shared), **layered(dense)}


def _deepseek(config: Config) -> Values:
    config.refuse("mlp_bias")
    latent = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return {
        "kv_heads": config.size("num_attention_heads"),
        "head_dim": config.size("v_head_dim"),
        "mla": {key: config.get(key) for key in latent},
        "biases": config.biases("attention_bias", False),
        **_deepseek_experts(config),
    }


def _gpt_oss(config: Config) -> Values:
    if config.values.get("attention_bias", True) is False:
        raise ScenarioError(f"{config.path}: attention_bias: false is not simulated for {config.kind}; true is")
    return {"moe": experts(config, "intermediate_size"), **windows(config, config.types(all_but(config, 2)))}


def _llama4(config: Config) -> Values:
    interval, step = config.size("no_rope_layer_interval"), config.size("interleave_moe_layer_step")
    rotated = config.get("no_rope_layers") or [int((k + 1) % interval != 0) for k in config.layers]
    sparse = config.get("moe_layers")
    sparse = range(step - 1, len(config.layers), step) if sparse is None else sparse
    unrotated: list[Values] = [{} if rotated[k] else {"positions": "none"} for k in config.layers]
    dense: list[Values] = [{} if k in sparse else {"moe": None} for k in config.layers]
    types = config.types([CHUNKED if rotated[k] else FULL for k in config.layers])
    return {
        "ffn_hidden": config.size("intermediate_size_mlp"),
        "qk_norm": "l2" if config.get("use_qk_norm") else "none",
        "moe": experts(config, "intermediate_size", shared_ffn_hidden=config.size("intermediate_size")),
        **windows(config, types, unrotated=unrotated, dense=dense),
    }


def _olmoe(config: Config) -> Values:
    return {"biases": config.biases("attention_bias", False), "moe": experts(config, "intermediate_size")}


def _glm4_moe(config: Config) -> Values:
    biases = "qkv" if config.get("attention_bias") else "none"
    norm = "head" if config.get("use_qk_norm") else "none"
    return {
        "biases": biases,
        "qk_norm": norm,
        "rotary_share": config.get("partial_rotary_factor"),
        **_deepseek_experts(config),
    }


RULES: Mapping[str, Callable[[Config], Values]] = {
    "mixtral": _mixtral,
    "granitemoe": _granite_moe,
    "qwen2_moe": _qwen2_moe,
    "qwen3_moe": _qwen3_moe,
    "phimoe": _phimoe,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "qwen3_next": _qwen3_next,
    "gpt_oss": _gpt_oss,
    "llama4_text": _llama4,
    "olmoe": _olmoe,
    "glm4_moe": _glm4_moe,
}
"""What each class has beyond the numbers that all have."""
