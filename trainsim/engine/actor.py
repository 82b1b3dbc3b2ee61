"""One rank class while it is compiled and runs: what its chains share."""

from __future__ import annotations

from collections.abc import Sequence

from trainsim.contracts.groups import Peers
from trainsim.contracts.instructions import Program
from trainsim.engine.flags import Flags
from trainsim.errors import InvalidProgram
from trainsim.fold.quotient import Quotient


class Actor:
    """``ports`` are its group classes by (communicator, label); ``turns`` counts its posts by communicator.

    ``flags`` are its named events.
    """

    __slots__ = ("_top", "flags", "hbm", "number", "ports", "program", "program_number", "rank", "slow", "sm", "turns")

    def __init__(self, quotient: Quotient, number: int, ports: dict[tuple[Peers, int], int], top: int):
        system = quotient.system
        self.number, self.ports, self._top = number, ports, top
        self.rank = int(quotient.representative[number])
        self.program_number = int(system.program_of[self.rank])
        self.program: Program = system.programs[self.program_number]
        self.slow = float(system.slow[self.rank])
        self.sm, self.hbm = int(quotient.sm[number]), int(quotient.hbm[number])
        self.flags: dict[str, Flags] = {}
        self.turns: dict[Peers, list[int]] = {}

    def port(self, communicator: Peers, label: int = 0) -> int:
        """The group class that this class belongs to with that part."""
        group = self.ports.get((communicator, label), -1)
        if group < 0:
            raise InvalidProgram(
                f"rank {self.rank} uses communicator {str(communicator)!r}, in which it has no "
                f"{'group' if label == 0 else 'peer that sends to it'}"
            )
        return group

    def event(self, name: str) -> Flags:
        """The states of one event."""
        if name not in self.flags:
            self.flags[name] = Flags(self.number, self._top)
        return self.flags[name]

    def turn(self, communicator: Peers) -> list[int]:
        """Counters of its posts: those that it made, and those that were left out."""
        return self.turns.setdefault(communicator, [0, 0])


def actors_of(quotient: Quotient) -> list[Actor]:
    """One actor per rank class."""
    columns = {port: column.tolist() for port, column in quotient.group_of.items()}
    top = 2 + max((_highest(program) for program in quotient.system.programs), default=0)
    return [
        Actor(quotient, c, {port: column[c] for port, column in columns.items() if column[c] >= 0}, top)
        for c in range(quotient.classes)
    ]


def posters(actors: Sequence[Actor]) -> dict[int, frozenset[int]]:
    """Group class -> the rank classes that post to it."""
    members: dict[int, set[int]] = {}
    for actor in actors:
        for (_, label), group in actor.ports.items():
            if label == 0:
                members.setdefault(group, set()).add(actor.number)
    return {group: frozenset(some) for group, some in members.items()}


def receivers(quotient: Quotient) -> dict[int, int]:
    """Group class of messages -> the rank class that receives them."""
    return {
        group: c
        for (_, label), column in quotient.group_of.items()
        if label == 1
        for c, group in enumerate(column.tolist())
        if group >= 0
    }


def _highest(program: Program) -> int:
    """The highest microbatch that an event of this program can be about."""
    every = program.columns.values()
    own = [int(columns.microbatch.max(initial=0)) for columns in every]
    posted = [template.posted for columns in every for template in columns.templates]
    about = [wait.microbatch for some in posted for wait in some.waits]
    about += [signal.microbatch for some in posted for signal in some.signals]
    return max([0, *own, *(microbatch for microbatch in about if microbatch is not None)])
