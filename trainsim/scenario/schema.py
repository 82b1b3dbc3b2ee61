"""
The scenario language: every key, its type and its limits. What may be left out is None and derived later.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from trainsim.scenario.documents_section import Documents, Padding
from trainsim.scenario.fields import (
    Count,
    Degree,
    Length,
    NotNegative,
    Precision,
    ScenarioSection,
    Size,
    as_tuple,
    repeated,
)
from trainsim.scenario.model_section import ModelSpec
from trainsim.scenario.parallel_section import ParallelSpec
from trainsim.scenario.rollout_section import RolloutSpec
from trainsim.scenario.routing_section import RoutingSpec
from trainsim.scenario.sharding_section import ShardingSection, no_sharding
from trainsim.scenario.what_if_section import WhatIfSpec


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


def _nodes_kind(value: object) -> str:
    return "<list>" if isinstance(value, list | tuple) else "<number>"


def _placement_kind(value: object) -> str | None:
    return "<list>" if isinstance(value, list | tuple) else _name_or_mapping(value)


Nodes = Annotated[tuple[NotNegative, ...], BeforeValidator(as_tuple)]
NodesOrNumber = Annotated[
    Annotated[Degree, Tag("<number>")] | Annotated[Nodes, Tag("<list>")], Discriminator(_nodes_kind)
]
"""Numbers of nodes, or how many."""
PlacementRule = Annotated[
    Annotated[str, Tag("<name>")]
    | Annotated[dict[str, NotNegative], Tag("<mapping>")]
    | Annotated[tuple[str, ...], BeforeValidator(as_tuple), Tag("<list>")],
    Discriminator(_placement_kind),
]
"""The name of a placement or the path of a host list; a placement with its seed; or the lines of a host list."""


class BackgroundSpec(ScenarioSection):
    """Traffic of others on the network: the part of each link that it takes, and of which links."""

    load: Annotated[float, Field(ge=0.0, le=0.99)]
    on: str = "uplinks"


class ClusterSpec(ScenarioSection):
    """A topology, how many nodes of it or how many GPUs in all, and on which nodes the job runs; every other key
    overrides a field of the topology file."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    topology: Named
    nodes: Degree | None = None
    gpus: Degree | None = None
    on_nodes: NodesOrNumber | None = None
    not_on_nodes: Nodes | None = None
    placement: PlacementRule | None = None
    background: BackgroundSpec | None = None


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
    """Recompute of a part of a stage: ``layers`` of each virtual stage or ``every`` so many-th layer, ``modules`` of
    every layer, or what a ``policy`` chooses."""

    mode: Literal["none", "selective", "full"]
    layers: Size | None = None
    every: Size | None = None
    policy: str | None = None
    modules: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()


class CrossEntropySpec(ScenarioSection):
    """How logits and loss are made, and in how many chunks of the tokens of a micro-batch."""

    kind: str
    chunks: Size | None = None


CrossEntropy = Annotated[
    Annotated[str, Tag("<name>")] | Annotated[CrossEntropySpec, Tag("<mapping>")], Discriminator(_name_or_mapping)
]


RecomputeMode = Literal["none", "selective", "full"]
Recompute = Annotated[
    Annotated[RecomputeMode, Tag("<name>")] | Annotated[RecomputeSpec, Tag("<mapping>")],
    Discriminator(_name_or_mapping),
]


class TrainingSpec(ScenarioSection):
    """Batches, numbers and what is recomputed."""

    sequence_length: Length | None = None
    decoder_length: Length | None = None
    documents: Documents | None = None
    padding: Padding = "none"
    mask: Literal["causal", "document"] | None = None
    micro_batch: Size | None = None
    gradient_accumulation: Size | None = None
    global_batch: Size | None = None
    tokens: Count | None = None
    precision: Precision = "bf16"
    fp8_recipe: Literal["delayed", "tensorwise", "blockwise", "mxfp8", "nvfp4"] | None = None
    autocast: bool | None = None
    gradients: Literal["fp32", "fp16", "bf16"] | None = None
    gradient_dtype: Literal["fp32", "fp16", "bf16"] | None = None
    accumulation_dtype: Literal["fp32", "fp16", "bf16"] | None = None
    optimizer: Named = "adam"
    optimizer_in_backward: bool = False
    loss_scaling: Literal["dynamic", "static", "none"] = "dynamic"
    recompute: Recompute = "none"
    activation_offload: Literal["none", "cpu"] = "none"
    attention: (
        Literal["eager", "sdpa", "flash1", "flash2", "flash3", "xformers", "triton", "cudnn", "cudnn-fp8"] | None
    ) = None
    attention_mask: Literal["none", "gpu", "host"] = "none"
    tp_overlap: bool | Literal["none", "wgrad", "userbuffers", "async"] | None = None
    loss_parallel: bool | None = None
    cross_entropy: CrossEntropy = "standard"
    kept_logits: bool | Literal["outputs"] = False
    cuda_graphs: bool | None = None
    moe: RoutingSpec | None = None
    moe_overlap: bool = False
    delay_wgrad: bool = False
    rollout: RolloutSpec | None = None


class NetworkSpec(ScenarioSection):
    """Overrides of the collective model: one algorithm, or one per collective, and protocols of NCCL alike."""

    algorithm: str | dict[str, str] = "auto"
    protocol: str | dict[str, str] = "auto"


def _of_gpus(value: object) -> object:
    """A bare number is that of the GPUs. Raises ValueError for what is neither that nor a mapping."""
    if isinstance(value, str | bool | list):
        raise ValueError("wants a number, such as 0.015, or a mapping of gpu, network, kernel")
    return {"gpu": value} if isinstance(value, int | float) and not isinstance(value, bool) else value


Deviation = Annotated[float, Field(ge=0.0, le=0.5)]


class JitterSpec(ScenarioSection):
    """Standard deviations of what is drawn at random, as parts of 1: of GPUs, of network links, of each kernel."""

    gpu: Deviation | None = None
    network: Deviation = 0.0
    kernel: Deviation = 0.0


class SimulationSpec(ScenarioSection):
    """How fine and how the simulation runs."""

    detail: Literal["op", "layer", "block"] = "op"
    fold: bool = True
    steps: Size = 1
    jitter: Annotated[JitterSpec | None, BeforeValidator(_of_gpus)] = None
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
