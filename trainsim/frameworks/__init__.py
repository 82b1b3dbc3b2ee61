"""
What the training software does: one file of data per framework and era, none of it about a single run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache, partial
from importlib.resources import files
from typing import Any

import yaml

from trainsim.errors import UnknownName
from trainsim.frameworks.layout import StateLayout, state_layout
from trainsim.frameworks.saved import Saved, read_saved


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProfile:
    """Which kernels the software runs: fusions, attention, and bytes of memory traffic."""

    attention: str  # eager | flash1 | flash2 | flash3 | cudnn: the family used when the scenario does not say
    causal_skip: bool  # the attention kernel skips the masked half
    dropout: bool
    bias_kernels: bool  # bias gradients are kernels of their own
    fused_pointwise: bool  # bias + GELU and bias + dropout + add are one kernel each
    softmax_passes: float  # traffic of the unfused mask + scale + softmax, in passes of the fused kernel
    loss_bytes_per_logit: float
    accumulation_fused: bool  # the weight gradient's GEMM adds into the main buffer
    accumulation_bytes_per_parameter: float  # else: traffic of adding a microbatch's gradient to it; 0: assigned
    gradient_copy_bytes_per_parameter: float  # extra traffic per step outside the accumulation
    optimizer_bytes_per_parameter: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProfile:
    """What the host does beside the GPU; times in seconds."""

    seconds_per_operation: float
    operations_forward: int  # kernels that the host launches per layer
    operations_backward: int
    operations_per_collective: int
    blocking: bool  # launches are synchronous: host and GPU time add up
    cuda_graph: bool
    recompute_seconds: float  # saving and restoring the RNG state per recomputed layer
    step_seconds: float  # data, logging, host synchronisation per step


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationProfile:
    """What is sent, in which buckets and types, what overlaps, and how well links are used; times in seconds."""

    tp_overlap: str  # none | wgrad | userbuffers
    userbuffers_exposed: float  # part of the forward TP collectives that stays visible with userbuffers
    zero3_overlap: bool  # the same where parameters are shared too
    gradient_overlap: bool  # reduction under the backward pass, when the scenario does not say
    gradient_bytes: int  # on the wire, per parameter
    zero1_operation: str  # reduce_scatter | all_reduce: what ZeRO-1 sends
    bucket_rule: str  # megatron | torch | deepspeed: which tensors a bucket holds
    bucket_parameters: float  # elements per gradient bucket
    bucket_parameters_per_rank: float  # the bucket is at least this times dp
    bucketed_stages: str  # all | first: which pipeline stages split the reduction into buckets
    parameter_gather_overlap: bool  # ZeRO-1 gathers under the next forward pass
    overflow_checked: tuple[str, ...]  # strategies that look for an overflow in whatever precision; others with fp16
    overflow_bytes: int  # of the flag that ranks agree on
    norm_over: str  # shards | model: who adds up the gradients' norm where replicas share the optimizer's states
    fsdp: str  # fsdp1 | fsdp2: how PyTorch shards
    p2p_blocking: bool  # the sender waits for its message
    p2p_overhead: float  # host synchronisation per blocking message
    p2p_sliced: bool  # activations are cut over TP before they are sent
    network_efficiency: float  # part of the NIC's rate that collectives reach with its usual settings
    p2p_efficiency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryProfile:
    """What is kept, and what stands beside it; bytes."""

    states: StateLayout
    fixed: float  # bytes of context, kernels and NCCL
    saved: Saved  # what autograd keeps of each kind of operation
    bucket_copy_bytes: float  # of buffers for a bucket's reduction, per element of it
    step_copy_bytes: float  # of buffers for the update, per parameter of a rank's shard
    weight_gradients: str  # temporary | cached (layers keep one per shape) | none: outside the main buffer
    keeps_outputs: bool  # a stage keeps what it has sent until its backward
    allocator_slack: float  # what the allocator keeps beyond what it gave out, as a part of that
    selective: str  # attention | products: what selective recomputation does again


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """The profile of a framework: what its software does, in four groups, and where that was found."""

    name: str
    family: str  # any | megatron | deepspeed | pytorch | oneflow: whose software it is
    source: str
    kernels: KernelProfile
    host: HostProfile
    communication: CommunicationProfile
    memory: MemoryProfile


GROUPS = {
    "kernels": KernelProfile,
    "host": HostProfile,
    "communication": CommunicationProfile,
    "memory": MemoryProfile,
}


@cache
def load_framework(name: str, precision: str = "") -> Framework:
    """The profile called *name*, from ``trainsim/frameworks/<name>.yaml``, as it behaves in *precision*.

    A file may name a ``base``, or several of which the last one has the say, and write only what differs, and may say
    under ``precisions`` what differs in one.

    >>> load_framework("megatron-core").name
    'megatron-core'
    >>> [load_framework("megatron-deepspeed-2022", p).memory.states.accumulation for p in ("bf16", "fp16")]
    ['fp32', 'training']
    """
    data = _read(name)
    data = _over(data, data.pop("precisions", {}).get(precision, {}))
    groups = {group: kind(**_typed(name, kind, data.pop(group))) for group, kind in GROUPS.items()}
    return Framework(name=name, family=data["family"], source=" ".join(data["source"].split()), **groups)


@cache
def framework_names() -> tuple[str, ...]:
    """All profiles that ship with the package."""
    return tuple(sorted(p.name.removesuffix(".yaml") for p in files(__package__).iterdir() if p.name.endswith(".yaml")))


def _read(name: str) -> dict[str, Any]:
    if name not in framework_names():
        raise UnknownName("framework", name, framework_names())
    out: dict[str, Any] = {}
    for one in _lineage(name):
        out = _over(out, _own(one))
    out.pop("base", None)
    return out


def _lineage(name: str) -> list[str]:
    """The files that make up a profile, the most general one first, each once."""
    base = _own(name).get("base", [])
    out: list[str] = []
    for parent in [base] if isinstance(base, str) else base:
        out += [one for one in _lineage(parent) if one not in out]
    return [*out, name]


@cache
def _own(name: str) -> dict[str, Any]:
    """What a file itself says."""
    data: dict[str, Any] = yaml.safe_load((files(__package__) / f"{name}.yaml").read_text())
    return data


def _over(base: Any, data: Any) -> Any:
    """*data* over *base*, key by key, at every depth but that of single rows of ``saved``."""
    return _merged(base, data, depth=2)


def _merged(base: Any, data: Any, *, depth: int) -> Any:
    if depth < 0 or not isinstance(base, dict) or not isinstance(data, dict):
        return data
    return base | {key: _merged(base[key], one, depth=depth - 1) if key in base else one for key, one in data.items()}


def _typed(name: str, kind: type, data: dict[str, Any]) -> dict[str, Any]:
    """The values of a group: whole numbers as floats where a float is meant, lists as tuples, tables as values."""
    types = {f.name: f.type for f in fields(kind)}
    readers: dict[str, Callable[[Any], Any]] = {
        "float": float,
        "tuple[str, ...]": tuple,
        "StateLayout": state_layout,
        "Saved": partial(read_saved, name),
    }
    return {key: readers.get(str(types[key]), _same)(value) for key, value in data.items()}


def _same(value: Any) -> Any:
    return value
