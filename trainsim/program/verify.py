"""
What is legal: the engine trusts a system that has passed here.

Every collective is posted by all its members in one order; a communicator is posted from one chain per rank, so
that nothing between ranks is first come, first served; every message is waited for by its receiver and nobody
waits for what nobody does; memory that is taken is given back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from trainsim.contracts.groups import Group, Messages
from trainsim.contracts.instructions import Columns, Program, Template
from trainsim.contracts.system import Communicator, Ints, System
from trainsim.errors import InvalidProgram

Source = int
"""A list of microbatches that a template is carried out for, by its number among those of the program."""


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
        _nobody_waits_in_vain(k, fact)
        if abs(fact.balance) > 0.5:
            raise InvalidProgram(f"program {k} keeps {fact.balance:.0f} bytes when the step is over")


class _ProgramFacts:
    """What a program posts, sets, waits for and allocates: read from each template once, whatever its microbatches.

    ``waits`` and ``signals`` say of each event which sources have it, ``sends`` the same for each communicator.
    """

    def __init__(self, program: Program):
        self.program = program
        self.chains: dict[Group, dict[str, None]] = {}
        self.sends: dict[Messages, dict[str, list[Source]]] = {}
        self.waits: dict[str, list[Source]] = {}
        self.signals: dict[str, list[Source]] = {}
        self.received: dict[str, list[Ints]] = {}
        self.balance = 0.0
        self._microbatches: list[Ints] = []
        self._singles: dict[int, Source] = {}
        self._moments: dict[tuple[Source, ...], Ints] = {}
        for chain, columns in program.columns.items():
            order = np.argsort(columns.template, kind="stable")
            for template, microbatches in zip(
                columns.templates, np.split(columns.microbatch[order], np.cumsum(columns.times)[:-1]), strict=True
            ):
                self._note(chain, template, microbatches)

    def _note(self, chain: str, template: Template, microbatches: Ints) -> None:
        self.balance += template.balance * len(microbatches)
        for communicator in {id(i.communicator): i.communicator for i in template.posted.meets}.values():
            self.chains.setdefault(communicator, {})[chain] = None
        usual = self._single(int(microbatches[0])) if len(microbatches) == 1 else self._source(microbatches)
        for send in template.posted.sends:
            self.sends.setdefault(send.communicator, {}).setdefault(send.event, []).append(usual)
        for table, steps in ((self.signals, template.posted.signals), (self.waits, template.posted.waits)):
            for i in steps:
                source = usual if i.microbatch is None else self._single(i.microbatch)
                table.setdefault(i.event, []).append(source)

    def _source(self, microbatches: Ints) -> Source:
        self._microbatches.append(microbatches)
        return len(self._microbatches) - 1

    def _single(self, microbatch: int) -> Source:
        """The one source of a microbatch alone."""
        if microbatch not in self._singles:
            self._singles[microbatch] = self._source(np.array([microbatch], np.int64))
        return self._singles[microbatch]

    def moments(self, sources: Iterable[Source]) -> Ints:
        """The microbatches of *sources*, each once, ascending."""
        key = tuple(sources)
        if key not in self._moments:
            every = self.all_moments(key)
            self._moments[key] = every if (every[1:] > every[:-1]).all() else np.unique(every)
        return self._moments[key]

    def all_moments(self, sources: Iterable[Source]) -> Ints:
        """The microbatches of *sources* as often as they come."""
        of = [self._microbatches[source] for source in sources]
        return of[0] if len(of) == 1 else np.concatenate([np.zeros(0, np.int64), *of])

    def posts(self, communicator: Group) -> _Posts:
        """Operations and sizes that the program posts to a communicator, in order."""
        chain = next(iter(self.chains.get(communicator, ())), None)
        columns = Columns.of(()) if chain is None else self.program.columns[chain]
        of = [
            tuple((i.operation, i.nbytes) for i in template.posted.meets if i.communicator == communicator)
            for template in columns.templates
        ]
        posting = np.array([bool(posts) for posts in of], bool)
        return _Posts(of, columns.template[posting[columns.template]])


class _Posts(NamedTuple):
    """Posts to one communicator: what templates post, and the templates in order; those that post nothing left out."""

    of: list[tuple[tuple[str, float], ...]]
    template: Ints

    @property
    def all(self) -> list[tuple[str, float]]:
        """The posts one by one."""
        return [post for template in self.template.tolist() for post in self.of[template]]

    def same(self, other: _Posts) -> bool:
        """Whether both post the same in the same order: mostly they do it template by template."""
        number: dict[tuple[tuple[str, float], ...], int] = {}
        a, b = (
            np.array([number.setdefault(posts, len(number)) for posts in posting.of], np.int64)[posting.template]
            for posting in (self, other)
        )
        return np.array_equal(a, b) or self.all == other.all


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
        posts, others = (facts[k].posts(group) for k in (leader, program))
        if not posts.same(others):
            a, b = posts.all, others.all
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
        sender, receiver = facts[source], facts[target]
        for event, sources in sender.sends.get(messages, {}).items():
            sent, every = sender.moments(sources), sender.all_moments(sources)
            if len(every) > len(sent):
                microbatch, count = next((k, n) for k, n in sorted(Counter(every.tolist()).items()) if n > 1)
                raise InvalidProgram(f"program {source} sends {event!r} of microbatch {microbatch} {count} times")
            for microbatch in _without(sent, receiver.moments(receiver.waits.get(event, ()))):
                raise InvalidProgram(
                    f"program {source} sends {event!r} of microbatch {microbatch} to program {target}, "
                    "which does not wait for it"
                )
            receiver.received.setdefault(event, []).append(sent)


def _nobody_waits_in_vain(program: int, facts: _ProgramFacts) -> None:
    """Every event that a program waits for is set here or by a message."""
    for event, sources in facts.waits.items():
        here, received = facts.signals.get(event, []), facts.received.get(event, [])
        if set(sources) <= set(here):
            continue
        for microbatch in _without(facts.moments(sources), np.concatenate([facts.moments(here), *received])):
            raise InvalidProgram(f"program {program} waits for {event!r} of microbatch {microbatch}, which nobody sets")


def _without(some: Ints, others: Ints) -> list[int]:
    """Those of *some* that are not among *others*."""
    return [] if np.array_equal(some, others) else some[~np.isin(some, others)].tolist()
