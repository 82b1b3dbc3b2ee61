"""
A GPU: its datasheet, from ``gpus/<name>.yaml``, and the measured constants of its architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated

from trainsim.documents.building import SOME, Bounds, build, keys_of
from trainsim.documents.catalogue import COMMON, Catalogue, Spec, folder_in
from trainsim.documents.document import Document
from trainsim.documents.origin import Origin
from trainsim.documents.part import DocumentPart
from trainsim.errors import InvalidPlan, TrainsimError
from trainsim.hardware.kernel_constants import KERNELS, KernelConstants, load_kernels
from trainsim.units import parse_bandwidth, parse_bytes, parse_flops

GPUS = Catalogue(kind="GPU", plural="GPUs", folders=folder_in("hardware", "gpus"), inner={"kernels": KERNELS})


@dataclass(frozen=True, slots=True, kw_only=True)
class GPU:
    """What one GPU can do. ``measured`` says whether its kernel constants come from this very model of GPU;
    otherwise they are its nearest relative's, scaled by the datasheet."""

    name: str
    flops: dict[str, Annotated[float, parse_flops, SOME]] = field(hash=False)  # dense peak by precision, FLOP/s
    memory: Annotated[float, parse_bytes, SOME]  # bytes
    memory_bandwidth: Annotated[float, parse_bandwidth, SOME]  # bytes/s
    sms: Annotated[int, Bounds(1)]
    nvlink_bandwidth: Annotated[float, parse_bandwidth]  # bytes/s per direction; 0: none
    source: str = field(hash=False)
    kernels: KernelConstants = field(hash=False, repr=False)
    measured: bool = False

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


def load_gpu(gpu: Spec, *, origin: Origin | None = None) -> GPU:
    """The GPU that *gpu* means: a name of ``hardware/gpus/``, a path, or a mapping with a ``base``.

    Raises UnknownName, and InvalidData that names the file, the line and the key.

    >>> load_gpu("a100-sxm4-80gb").sms
    108
    >>> load_gpu({"base": "a100-sxm4-80gb", "memory_bandwidth": "4TB/s"}).memory_bandwidth
    4000000000000.0
    """
    document = GPUS.find(gpu, origin=origin)
    return _gpu(document, _kernels_of(document))


def _kernels_of(document: Document) -> KernelConstants:
    """The kernel constants that a GPU names; read anew each time, since they may lie in a file of their own."""
    kernels = document.data.get("kernels")
    if kernels is None:
        raise document.fail(("kernels",), "'kernels' is missing: a set of kernel constants, such as generic")
    try:
        return load_kernels(kernels, origin=document.origin.part(("kernels",)))
    except TrainsimError as error:
        raise document.fail(("kernels",), str(error)) if isinstance(kernels, str) else error from None


@lru_cache(maxsize=64)
def _gpu(document: Document, kernels: KernelConstants) -> GPU:
    section = DocumentPart.open(document, (), document.data, dict.fromkeys([*keys_of(GPU), *COMMON]))
    gpu = build(GPU, section, name=document.name, source=section.text("source", ""), kernels=kernels)
    if not {"bf16", "fp16"} & set(gpu.flops):
        raise section.fail("flops", "needs the peak of bf16 or fp16 at least")
    return gpu


def gpu_names() -> tuple[str, ...]:
    """All GPUs that ship with the package."""
    return GPUS.names()
