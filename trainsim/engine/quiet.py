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

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from operator import and_

import numpy as np

from trainsim.contracts.groups import Group, Messages
from trainsim.contracts.instructions import Kernel, Program, Template
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
        meets=frozenset((meet.communicator, meet.operation) for meet in template.posted.meets),
        sends=frozenset(send.communicator for send in template.posted.sends),
    )


Quiet = tuple[bool, ...]
"""For each task of a chain: whether it is quiet."""


@dataclass(frozen=True, slots=True)
class Quietness:
    """(Program, chain) -> which of its tasks are quiet in all classes that run the program, and program -> its
    stretches where only the chains that take part can disturb them."""

    tasks: dict[tuple[int, str], Bools] = field(default_factory=dict)
    stretches: dict[int, list[Stretch]] = field(default_factory=dict)


def quietness(quotient: Quotient, actors: list[Actor]) -> Quietness:
    """What is quiet in the programs of all *actors*."""
    messages = frozenset(name for p in quotient.system.programs for name in _sent(p))
    programs = [_ProgramOutline(p, messages) for p in quotient.system.programs]
    out = Quietness()
    calm: dict[int, list[Bools]] = {}
    for actor in actors:
        number = actor.program_number
        program = programs[number]
        neighbours = _Neighbours(quotient, actor, program)
        for name in program.columns:
            key = number, name
            if key not in out.tasks or out.tasks[key].any():
                quiet = neighbours.quiet_tasks(name)
                out.tasks[key] = out.tasks[key] & quiet if key in out.tasks else quiet
        now = neighbours.quiet_stretches()
        calm[number] = list(map(and_, calm[number], now)) if number in calm else now
    for number, which in calm.items():
        every = zip(programs[number].stretches, which, strict=True)
        out.stretches[number] = [stretch.only(quiet) for stretch, quiet in every if quiet.any()]
    return out


def _sent(program: Program) -> set[str]:
    """Events that the messages of *program* set on other ranks."""
    return {s.event for columns in program.columns.values() for t in columns.templates for s in t.posted.sends}


class _ProgramOutline:
    """The chains of a program with an outline of each template, and which chains follow compute."""

    def __init__(self, program: Program, messages: frozenset[str]):
        self.messages = messages
        self.columns = program.columns
        self.beside = followers(program)
        self.stretches = stretches(program, self.beside)
        distinct = dict.fromkeys(t for columns in self.columns.values() for t in columns.templates)
        self.outline = {template: _outline(template) for template in distinct}
        self._at_work: dict[tuple[str, str], Bools] = {}

    def tasks(self, chain: str) -> int:
        return len(self.columns[chain].template)

    def first_send(self, chain: str) -> int:
        """The first task of *chain* that sends a message."""
        columns = self.columns[chain]
        sends = np.flatnonzero(np.array([bool(t.posted.sends) for t in columns.templates], bool)[columns.template])
        return int(sends[0]) if len(sends) else len(columns.template)

    def at_work(self, chain: str, other: str) -> Bools:
        """Tasks of *chain* during which *other* may be at work."""
        key = chain, other
        if key not in self._at_work:
            begins, ends = self._intervals(chain, other)
            marks = np.zeros(self.tasks(chain) + 1, np.int64)
            np.add.at(marks, begins, 1)
            np.add.at(marks, ends + 1, -1)
            self._at_work[key] = np.cumsum(marks[:-1]) > 0
        return self._at_work[key]

    def _intervals(self, chain: str, other: str) -> tuple[Ints, Ints]:
        if chain in self.beside:
            return np.zeros(1, np.int64), np.full(1, self.tasks(chain) - 1)
        if chain == COMPUTE and other in self.beside:
            return self.beside[other]
        intervals = np.array(intervals_at_work(self.columns, chain, other, self.messages), np.int64).reshape(-1, 2)
        begins, ends = intervals.T
        return begins, np.maximum(ends, begins - 1)  # what is over before it can begin marks nothing


class _Neighbours:
    """What one class's templates use, and who else may use it at one time."""

    def __init__(self, quotient: Quotient, actor: Actor, program: _ProgramOutline):
        self.quotient, self.program = quotient, program
        reach = {outline: _reach(quotient, actor, outline) for outline in dict.fromkeys(program.outline.values())}
        self.reach = {template: reach[outline] for template, outline in program.outline.items()}
        self.of_chain = {name: self._together(columns.templates) for name, columns in program.columns.items()}
        self._known: dict[tuple[str, frozenset[int], bool], Bools] = {}

    def quiet_tasks(self, chain: str) -> Bools:
        """Which tasks of *chain* nobody else can disturb."""
        columns = self.program.columns[chain]
        number: dict[frozenset[int], int] = {}
        used = [number.setdefault(frozenset(self.reach[t][0]), len(number)) for t in columns.templates]
        of_task = np.array(used, np.int64)[columns.template]
        quiet = np.zeros(len(of_task), bool)
        for some, k in number.items():
            where = of_task == k
            quiet[where] = self._undisturbed(chain, some, alone=True)[where]
        return quiet

    def quiet_stretches(self) -> list[Bools]:
        """When nobody but the chains that take part can disturb each stretch."""
        out = []
        for stretch in self.program.stretches:
            once = stretch.once(self.program.columns)
            parts = [columns.templates[k] for columns in once.values() for k in np.unique(columns.template).tolist()]
            used, _ = self._together(parts)
            disturbed = np.cumsum(np.append(0, ~self._undisturbed(COMPUTE, frozenset(used), alone=False)))
            out.append(disturbed[stretch.first + stretch.tasks] == disturbed[stretch.first])
        return out

    def _together(self, templates: Iterable[Template]) -> _Reach:
        every = [self.reach[template] for template in templates]
        return set().union(*(runs for runs, _ in every)), set().union(*(sent for _, sent in every))

    def _undisturbed(self, chain: str, used: frozenset[int], *, alone: bool) -> Bools:
        """The tasks of *chain* in which nobody but it, or those that follow it if it is not *alone*, touches *used*."""
        key = chain, used, alone
        if key not in self._known:
            self._known[key] = self._found(chain, used, {} if alone else self.program.beside)
        return self._known[key]

    def _found(self, chain: str, used: frozenset[int], with_it: Collection[str]) -> Bools:
        quiet = np.ones(self.program.tasks(chain), bool)
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
