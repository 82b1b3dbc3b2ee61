"""The most bytes that a block's operations hold while they run forward or backward."""

from __future__ import annotations

from collections.abc import Sequence

from trainsim.models.operations import Operation


def peak_backward(operations: Sequence[Operation]) -> float:
    """The most that is held while they run backward, one after the other, each giving back what it saved."""
    most, held = 0.0, sum(o.saved for o in operations)
    for o in reversed(operations):
        most = max(most, held + o.transient)
        held -= o.saved
    return most


def peak_forward(operations: Sequence[Operation]) -> float:
    """The most that is held while they run forward and keep what they save."""
    most = held = 0.0
    for o in operations:
        held += o.saved
        most = max(most, held + o.transient_forward)
    return most
