"""
What a layer does, as operations with shapes: the link between a model and the costs. No seconds here.

An operation of a layer is a few pieces of work forward, and a few for each of the two gradients, on one rank and
for one microbatch. A piece of work is a GEMM, an attention kernel or a memory-bound kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

TUNED = "tuned"
"""The variant of memory-bound kernels that software brings which trains fast."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """``batch`` products of an m x k by a k x n matrix. ``role`` forward, input (dgrad) or weight (wgrad); ``grouped``:
    linear layers of several experts in one kernel."""

    name: str
    m: int
    n: int
    k: int
    batch: int = 1
    role: str = "forward"
    accumulates: bool = False  # adds into an fp32 gradient buffer in its epilogue
    precision: str | None = None  # None: the job's; attention scores and logits stay in 16 bits under fp8
    grouped: bool = False

    @property
    def flops(self) -> float:
        """FLOP: two per multiply-add.

        >>> Gemm("square", 1000, 1000, 1000).flops
        2000000000.0
        """
        return 2.0 * self.batch * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class Attention:
    """A fused attention kernel over ``batch`` sequences; ``kernel`` names its family (flash1, flash2, cudnn, ...)."""

    name: str
    kernel: str
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_dim: int
    causal: bool = True
    direction: str = "forward"
    value_dim: int | None = None  # numbers of a head's value, where its query and key have others
    window: int | None = None  # keys that a query looks at, if fewer than those before it

    @property
    def values(self) -> int:
        """Numbers of a head's value."""
        return self.value_dim or self.head_dim

    @property
    def reach(self) -> int:
        """Keys that a query looks at, at most."""
        return min(self.window or self.keys, self.keys)

    @property
    def share(self) -> float:
        """The part of all pairs of queries and keys that the mask leaves.

        >>> Attention("a", "flash2", 1, 1, 1, 4096, 4096, 128, window=1024).share
        0.21875
        """
        if not self.causal:
            return 1.0
        part = self.reach / self.keys
        return part * (1 - part / 2)

    @property
    def flops(self) -> float:
        """Useful FLOP: half of the square if causal, or what a window leaves of it.

        Forward has two products, one with the numbers of a key and one with those of a value, backward three and two.
        """
        pairs = 2.0 * self.batch * self.heads * self.queries * self.keys
        products = (3, 2) if self.direction == "backward" else (1, 1)
        return pairs * (products[0] * self.head_dim + products[1] * self.values) * self.share


@dataclass(frozen=True, slots=True)
class MemoryBound:
    """One or more kernels that only move bytes; ``kind`` (norm, elementwise, softmax, ...) names their measured
    efficiency, ``variant`` the software whose kernel it is where that is not a tuned one."""

    name: str
    kind: str
    nbytes: float
    kernels: int = 1
    variant: str = TUNED

    @property
    def flops(self) -> float:
        return 0.0


Work = Gemm | Attention | MemoryBound


@dataclass(frozen=True, slots=True)
class Exchange:
    """A collective in the midst of a layer, over the ranks that differ along ``axis`` (``cp``, ``ep``, ``etp``).

    ``nbytes`` are those of the full buffer, as for every collective. ``part`` is None for all ranks of the axis,
    (``within``, n) for n neighbours, (``across``, n) for those with the same place among n neighbours. ``exposed`` is
    the part of its time that is visible where a kernel pipelines the rest.
    """

    name: str
    axis: str
    operation: str
    nbytes: float
    part: tuple[str, int] | None = None
    exposed: float = 1.0

    @property
    def axis_kind(self) -> str:
        """What a span of it is for: tensor parallelism of experts counts as tensor parallelism.

        >>> Exchange("sum", "etp", "all_reduce", 8.0).axis_kind
        'tp'
        """
        return "tp" if self.axis == "etp" else self.axis


@dataclass(frozen=True, slots=True)
class Under:
    """A collective that runs under some work, which does not need it; what follows needs both."""

    exchange: Exchange
    work: tuple[Work, ...]


Step = Work | Exchange | Under
"""What a pass over an operation is made of."""


def works(steps: Iterable[Step]) -> Iterator[Work]:
    """The kernels among *steps*.

    >>> copy = MemoryBound("copy", "elementwise", 8.0)
    >>> [w.name for w in works([Under(Exchange("keys", "cp", "all_gather", 8.0), (copy,)), copy])]
    ['copy', 'copy']
    """
    for step in steps:
        if isinstance(step, Under):
            yield from step.work
        elif not isinstance(step, Exchange):
            yield step


def launched(steps: Iterable[Step]) -> int:
    """Kernels among *steps*.

    >>> launched([MemoryBound("norm", "elementwise", 36.0, kernels=8), Gemm("qkv", 8, 8, 8)])
    9
    """
    return sum(w.kernels if isinstance(w, MemoryBound) else 1 for w in works(steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of a layer on one rank, for one microbatch.

    ``parallel`` is ``column`` (its input is the full activation of the tensor-parallel group), ``row`` (its output
    is a partial sum of the group) or ``none``; ``boundary`` is then the bytes of that full activation.
    ``reduced`` are the bytes of all-reduces over that group that follow its forward (the loss over a cut vocabulary).
    ``output`` are the bytes of its result here. ``saved`` are the bytes kept from its forward until its backward;
    ``transient_forward`` and ``transient`` what it needs above them while it runs forward and backward; ``resident``
    is held from its first backward on, once for all operations that are its like in other layers. Selective
    recomputation drops ``dropped`` bytes of what is saved (less than none where it keeps a result instead) and does
    the work ``again``.
    """

    name: str
    forward: tuple[Step, ...]
    input_gradient: tuple[Step, ...] = ()
    weight_gradient: tuple[Step, ...] = ()
    parallel: str = "none"
    boundary: float = 0.0
    reduced: tuple[float, ...] = ()
    output: float = 0.0
    saved: float = 0.0
    transient_forward: float = 0.0
    transient: float = 0.0
    resident: float = 0.0
    dropped: float = 0.0
    again: tuple[Step, ...] = ()
