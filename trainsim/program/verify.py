"""
What is legal: the engine trusts a system that has passed here.

Every collective is posted by all its members in one order; a communicator is posted from one chain per rank, so
that nothing between ranks is first come, first served; every message is waited for by its receiver and nobody
waits for what nobody does; memory that is taken is given back.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from trainsim.contracts.groups import Group, Messages
from trainsim.contracts.instructions import Instruction, Kernel, Meet, Program, Send, Signal, Template, Wait
from trainsim.contracts.system import Communicator, System
from trainsim.errors import InvalidProgram

Event = tuple[str, int]


def verify(system: System) -> None:
    """Raise InvalidProgram that names the first thing that breaks the contract."""
    facts = [_ProgramFacts(p) for p in system.programs]
    for k, fact in enumerate(facts):
        _one_chain_each(k, fact)
    for peers, communicator in system.communicators.items():
        if isinstance(peers, Messages):
            _messages_arrive(system, peers, communicator, facts)
        else:
            _same_order(system, peers, communicator, facts)
    for k, fact in enumerate(facts):
        missing = [e for e in fact.waits if e not in fact.set_here and e not in fact.received]
        if missing:
            event, microbatch = missing[0]
            raise InvalidProgram(f"program {k} waits for {event!r} of microbatch {microbatch}, which nobody sets")
        if abs(fact.balance) > 0.5:
            raise InvalidProgram(f"program {k} keeps {fact.balance:.0f} bytes when the step is over")


class _Steps(NamedTuple):
    """What one template posts, sends, waits for and sets."""

    meets: tuple[Meet, ...]
    sends: tuple[Send, ...]
    waits: tuple[Wait, ...]
    signals: tuple[Signal, ...]

    @classmethod
    def of(cls, template: Template) -> _Steps:
        by_kind: dict[type, list[Instruction]] = {Meet: [], Send: [], Wait: [], Signal: [], Kernel: []}
        for i in template.instructions:
            by_kind[type(i)].append(i)
        return cls(*(tuple(by_kind[kind]) for kind in (Meet, Send, Wait, Signal)))  # type: ignore[arg-type]


class _ProgramFacts:
    """What a program posts, sets, waits for and allocates; templates are read once."""

    def __init__(self, program: Program):
        self.program = program
        templates = {id(t.template): t.template for tasks in program.chains.values() for t in tasks}
        self.of = {key: _Steps.of(template) for key, template in templates.items()}
        self.chains: dict[Group, dict[str, None]] = {}
        self.sends: dict[Messages, Counter[Event]] = {}
        self.waits: dict[Event, None] = {}
        self.set_here: set[Event] = set()
        self.received: set[Event] = set()
        self.balance = 0.0
        for chain, tasks in program.chains.items():
            for template in {id(t.template): t.template for t in tasks}.values():
                for meet in self.of[id(template)].meets:
                    self.chains.setdefault(meet.communicator, {})[chain] = None
            left = {id(t.template): t.template.balance for t in tasks}
            for template, microbatch in tasks:
                self.balance += left[id(template)]
                self._note(self.of[id(template)], microbatch)

    def _note(self, steps: _Steps, microbatch: int) -> None:
        for send in steps.sends:
            self.sends.setdefault(send.communicator, Counter())[send.event, microbatch] += 1
        for signal in steps.signals:
            self.set_here.add((signal.event, microbatch if signal.microbatch is None else signal.microbatch))
        for wait in steps.waits:
            self.waits[wait.event, microbatch if wait.microbatch is None else wait.microbatch] = None

    def posts(self, communicator: Group) -> list[tuple[str, float]]:
        """Operations and sizes that the program posts to a communicator, in order."""
        posted = {
            key: [(m.operation, m.nbytes) for m in steps.meets if m.communicator == communicator]
            for key, steps in self.of.items()
        }
        chains = self.chains.get(communicator, {})
        return [post for chain in chains for t in self.program.chains[chain] for post in posted[id(t.template)]]


def _one_chain_each(program: int, facts: _ProgramFacts) -> None:
    for communicator, chains in facts.chains.items():
        if len(chains) > 1:
            raise InvalidProgram(
                f"program {program} posts {str(communicator)!r} from the chains {', '.join(chains)}: "
                "their order would depend on time"
            )


def _same_order(system: System, group: Group, communicator: Communicator, facts: list[_ProgramFacts]) -> None:
    """All programs that share a group post the same operations and sizes in the same order."""
    (group_of,) = communicator.group_of
    member = np.flatnonzero(group_of >= 0)
    pairs = np.unique(group_of[member] * len(facts) + system.program_of[member])
    first: dict[int, int] = {}
    checked: set[tuple[int, int]] = set()
    for number, program in zip((pairs // len(facts)).tolist(), (pairs % len(facts)).tolist(), strict=True):
        leader = first.setdefault(number, program)
        if leader == program or (leader, program) in checked:
            continue
        checked.add((leader, program))
        a, b = facts[leader].posts(group), facts[program].posts(group)
        if a != b:
            raise InvalidProgram(
                f"programs {leader} and {program} share a group of {str(group)!r} and post different collectives: "
                f"{len(a)} against {len(b)}, first difference {_difference(a, b)}"
            )


def _difference(a: list[tuple[str, float]], b: list[tuple[str, float]]) -> str:
    at = next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return f"at number {at}: {a[at : at + 1]} and {b[at : at + 1]}"


def _messages_arrive(
    system: System, messages: Messages, communicator: Communicator, facts: list[_ProgramFacts]
) -> None:
    """Each receiver waits for each event that its sender sets, once."""
    senders, receivers = communicator.group_of
    who = np.flatnonzero(senders >= 0)
    receiver_of = np.full(communicator.groups, -1, np.int64)
    receiver_of[receivers[receivers >= 0]] = np.flatnonzero(receivers >= 0)
    programs = len(facts)
    pairs = np.unique(system.program_of[who] * programs + system.program_of[receiver_of[senders[who]]])
    for source, target in zip((pairs // programs).tolist(), (pairs % programs).tolist(), strict=True):
        sent = facts[source].sends.get(messages, Counter())
        for event, count in sent.items():
            if count > 1:
                raise InvalidProgram(f"program {source} sends {event[0]!r} of microbatch {event[1]} {count} times")
            if event not in facts[target].waits:
                raise InvalidProgram(
                    f"program {source} sends {event[0]!r} of microbatch {event[1]} to program {target}, "
                    "which does not wait for it"
                )
        facts[target].received |= set(sent)
