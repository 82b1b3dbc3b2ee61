"""
The passes of a sharded model in closed form: each collective as long as it takes alone, in the order in which the host
issues them, while the pass goes on until it needs one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from trainsim.contracts.groups import Queue
from trainsim.program.parts import Parts
from trainsim.program.stages import Stage
from trainsim.sharding.flights import KERNELS, Flight, FlightPlan, FlightStep, PassFlights, PassMoment, Role, moment_of


def excess(parts: Parts, plan: FlightPlan) -> float:
    """Seconds of a step by which its passes, with the flights under them, outlast their kernels."""
    if not plan:
        return 0.0
    microbatches = parts.job.training.microbatches
    turns = ((True, False, 1), (False, False, microbatches - 2), (False, True, 1))
    clock, total = _PassClock(parts, parts.of_rank(0)[0]), 0.0
    for first, last, times in turns if microbatches > 1 else ((True, True, 1),):
        if times:
            before = clock.late
            clock.passes(plan[Role("F", first, last)], plan[Role("B", first, last)])
            total += (clock.late - before) * times
    return total + max([0.0, *(free - clock.now for free in clock.free.values())])


def late(parts: Parts, stage: Stage, forward: PassFlights, backward: PassFlights) -> float:
    """Seconds by which the passes of a microbatch through *stage*, with the flights under them, outlast their kernels,
    when others have gone before."""
    clock = _PassClock(parts, stage)
    clock.passes(forward, backward)
    first = clock.late
    clock.passes(forward, backward)
    return clock.late - first


@dataclass
class _PassClock:
    """Where the pass is (seconds), how late that is, and when each chain beside it is free."""

    parts: Parts
    stage: Stage
    now: float = 0.0
    late: float = 0.0
    free: dict[Queue, float] = field(default_factory=dict)
    over: dict[str, float] = field(default_factory=dict)

    def passes(self, forward: PassFlights, backward: PassFlights) -> None:
        """One microbatch."""
        lengths = list(self._lengths())
        for beside, order, which in ((forward, lengths, 0), (backward, lengths[::-1], 1)):
            at = _by_moment(beside)
            for part, *seconds in order:
                self._moment(at, PassMoment(part))
                self.now += seconds[which]
                self._moment(at, PassMoment(part, after=True))

    def _lengths(self) -> Iterator[tuple[int, float, float]]:
        """(Part, seconds forward, seconds backward) in the order of a forward."""
        stage = self.stage
        if stage.embedding:
            yield stage.layers + 1, self.parts.embedding.forward_seconds, self.parts.embedding.backward_seconds
        for k, block in enumerate(self.parts.layer_blocks(stage)):
            yield stage.layers - k, block.forward_seconds, block.backward_seconds
        head = self.parts.head
        yield (0, head.forward_seconds, head.backward_seconds) if stage.head else (0, 0.0, 0.0)

    def _moment(self, at: dict[PassMoment, _Here], moment: PassMoment) -> None:
        here = at.get(moment)
        if here is None:
            return
        for flight in here.issued:
            self._start(flight)
        for flight in here.needed:
            if flight.beside:
                self._spend(max(0.0, self.over.get(flight.name, 0.0) - self.now))
        for step in here.copies:
            self._spend(self._seconds(step, Queue.COMPUTE))

    def _start(self, flight: Flight) -> None:
        seconds = sum(self._seconds(step, flight.chain) for step in flight.steps)
        if not flight.beside:
            self._spend(seconds)
            return
        issued = self.over.get(flight.issued, self.now) if isinstance(flight.issued, str) else self.now
        self.over[flight.name] = self.free[flight.chain] = max(self.free.get(flight.chain, 0.0), issued) + seconds

    def _spend(self, seconds: float) -> None:
        self.now += seconds
        self.late += seconds

    def _seconds(self, step: FlightStep, chain: Queue) -> float:
        if step.operation in KERNELS:
            return self.parts.blocks.traffic("copy", step.nbytes, "copy").seconds
        return self.parts.network.crowded_seconds(step.over.on(chain), step.operation, step.nbytes)


@dataclass
class _Here:
    """What happens at one moment."""

    issued: list[Flight] = field(default_factory=list)
    needed: list[Flight] = field(default_factory=list)
    copies: list[FlightStep] = field(default_factory=list)


def _by_moment(beside: PassFlights) -> dict[PassMoment, _Here]:
    out: dict[PassMoment, _Here] = {}
    by_name = {f.name: f for f in beside.flights}
    for flight in beside.flights:
        out.setdefault(moment_of(flight, by_name), _Here()).issued.append(flight)
        if flight.needed is not None:
            out.setdefault(flight.needed, _Here()).needed.append(flight)
    for moment, mark in beside.marks:
        if isinstance(mark, FlightStep):
            out.setdefault(moment, _Here()).copies.append(mark)
    return out
