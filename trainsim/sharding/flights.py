"""
Flights: what sharding runs under a pass. Collectives, when they are issued, who waits for them, and the
memory that they take.

Parts of a pass are numbered as gradients become ready: 0 is the head, 1 to L the layers from last to first, L + 1 the
embedding. A forward goes through them from the highest to the lowest, a backward from the lowest to the highest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from trainsim.contracts.groups import REPLICAS, Group, Queue
from trainsim.contracts.instructions import Hold


class PassMoment(NamedTuple):
    """Just before a part of a pass, or just after it."""

    part: int
    after: bool = False


UPDATE = "update"
"""The operation of a kernel that updates parameters."""
KERNELS = ("traffic", UPDATE)
"""Operations that are kernels of this rank."""


class FlightStep(NamedTuple):
    """A collective of ``nbytes`` (the full buffer) among the ranks ``over``, or one of KERNELS: a kernel that reads and
    writes ``nbytes`` of memory in all."""

    operation: str
    nbytes: float
    over: Group = REPLICAS


class Flight(NamedTuple):
    """Steps that a chain beside the pass carries out one after the other.

    They are ``issued`` at a moment of the pass, or when another flight (by name) is over; the pass waits for the end at
    ``needed``. ``takes`` is held from the beginning, ``gives`` given back at the end. On the compute chain the pass
    itself carries them out where they are issued. ``gathers``: it brings parameters; the others send gradients.
    """

    name: str
    steps: tuple[FlightStep, ...]
    issued: PassMoment | str
    needed: PassMoment | None = None
    takes: tuple[Hold, ...] = ()
    gives: tuple[Hold, ...] = ()
    chain: Queue = Queue.DATA
    gathers: bool = False

    @property
    def beside(self) -> bool:
        """Whether a chain beside the pass carries it out."""
        return self.chain is not Queue.COMPUTE


class PassFlights(NamedTuple):
    """The flights of one pass: in the order in which they are issued, and what the pass itself does
    in between: memory that it takes and gives back, and copies. At ``waits`` a backward waits for flights of the
    forward of its microbatch."""

    flights: tuple[Flight, ...] = ()
    marks: tuple[tuple[PassMoment, Hold | FlightStep], ...] = ()
    waits: tuple[tuple[PassMoment, str], ...] = ()


class Role(NamedTuple):
    """Which pass it is: ``work`` is F or B; the first and the last microbatch of a step differ from the others."""

    work: str
    first: bool
    last: bool


FlightPlan = Mapping[Role, PassFlights]


def roles() -> Iterator[Role]:
    """All roles that a pass can have.

    >>> len(list(roles()))
    8
    """
    for work in ("F", "B"):
        for first in (True, False):
            for last in (True, False):
                yield Role(work, first, last)


def in_issue_order(flights: Iterable[Flight], work: str) -> tuple[Flight, ...]:
    """Flights as the host issues them along a pass; where moments are equal, in the order in which they are given.

    Those that follow another flight have its moment, and come behind it.

    >>> late, soon = (Flight(f"reduce {k}", (), PassMoment(k)) for k in (2, 1))
    >>> after = Flight("average", (), "reduce 1")
    >>> [f.name for f in in_issue_order((late, soon, after), "B")]
    ['reduce 1', 'average', 'reduce 2']
    """
    sign, given = 1 if work == "B" else -1, tuple(flights)
    by_name = {f.name: f for f in given}

    def key(flight: Flight) -> tuple[int, bool]:
        at = moment_of(flight, by_name)
        return sign * at.part, at.after

    return tuple(sorted(given, key=key))


def moment_of(flight: Flight, by_name: Mapping[str, Flight]) -> PassMoment:
    """When the host issues *flight*, or the one that it follows."""
    at = flight.issued
    return at if isinstance(at, PassMoment) else moment_of(by_name[at], by_name)


def in_turn(beside: PassFlights) -> PassFlights:
    """The same without any overlap: the pass itself carries everything out where it is needed, or else where it is
    issued.

    >>> gather = Flight("gather", (FlightStep("all_gather", 8.0),), PassMoment(3), PassMoment(2), gathers=True)
    >>> [(f.issued, f.beside) for f in in_turn(PassFlights((gather,))).flights]
    [(PassMoment(part=2, after=False), False)]
    """
    by_name = {f.name: f for f in beside.flights}

    def moment(flight: Flight) -> PassMoment:
        return flight.needed if flight.gathers and flight.needed else moment_of(flight, by_name)

    flights = tuple(f._replace(issued=moment(f), needed=None, chain=Queue.COMPUTE) for f in beside.flights)
    return beside._replace(flights=flights)


def chains(plan: FlightPlan) -> tuple[Queue, ...]:
    """The chains that a plan uses, beside the passes themselves."""
    return tuple(dict.fromkeys(f.chain for beside in plan.values() for f in beside.flights if f.beside))
