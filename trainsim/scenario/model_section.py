"""The model section of a scenario: a model that is not in the catalogue, key by key."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from trainsim.scenario.fields import Factor, LengthOrNone, NotNegative, ScenarioSection, Size, as_tuple


class MoeSpec(ScenarioSection):
    """Mixture of experts."""

    experts: Size
    top_k: Size = 2
    expert_ffn_hidden: Size | None = None
    shared_experts: NotNegative = 0
    shared_ffn_hidden: NotNegative | None = None
    shared_gate: bool = False
    every: Size = 1
    first_dense: NotNegative = 0


class MlaSpec(ScenarioSection):
    """Multi-head latent attention."""

    q_lora_rank: Size | None = None
    kv_lora_rank: Size
    qk_nope_head_dim: Size
    qk_rope_head_dim: Size
    v_head_dim: Size


class DeltaNetSpec(ScenarioSection):
    """A gated delta network in the place of attention."""

    key_heads: Size
    value_heads: Size
    key_head_dim: Size
    value_head_dim: Size
    kernel: Size = 4


class LoraSpec(ScenarioSection):
    """Low-rank adapters on a frozen base model."""

    rank: Size
    targets: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ("q", "v")
    base_dtype: str | None = None


class ModelSpec(ScenarioSection):
    """A model that is not in the catalogue; what is left out follows the family's rule."""

    name: str = "model"
    base: str | None = None
    family: str = "gpt"
    layers: Size | None = None
    hidden: Size | None = None
    heads: Size | None = None
    kv_heads: Size | None = None
    head_dim: Size | None = None
    ffn_hidden: Size | None = None
    gated_mlp: bool | None = None
    vocab: Size | None = None
    tied_embeddings: bool | None = None
    positions: Literal["learned", "rotary", "alibi", "relative", "none"] | None = None
    max_positions: LengthOrNone | None = None
    rotary_share: Factor | None = None
    norm: Literal["layernorm", "layernorm1p", "rmsnorm", "rmsnorm1p"] | None = None
    norm_bias: bool | None = None
    qk_norm: Literal["none", "head", "full", "l2"] | None = None
    parallel_residual: bool | None = None
    shared_norm: bool | None = None
    post_norms: bool | None = None
    final_norm: bool | None = None
    activation: Literal["silu", "gelu", "gelu_tanh", "relu", "relu2"] | None = None
    biases: Literal["all", "qkv", "attention", "mlp", "none"] | None = None
    head_bias: bool | None = None
    embedding_norm: bool | None = None
    embedding_size: Size | None = None
    dropout: bool | None = None
    attention_sinks: bool | None = None
    attention_gate: bool | None = None
    attention_softcap: Factor | None = None
    logits_softcap: Factor | None = None
    moe: MoeSpec | None = None
    mla: MlaSpec | None = None
    linear_attention: DeltaNetSpec | None = None
    window: Size | None = None
    chunk: Size | None = None
    encoder_layers: NotNegative | None = None
    mtp_layers: NotNegative | None = None
    lora: LoraSpec | None = None
    layer_kinds: dict[str, dict[str, Any]] | None = None
    layer_pattern: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] | None = None
