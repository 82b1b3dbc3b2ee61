"""Combined 1F1B: interleaved, the forward of one microbatch and the backward of another at once (Megatron-Core)."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.errors import InvalidPlan
from trainsim.schedules import Pair, Slot, schedules
from trainsim.schedules.check import Numbers
from trainsim.schedules.interleaved import groups_fit, usual_group
from trainsim.schedules.sequences import backwards, forwards, overlapping
from trainsim.schedules.traits import Traits


def _check(numbers: Numbers) -> None:
    """Without a pipeline one chunk will do: microbatches of gradient accumulation pair up."""
    if numbers.chunks > 1:
        groups_fit(numbers)
    elif numbers.ranks > 1:
        raise InvalidPlan(
            f"{numbers.name} on {numbers.ranks} stages needs 2 or more chunks per rank, not 1: with one, a forward "
            "would need the backward that runs beside it; chunks: 2 works."
        )
    elif numbers.group is not None:
        raise InvalidPlan(f"{numbers.name} takes no group of microbatches (got {numbers.group}) with one chunk.")


@schedules.register(
    "interleaved-1f1b-overlap",
    "combined-1f1b",
    "combined_1f1b",
    "moe-overlap",
    "overlap_moe_expert_parallel_comm",
    traits=Traits(
        chunks=None,
        grouped=True,
        paired=True,
        needs="2 or more chunks, or one rank",
        source="Megatron-LM, combined 1F1B (megatron/core/pipeline_parallel/combined_1f1b.py)",
    ),
    check=_check,
)
def combined_1f1b(
    rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None
) -> Iterator[Slot | Pair]:
    """Interleaved with one forward more ahead, so that forward and backward run at once and hide communication.

    What ``training.moe_overlap`` selects: all-to-alls of one of the two hide under the compute of the other.

    >>> print(*combined_1f1b(1, 2, microbatches=2, chunks=2))
    F0 F1 F0.1 F1.1&B0.1 B1.1 B0 B1
    >>> print(*combined_1f1b(0, 1, microbatches=3))
    F0 F1&B0 F2&B1 B2
    """
    size = group or usual_group(ranks, microbatches)
    ahead = forwards(microbatches, chunks, size)
    return overlapping(ahead, backwards(ahead, chunks), warmup=2 * (ranks - 1 - rank) + (chunks - 1) * size + 1)
