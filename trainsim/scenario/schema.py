"""
The scenario language: every key, its type and its limits. What may be left out is None and derived later.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from trainsim.scenario.fields import (
    Degree,
    Factor,
    Length,
    LengthOrNone,
    NotNegative,
    Precision,
    ScenarioSection,
    Seconds,
    Size,
    as_tuple,
    repeated,
)
from trainsim.scenario.routing_section import RoutingSpec
from trainsim.scenario.sharding_section import ShardingSection, no_sharding


def _name_or_mapping(value: object) -> str | None:
    if isinstance(value, str):
        return "<name>"
    return "<mapping>" if isinstance(value, dict | BaseModel) else None


def _layout_kind(value: object) -> str | None:
    if isinstance(value, str):
        return "<name>"
    return "<list>" if isinstance(value, list | tuple) else None


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("holds characters that cannot be printed")
    return name


Named = Annotated[
    Annotated[str, Tag("<name>")] | Annotated[dict[str, Any], Tag("<mapping>")], Discriminator(_name_or_mapping)
]
"""A name of the catalogue, the path of a file, or a mapping with a ``base``."""


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


class ClusterSpec(ScenarioSection):
    """A topology, how many nodes of it, and on which of them the job runs; every other key overrides a field of the
    topology file."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    topology: Named
    nodes: Degree | None = None
    on_nodes: Annotated[tuple[NotNegative, ...] | None, BeforeValidator(as_tuple)] = None


Axis = Literal["tp", "cp", "ep", "dp", "pp"]


class ParallelSpec(ScenarioSection):
    """Degrees of parallelism; their product is the number of GPUs."""

    tp: Degree = 1
    pp: Degree = 1
    dp: Degree | None = None
    cp: Degree = 1
    ep: Degree = 1
    etp: Degree | None = None
    sequence_parallel: bool = False
    context_parallel: str = "ring"
    ulysses: Degree | None = None
    order: Annotated[tuple[Axis, ...], BeforeValidator(as_tuple)] = ("tp", "cp", "ep", "dp", "pp")


Layout = Annotated[
    Annotated[str, Tag("<name>")] | Annotated[tuple[NotNegative, ...], BeforeValidator(repeated), Tag("<list>")],
    Discriminator(_layout_kind),
]


class PipelineSpec(ScenarioSection):
    """The pipeline's schedule and where the layers live."""

    schedule: str | None = None
    chunks: Degree = 1
    group: Degree | None = None
    layout: Layout | None = None
    p2p: Literal["async", "blocking"] | None = None
    post_validation: bool = False
    vocabulary_parallel: bool = False


class RecomputeSpec(ScenarioSection):
    """Recompute of a part of a stage: ``layers`` of each virtual stage, or ``modules`` of every layer."""

    mode: Literal["none", "selective", "full"]
    layers: Size | None = None
    modules: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()


RecomputeMode = Literal["none", "selective", "full"]
Recompute = Annotated[
    Annotated[RecomputeMode, Tag("<name>")] | Annotated[RecomputeSpec, Tag("<mapping>")],
    Discriminator(_name_or_mapping),
]


class TrainingSpec(ScenarioSection):
    """Batches, numbers and what is recomputed."""

    sequence_length: Length | None = None
    micro_batch: Size = 1
    global_batch: Size | None = None
    precision: Precision = "bf16"
    gradient_dtype: Literal["fp32", "fp16", "bf16"] | None = None
    accumulation_dtype: Literal["fp32", "fp16", "bf16"] | None = None
    optimizer: Named = "adam"
    loss_scaling: Literal["dynamic", "static", "none"] = "dynamic"
    recompute: Recompute = "none"
    attention: Literal["eager", "flash1", "flash2", "flash3", "xformers", "cudnn", "cudnn-fp8"] | None = None
    tp_overlap: bool | Literal["none", "wgrad", "userbuffers", "async"] | None = None
    moe: RoutingSpec | None = None
    moe_overlap: bool = False


class NetworkSpec(ScenarioSection):
    """Overrides of the collective model: one algorithm, or one per collective."""

    algorithm: str | dict[str, str] = "auto"


class SlowSpec(ScenarioSection):
    """Something slower than the rest, from the first to the last instant of the step.

    With ``node`` (a number), ``rank`` or ``gpu`` (a rank number, or a name such as ``node3.gpu2``), kernels
    take ``factor`` times as long: 1.1 is 10 % slower. With ``link`` or ``nic`` (a name such as
    ``node3.nic0``), the bandwidth is ``factor`` of what it was: 0.5 is half.
    """

    factor: Factor
    node: NotNegative | None = None
    gpu: str | NotNegative | None = None
    rank: NotNegative | None = None
    link: str | None = None
    nic: str | None = None

    @model_validator(mode="after")
    def _one_target(self) -> SlowSpec:
        if sum(t is not None for t in (self.node, self.gpu, self.rank, self.link, self.nic)) != 1:
            raise ValueError("name one thing that is slow: node, gpu, rank, link or nic")
        return self


class DelaySpec(ScenarioSection):
    """One rank loses time once in the step, before its first work of the kind ``at``."""

    rank: NotNegative
    at: Literal["forward", "backward", "optimizer"] = "forward"
    seconds: Seconds


class SkipSpec(ScenarioSection):
    """Gradients overflow in one of the steps: its update and the gather of parameters are left out."""

    step: NotNegative


class WhatIfSpec(ScenarioSection):
    """One perturbation. This version cannot simulate ``jitter`` and ``fail`` yet."""

    slow: SlowSpec | None = None
    delay: DelaySpec | None = None
    skip: SkipSpec | None = None
    jitter: Any = None
    fail: Any = None

    @model_validator(mode="after")
    def _one_kind(self) -> WhatIfSpec:
        if len(self.model_fields_set) != 1:
            raise ValueError("write one of slow, delay, skip, jitter or fail per entry of the list")
        return self


class SimulationSpec(ScenarioSection):
    """How fine and how the simulation runs."""

    detail: Literal["op", "layer", "block"] = "op"
    fold: bool = True
    steps: Size = 1
    seed: NotNegative = 0


Model = Annotated[
    Annotated[str, Tag("<name>")] | Annotated[ModelSpec, Tag("<mapping>")], Discriminator(_name_or_mapping)
]


class ScenarioSpec(ScenarioSection):
    """A whole scenario file. ``derived`` stands beside a resolved scenario and is ignored when read again."""

    name: Annotated[str, AfterValidator(_printable)] | None = None
    framework: Named | None = None
    model: Model
    cluster: ClusterSpec
    parallel: ParallelSpec = ParallelSpec()
    pipeline: PipelineSpec = PipelineSpec()
    sharding: ShardingSection = Field(default_factory=no_sharding)
    training: TrainingSpec = TrainingSpec()
    network: NetworkSpec = NetworkSpec()
    what_if: Annotated[tuple[WhatIfSpec, ...], BeforeValidator(as_tuple)] = ()
    simulation: SimulationSpec = SimulationSpec()
    derived: dict[str, str] = Field(default_factory=dict)
