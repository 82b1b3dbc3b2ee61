"""The passes of fully sharded data parallelism: gathers, reductions, and the memory that both take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from trainsim.contracts.groups import ALONE, EXPERT_REPLICAS, Group, Queue
from trainsim.contracts.instructions import Hold
from trainsim.contracts.job import Job
from trainsim.sharding.flights import Flight, FlightStep, PassFlights, PassMoment, Role, in_issue_order
from trainsim.sharding.fsdp_options import (
    BACKWARD_PREFETCH,
    SYNC,
    backward_ahead,
    forward_ahead,
    limits_gathers,
    reshard,
)
from trainsim.sharding.fsdp_units import FsdpUnit, made, units
from trainsim.sharding.replicas import across, replicas, within
from trainsim.sharding.run_ahead import RunAhead, run_ahead

MASTER = 4.0  # bytes of an element of a shard: fp32, also on its way from and to the host

Mark = tuple[PassMoment, Hold | FlightStep]


@dataclass(frozen=True)
class UnitPass:
    """One pass over a model that is sharded by *size*."""

    job: Job
    size: int
    role: Role
    fresh: float

    def beside(self) -> PassFlights:
        """Its flights, and what it does itself."""
        flights: list[Flight] = []
        marks: list[Mark] = []
        back = self.role.work == "B"
        for unit in self.units:
            gathers = self._gather_back(unit) if back else self._gather(unit)
            flights += gathers
            marks += self._marks_back(unit, bool(gathers)) if back else self._marks(unit, bool(gathers))
        if back:
            first = self.role.last if SYNC.of(self.job) == "last" else self.role.first
            marks += made(self.job, self.size, self.fresh) if first and self.fresh else ()
            flights += (flight for unit in self.units for flight in self._reduce(unit))
        return PassFlights(in_issue_order(flights, self.role.work), tuple(marks))

    @cached_property
    def units(self) -> list[FsdpUnit]:
        return units(self.job)

    @cached_property
    def firsts(self) -> list[int]:
        """The parts at which units begin, in the order of a forward."""
        return list(dict.fromkeys(unit.first for unit in self.units))

    @cached_property
    def lasts(self) -> list[int]:
        """The parts at which units begin in a backward, in its order."""
        return sorted({unit.last for unit in self.units})

    @cached_property
    def ahead(self) -> RunAhead | None:
        """The host where nothing holds it back."""
        return None if limits_gathers(self.job) else run_ahead(self.job)

    @property
    def copies(self) -> bool:
        """FSDP2: gathers go through a buffer."""
        return self.job.framework.communication.fsdp == "fsdp2"

    @property
    def fills(self) -> bool:
        """Gradients are copied into the buffer that is reduced, and made beside it."""
        return self.job.framework.communication.fsdp != "megatron"

    @property
    def keeps(self) -> bool:
        """Parameters stay whole between forward and backward."""
        return reshard(self.job) == 1

    @property
    def between(self) -> int:
        """Ranks that share parameters between forward and backward."""
        return reshard(self.job) or self.size

    @property
    def away(self) -> bool:
        """Shards of everything are in host memory."""
        return self.job.sharding.offload.any

    @property
    def reduces(self) -> bool:
        return self.role.last or SYNC.of(self.job) != "last"

    def _ranks(self, unit: FsdpUnit) -> int:
        """Ranks that share a unit."""
        return self.job.parallel.edp if unit.experts else self.size

    def _among(self, unit: FsdpUnit, ranks: int) -> Group:
        """So many of those who share a unit."""
        return EXPERT_REPLICAS if unit.experts else within(self.job, ranks)

    def _sums(self, unit: FsdpUnit) -> float:
        return float(self.job.training.gradient_bytes * unit.trained)

    def _gather(self, unit: FsdpUnit) -> tuple[Flight, ...]:
        """Issued some units ahead: that of the first at once, others when the unit before them begins."""
        if self.keeps and SYNC.of(self.job) == "last" and not self.role.first:
            return ()
        place = self.firsts.index(unit.first) - forward_ahead(self.job)
        issued = PassMoment(self.firsts[max(0, place)])
        if self.ahead is not None:
            issued = max(issued, self.ahead.issued(unit.first))
        return (self._gathering(unit, issued, PassMoment(unit.first), self._ranks(unit)),)

    def _gathering(self, unit: FsdpUnit, issued: PassMoment, needed: PassMoment, ranks: int) -> Flight:
        held = (Hold("buffers" if self.copies else "gathered", unit.nbytes),) if self.ahead is None else ()
        moved = FlightStep("host_in", MASTER * unit.elements / ranks, ALONE)
        steps = (FlightStep("all_gather", unit.nbytes, self._among(unit, ranks)),)
        if ranks == 1:  # nobody to gather from: only a copy in the precision of the passes
            steps = (FlightStep("traffic", MASTER * unit.elements + unit.nbytes),)
        return Flight(
            f"gather {unit.name}", (moved, *steps) if self.away else steps, issued, needed, held, gathers=True
        )

    def _marks(self, unit: FsdpUnit, gathered: bool) -> Iterator[Mark]:
        if gathered and self.copies:
            yield from _copied_out(unit.first, self._following(unit), unit.nbytes)
        given_back = not unit.stays and not self.keeps
        kept = unit.nbytes / self.between if self.between != self.size else 0.0
        if self.ahead is None:
            if given_back:
                yield PassMoment(unit.last, after=True), Hold("gathered", kept - unit.nbytes)
            return
        if gathered:
            yield PassMoment(unit.first), Hold("gathered", unit.nbytes)
        yield from self._late("F", unit.last, (kept - unit.nbytes) * given_back)

    def _following(self, unit: FsdpUnit) -> PassMoment:
        """When the unit behind *unit* is there in a forward; of the last one, when what is behind it begins or ends."""
        later = [first for first in self.firsts if first < unit.first]
        return PassMoment(max(later) if later else max(0, unit.last - 1), after=not (later or unit.last))

    def _late(self, work: str, part: int, nbytes: float) -> Iterator[Mark]:
        """What was used until *part* of a pass is given back where the host is once the GPU has come by."""
        assert self.ahead is not None
        found, moment = self.ahead.given_back(work, part)
        if nbytes and found == self.role.work:
            yield moment, Hold("gathered", nbytes)

    def _gather_back(self, unit: FsdpUnit) -> tuple[Flight, ...]:
        """Issued before the backward of the unit before it; after it, or when it is needed, if the scenario says so."""
        if unit.stays or self.keeps:
            return ()
        here, ahead = PassMoment(unit.last), backward_ahead(self.job)
        issued = PassMoment(self.lasts[max(0, self.lasts.index(unit.last) - ahead)])
        if BACKWARD_PREFETCH.of(self.job) == "post" and unit.last:
            issued = PassMoment(unit.last - 1, after=True)
        between = self._ranks(unit) if unit.experts else self.between
        return (self._gathering(unit, issued, here, between),)

    def _reduce(self, unit: FsdpUnit) -> Iterator[Flight]:
        if not self.reduces or not unit.trained:
            return
        nbytes = self._sums(unit)
        done = PassMoment(unit.first, after=True)
        later = [first for first in self.firsts if first > unit.first]
        late = PassMoment(min(later), after=True) if self.copies and later else None
        held = Hold("buffers", nbytes)
        size = self._ranks(unit)
        copied = (FlightStep("host_out", MASTER * unit.trained / size, ALONE),) if self.away else ()
        name, whole_group = f"reduce {unit.name}", unit.experts or size == replicas(self.job)
        scatter = (FlightStep("reduce_scatter", nbytes, self._among(unit, size)),) if size > 1 else ()
        steps = (*scatter, *(copied if whole_group else ()))
        if steps:
            yield Flight(name, steps, done, late, (held,), (Hold("buffers", -nbytes),))
        if not whole_group:
            average = FlightStep("all_reduce", nbytes / self.size, across(self.size))
            yield Flight(f"average {unit.name}", (average, *copied), name if steps else done, chain=Queue.REPLICAS)

    def _marks_back(self, unit: FsdpUnit, gathered: bool) -> Iterator[Mark]:
        over, top = PassMoment(unit.first, after=True), self.job.model.layers + 1
        if gathered and self.copies:
            following = PassMoment(min(top, unit.first + 1), after=unit.first == top)
            yield from _copied_out(unit.last, following, unit.nbytes)
        if gathered and self.ahead is not None:
            yield PassMoment(unit.last), Hold("gathered", unit.nbytes)
        if gathered and self.between != self.size:
            yield PassMoment(unit.last), Hold("gathered", -unit.nbytes / self.between)
        yield from self._gradients(unit, over)
        if self.ahead is not None and not unit.stays and not self.keeps:
            yield from self._late("F", unit.last, self._left(unit))
            yield from self._late("B", unit.first, -unit.nbytes)
        elif not (self.keeps and SYNC.of(self.job) == "last" and not self.role.last):
            yield over, Hold("gathered", -unit.nbytes)

    def _left(self, unit: FsdpUnit) -> float:
        """What the forward gives back of a unit."""
        return (unit.nbytes / self.between if self.between != self.size else 0.0) - unit.nbytes

    def _gradients(self, unit: FsdpUnit, over: PassMoment) -> Iterator[Mark]:
        """Gradients as they are made, part by part, until they are in the buffer that is reduced, or added up."""
        sums, low = self._sums(unit), float(self.job.training.stream_bytes)
        accumulates = SYNC.of(self.job) == "last"
        each = low if self.fills else 0.0 if accumulates else float(self.job.training.gradient_bytes)
        for part, elements in unit.gradients:
            yield PassMoment(part), Hold("gradients", each * elements)
        if accumulates and not (self.role.first and self.role.last):
            if self.fills:
                yield over, FlightStep("traffic", low * unit.trained + 2 * sums)
            yield over, Hold("gradients", sums * (self.role.first - self.role.last))
        if self.reduces and self.fills and (self.copies or not self.job.training.autocast):  # else reduced where made
            yield over, FlightStep("traffic", low * unit.trained + sums)
        yield over, Hold("gradients", -each * unit.trained)


def _copied_out(part: int, following: PassMoment, nbytes: float) -> Iterator[Mark]:
    """From the gather's buffer into parameters; the buffer is free when the next unit is copied out."""
    yield PassMoment(part), Hold("gathered", nbytes)
    yield PassMoment(part), FlightStep("traffic", 2 * nbytes)
    yield following, Hold("buffers", -nbytes)
