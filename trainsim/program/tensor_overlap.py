"""
How a framework overlaps collectives of tensor parallelism with the products beside them: a way per name.

A pipelined way cuts a product over its tokens: a part is computed while another is on its way, so that what cannot hide
is a first or last part, or what outlasts the product. Parts are as efficient as small products are. Sources:
Transformer Engine (``initialize_ub`` in transformer_engine/pytorch/module/base.py), and PyTorch's asynchronous
tensor parallelism (torch/distributed/_symmetric_memory; arXiv 2410.06511).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from trainsim.contracts.groups import Queue
from trainsim.contracts.instructions import Kernel, Meet
from trainsim.models.operations import Gemm, MemoryBound, Step, Work
from trainsim.program.pieces import Overlapped, Piece
from trainsim.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Where a layer enters or leaves the region that tensor parallelism cuts: a collective, the steps that need its
    result or make its input, over how many ``ranks``, and in how many ``splits`` Transformer Engine cuts. ``copied``:
    parts of the sequence are joined or taken apart by a kernel, as they do not lie one behind the other."""

    meet: Meet
    steps: tuple[Step, ...]
    kind: str  # of the kernels: forward | backward | recompute
    pieces: Callable[[Sequence[Step], str], Iterator[Piece]]
    kernel: Callable[[Work, str], Kernel]
    ranks: int
    splits: int
    copied: bool = False

    def copy(self) -> Iterator[Piece]:
        """The kernel that joins or takes apart what all ranks have of the sequence, if there is one."""
        if self.copied:
            yield self.kernel(MemoryBound(f"{self.meet.name} copy", "elementwise", 2 * self.meet.nbytes), self.kind)

    def made(self, first: int, last: int | None = None) -> Iterator[Piece]:
        """Steps from place *first* to before place *last* (None: to the end)."""
        return self.pieces(self.steps[first:last], self.kind)

    def part(self, place: int, parts: int) -> Kernel:
        """The product at *place*, of one of so many *parts* of its tokens."""
        product = self.steps[place]
        assert isinstance(product, Gemm)
        return self.kernel(replace(product, m=-(-product.m // parts)), self.kind)


Pieces = Callable[[Boundary], Iterator[Piece]]


def gather_first(boundary: Boundary) -> Iterator[Piece]:
    """The whole gather, then the product."""
    yield boundary.meet
    yield from boundary.copy()
    yield from boundary.made(0)


def scatter_last(boundary: Boundary) -> Iterator[Piece]:
    """The product, then the whole scatter."""
    yield from boundary.made(0)
    yield from boundary.copy()
    yield boundary.meet


def gather_around(boundary: Boundary) -> Iterator[Piece]:
    """A product of one rank's tokens after another, its own first, while the next ones arrive: all but the last part of
    the product hides the exchange."""
    place = next((k for k, step in enumerate(boundary.steps) if isinstance(step, Gemm)), None)
    if place is None:
        yield from gather_first(boundary)
        return
    part = boundary.part(place, boundary.ranks)
    yield from boundary.made(0, place)
    yield Overlapped(_copied(boundary.meet), (_times(part, boundary.ranks - 1),))
    yield part
    yield from boundary.made(place + 1)


def scatter_around(boundary: Boundary) -> Iterator[Piece]:
    """A product of one rank's tokens after another, its own last, while those before are sent: all but the first part
    hides the exchange. What arrived is added up at the end."""
    if not _ends_in_product(boundary):
        yield from scatter_last(boundary)
        return
    meet, last = boundary.meet, len(boundary.steps) - 1
    part = boundary.part(last, boundary.ranks)
    yield from boundary.made(0, last)
    yield part
    yield Overlapped(_copied(meet), (_times(part, boundary.ranks - 1),))
    moved = meet.nbytes * (1 + 1 / boundary.ranks)
    yield boundary.kernel(MemoryBound(f"{part.name} sum", "elementwise", moved), boundary.kind)


def scatter_in_splits(boundary: Boundary) -> Iterator[Piece]:
    """A split of the product after another while the one before is scattered; the scatter of the last split sticks
    out."""
    if not _ends_in_product(boundary):
        yield from scatter_last(boundary)
        return
    meet, last, splits = boundary.meet, len(boundary.steps) - 1, boundary.splits
    part = boundary.part(last, splits)
    yield from boundary.made(0, last)
    yield part
    if splits > 1:
        most = replace(meet, nbytes=meet.nbytes * (splits - 1) / splits)
        yield Overlapped.of(most, (_times(part, splits - 1),))
    yield replace(meet, nbytes=meet.nbytes / splits)


def _ends_in_product(boundary: Boundary) -> bool:
    return bool(boundary.steps) and isinstance(boundary.steps[-1], Gemm)


def _times(kernel: Kernel, times: int) -> Kernel:
    return replace(kernel, seconds=kernel.seconds * times)


def _copied(meet: Meet) -> Meet:
    """The collective as copies of the copy engines between neighbours, beside kernels."""
    return replace(meet, communicator=meet.communicator.on(Queue.COPIES))


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorOverlap:
    """What runs at once with sequence parallelism: a ``gather`` with the product that needs it, and a ``scatter`` with
    the product that it sums up, also of an input's gradient. ``bulk``: collectives of a backward run under the products
    that do not need them, without sequence parallelism too. ``outside`` names the way of embedding and head, and that
    of all where ``pipelined`` is not possible.

    PyTorch takes only a scatter apart whose input is one product (torch/_inductor/fx_passes/micro_pipeline_tp.py): not
    an input's gradient, which is a sum over q, k and v or gate and up.
    """

    gather: Pieces = gather_first
    scatter: Pieces = scatter_last
    scatter_input_gradient: Pieces = scatter_last
    bulk: bool = False
    outside: str
    pipelined: bool = False


tensor_overlaps: Registry[TensorOverlap] = Registry("overlap of tensor parallelism")
tensor_overlaps.register("none")(TensorOverlap(outside="none"))
tensor_overlaps.register("wgrad")(TensorOverlap(outside="wgrad", bulk=True))
tensor_overlaps.register("userbuffers")(
    TensorOverlap(outside="wgrad", gather=gather_around, scatter=scatter_in_splits, bulk=True, pipelined=True)
)
tensor_overlaps.register("async")(
    TensorOverlap(
        outside="none",
        gather=gather_around,
        scatter=scatter_around,
        pipelined=True,
    )
)
