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

from dataclasses import dataclass
from operator import and_

from trainsim.contracts.groups import Group, Messages
from trainsim.contracts.instructions import Kernel, Meet, Program, Send, Template
from trainsim.engine.actor import Actor
from trainsim.engine.rest import intervals_at_work
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


def quiet_tasks(quotient: Quotient, actors: list[Actor]) -> dict[tuple[int, str], Quiet]:
    """(Program, chain) -> which of its tasks are quiet in all classes that run the program."""
    messages = frozenset(name for p in quotient.system.programs for name in _sent(p))
    programs = [_ProgramOutline(p, messages) for p in quotient.system.programs]
    out: dict[tuple[int, str], Quiet] = {}
    for actor in actors:
        program = programs[actor.program_number]
        reach = {name: _reach(quotient, actor, program.outlines(name)) for name in program.chains}
        for name in program.chains:
            key = actor.program_number, name
            if any(out.get(key, (True,))):
                calm = _calm(quotient, program, name, reach)
                out[key] = tuple(map(and_, out[key], calm)) if key in out else calm
    return out


def _sent(program: Program) -> set[str]:
    """Events that the messages of *program* set on other ranks."""
    templates = {id(t.template): t.template for tasks in program.chains.values() for t in tasks}
    return {i.event for template in templates.values() for i in template.instructions if isinstance(i, Send)}


class _ProgramOutline:
    """The chains of a program with an outline of each template."""

    def __init__(self, program: Program, messages: frozenset[str]):
        self.messages = messages
        self.chains = program.chains
        distinct = {id(task.template): task.template for tasks in program.chains.values() for task in tasks}
        self.outline = {key: _outline(template) for key, template in distinct.items()}
        self._loud: dict[tuple[str, str], list[tuple[int, int]]] = {}

    def outlines(self, chain: str) -> list[_Outline]:
        return [self.outline[key] for key in dict.fromkeys(id(task.template) for task in self.chains[chain])]

    def first_send(self, chain: str) -> int:
        """The first task of *chain* that sends a message."""
        tasks = self.chains[chain]
        return next((k for k, t in enumerate(tasks) if self.outline[id(t.template)].sends), len(tasks))

    def at_work(self, chain: str, other: str) -> list[tuple[int, int]]:
        """Intervals of tasks of *chain*, ends included, in which *other* may be at work."""
        key = chain, other
        if key not in self._loud:
            self._loud[key] = intervals_at_work(self.chains, chain, other, self.messages)
        return self._loud[key]


_Reach = tuple[set[int], set[int]]
"""The resources that the runs of a chain use, and those that its messages use."""


def _reach(quotient: Quotient, actor: Actor, outlines: list[_Outline]) -> _Reach:
    runs: set[int] = set()
    messages: set[int] = set()
    for outline in outlines:
        runs |= {actor.sm} if outline.sm else set()
        runs |= {actor.hbm} if outline.hbm else set()
        for communicator, operation in outline.meets:
            loads, holds = quotient.groups[actor.port(communicator)].uses.get(operation, Loads((), ()))
            runs |= {r for r, _, _ in (*loads, *holds)}
        for sent in outline.sends:
            for loads, holds in quotient.groups[actor.port(sent)].uses.values():
                messages |= {r for r, _, _ in (*loads, *holds)}
    return runs - {-1}, messages


def _calm(quotient: Quotient, program: _ProgramOutline, chain: str, reach: dict[str, _Reach]) -> Quiet:
    used, sent = reach[chain]
    tasks = len(program.chains[chain])
    if not all(quotient.owned[r] for r in used):
        return (False,) * tasks
    calm = [True] * tasks
    if used & sent:
        first = program.first_send(chain)
        calm[first:] = [False] * (tasks - first)
    for other, (runs, carried) in reach.items():
        if other != chain and used & (runs | carried):
            for begin, rest in program.at_work(chain, other):
                end = tasks - 1 if used & carried else rest  # nobody knows when its messages have arrived
                calm[begin : end + 1] = [False] * len(calm[begin : end + 1])
    return tuple(calm)
