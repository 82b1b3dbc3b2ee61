"""
Quiet tasks: for how long can nobody else touch what a chain uses?

A resource is *owned* when all its users need its own rank's post or kernel. What a chain's kernels and collectives
use is private until the first task in which this rank wakes another chain that uses it too, or sends a message over
it. Before that, nothing has to be tracked: the runs are plain timeouts, and several classes of one group can go
through them jointly. The answer is taken per program, as the least of its classes, so that all members of a group
agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainsim.engine.actor import Actor
from trainsim.fold.quotient import Loads, Quotient
from trainsim.program.instructions import Kernel, Meet, Program, Send, Signal, Template, Wait


@dataclass(frozen=True, slots=True)
class _Outline:
    """What a template touches, without order or amounts."""

    sm: bool
    hbm: bool
    meets: frozenset[tuple[str, str]]  # (communicator, operation)
    sends: frozenset[str]
    signals: tuple[Signal, ...]


def _outline(template: Template) -> _Outline:
    kernels = [i for i in template.instructions if isinstance(i, Kernel)]
    return _Outline(
        sm=any(k.sm > 0 for k in kernels),
        hbm=any(k.hbm > 0 for k in kernels),
        meets=frozenset((i.communicator, i.operation) for i in template.instructions if isinstance(i, Meet)),
        sends=frozenset(i.communicator for i in template.instructions if isinstance(i, Send)),
        signals=tuple(i for i in template.instructions if isinstance(i, Signal)),
    )


def quiet_tasks(quotient: Quotient, actors: list[Actor]) -> dict[tuple[int, str], int]:
    """(Program, chain) -> how many of its first tasks are quiet."""
    programs = [_Program(p) for p in quotient.system.programs]
    messages = {
        i.event for p in programs for t in p.templates for i in t.instructions if isinstance(i, Send)
    }  # fmt: skip
    out: dict[tuple[int, str], int] = {}
    for actor in actors:
        program = programs[actor.program_number]
        reach = {name: _reach(quotient, actor, program.outlines(name)) for name in program.chains}
        for name in program.chains:
            key = actor.program_number, name
            if out.get(key, 1):
                calm = _calm(quotient, program, name, reach, messages)
                out[key] = min(out.get(key, calm), calm)
    return out


class _Program:
    """The chains of a program with an outline of each template."""

    def __init__(self, program: Program):
        self.chains = program.chains
        distinct = {id(task.template): task.template for tasks in program.chains.values() for task in tasks}
        self.templates = list(distinct.values())
        self.outline = {key: _outline(template) for key, template in distinct.items()}

    def outlines(self, chain: str) -> list[_Outline]:
        return [self.outline[key] for key in dict.fromkeys(id(task.template) for task in self.chains[chain])]

    def first(self, chain: str, holds: Callable[[_Outline, int], bool]) -> int | None:
        """The first task of *chain* for whose outline and microbatch *holds* is true."""
        tasks = self.chains[chain]
        return next((k for k, t in enumerate(tasks) if holds(self.outline[id(t.template)], t.microbatch)), None)


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
        for communicator in outline.sends:
            for loads, holds in quotient.groups[actor.port(communicator)].uses.values():
                messages |= {r for r, _, _ in (*loads, *holds)}
    return runs - {-1}, messages


def _calm(quotient: Quotient, program: _Program, chain: str, reach: dict[str, _Reach], messages: set[str]) -> int:
    mine, sent = reach[chain]
    calm = len(program.chains[chain])
    if not all(quotient.owned[r] for r in mine):
        return 0
    if mine & sent:
        calm = program.first(chain, lambda outline, _: bool(outline.sends)) or 0
    for other, (runs, carried) in reach.items():
        if other != chain and mine & (runs | carried):
            calm = min(calm, _wakes(program, chain, other, messages))
    return calm


def _wakes(program: _Program, chain: str, other: str, messages: set[str]) -> int:
    """The first task of *chain* that sets the event that *other* begins with; 0 if anything else may set it."""
    tasks = program.chains[other]
    start = tasks[0].template.instructions[0] if tasks and tasks[0].template.instructions else None
    if not isinstance(start, Wait) or start.event in messages:
        return 0
    event, at = start.event, tasks[0].microbatch if start.microbatch is None else start.microbatch

    def sets_it(outline: _Outline, microbatch: int) -> bool:
        return any(s.event == event and s.microbatch in (at, None if microbatch == at else at) for s in outline.signals)

    if any(program.first(c, sets_it) is not None for c in program.chains if c not in (chain, other)):
        return 0
    return program.first(chain, sets_it) or 0
