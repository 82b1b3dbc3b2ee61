"""The eight phases that DualPipe and DualPipeV share, with the messages that are posted on the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainsim.schedules import Pair, Slot, Work
from trainsim.schedules.messages import Item, Links, MessageBatch, PipelineMessage


def dual(
    links: Links,
    *,
    place: int,
    places: int,
    microbatches: int,
    directions: tuple[int, int] = (0, 1),
    first: Mapping[int, int] | None = None,
) -> Iterator[Item]:
    """Slots, pairs and exchanges of the rank that is *place* (0: the edge) of *places* on the way to the middle.

    *microbatches* of each direction; ``directions`` are the chunks of the rank's own direction and of the other,
    ``first`` is the first microbatch of a chunk. Weight gradients wait in one queue, first in, first out.
    Everything that a pass sends is posted before the next pass, together with what that one receives.
    Source: deepseek-ai/DualPipe, dualpipe.py and dualpipev.py.
    """
    run = _DualOrder(links, directions, first or {0: 0, 1: 0})
    yield from _fill(run, place, places)
    yield from _main(run, place, places, microbatches)
    yield from _drain(run, place, places)
    yield from run.exchange()


class _DualOrder:
    """Counts microbatches, queues weight gradients, and collects messages until the next pass posts them."""

    def __init__(self, links: Links, directions: tuple[int, int], first: Mapping[int, int]):
        self.links, self.directions = links, directions
        self.next = {(work, chunk): first[chunk] for work in (Work.F, Work.B) for chunk in (0, 1)}
        self.expected = dict(self.next)
        self.weights: list[Slot] = []
        self.sends: list[PipelineMessage] = []
        self.receives: list[PipelineMessage] = []
        self.last: dict[tuple[Work, int], Slot] = {}

    def slot(self, work: Work, direction: int, early: bool = False) -> Slot:
        """The next pass in *direction* (0: the rank's own); ``early`` splits its backward."""
        chunk = self.directions[direction]
        key = (Work.F if work is Work.F else Work.B), chunk
        slot = Slot(Work.I if early else work, self.next[key], chunk)
        self.next[key] += 1
        self.last[key[0], direction] = slot
        if early:
            self.weights.append(slot._replace(work=Work.W))
        return slot

    def receive(self, work: Work, direction: int) -> None:
        """Queue the receive of the next input that has not been asked for."""
        chunk = self.directions[direction]
        self.receives += self.links.receives(Slot(work, self.expected[work, chunk], chunk))
        self.expected[work, chunk] += 1

    def send(self, work: Work, direction: int) -> None:
        """Queue the output of the last pass of that kind."""
        self.sends += self.links.sends(self.last[work, direction])

    def exchange(self) -> Iterator[MessageBatch]:
        """Everything queued."""
        if self.sends or self.receives:
            yield MessageBatch(tuple(self.sends), tuple(self.receives))
        self.sends, self.receives = [], []

    def one(
        self, work: Work, direction: int, *, receive: bool = True, send: bool = True, early: bool = False
    ) -> Iterator[Item]:
        """A pass on its own."""
        if receive:
            self.receive(work, direction)
        yield from self.exchange()
        yield self.slot(work, direction, early)
        if send:
            self.send(work, direction)

    def both(self, forward: int, backward: int, *, receive: bool = True) -> Iterator[Item]:
        """A forward and a backward at once."""
        if receive:
            self.receive(Work.F, forward)
        self.receive(Work.B, backward)
        yield from self.exchange()
        yield Pair(self.slot(Work.F, forward), self.slot(Work.B, backward))
        self.send(Work.F, forward)
        self.send(Work.B, backward)

    def weight(self) -> Iterator[Item]:
        """The oldest weight gradient."""
        yield from self.exchange()
        yield self.weights.pop(0)


def _fill(run: _DualOrder, place: int, places: int) -> Iterator[Item]:
    """Forwards in the own direction, forwards in both, then backwards whose weight gradients fill the bubble."""
    middle = place == places - 1
    two_way = run.links.ranks == 2 * places
    for _ in range(2 * (places - place - 1)):
        yield from run.one(Work.F, 0)
    run.receive(Work.F, 0)
    for k in range(place + 1):
        at_once = middle and two_way
        yield from run.one(Work.F, 0, receive=False, send=at_once)
        run.receive(Work.F, 0)
        yield from run.one(Work.F, 1, send=not middle or k < place)
        if not at_once:
            run.send(Work.F, 0)
    for _ in range(places - place - 1):
        yield from run.one(Work.B, 1, early=True)
        run.receive(Work.F, 1)
        yield from run.weight()
        yield from run.one(Work.F, 1, receive=False)


def _main(run: _DualOrder, place: int, places: int, microbatches: int) -> Iterator[Item]:
    """Pairs; the first pair of a middle rank is carried out one by one, which makes the bubble smaller."""
    middle = place == places - 1
    for k in range(microbatches - 2 * places + place + 1):
        if k == 0 and middle:
            yield from run.one(Work.F, 0, receive=False, send=False)
            run.send(Work.F, 1)
            yield from run.one(Work.B, 1, send=False)
            run.send(Work.F, 0)
            run.send(Work.B, 1)
        else:
            yield from run.both(0, 1, receive=k > 0)
        yield from run.both(1, 0)


def _drain(run: _DualOrder, place: int, places: int) -> Iterator[Item]:
    """Pairs with the last forwards, backwards that are split from half-way on, weight gradients that are left."""
    for _ in range(places - place - 1):
        yield from run.one(Work.B, 1)
        yield from run.both(1, 0)
    early = False
    for k in range(place + 1):
        half = k == (place + 1) // 2
        early = early or (half and place % 2 == 1)
        yield from run.one(Work.B, 1, early=early)
        early = early or (half and place % 2 == 0)
        yield from run.one(Work.B, 0, early=early)
    for _ in range(places - place - 1):
        yield from run.weight()
        yield from run.one(Work.B, 0, early=True)
    for _ in range(place + 1):
        yield from run.weight()
