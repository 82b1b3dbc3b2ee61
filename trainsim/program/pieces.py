"""
Blocks, and what a pass over one is made of: kernels, collectives, and collectives under kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainsim.contracts.groups import Group, Queue
from trainsim.contracts.instructions import Kernel, Meet

IN_LAYERS = ("tp", "cp", "ep")
"""Kinds of the collectives that belong to the operations of a layer, whichever axis cuts them."""


@dataclass(frozen=True, slots=True)
class Overlapped:
    """A collective that runs on a chain of its own (its ``lane``) while ``kernels`` run; a pass goes on after both."""

    meet: Meet
    kernels: tuple[Kernel, ...]

    @classmethod
    def of(cls, meet: Meet, kernels: tuple[Kernel, ...]) -> Overlapped:
        """*meet*, which a pass would wait for, under *kernels*."""
        return cls(beside(meet), kernels)


def beside(meet: Meet) -> Meet:
    """The same collective on the overlap lane of its group."""
    assert isinstance(meet.communicator, Group)
    return replace(meet, communicator=meet.communicator.on(Queue.OVERLAP))


def lane(meet: Meet) -> str:
    """The chain that posts an overlapped collective: one per axis, so that those of two axes need not wait in turn.
    Collectives of a part of the ranks (those of a node, say) go with those of all.

    >>> lane(Meet("keys and values", "cp", Group(("cp",)).on(Queue.OVERLAP), "all_gather", 8.0))
    'cp'
    """
    assert isinstance(meet.communicator, Group)
    return str(meet.communicator.anywhere.whole)


Piece = Kernel | Meet | Overlapped


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """A part of the model on one rank, for one microbatch; layers that run alike share one.

    ``saved`` bytes are kept from forward to backward, under ``category``; ``transient_forward`` and ``transient`` are
    the most that its forward and its backward need above them; ``resident`` are (operation, bytes) that are held once
    for all blocks that have them. Where backward is split, ``kept`` bytes stay from the input gradient until the weight
    gradient. Seconds are those of the pieces one after the other, alone.
    """

    forward: tuple[Piece, ...]
    backward: tuple[Piece, ...]
    forward_seconds: float
    backward_seconds: float
    saved: float
    transient: float
    category: str = "activations"
    transient_forward: float = 0.0
    resident: tuple[tuple[str, float], ...] = ()
    input_gradient: tuple[Piece, ...] = ()
    weight_gradient: tuple[Piece, ...] = ()
    input_seconds: float = 0.0
    weight_seconds: float = 0.0
    kept: float = 0.0
