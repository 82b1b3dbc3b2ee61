"""The model section of a scenario: a model that is not in the catalogue, key by key."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from trainsim.scenario.fields import Factor, LengthOrNone, NotNegative, ScenarioSection, Size, as_tuple


class MoeSpec(ScenarioSection):
    """Mixture of experts."""

    experts: Size  # experts of a layer
    top_k: Size = 2  # experts that each token goes to
    expert_ffn_hidden: Size | None = None  # width of an expert; left out: `ffn_hidden`
    shared_experts: NotNegative = 0  # experts that every token meets
    shared_ffn_hidden: NotNegative | None = None  # their width together; left out: as wide as so many experts
    shared_gate: bool = False  # a learnt scale on what they give
    every: Size = 1  # every so many-th layer has experts
    first_dense: NotNegative = 0  # so many first layers have none


class MlaSpec(ScenarioSection):
    """Multi-head latent attention."""

    q_lora_rank: Size | None = None  # numbers that queries are made from; left out: they are made directly
    kv_lora_rank: Size  # numbers that keys and values are made from
    qk_nope_head_dim: Size  # part of a head of queries and keys without positions
    qk_rope_head_dim: Size  # part of it that is rotated
    v_head_dim: Size  # size of a head of values


class DeltaNetSpec(ScenarioSection):
    """A gated delta network in the place of attention."""

    key_heads: Size  # heads of queries and keys
    value_heads: Size  # heads of values
    key_head_dim: Size  # size of a head of keys
    value_head_dim: Size  # size of a head of values
    kernel: Size = 4  # width of the short convolution


class LoraSpec(ScenarioSection):
    """Low-rank adapters on a frozen base model."""

    rank: Size  # of the two small matrices
    targets: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ("q", "v")
    """Products that have adapters: q, k, v, o, gate, up, down, fc1, fc2, `all`, `qkv`, `proj`."""
    base_dtype: str | None = None  # how frozen weights are stored: `nf4`, `int8`, `fp8`, `fp32`; left out: 16 bits


class ModelSpec(ScenarioSection):
    """A model that is not in the catalogue; what is left out follows the family's rule."""

    name: str = "model"  # what it is called; a name of the catalogue without sizes: that model
    base: str | None = None  # the model of the catalogue, or the file, that it starts from
    family: str = "gpt"  # whose defaults hold for all that is left out
    layers: Size | None = None  # transformer layers; needed unless there is a `base`
    hidden: Size | None = None  # width of the residual stream; needed
    heads: Size | None = None  # heads of queries; needed
    kv_heads: Size | None = None  # heads of keys and values; left out: as many as `heads`
    head_dim: Size | None = None  # size of a head; left out: `hidden` / `heads`
    ffn_hidden: Size | None = None  # width of the MLP; left out: the family's multiple of `hidden`
    gated_mlp: bool | None = None  # the MLP has three matrices (SwiGLU, GeGLU)
    vocab: Size | None = None  # size of the vocabulary before padding; needed
    tied_embeddings: bool | None = None  # the head shares the embedding's matrix
    positions: Literal["learned", "rotary", "alibi", "relative", "none"] | None = None  # how positions are told
    max_positions: LengthOrNone | None = None  # positions of a learned table
    rotary_share: Factor | None = None  # the rotated part of each head
    norm: Literal["layernorm", "layernorm1p", "rmsnorm", "rmsnorm1p"] | None = None  # the kind of norm
    norm_bias: bool | None = None  # a LayerNorm has a shift
    qk_norm: Literal["none", "head", "full", "l2"] | None = None
    """A norm of queries and keys: head by head, over all heads, or without a scale."""
    parallel_residual: bool | None = None  # attention and MLP read the same residual stream
    shared_norm: bool | None = None  # and the same norm of it
    post_norms: bool | None = None  # norms after attention and MLP as well as before
    final_norm: bool | None = None  # a norm before the head
    activation: Literal["silu", "gelu", "gelu_tanh", "relu", "relu2"] | None = None
    """Of the MLP; a gated one with `silu` is SwiGLU."""
    biases: Literal["all", "qkv", "attention", "mlp", "none"] | None = None  # which linear layers have biases
    head_bias: bool | None = None  # the head has a bias
    embedding_norm: bool | None = None  # a norm after the embedding
    embedding_size: Size | None = None  # numbers of a word, where it is projected to `hidden` and back
    dropout: bool | None = None  # it is trained with dropout
    attention_sinks: bool | None = None  # a learnt number per head beside the scores
    attention_gate: bool | None = None  # a product as wide as the queries scales what attention gives
    attention_softcap: Factor | None = None  # the value at which a tanh bends the scores
    logits_softcap: Factor | None = None  # the value at which a tanh bends the logits
    moe: MoeSpec | None = None  # a mixture of experts in the place of the MLP
    mla: MlaSpec | None = None  # multi-head latent attention
    linear_attention: DeltaNetSpec | None = None
    """A gated delta network in the place of attention: counted, not simulated."""
    window: Size | None = None  # tokens that a query may look at, itself included; left out: all before it
    chunk: Size | None = None  # tokens of the parts of a sequence in which attention stays
    encoder_layers: NotNegative | None = None  # so many of the `layers` are an encoder's
    mtp_layers: NotNegative | None = None  # layers after the last one that predict tokens further on
    lora: LoraSpec | None = None  # low-rank adapters are trained, all else is frozen
    layer_kinds: dict[str, dict[str, Any]] | None = None
    """Kinds of layers by name, each with the keys in which it differs."""
    layer_pattern: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] | None = None
    """The kind of each layer, repeated to the end: `[wide*3, default]`."""
