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
    """The part of each link's bandwidth that others take, from the first instant to the last."""
    on: str = "uplinks"  # which links: `uplinks`, `nics`, or a link or device by its name


class ClusterSpec(ScenarioSection):
    """A topology, how many nodes of it or how many GPUs in all, and on which nodes the job runs; every other key
    overrides a field of the topology file."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    topology: Named  # the machine: a name of `trainsim list topologies`, a file, or a mapping with a `base`
    nodes: Degree | None = None  # how many nodes of it; left out: as many as the topology says
    gpus: Degree | None = None  # how many GPUs in all, in the place of `nodes`: whole nodes, or a part of one
    on_nodes: NodesOrNumber | None = None  # the nodes that the job runs on, or how many; left out: the first ones
    not_on_nodes: Nodes | None = None  # nodes that it does not get: others have them, or they are broken
    placement: PlacementRule | None = None
    """Which of the free nodes it gets and how ranks lie on them; left out: `packed`."""
    background: BackgroundSpec | None = None  # traffic of others on the network


Layout = Annotated[
    Annotated[str, Tag("<name>")] | Annotated[tuple[NotNegative, ...], BeforeValidator(repeated), Tag("<list>")],
    Discriminator(_layout_kind),
]


class PipelineSpec(ScenarioSection):
    """The pipeline's schedule and where the layers live."""

    schedule: str | None = None
    """The order of passes: a name of `trainsim list schedules`; left out: 1f1b, with chunks interleaved-1f1b."""
    chunks: Degree = 1  # virtual stages of each rank
    group: Degree | None = None
    """Microbatches that go through a chunk together (interleaved), or slices of a sequence; left out: the
    schedule's."""
    layout: Layout | None = None
    """Layers of each virtual stage, or a Megatron layout string; left out: as even as embedding and head allow."""
    p2p: Literal["async", "blocking"] | None = None
    """Messages between stages: `blocking` ones are rendezvous; left out: `async`."""
    post_validation: bool = False  # nobody waits for the gradient norm: it is checked after the update
    vocabulary_parallel: bool = False  # logits, loss and the head's weights are spread over all pipeline ranks


class RecomputeSpec(ScenarioSection):
    """Recompute of a part of a stage: ``layers`` of each virtual stage or ``every`` so many-th layer, ``modules`` of
    every layer, or what a ``policy`` chooses."""

    mode: Literal["none", "selective", "full"]  # what is recomputed: nothing, the core of attention, or whole layers
    layers: Size | None = None  # only the first so many layers of each virtual stage
    every: Size | None = None  # only every so many-th layer
    policy: str | None = None  # what selective recomputation keeps: `attention` or `op` (torchtitan's, per operation)
    modules: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """Megatron's modules that run again, in every layer."""


class CrossEntropySpec(ScenarioSection):
    """How logits and loss are made, and in how many chunks of the tokens of a micro-batch."""

    kind: str  # `standard`, `chunked` (torchtune) or `fused_linear` (Liger Kernel)
    chunks: Size | None = None  # chunks of the tokens of a micro-batch; left out: the usual number of that kind


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

    sequence_length: Length | None = None  # tokens per sequence; `8k` means 8,192 here; left out: 2048
    decoder_length: Length | None = None
    """Tokens of a sequence in the decoder of a model with an encoder; left out: as many."""
    documents: Documents | None = None
    """Lengths of documents: their mean, a list, or a distribution; left out: one per sequence."""
    padding: Padding = "none"
    """Sequences that are not packed but padded: to the longest of a micro-batch, or to `sequence_length`."""
    mask: Literal["causal", "document"] | None = None
    """What attention sees of packed documents: all before it, or its own document only."""
    micro_batch: Size | None = None  # sequences per micro-batch and replica; left out: derived, or 1
    gradient_accumulation: Size | None = None  # micro-batches per step and replica; left out: derived
    global_batch: Size | None = None  # sequences per step; left out: 4 micro-batches per stage, or derived
    tokens: Count | None = None  # of the whole training, from which days, GPU-hours and cost follow
    precision: Precision = "bf16"  # in what numbers layers compute
    fp8_recipe: Literal["delayed", "tensorwise", "blockwise", "mxfp8", "nvfp4"] | None = None
    """How numbers of 8 bits are scaled; left out: the framework's."""
    autocast: bool | None = None  # 16 bits come from torch.autocast over fp32 weights; left out: the framework's
    gradients: Literal["fp32", "fp16", "bf16"] | None = None  # one switch for the next two
    gradient_dtype: Literal["fp32", "fp16", "bf16"] | None = None  # of gradients on the wire; left out: the framework's
    accumulation_dtype: Literal["fp32", "fp16", "bf16"] | None = None
    """In which gradients are summed over micro-batches; left out: the framework's."""
    optimizer: Named = "adam"  # a name of `trainsim list optimizers`, a file, or a mapping with a `base`
    optimizer_in_backward: bool = False
    """Each parameter is updated as soon as its gradient is there, which is then dropped."""
    loss_scaling: Literal["dynamic", "static", "none"] = "dynamic"
    """With fp16 only: how losses are scaled, so that all ranks agree that nothing has overflowed."""
    recompute: Recompute = "none"  # what the backward pass computes again and memory does not keep
    activation_offload: Literal["none", "cpu"] = "none"
    """`cpu`: what layers save waits in host memory between forward and backward."""
    attention: (
        Literal["eager", "sdpa", "flash1", "flash2", "flash3", "xformers", "triton", "cudnn", "cudnn-fp8"] | None
    ) = None  # the kernel; left out: the framework's, `eager` in single precision
    attention_mask: Literal["none", "gpu", "host"] = "none"
    """Where a mask of all pairs of tokens is made that every rank holds."""
    tp_overlap: bool | Literal["none", "wgrad", "userbuffers", "async"] | None = None
    """What tensor-parallel collectives run under; left out: the framework's."""
    loss_parallel: bool | None = None  # the loss works on logits that are cut over tp; left out: the framework's
    cross_entropy: CrossEntropy = "standard"  # how logits and loss are made: at once, or chunk by chunk of the tokens
    kept_logits: bool | Literal["outputs"] = False
    """The caller keeps the logits until the backward is over; `outputs`: keys and values too."""
    cuda_graphs: bool | None = None
    """The step is captured and replayed, so that the host launches nothing; left out: the framework's."""
    moe: RoutingSpec | None = None  # how tokens get to their experts; left out: evenly, as the framework does it
    moe_overlap: bool = False  # tokens travel to experts while another micro-batch computes
    delay_wgrad: bool = False
    """With `moe_overlap`: weight gradients of experts run under the exchange of their tokens' gradients."""
    rollout: RolloutSpec | None = None  # what the step generates before it trains (RLHF)


class NetworkSpec(ScenarioSection):
    """Overrides of the collective model: one algorithm, or one per collective, and protocols of NCCL alike."""

    algorithm: str | dict[str, str] = "auto"
    """Of collectives: `auto`, a name of `trainsim list collectives`, or one per operation."""
    protocol: str | dict[str, str] = "auto"  # of rings and trees: `auto`, `ll`, `ll128`, `simple`, or one per operation


def _of_gpus(value: object) -> object:
    """A bare number is that of the GPUs. Raises ValueError for what is neither that nor a mapping."""
    if isinstance(value, str | bool | list):
        raise ValueError("expected a number, such as 0.015, or a mapping of gpu, network, kernel")
    return {"gpu": value} if isinstance(value, int | float) and not isinstance(value, bool) else value


Deviation = Annotated[float, Field(ge=0.0, le=0.5)]


class JitterSpec(ScenarioSection):
    """Standard deviations of what is drawn at random, as parts of 1: of GPUs, of network links, of each kernel."""

    gpu: Deviation | None = None  # of the time that each GPU takes for its kernels; left out: what it costs on average
    network: Deviation = 0.0  # of the rate of each cable and uplink, which only ever gets slower
    kernel: Deviation = 0.0  # of the time of each kernel each time that it runs


class SimulationSpec(ScenarioSection):
    """How fine and how the simulation runs."""

    detail: Literal["op", "layer", "block"] = "op"  # an interval per kernel, per layer and kind, or per pass and kind
    fold: bool = True  # GPUs that behave alike are simulated once; the result is the same to the last bit
    steps: Size = 1  # steps back to back; the period is reported
    jitter: Annotated[JitterSpec | None, BeforeValidator(_of_gpus)] = None
    """What is drawn at random: a number (of the GPUs), or a mapping."""
    seed: NotNegative = 0  # which of the draws; without effect where nothing is drawn


Model = Annotated[
    Annotated[str, Tag("<name>")] | Annotated[ModelSpec, Tag("<mapping>")], Discriminator(_name_or_mapping)
]


class ScenarioSpec(ScenarioSection):
    """A whole scenario file. ``derived`` stands beside a resolved scenario and is ignored when read again."""

    name: Annotated[str, AfterValidator(_printable)] | None = None
    """What the result is called; left out: the name of the file."""
    framework: Named | None = None
    """What the software does: a name of `trainsim list frameworks`, a file, or a mapping with a `base`; left
    out: the one that belongs to the sharding strategy, else `neutral`."""
    model: Model  # what is trained: a name of `trainsim list models`, a file (also a `config.json`), or a mapping
    cluster: ClusterSpec  # the machine, and the part of it that the job runs on
    parallel: ParallelSpec = ParallelSpec()  # degrees of parallelism
    pipeline: PipelineSpec = PipelineSpec()  # the schedule, and where the layers live
    sharding: ShardingSection = Field(default_factory=no_sharding)  # how replicas share model states
    training: TrainingSpec = TrainingSpec()  # batches, numbers, and what is kept or recomputed
    network: NetworkSpec = NetworkSpec()  # algorithms and protocols of collectives
    what_if: Annotated[tuple[WhatIfSpec, ...], BeforeValidator(as_tuple)] = ()  # things that go wrong, one per entry
    simulation: SimulationSpec = SimulationSpec()  # how fine the simulation is, and what is drawn at random
    derived: dict[str, str] = Field(default_factory=dict)
    """Stands in a resolved scenario and says what was derived from what; ignored when read."""
