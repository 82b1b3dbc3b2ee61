"""
A forward and a backward that run at once: each computes while the collectives of the other are on their way.

The two take turns on the compute chain, one segment at a time, and change over where one has to wait for a collective
of its layers (of tensor, context or expert parallelism). A segment is a task of its own, since the two belong to
different microbatches. Where nothing is to be waited for there is nothing to hide, and one follows the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainsim.contracts.instructions import Instruction, Meet, Piece, Signal, Template, Wait
from trainsim.program.pieces import IN_LAYERS, beside, lane
from trainsim.program.templates import Lanes, Pass


@dataclass(frozen=True, slots=True)
class Turn:
    """A segment of one of the two passes (``who``: 0 is forward, 1 backward), and of the lanes beside it."""

    who: int
    compute: Template
    lanes: Mapping[str, Template]


def turns(forward: Pass, backward: Pass) -> tuple[Turn, ...]:
    """The segments of both passes in the order in which they run."""
    passes = (forward, backward)
    queues = [list(_segments(one_pass, who)) for who, one_pass in enumerate(passes)]
    out: list[Turn] = []
    who = 0
    while any(queues):
        if not queues[who]:
            who = 1 - who
        main, lanes = queues[who].pop(0)
        work, chunk = passes[who].work, passes[who].stage.chunk
        overlapped = {chain: Template(chain, chunk, instructions) for chain, instructions in lanes.items()}
        out.append(Turn(who, Template.of(work, chunk, main), overlapped))
        who = 1 - who
    return tuple(out)


def _segments(one_pass: Pass, who: int) -> Iterator[tuple[tuple[Piece, ...], Lanes]]:
    """A pass cut where it waits for a collective of a layer, which moves to its lane.

    A segment ends where the pass posts a collective and would wait for it: it signals the lane instead, and the next
    segment begins with the wait. What the pass overlaps itself ends a segment where its end is due.
    """
    known = {event: (chain, step) for chain, side in one_pass.lanes.items() for event, step in _by_event(side)}
    main: list[Piece] = []
    lanes: dict[str, tuple[Instruction, ...]] = {}
    for place, i in enumerate(one_pass.main):
        if isinstance(i, Meet) and i.kind in IN_LAYERS:
            event, moved = f"pair.{who}.{one_pass.stage.index}.{place}", beside(i)
            chain = lane(moved)
            lanes[chain] = (*lanes.get(chain, ()), Wait(event), moved, Signal(f"{event}.done"))
            yield (*main, Signal(event)), lanes
            main, lanes = [Wait(f"{event}.done")], {}
            continue
        if isinstance(i, Wait) and i.event.removesuffix(".done") in known:
            yield tuple(main), lanes
            main, lanes = [], {}
        if isinstance(i, Signal) and i.event in known:
            chain, step = known[i.event]
            lanes[chain] = (*lanes.get(chain, ()), *step)
        main.append(i)
    yield tuple(main), lanes


def _by_event(side: Sequence[Instruction]) -> Iterator[tuple[str, tuple[Instruction, ...]]]:
    """What a lane does for each event that it waits for: the wait, the collective, the signal of its end."""
    for place, i in enumerate(side):
        if isinstance(i, Wait):
            yield i.event, tuple(side[place : place + 3])
