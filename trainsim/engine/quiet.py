"""
Quiet tasks: when can nobody else touch what a chain uses?

A resource is *owned* when all its users need its own rank's post or kernel. What a chain's kernels and collectives
use is then private except while another chain of this rank that uses it too may be at work: from the task that sets
the event which that chain waits for, to the task that waits for the event which that chain sets when it is done; and
from the first message over it. In quiet tasks nothing has to be tracked: the runs are plain timeouts, and several
classes of one group can go through them jointly. The answer is taken per program, so that all members of a group
agree.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import compress
from operator import and_

import numpy as np

from trainsim.contracts.groups import Group, Messages
from trainsim.contracts.instructions import Kernel, Meet, Program, Send, Template
from trainsim.contracts.record import COMPUTE
from trainsim.contracts.system import Bools, Ints
from trainsim.engine.actor import Actor
from trainsim.engine.rest import intervals_at_work
from trainsim.engine.stretches import Stretch, followers, stretches
from trainsim.fold.quotient import Loads, Quotient


@dataclass(frozen=True, slots=True)
class _Outline:
    """What a template touches, without order or amounts."""

    sm: bool
    hbm: bool
    meets: frozenset[tuple[Group, str]]  # (communicator, operation)
    sends: frozenset[Messages]


def _outline(template: Template) -> _Outline:
    kernels = [i for i in template.instructions if isinstance(i, Kernel)]
    return _Outline(
        sm=any(k.sm > 0 for k in kernels),
        hbm=any(k.hbm > 0 for k in kernels),
        meets=frozenset((i.communicator, i.operation) for i in template.instructions if isinstance(i, Meet)),
        sends=frozenset(i.communicator for i in template.instructions if isinstance(i, Send)),
    )


Quiet = tuple[bool, ...]
"""For each task of a chain: whether it is quiet."""


@dataclass(frozen=True, slots=True)
class Quietness:
    """(Program, chain) -> which of its tasks are quiet in all classes that run the program, and program -> those of its
    stretches that only the chains which take part can disturb."""

    tasks: dict[tuple[int, str], Quiet] = field(default_factory=dict)
    stretches: dict[int, list[Stretch]] = field(default_factory=dict)


def quietness(quotient: Quotient, actors: list[Actor]) -> Quietness:
    """What is quiet in the programs of all *actors*."""
    messages = frozenset(name for p in quotient.system.programs for name in _sent(p))
    programs = [_ProgramOutline(p, messages) for p in quotient.system.programs]
    tasks: dict[tuple[int, str], Quiet] = {}
    calm: dict[int, Quiet] = {}
    for actor in actors:
        program = programs[actor.program_number]
        neighbours = _Neighbours(quotient, actor, program)
        for name in program.chains:
            key = actor.program_number, name
            if any(tasks.get(key, (True,))):
                tasks[key] = _both(tasks.get(key), neighbours.quiet_tasks(name))
        calm[actor.program_number] = _both(calm.get(actor.program_number), neighbours.quiet_stretches())
    return Quietness(tasks, {k: list(compress(programs[k].stretches, quiet)) for k, quiet in calm.items()})


def _both(before: Quiet | None, now: Iterable[bool]) -> Quiet:
    return tuple(now) if before is None else tuple(map(and_, before, now))


def _sent(program: Program) -> set[str]:
    """Events that the messages of *program* set on other ranks."""
    templates = {id(t.template): t.template for tasks in program.chains.values() for t in tasks}
    return {i.event for template in templates.values() for i in template.instructions if isinstance(i, Send)}


class _ProgramOutline:
    """The chains of a program with an outline of each template, and which chains follow compute."""

    def __init__(self, program: Program, messages: frozenset[str]):
        self.messages = messages
        self.chains = program.chains
        self.beside = followers(program)
        self.stretches = stretches(self.beside)
        distinct = {id(task.template): task.template for tasks in program.chains.values() for task in tasks}
        self.outline = {key: _outline(template) for key, template in distinct.items()}
        self._at_work: dict[tuple[str, str], Bools] = {}
        self._places: dict[str, tuple[list[int], Ints]] = {}

    def places(self, chain: str) -> tuple[list[int], Ints]:
        """The templates of *chain*, and which of them each task carries out."""
        if chain not in self._places:
            number: dict[int, int] = {}
            of = [number.setdefault(id(task.template), len(number)) for task in self.chains[chain]]
            self._places[chain] = list(number), np.array(of, np.int64)
        return self._places[chain]

    def first_send(self, chain: str) -> int:
        """The first task of *chain* that sends a message."""
        templates, of = self.places(chain)
        sends = np.flatnonzero(np.array([bool(self.outline[t].sends) for t in templates])[of])
        return int(sends[0]) if len(sends) else len(of)

    def at_work(self, chain: str, other: str) -> Bools:
        """Tasks of *chain* during which *other* may be at work."""
        key = chain, other
        if key not in self._at_work:
            self._at_work[key] = marked = np.zeros(len(self.chains[chain]), bool)
            for begin, end in self._intervals(chain, other):
                marked[begin : end + 1] = True
        return self._at_work[key]

    def _intervals(self, chain: str, other: str) -> list[tuple[int, int]]:
        if chain in self.beside:
            return [(0, len(self.chains[chain]) - 1)]
        if chain == COMPUTE and other in self.beside:
            return self.beside[other]
        return intervals_at_work(self.chains, chain, other, self.messages)


class _Neighbours:
    """What one class's templates use, and who else may use it at one time."""

    def __init__(self, quotient: Quotient, actor: Actor, program: _ProgramOutline):
        self.quotient, self.program = quotient, program
        self.reach = {key: _reach(quotient, actor, outline) for key, outline in program.outline.items()}
        self.of_chain = {name: self._together(program.places(name)[0]) for name in program.chains}

    def quiet_tasks(self, chain: str) -> list[bool]:
        """Which tasks of *chain* nobody else can disturb."""
        templates, of = self.program.places(chain)
        quiet = np.zeros(len(of), bool)
        for k, template in enumerate(templates):
            where = of == k
            quiet[where] = self._undisturbed(chain, self.reach[template][0], frozenset())[where]
        return [bool(x) for x in quiet.tolist()]

    def quiet_stretches(self) -> list[bool]:
        """Which stretches nobody but the chains that take part can disturb."""
        known: dict[frozenset[int], Ints] = {}
        out = []
        for stretch in self.program.stretches:
            tasks = [*self.program.chains[COMPUTE][stretch.first : stretch.last + 1]]
            for name, first, count in stretch.followers:
                tasks += self.program.chains[name][first : first + count]
            key = frozenset(id(task.template) for task in tasks)
            if key not in known:
                used = self._together(key)[0]
                disturbed = ~self._undisturbed(COMPUTE, used, frozenset(self.program.beside))
                known[key] = np.concatenate([[0], np.cumsum(disturbed)])
            out.append(bool(known[key][stretch.last + 1] == known[key][stretch.first]))
        return out

    def _together(self, templates: Iterable[int]) -> _Reach:
        every = [self.reach[template] for template in templates]
        return set().union(*(runs for runs, _ in every)), set().union(*(sent for _, sent in every))

    def _undisturbed(self, chain: str, used: set[int], with_it: frozenset[str]) -> Bools:
        """The tasks of *chain* in which nobody but it and the chains *with_it* touches *used*."""
        quiet = np.ones(len(self.program.chains[chain]), bool)
        if not all(self.quotient.owned[r] for r in used):
            return ~quiet
        for name, (runs, sent) in self.of_chain.items():
            if name == chain and used & sent:
                quiet[self.program.first_send(chain) :] = False
            elif name != chain and name not in with_it and used & (runs | sent):
                at_work = self.program.at_work(chain, name)
                quiet &= ~at_work
                if used & sent and at_work.any():  # nobody knows when its messages have arrived
                    quiet[int(at_work.argmax()) :] = False
        return quiet


_Reach = tuple[set[int], set[int]]
"""The resources that the runs of a template use, and those that its messages use."""


def _reach(quotient: Quotient, actor: Actor, outline: _Outline) -> _Reach:
    runs: set[int] = set()
    messages: set[int] = set()
    runs |= {actor.sm} if outline.sm else set()
    runs |= {actor.hbm} if outline.hbm else set()
    for communicator, operation in outline.meets:
        loads, holds = quotient.groups[actor.port(communicator)].uses.get(operation, Loads((), ()))
        runs |= {r for r, _, _ in (*loads, *holds)}
    for sent in outline.sends:
        for loads, holds in quotient.groups[actor.port(sent)].uses.values():
            messages |= {r for r, _, _ in (*loads, *holds)}
    return runs - {-1}, messages
