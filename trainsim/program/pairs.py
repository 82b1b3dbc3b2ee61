"""
A forward and a backward that run at once: each computes while the collectives of the other are on their way.

The two take turns on the compute chain, one segment at a time, and change over where one has to wait for a
tensor-parallel collective. A segment is a task of its own, since the two belong to different microbatches. Without
tensor parallelism there is nothing to hide, and one follows the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trainsim.contracts.groups import TENSOR, Queue
from trainsim.contracts.instructions import Instruction, Meet, Piece, Signal, Task, Template, Wait
from trainsim.program.templates import Pass


@dataclass(frozen=True, slots=True)
class Turn:
    """A segment of one of the two passes: 0 is forward, 1 backward."""

    who: int
    compute: Template
    beside: Template | None


def turns(forward: Pass, backward: Pass) -> tuple[Turn, ...]:
    """The segments of both passes in the order in which they run."""
    passes = (forward, backward)
    queues = [_segments(one, who) for who, one in enumerate(passes)]
    out: list[Turn] = []
    who = 0
    while any(queues):
        if not queues[who]:
            who = 1 - who
        main, side = queues[who].pop(0)
        one = passes[who]
        beside = Template("tp", one.stage.chunk, side) if side else None
        out.append(Turn(who, Template.of(one.work, one.stage.chunk, main), beside))
        who = 1 - who
    return tuple(out)


def tasks(pair: Sequence[Turn], forward: int, backward: int) -> Iterator[tuple[Task, Task | None]]:
    """(Task of the compute chain, task of the chain beside it) of each segment, for two microbatches."""
    for turn in pair:
        microbatch = (forward, backward)[turn.who]
        yield Task(turn.compute, microbatch), Task(turn.beside, microbatch) if turn.beside else None


def _segments(one: Pass, who: int) -> list[tuple[tuple[Piece, ...], tuple[Instruction, ...]]]:
    """*one* cut where it waits for a tensor-parallel collective, which moves to the chain beside."""
    known = _triples(one.side)
    main: list[Piece] = []
    side: list[Instruction] = []
    out = []
    for k, i in enumerate(one.main):
        if isinstance(i, Meet) and i.communicator == TENSOR:
            event = f"pair.{who}.{one.stage.index}.{k}"
            side += [Wait(event), replace(i, communicator=TENSOR.on(Queue.OVERLAP)), Signal(f"{event}.done")]
            out.append(((*main, Signal(event)), tuple(side)))
            main, side = [Wait(f"{event}.done")], []
            continue
        if isinstance(i, Wait) and i.event.removesuffix(".done") in known:  # its own overlapped collective is due
            out.append((tuple(main), tuple(side)))
            main, side = [], []
        if isinstance(i, Signal) and i.event in known:
            side += known[i.event]
        main.append(i)
    out.append((tuple(main), tuple(side)))
    return out


def _triples(side: Sequence[Instruction]) -> dict[str, tuple[Instruction, ...]]:
    """What the chain beside does for each event that it waits for."""
    out: dict[str, tuple[Instruction, ...]] = {}
    for k, i in enumerate(side):
        if isinstance(i, Wait):
            out[i.event] = tuple(side[k : k + 3])
    return out
