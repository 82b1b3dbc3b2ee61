"""
A forward and a backward that run at once: each computes while the collectives of the other are on their way.

The two take turns on the compute chain, one segment at a time, and change over where one has to wait for a collective
of its layers (of tensor, context or expert parallelism). A segment is a task of its own, since the two belong to
different microbatches. Where nothing is to be waited for there is nothing to hide, and one follows the other.

With experts on other ranks they change over for these alone, and the backward begins: its results' gradients are on
their way while the forward's attention runs, the forward's tokens during the backward of the experts, and so on. That
is the order of DualPipe (arXiv 2412.19437, figure 4) and of Megatron-LM
(megatron/core/models/common/model_chunk_schedule_plan.py), where other collectives stay among the kernels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from trainsim.contracts.instructions import Instruction, Meet, Piece, Signal, Template, Wait
from trainsim.program.pieces import IN_LAYERS, beside, lane
from trainsim.program.templates import Lanes, Pass

FORWARD, BACKWARD = 0, 1
EXPERTS = ("ep",)
"""Kinds of the collectives that take tokens to experts and back."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A segment of one of the two passes (``who``: 0 is forward, 1 backward), and of the lanes beside it."""

    who: int
    compute: Template
    lanes: Mapping[str, Template]


class _Segment(NamedTuple):
    """What a pass does between two waits, on the compute chain and on its lanes."""

    main: tuple[Piece, ...]
    lanes: Lanes


def turns(forward: Pass, backward: Pass) -> tuple[Turn, ...]:
    """The segments of both passes in the order in which they run."""
    passes = (forward, backward)
    spread = any(_waited_for(i, EXPERTS) for one_pass in passes for i in one_pass.main)
    kinds, who = (EXPERTS, BACKWARD) if spread else (IN_LAYERS, FORWARD)
    queues = [[*_Cutting(one_pass, number, kinds).segments()] for number, one_pass in enumerate(passes)]
    out: list[Turn] = []
    while any(queues):
        if not queues[who]:
            who = 1 - who
        segment = queues[who].pop(0)
        work, chunk = passes[who].work, passes[who].stage.chunk
        overlapped = {chain: Template(chain, chunk, instructions) for chain, instructions in segment.lanes.items()}
        out.append(Turn(who, Template.of(work, chunk, segment.main), overlapped))
        who = 1 - who
    return tuple(out)


def _waited_for(i: object, kinds: Collection[str]) -> bool:
    """Whether *i* is a collective of one of these kinds, whose end the next instruction needs."""
    return isinstance(i, Meet) and i.kind in kinds


@dataclass(slots=True)
class _Cutting:
    """Cuts a pass where it waits for a collective of some *kinds*, which moves to its lane.

    A segment ends where the pass posts a collective and would wait for it: it signals the lane instead, and the next
    segment begins with the wait. Those of experts that are right behind each other (between nodes, within a node) are
    one way, which the lane goes without a stop.
    What the pass overlaps itself ends a segment where its end is due.
    """

    one_pass: Pass
    who: int
    kinds: Collection[str]
    main: list[Piece] = field(default_factory=list)
    lanes: dict[str, tuple[Instruction, ...]] = field(default_factory=dict)

    def segments(self) -> Iterator[_Segment]:
        """The segments in order."""
        known = {event: (chain, step) for chain, side in self.one_pass.lanes.items() for event, step in _by_event(side)}
        due = {f"{event}.done" for event, (_, step) in known.items() if any(_waited_for(i, self.kinds) for i in step)}
        ways = [*_ways(self.one_pass.main, self.kinds, joined=self.kinds is EXPERTS)]
        for place, way in [*_without_stops(ways, known)] if self.kinds is EXPERTS else ways:
            if isinstance(way, tuple):
                yield self._sent(way, f"pair.{self.who}.{self.one_pass.stage.index}.{place}")
                continue
            if isinstance(way, Wait) and way.event in due:
                yield self._ended()
            if isinstance(way, Signal) and way.event in known:
                chain, step = known[way.event]
                self._beside(chain, step)
            self.main.append(way)
        yield self._ended()

    def _sent(self, way: tuple[Meet, ...], event: str) -> _Segment:
        """The segment that ends with a way: it goes on behind it."""
        moved = [beside(meet) for meet in way]
        self._beside(lane(moved[0]), (Wait(event), *moved, Signal(f"{event}.done")))
        self.main.append(Signal(event))
        segment = self._ended()
        self.main.append(Wait(f"{event}.done"))
        return segment

    def _beside(self, chain: str, steps: tuple[Instruction, ...]) -> None:
        self.lanes[chain] = (*self.lanes.get(chain, ()), *steps)

    def _ended(self) -> _Segment:
        segment = _Segment(tuple(self.main), self.lanes)
        self.main, self.lanes = [], {}
        return segment


_Way = tuple[int, Piece | tuple[Meet, ...]]
"""The place of an instruction in its pass, or of collectives that follow each other at once, and these."""


def _ways(main: Sequence[Piece], kinds: Collection[str], *, joined: bool) -> Iterator[_Way]:
    """The pieces of a pass with their places; collectives are tuples: those of one lane that follow each other at once
    together, if they are *joined*."""
    way: tuple[Meet, ...] = ()
    for place, i in enumerate(main):
        if way and not (joined and isinstance(i, Meet) and i.kind in kinds and lane(i) == lane(way[0])):
            yield place - len(way), way
            way = ()
        if isinstance(i, Meet) and i.kind in kinds:
            way = (*way, i)
        else:
            yield place, i
    if way:
        yield len(main) - len(way), way


def _without_stops(ways: Iterable[_Way], known: dict[str, tuple[str, tuple[Instruction, ...]]]) -> Iterator[_Way]:
    """*ways* less those that begin where an overlapped collective of the same lane ends: its lane (in *known*) goes
    on."""
    before: Piece | tuple[Meet, ...] | None = None
    for place, way in ways:
        event = before.event.removesuffix(".done") if isinstance(before, Wait) else ""
        if isinstance(way, tuple) and event in known and known[event][0] == lane(way[0]):
            chain, (*steps, end) = known[event]
            known[event] = chain, (*steps, *map(beside, way), end)
        else:
            yield place, way
        before = way


def _by_event(side: Sequence[Instruction]) -> Iterator[tuple[str, tuple[Instruction, ...]]]:
    """What a lane does for each event that it waits for: the wait, the collective, the signal of its end."""
    for place, i in enumerate(side):
        if isinstance(i, Wait):
            yield i.event, tuple(side[place : place + 3])
