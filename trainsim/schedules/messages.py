"""
Blocking messages: which of them a rank posts together, and where in its order it waits for them.

With asynchronous messages an order is all there is to know. Where a send blocks until the receiver has posted its
receive, the order in which a framework posts them decides how long ranks wait, and whether they wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from trainsim.registry import Registry
from trainsim.schedules import Pair, Slot, Work
from trainsim.schedules.placement import StagePlacement, place_of, stage_of


class PipelineMessage(NamedTuple):
    """What *stage* sends for a microbatch: its activation to the next stage (F), or its gradient back (B)."""

    work: Work
    stage: int
    microbatch: int

    @property
    def target(self) -> int:
        """The stage that it goes to."""
        return self.stage + (1 if self.work is Work.F else -1)

    def __str__(self) -> str:
        """
        >>> str(PipelineMessage(Work.B, 2, 7)), str(PipelineMessage(Work.F, 2, 7))
        ('gradient 7 of stage 2', 'activation 7 of stage 2')
        """
        return f"{'activation' if self.work is Work.F else 'gradient'} {self.microbatch} of stage {self.stage}"


class MessageBatch(NamedTuple):
    """Messages that a rank posts together; it goes on when all of them have arrived."""

    sends: tuple[PipelineMessage, ...] = ()
    receives: tuple[PipelineMessage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """What the slots of one rank send and receive, given where the stages are; messages within a rank are none."""

    rank: int
    ranks: int
    chunks: int
    placement: StagePlacement = StagePlacement.LOOP

    def stage(self, slot: Slot) -> int:
        """The stage that *slot* is of."""
        return stage_of(self.placement, self.rank, slot.chunk, self.ranks)

    def sends(self, slot: Slot) -> tuple[PipelineMessage, ...]:
        """What *slot* hands to another rank."""
        stage = self.stage(slot)
        if slot.work is Work.W:
            return ()
        work, target = (Work.F, stage + 1) if slot.work is Work.F else (Work.B, stage - 1)
        return (PipelineMessage(work, stage, slot.microbatch),) if self._elsewhere(stage, target) else ()

    def receives(self, slot: Slot) -> tuple[PipelineMessage, ...]:
        """What *slot* needs from another rank."""
        stage = self.stage(slot)
        if slot.work is Work.W:
            return ()
        work, source = (Work.F, stage - 1) if slot.work is Work.F else (Work.B, stage + 1)
        return (PipelineMessage(work, source, slot.microbatch),) if self._elsewhere(source, stage) else ()

    def _elsewhere(self, source: int, target: int) -> bool:
        """Whether a message goes between these stages: both there, of one chain, on two ranks."""
        first, last = sorted((source, target))
        chain = self.ranks if self.placement is StagePlacement.TWO_WAY else self.ranks * self.chunks
        if first < 0 or first // chain != last // chain or last >= self.ranks * self.chunks:
            return False
        return place_of(self.placement, first, self.ranks)[0] != place_of(self.placement, last, self.ranks)[0]


class Unsent(Links):
    """The place of a rank of whose messages nothing is wanted to be known: an order of slots is quicker without."""

    __slots__ = ()

    def sends(self, slot: Slot) -> tuple[PipelineMessage, ...]:
        return ()

    def receives(self, slot: Slot) -> tuple[PipelineMessage, ...]:
        return ()


Item = Slot | Pair | MessageBatch


class Mail(Protocol):
    """The order of *rank* with the exchanges in between; parameters as for a schedule."""

    def __call__(
        self, rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None
    ) -> Iterable[Item]: ...


mails: Registry[Mail] = Registry("schedule with blocking messages")
