"""
From what a sharding strategy wants beside a pass to instructions: events between the pass and the chains beside it.

A chain carries out its flights in the order in which they are issued, as one NCCL communicator does. Flights that the
pass itself carries out meet on a communicator of their own, since a communicator is posted from one chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from trainsim.contracts.instructions import Hold, Kernel, Meet, Piece, Signal, Template, Wait
from trainsim.program.block_costs import Blocks
from trainsim.program.templates import Cut
from trainsim.sharding.flights import UPDATE, Flight, FlightStep, PassFlights, PassMoment, Role


def cuts(beside: PassFlights, role: Role, blocks: Blocks) -> dict[int, Cut]:
    """What the pass does around its parts: tell that flights may start, wait for them, copy, take and give memory."""
    before: dict[int, list[Piece]] = {}
    after: dict[int, list[Piece]] = {}
    for moment in sorted(set(_moments(beside))):
        side = after if moment.after else before
        side[moment.part] = list(_at(moment, beside, role, blocks))
    return {part: Cut(tuple(before.get(part, ())), tuple(after.get(part, ()))) for part in {*before, *after}}


def tasks(beside: PassFlights, role: Role, blocks: Blocks) -> Mapping[str, Template]:
    """What each chain beside the pass does for it."""
    by_chain: dict[str, list[Piece]] = {}
    for flight in beside.flights:
        if flight.beside:
            steps = list(_steps(flight, blocks))
            held = (flight.takes, flight.gives) if steps else ((), ())
            pieces = by_chain.setdefault(flight.chain, [])
            pieces += [Wait(_issue(flight, role)), *held[0], *steps, *held[1], Signal(_over(flight.name, role))]
    return {chain: Template.of(role.work + " beside", 0, pieces) for chain, pieces in by_chain.items()}


def _moments(beside: PassFlights) -> Iterator[PassMoment]:
    for flight in beside.flights:
        if isinstance(flight.issued, PassMoment):
            yield flight.issued
        if flight.needed is not None:
            yield flight.needed
    yield from (moment for moment, _ in beside.marks)
    yield from (moment for moment, _ in beside.waits)


def _at(moment: PassMoment, beside: PassFlights, role: Role, blocks: Blocks) -> Iterator[Piece]:
    """Gathers that are demanded at once start, and those ahead of them; then all that are needed are waited for, then
    the other gathers start. Marks come next, for what is gathered is copied out of buffers and what is reduced is
    copied into them, and last what is sent from there."""
    here = [f for f in beside.flights if f.issued == moment]
    gathers, sent = ([f for f in here if f.gathers is gathers] for gathers in (True, False))
    demanded = max((k + 1 for k, f in enumerate(gathers) if f.beside and f.needed == moment), default=0)
    needed = [f for f in beside.flights if f.needed == moment and f.beside]
    yield from (Signal(_issue(f, role)) for f in gathers[:demanded] if f.beside)
    yield from (Wait(_over(f.name, role)) for f in needed if f not in sent)
    yield from (Wait(_over(name, Role("F", False, False))) for at, name in beside.waits if at == moment)
    yield from (Signal(_issue(f, role)) for f in gathers[demanded:] if f.beside)
    for flight in gathers:
        yield from _inline(flight, blocks)
    for at, mark in beside.marks:
        if at == moment:
            yield mark if isinstance(mark, Hold) else _traffic("copy", mark, blocks, "compute")
    yield from (Signal(_issue(f, role)) for f in sent if f.beside)
    yield from (Wait(_over(f.name, role)) for f in needed if f in sent)
    for flight in sent:
        yield from _inline(flight, blocks)


def _inline(flight: Flight, blocks: Blocks) -> Iterator[Piece]:
    """What the pass itself does of a flight."""
    steps = list(_steps(flight, blocks))
    if not steps:  # nobody else is there: the pass itself holds what is left behind
        yield from _left(flight)
    elif not flight.beside:
        yield from (*flight.takes, *steps, *flight.gives)


def _left(flight: Flight) -> Iterator[Hold]:
    """What a flight takes and does not give back."""
    level: dict[str, float] = {}
    for hold in (*flight.takes, *flight.gives):
        level[hold.category] = level.get(hold.category, 0.0) + hold.nbytes
    yield from (Hold(category, nbytes) for category, nbytes in level.items())


def _steps(flight: Flight, blocks: Blocks) -> Iterator[Kernel | Meet]:
    for step in flight.steps:
        group, stream = step.over.on(flight.chain), "offload" if step.over.alone else "dp"
        if step.operation == UPDATE:
            made = blocks.traffic(flight.name, step.nbytes, "optimizer")
            yield made if not flight.beside else replace(made, stream="dp")
        elif step.operation == "traffic":
            yield _traffic(flight.name, step, blocks, "dp")
        elif group.alone or blocks.network.has(group):
            yield Meet(flight.name, stream, group, step.operation, step.nbytes, stream=stream)


def _traffic(name: str, step: FlightStep, blocks: Blocks, stream: str) -> Kernel:
    """A copy: on the stream of the collectives it is a part of them."""
    made = blocks.traffic(name, step.nbytes, "dp" if stream == "dp" else "copy")
    return Kernel(made.name, made.kind, made.seconds, made.sm, made.hbm, -1, stream)


def _issue(flight: Flight, role: Role) -> str:
    if isinstance(flight.issued, str):
        return _over(flight.issued, role)
    return f"{role.work} issue {flight.name}"


def _over(name: str, role: Role) -> str:
    return f"{role.work} {name}"
