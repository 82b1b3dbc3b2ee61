"""
A GPU: its datasheet, from ``gpus/<name>.yaml``, and the measured constants of its architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from trainsim.errors import InvalidPlan, UnknownName
from trainsim.hardware.kernel_constants import KernelConstants, load_kernels
from trainsim.units import parse_bandwidth, parse_bytes, parse_flops


@dataclass(frozen=True, slots=True, kw_only=True)
class GPU:
    """What one GPU can do. ``measured`` says whether its kernel constants come from this very model of GPU;
    otherwise they are its nearest relative's, scaled by the datasheet."""

    name: str
    flops: dict[str, float] = field(hash=False)  # dense peak by precision, FLOP/s
    memory: float  # bytes
    memory_bandwidth: float  # bytes/s
    sms: int
    nvlink_bandwidth: float  # bytes/s per direction; 0: none
    source: str = field(hash=False)
    kernels: KernelConstants = field(hash=False, repr=False)
    measured: bool

    def peak(self, precision: str) -> float:
        """Dense peak, FLOP/s. Raises InvalidPlan for a precision that the GPU does not have.

        >>> load_gpu("h100-sxm5-80gb").peak("fp8")
        1979000000000000.0
        """
        if precision not in self.flops:
            has = ", ".join(sorted(self.flops))
            raise InvalidPlan(f"{self.name} has no {precision} arithmetic; use one of {has}")
        return self.flops[precision]

    @property
    def half_peak(self) -> float:
        """Dense peak of 16-bit matrix products, FLOP/s."""
        return self.flops.get("bf16") or self.flops["fp16"]


@cache
def load_gpu(name: str) -> GPU:
    """The GPU called *name*, from ``hardware/gpus/<name>.yaml``. Raises UnknownName.

    >>> load_gpu("a100-sxm4-80gb").sms
    108
    """
    if name not in gpu_names():
        raise UnknownName("GPU", name, gpu_names())
    data: dict[str, Any] = yaml.safe_load((files(__package__) / "gpus" / f"{name}.yaml").read_text())
    return GPU(
        name=name,
        flops={precision: parse_flops(value) for precision, value in data["flops"].items()},
        memory=parse_bytes(data["memory"]),
        memory_bandwidth=parse_bandwidth(data["memory_bandwidth"]),
        sms=data["sms"],
        nvlink_bandwidth=parse_bandwidth(data["nvlink_bandwidth"]),
        source=" ".join(data["source"].split()),
        kernels=load_kernels(data["kernels"]),
        measured=data["measured"],
    )


@cache
def gpu_names() -> tuple[str, ...]:
    """All GPUs that ship with the package."""
    found = (p.name for p in (files(__package__) / "gpus").iterdir())
    return tuple(sorted(n.removesuffix(".yaml") for n in found if n.endswith(".yaml")))
