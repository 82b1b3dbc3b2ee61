"""1F1B, or PipeDream-Flush: each backward as early as can be (Narayanan et al., 2021, arXiv 2006.09503)."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.schedules import Slot, schedules
from trainsim.schedules.check import one_chunk
from trainsim.schedules.sequences import backwards, forwards, paired
from trainsim.schedules.traits import Traits


@schedules.register(
    "1f1b",
    "1F1B",
    "Schedule1F1B",
    "pipedream-flush",
    "PipeDream-Flush",
    "pipedream_flush",
    "dapple",
    "DAPPLE",
    traits=Traits(source="Narayanan et al., 2021, arXiv 2006.09503; Megatron-LM, PyTorch Schedule1F1B"),
    check=one_chunk,
)
def one_f_one_b(
    rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None
) -> Iterator[Slot]:
    """At most ``ranks - rank`` microbatches in flight; the order of Megatron-LM, PyTorch and DeepSpeed alike.

    >>> print(*one_f_one_b(1, 3, microbatches=4))
    F0 F1 B0 F2 B1 F3 B2 B3
    """
    ahead = forwards(microbatches)
    return paired(ahead, backwards(ahead), warmup=ranks - 1 - rank)
