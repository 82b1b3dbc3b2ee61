"""
How well a GPU runs kernels: measured constants of one architecture, from ``kernels/<name>.yaml``.

A file names its ``base`` and says only what differs; every constant has its source there. Times in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, NamedTuple

from trainsim.documents.building import SOME, Bounds, part
from trainsim.documents.catalogue import COMMON, Catalogue, Spec, folder_in
from trainsim.documents.document import Document
from trainsim.documents.origin import Origin
from trainsim.documents.part import DocumentPart

KERNELS = Catalogue(
    kind="set of kernel constants", plural="sets of kernel constants", folders=folder_in("hardware", "kernels")
)


class Tile(NamedTuple):
    """Output block of a GEMM kernel and the part of the peak that a full wave of it reaches."""

    m: Annotated[int, Bounds(1)]
    n: Annotated[int, Bounds(1)]
    efficiency: Annotated[float, SOME]


class Rate(NamedTuple):
    """A memory-bound kernel: fixed seconds, and the part of the memory bandwidth that it reaches."""

    overhead: float
    efficiency: Annotated[float, SOME]


class Curve(NamedTuple):
    """Efficiency of an attention kernel over length S: ``efficiency * S/(S + ramp) * S/(S + block)``."""

    efficiency: Annotated[float, SOME]
    ramp: float
    block: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmConstants:
    """Model of a matrix product: tiles in waves, against memory traffic, joined by a fourth-power sum."""

    overhead: float
    tiles: tuple[Tile, ...]
    fill: float  # depth k that filling the pipeline of a tile costs
    wave_sharpness: float  # 0: last waves cost a whole wave; 1: only their share
    memory_efficiency: float
    split_k: float  # a weight gradient may be split over this many blocks ...
    split_k_depth: float  # ... of at least this depth
    layout: dict[str, float]  # speed by role
    grouped_overhead: float  # of each expert's product in a grouped kernel
    misaligned: dict[str, float]  # speed where a contiguous size is no multiple of ``alignment``
    alignment: int
    speedup: dict[str, float]  # achieved over 16 bits, by precision
    sustained: float  # clock under a long load over that of a short burst


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConstants:
    """Curves by kernel and head size (the nearest of 64 and 128), and a wave term over blocks of queries."""

    curves: dict[str, dict[int, Curve]]
    fallback: str  # curve of a kernel that nobody measured here
    query_block: int
    wave_sharpness: float
    overhead: dict[str, float]  # by direction
    sustained: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelConstants:
    """Everything that costs know about an architecture."""

    name: str
    source: str
    gemm: GemmConstants = field(hash=False)
    attention: AttentionConstants = field(hash=False)
    memory_bound: dict[str, Rate] = field(default_factory=dict, hash=False)
    memory_scale: float  # measured over modelled traffic in whole training steps
    memory_sm_share: float  # SMs that a kernel needs to saturate the memory


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBoundConstants:
    """Rates by kind of kernel; ``scale`` is measured over modelled traffic in whole training steps, ``sm_share`` the
    part of the SMs that a kernel needs to saturate the memory."""

    kinds: dict[str, Rate]
    scale: Annotated[float, SOME]
    sm_share: float


def load_kernels(kernels: Spec, *, origin: Origin | None = None) -> KernelConstants:
    """The constants that *kernels* means: a name of ``hardware/kernels/``, a path, or a mapping with a ``base``.

    Raises UnknownName, and InvalidData that names the file, the line and the key.

    >>> load_kernels("ampere").gemm.tiles[0]
    Tile(m=256, n=128, efficiency=0.7545)
    """
    return _kernels(KERNELS.find(kernels, origin=origin))


@lru_cache(maxsize=64)
def _kernels(document: Document) -> KernelConstants:
    section = DocumentPart.open(document, (), document.data, [*COMMON, "gemm", "attention", "memory_bound"])
    bound = part(MemoryBoundConstants, section, "memory_bound")
    attention = part(AttentionConstants, section, "attention")
    if attention.fallback not in attention.curves:
        raise section.fail("attention", f"no curve is called {attention.fallback!r}, the fallback")
    return KernelConstants(
        name=document.name,
        source=section.text("source", ""),
        gemm=part(GemmConstants, section, "gemm"),
        attention=attention,
        memory_bound=bound.kinds,
        memory_scale=bound.scale,
        memory_sm_share=bound.sm_share,
    )


def kernel_names() -> tuple[str, ...]:
    """All architectures with constants."""
    return KERNELS.names()
