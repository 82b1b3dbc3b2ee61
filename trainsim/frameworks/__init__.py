"""
What the training software does: one file of data per framework and era, none of it about a single run.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

from trainsim.documents.building import SOME, Bounds, part
from trainsim.documents.catalogue import COMMON, PACKAGE, Catalogue, Spec, Switch, folder_in, merged
from trainsim.documents.document import Document
from trainsim.documents.origin import Origin
from trainsim.documents.part import DocumentPart
from trainsim.frameworks.fused import Fused
from trainsim.frameworks.kept import Saved, StateLayout
from trainsim.units import parse_bytes, parse_count, parse_time

Attention = Literal["eager", "sdpa", "flash1", "flash2", "flash3", "xformers", "triton", "cudnn", "cudnn-fp8"]
Variant = Literal["tuned", "torch", "compiled", "liger", "vllm"]
Part = Annotated[float, Bounds(0.0, 1.0)]
Reached = Annotated[float, Bounds(1e-3, 1.0)]
Seconds = Annotated[float, parse_time]
Elements = Annotated[float, parse_count]
Bytes = Annotated[float, parse_bytes]


class KernelSpeeds(NamedTuple):
    """How fast a generation of software runs each kind of kernel, over those that were measured alone."""

    gemm: Annotated[float, SOME] = 1.0  # matrix products
    attention: Annotated[float, SOME] = 1.0  # fused attention
    memory_bound: Annotated[float, SOME] = 1.0  # norms, activations and what else waits for memory


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProfile:
    """Which kernels the software runs: fusions, attention, and bytes of memory traffic."""

    attention: Attention  # the family used when the scenario does not say
    causal_skip: bool  # the attention kernel skips the masked half
    autocast: bool  # 16 bits by torch.autocast over fp32 weights, where the scenario does not say
    dropout: bool  # it is applied, where the model is trained with it
    bias_kernels: bool  # bias gradients are kernels of their own
    vocab_multiple: int  # the vocabulary is padded to a multiple of this times tp
    fused: Fused  # which memory-bound operations are one kernel each
    sequence_copies: bool  # a gather or scatter along the sequence has a copy beside it, which joins or takes apart
    fp8_recipe: Literal["delayed", "tensorwise", "blockwise"]  # how 8 bits are made, where the scenario does not say
    expert_kernels: Literal["grouped", "fused"]  # products of experts alone, or with activation and casts in them
    softmax_passes: float  # traffic of the unfused mask + scale + softmax, in passes of the fused kernel
    loss_bytes_per_logit: float  # memory traffic of the loss, forward and backward
    loss_parallel: bool  # the loss works on a cut vocabulary; else logits are gathered over tp before it
    accumulation_fused: bool  # the weight gradient's GEMM adds into the main buffer
    accumulation_bytes_per_parameter: float  # else: traffic of adding a microbatch's gradient to it; 0: assigned
    gradient_copy_bytes_per_parameter: float  # extra traffic per step outside the accumulation
    optimizer_bytes_per_parameter: float  # memory traffic of Adam's update; others move their part of it
    variants: dict[str, Variant] = field(default_factory=dict)  # whose memory-bound kernels, by kind; else tuned ones
    speeds: KernelSpeeds = field(default_factory=KernelSpeeds)  # over those that were measured alone


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProfile:
    """What the host does beside the GPU; times in seconds, found with a ``processor`` of the kind that it names."""

    processor: str  # the host on which these times were found; others are faster or slower
    seconds_per_operation: Seconds  # of the host, to launch a kernel
    operations_forward: int  # kernels that the host launches per layer
    operations_backward: int  # the same in the backward pass
    operations_per_collective: int  # launches that a collective takes as long as
    seconds_per_peer: Seconds  # per rank of a layer's collective: until all are there, in a job over several nodes
    seconds_per_far_peer: Seconds  # the same where the ranks of the collective are on several nodes
    operations_routed: int  # for which the host waits per layer of experts that drop no token; twice as many backward
    blocking: bool  # launches are synchronous: host and GPU time add up
    launch_queue: int  # kernels of a stream that wait for the GPU before a launch does
    cuda_graph: bool  # the step is captured and replayed, so that nothing is launched
    seconds_per_hook: Seconds  # per trained tensor and backward, where replicas share states
    seconds_per_counted_tensor: Seconds  # per trained tensor that such a hook looks at, which is each of them
    recompute_seconds: Seconds  # saving and restoring the RNG state per recomputed layer
    step_seconds: Seconds  # data, logging, host synchronisation per step


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationProfile:
    """What is sent, in which buckets and types, what overlaps, and how well links are used; times in seconds."""

    token_dispatcher: str  # how tokens get to experts, where the scenario does not say
    tp_overlap: Literal["none", "wgrad", "userbuffers", "async"]  # what tensor-parallel collectives run under
    userbuffers_splits: Annotated[int, Bounds(1, 64)]  # of a product whose sums userbuffers scatter meanwhile
    uneven_sequence: Literal["refused", "padded"]  # a sequence that tp does not divide, under sequence parallelism
    zero3_overlap: bool  # the same where parameters are shared too
    gradient_overlap: bool  # reduction under the backward pass, when the scenario does not say
    gradient_bytes: Annotated[int, Bounds(2, 4)]  # on the wire, per parameter
    zero1_operation: Literal["reduce_scatter", "all_reduce", "reduce"]  # what ZeRO-1 sends; reduce: to owners
    bucket_rule: str  # megatron | torch | deepspeed: which tensors a bucket holds
    bucket_parameters: Annotated[float, parse_count, SOME]  # elements per gradient bucket
    bucket_parameters_per_rank: Elements  # the bucket is at least this times dp
    bucketed_stages: Literal["all", "first"]  # which pipeline stages split the reduction into buckets
    parameter_gather_overlap: bool  # ZeRO-1 gathers under the next forward pass
    overflow_checked: tuple[str, ...]  # strategies that look for an overflow in whatever precision; others with fp16
    overflow_bytes: int  # of the flag that ranks agree on
    norm_over: Literal["shards", "model"]  # who adds up the gradients' norm where replicas share the optimizer's states
    fsdp: Literal["fsdp1", "fsdp2", "megatron"]  # how fully sharded data parallelism works
    p2p_blocking: bool  # the sender waits for its message
    seconds_per_hop: Seconds  # of a layer's collective, per further node: beyond what the fabric's constants give it
    p2p_announcement: Seconds  # before each message that blocks, whose shape and type go first
    p2p_overhead: Seconds  # host synchronisation per blocking message
    p2p_sliced: bool  # activations are cut over TP before they are sent
    network_efficiency: Reached  # part of the NIC's rate that collectives reach with its usual settings
    p2p_efficiency: Reached  # the same of messages between stages


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryProfile:
    """What is kept, and what stands beside it; bytes."""

    states: StateLayout  # weights, gradients and the optimizer's copies
    fixed: Bytes  # bytes of context, kernels and NCCL
    saved: Saved  # what autograd keeps of each kind of operation
    bucket_copy_bytes: float  # of buffers for a bucket's reduction, per element of it
    step_copy_bytes: float  # of buffers for the update, per parameter of a rank's shard
    weight_gradients: Literal["temporary", "cached", "none"]  # outside the main buffer; cached: one per shape
    keeps_outputs: bool  # a stage keeps what it has sent until its backward
    gathered_buffers: float  # as long as an input that tensor parallelism gathers along the sequence, and kept for all
    late_frees: float  # sums per layer as long as those, which the allocator has back only when the GPU is past them
    communicator: Bytes  # of each group of ranks that talks: NCCL's buffers for it
    allocator_slack: float  # what the allocator keeps beyond what it gave out, as a part of that
    slack_returned: Part  # the part of it that the allocator gives back before it fails
    selective: Literal["attention", "products"]  # what selective recomputation does again


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """The profile of a framework: what its software does, in four groups, and where that was found."""

    name: str
    compiled: bool | None  # by torch.compile; None: the software brings fused kernels of its own
    family: str  # any | megatron | deepspeed | pytorch | oneflow: whose software it is
    source: str
    kernels: KernelProfile  # which kernels it runs
    host: HostProfile  # what the host does beside the GPU
    communication: CommunicationProfile  # what is sent, when, and under what
    memory: MemoryProfile  # what is kept, and what stands beside it


COMPILATION = PACKAGE / "frameworks" / "compilation"
COMPILED = Switch(
    documents=(COMPILATION / "compiled.yaml", COMPILATION / "uncompiled.yaml"),
    otherwise="runs kernels that its authors fused, whether its modules are compiled or not; leave it out, and say "
    "under kernels.fused which of them it lacks (norm: false, rotary: false, ...)",
)
FRAMEWORKS = Catalogue(
    kind="framework",
    plural="frameworks",
    folders=folder_in("frameworks"),
    key="frameworks",
    depth=2,
    switches={"compiled": COMPILED},
)
GROUPS = {
    "kernels": KernelProfile,
    "host": HostProfile,
    "communication": CommunicationProfile,
    "memory": MemoryProfile,
}
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4")


def load_framework(framework: Spec, precision: str = "", *, origin: Origin | None = None) -> Framework:
    """The profile that *framework* means, as it behaves in *precision*: a name of ``trainsim/frameworks/``, a path, or
    a mapping with a ``base``.

    A file may name a ``base``, or several of which the last one has the say, and write only what differs, and may say
    under ``precisions`` what differs in one. Raises UnknownName, and InvalidData that names the file, the line and the
    key.

    >>> load_framework("megatron-core").name
    'megatron-core'
    >>> [load_framework("megatron-deepspeed-2022", p).memory.states.accumulation for p in ("bf16", "fp16")]
    ['fp32', 'training']
    """
    return _framework(FRAMEWORKS.find(framework, origin=origin), precision)


@lru_cache(maxsize=128)
def _framework(document: Document, precision: str) -> Framework:
    top = DocumentPart.open(document, (), document.data, [*COMMON, "family", "compiled", *GROUPS, "precisions"])
    special = top.section("precisions", PRECISIONS).data.get(precision, {})
    if special:
        inner = DocumentPart.open(document, ("precisions", precision), special, GROUPS)
        top = replace(top, data=merged(top.data, inner.data, FRAMEWORKS.depth))
    return Framework(
        name=document.name,
        compiled=top.flag("compiled") if "compiled" in top.data else None,
        family=top.text("family", "any"),
        source=top.text("source", ""),
        kernels=part(KernelProfile, top, "kernels"),
        host=part(HostProfile, top, "host"),
        communication=part(CommunicationProfile, top, "communication"),
        memory=part(MemoryProfile, top, "memory"),
    )


def framework_names() -> tuple[str, ...]:
    """All profiles that ship with the package."""
    return FRAMEWORKS.names()
