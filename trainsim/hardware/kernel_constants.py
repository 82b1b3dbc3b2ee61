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
from trainsim.errors import UnknownName

KERNELS = Catalogue(
    kind="set of kernel constants",
    plural="sets of kernel constants",
    folders=folder_in("hardware", "kernels"),
    key="kernels",
)


SECTIONS = ("gemm", "attention", "memory_bound", "sustained", "run")
UNNAMED = "generic"
"""The curves that stand in for kernels that nobody measured."""


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
    """Efficiency of an attention kernel over length S: ``efficiency * S/(S + ramp) * S/(S + block)``, the second factor
    only if causal (blocks on the diagonal are half wasted); then the ramp counts twice."""

    efficiency: Annotated[float, SOME]
    ramp: float
    block: float

    def at(self, length: float, *, causal: bool) -> float:
        """Part of the peak that is reached with so many keys.

        >>> Curve(0.6, 100, 200).at(1000, causal=False)
        0.5454545454545454
        """
        reached = self.efficiency * length / (length + self.ramp * (2 if causal else 1))
        return reached * length / (length + self.block) if causal else reached


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCurves:
    """Curves of a fused attention kernel by head size: of forward and backward ``together``, and of ``forward`` where
    it was measured by itself. Backward is what is left; without curves of its own forward is as efficient as both."""

    together: dict[int, Curve]
    forward: dict[int, Curve] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmConstants:
    """Model of a matrix product: tiles in waves, against memory traffic, joined by a fourth-power sum."""

    overhead: float  # seconds of every product
    tiles: tuple[Tile, ...]  # output blocks, each with the part of the peak that a full wave of it reaches
    fill: float  # depth k that filling the pipeline of a tile costs
    wave_sharpness: float  # 0: last waves cost a whole wave; 1: only their share
    memory_efficiency: float  # part of the memory bandwidth that a product reaches
    split_k: float  # a weight gradient may be split over this many blocks ...
    split_k_depth: float  # ... of at least this depth
    layout: dict[str, float]  # speed by role
    grouped_overhead: float  # of each expert's product in a grouped kernel
    misaligned: dict[str, float]  # speed where a contiguous size is no multiple of ``alignment``
    alignment: int  # elements
    transposed_copies: bool  # 8-bit operands are read along one dimension only: casts write a copy for each
    speedup: dict[str, float]  # achieved over 16 bits, by precision
    speed: Annotated[float, SOME]  # alone, over what the tiles say: of a GPU that goes by another's


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConstants:
    """Curves by kernel, and how long the longest block of queries takes where there are few of them."""

    curves: dict[str, AttentionCurves]  # by kernel and head size
    fallback: str  # its curves stand in for a kernel that nobody measured here
    instead: dict[str, str] = field(default_factory=dict)  # stands in for this kernel, in place of the fallback
    absent: dict[str, str] = field(default_factory=dict)  # kernels that do not run here, and what they need
    query_block: int  # queries that a block works on
    block_alone: dict[str, float]  # by direction: a block that has an SM for itself over its share of a full one
    overhead: dict[str, float]  # by direction

    def known(self, kernel: str) -> str:
        """The kernel whose curves *kernel* goes by."""
        return kernel if kernel in self.curves else self.instead.get(kernel, self.fallback)

    @property
    def named(self) -> tuple[str, ...]:
        """The kernels that run here and have curves of their own."""
        return tuple(kernel for kernel in self.curves if kernel not in self.absent and kernel != UNNAMED)

    @property
    def usual(self) -> str:
        """What PyTorch's scaled_dot_product_attention takes for 16-bit numbers: FlashAttention-2, and its
        memory-efficient kernel, which is that of xformers, where that does not run."""
        return "xformers" if "flash2" in self.absent else "flash2"


class Speeds(NamedTuple):
    """How fast each kind of kernel runs, over its speed alone in a short burst."""

    gemm: Annotated[float, SOME]  # matrix products
    attention: Annotated[float, SOME]  # fused attention
    memory_bound: Annotated[float, SOME]  # norms, activations and what else waits for memory

    def times(self, other: Speeds) -> Speeds:
        """Both, one on top of the other.

        >>> Speeds(0.5, 1.0, 1.0).times(Speeds(1.2, 1.0, 0.9))
        Speeds(gemm=0.6, attention=1.0, memory_bound=0.9)
        """
        return Speeds(*(one * two for one, two in zip(self, other, strict=True)))


ALONE = Speeds(1.0, 1.0, 1.0)
"""A kernel by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelConstants:
    """Everything that costs know about an architecture.

    ``sustained`` is what a long load makes of the clock, ``run`` what published steps leave after that; neither belongs
    to a kernel alone.
    """

    name: str
    source: str
    gemm: GemmConstants = field(hash=False)  # of matrix products
    attention: AttentionConstants = field(hash=False)  # of attention kernels
    memory_bound: dict[str, Rate] = field(default_factory=dict, hash=False)  # of norms, activations and the like
    variants: dict[str, dict[str, Rate]] = field(default_factory=dict, hash=False)
    memory_sm_share: float  # SMs that a kernel needs to saturate the memory
    sustained: Speeds
    run: Speeds

    def rate(self, kind: str, variant: str) -> Rate:
        """Of a *kind* of memory-bound kernel as the software *variant* has it; the tuned one where that has none of its
        own. ``tuned`` is always known.

        Raises UnknownName.

        >>> hopper = load_kernels("hopper")
        >>> hopper.rate("norm", "vllm").efficiency < hopper.rate("norm", "tuned").efficiency
        True
        """
        if kind not in self.memory_bound:
            raise UnknownName("kind of memory-bound kernel", kind, self.memory_bound)
        if variant not in (known := {"tuned": self.memory_bound} | self.variants):
            raise UnknownName("variant of memory-bound kernels", variant, known)
        return known[variant].get(kind) or self.memory_bound[kind]

    @property
    def in_a_step(self) -> Speeds:
        """How fast kernels run in a step of training, over their speed alone."""
        return self.sustained.times(self.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBoundConstants:
    """Rates by kind of kernel, tuned ones under ``kinds`` and those of other software under ``variants``; ``sm_share``
    is the part of the SMs that a kernel needs to saturate the memory."""

    kinds: dict[str, Rate]
    variants: dict[str, dict[str, Rate]] = field(default_factory=dict)
    sm_share: float


def load_kernels(kernels: Spec, *, origin: Origin | None = None) -> KernelConstants:
    """The constants that *kernels* means: a name of ``hardware/kernels/``, a path, or a mapping with a ``base``.

    Raises UnknownName, and InvalidData that names the file, the line and the key.

    >>> load_kernels("ampere").gemm.tiles[0]
    Tile(m=256, n=128, efficiency=0.771)
    """
    return _kernels(KERNELS.find(kernels, origin=origin))


@lru_cache(maxsize=64)
def _kernels(document: Document) -> KernelConstants:
    section = DocumentPart.open(document, (), document.data, [*COMMON, *SECTIONS])
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
        variants=bound.variants,
        memory_sm_share=bound.sm_share,
        sustained=part(Speeds, section, "sustained"),
        run=part(Speeds, section, "run"),
    )


def kernel_names() -> tuple[str, ...]:
    """All architectures with constants."""
    return KERNELS.names()
