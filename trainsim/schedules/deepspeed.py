"""DeepSpeed's 1F1B: the order of passes is that of 1F1B, the order of its instructions is its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trainsim.schedules import Slot, Work, schedules
from trainsim.schedules.check import one_chunk
from trainsim.schedules.messages import Item, Links, MessageBatch, mails
from trainsim.schedules.traits import Traits


class Instruction(NamedTuple):
    """One entry of DeepSpeed's instruction stream; ``microbatch`` is -1 where it is for none."""

    name: str
    microbatch: int = -1


@schedules.register(
    "deepspeed",
    "DeepSpeed",
    "TrainSchedule",
    "deepspeed-1f1b",
    traits=Traits(source="DeepSpeed runtime/pipe/schedule.py, TrainSchedule"),
    check=one_chunk,
)
def deepspeed(rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None) -> Iterator[Slot]:
    """The passes of TrainSchedule: in every second step a forward, in the others a backward.

    >>> print(*deepspeed(1, 3, microbatches=4))
    F0 F1 B0 F2 B1 F3 B2 B3
    """
    return (item for item in _posted(rank, ranks, microbatches=microbatches) if isinstance(item, Slot))


def instructions(rank: int, ranks: int, *, microbatches: int) -> Iterator[list[Instruction]]:
    """What stage *rank* does in each of its ``2 * (microbatches + ranks - 1)`` steps (deepspeed.runtime.pipe.schedule).

    An output is sent one step after it was computed, and a gradient is asked for before that.

    >>> for step in instructions(0, 2, microbatches=1): print(*(f"{name}({k})" if k >= 0 else name for name, k in step))
    LoadMicroBatch(0) ForwardPass(0)
    SendActivation(0)
    <BLANKLINE>
    RecvGrad(0) BackwardPass(0) ReduceTiedGrads ReduceGrads OptimizerStep
    """
    steps = 2 * (microbatches + ranks - 1)
    before = -1
    for step in range(steps):
        forward, now = _microbatch(step, rank, ranks)
        now = now if 0 <= now < microbatches else -1
        due: list[tuple[str, int, bool]]  # with whether the stage does such a thing at all
        if forward:
            due = [("SendGrad", before, rank > 0), ("RecvActivation", now, rank > 0)]
            due += [("LoadMicroBatch", now, rank in (0, ranks - 1)), ("ForwardPass", now, True)]
        else:
            due = [("RecvGrad", now, rank < ranks - 1), ("SendActivation", before, rank < ranks - 1)]
            due += [("BackwardPass", now, True)]
        last = step == steps - 1
        end = [Instruction(name) for name in ("ReduceTiedGrads", "ReduceGrads", "OptimizerStep") if last]
        yield [Instruction(name, k) for name, k, does in due if does and k >= 0] + end
        before = now


def _microbatch(step: int, rank: int, ranks: int) -> tuple[bool, int]:
    """(Whether it goes forward, the microbatch) of a step; one that does not exist is an empty step."""
    if step % 2 == rank % 2:
        return True, (step - rank) // 2
    return False, (step + rank + 1) // 2 - ranks


@mails.register("deepspeed")
def _posted(rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None) -> Iterator[Item]:
    """Passes and messages; each message blocks on its own."""
    links = Links(rank=rank, ranks=ranks, chunks=1)
    for step in instructions(rank, ranks, microbatches=microbatches):
        for name, k in step:
            if name in ("ForwardPass", "BackwardPass"):
                yield Slot(Work(name[0]), k)
            elif name in ("SendActivation", "SendGrad"):
                yield MessageBatch(sends=links.sends(Slot(Work.F if name == "SendActivation" else Work.B, k)))
            elif name in ("RecvActivation", "RecvGrad"):
                yield MessageBatch(receives=links.receives(Slot(Work.F if name == "RecvActivation" else Work.B, k)))


def buffers(rank: int, ranks: int, *, microbatches: int) -> int:
    """Activation buffers that stage *rank* keeps, whether it uses them or not.

    >>> [buffers(rank, 4, microbatches=8) for rank in range(4)]
    [4, 3, 2, 2]
    """
    return max(2, min(ranks - rank, microbatches))
