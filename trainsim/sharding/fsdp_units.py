"""
What fully sharded data parallelism gathers and reduces together: a transformer block, and the rest as the root.
"""

from __future__ import annotations

from typing import NamedTuple

from trainsim.contracts.job import Job
from trainsim.sharding.tensorwise import whole


class FsdpUnit(NamedTuple):
    """Parameters that are gathered together, from part ``first`` of a forward to part ``last``, and those of them whose
    gradients are reduced together."""

    first: int
    last: int
    elements: int
    trained: int

    @property
    def root(self) -> bool:
        """The unit of what belongs to no layer."""
        return self.first != self.last

    @property
    def name(self) -> str:
        """``root`` or ``unit 3``."""
        return "root" if self.root else f"unit {self.first}"


def units(job: Job) -> list[FsdpUnit]:
    """The root, whose embedding comes first and whose head comes last, and the layers in forward order.

    FSDP1 makes one flat parameter of a unit, so that frozen ones in it get gradients too if any is trained.
    """
    whole_model = whole(job)
    held, trained = whole_model.held_by_part, whole_model.trained_by_part

    def unit(first: int, last: int) -> FsdpUnit:
        unit_parts = {first, last}
        elements, some = sum(held[p] for p in unit_parts), sum(trained[p] for p in unit_parts)
        flat = job.framework.communication.fsdp == "fsdp1"
        return FsdpUnit(first, last, elements, elements if some and flat else some)

    return [unit(whole_model.last, 0), *(unit(k, k) for k in range(whole_model.last - 1, 0, -1))]
