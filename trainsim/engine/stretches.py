"""
Stretches: tasks of compute during which other chains of its rank work for it, and for it alone.

A chain *follows* compute when each of its tasks begins with the wait for an event that compute sets, and ends with one
that compute waits for. Then it rests at both ends of a stretch, and nothing but compute decides when it goes on. Tasks
that do nothing but tell compute something may follow such a task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainsim.contracts.instructions import Program, Send, Signal, Task, Template, Wait
from trainsim.contracts.record import COMPUTE

Event = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Tasks ``first`` to ``last`` of compute and, for each chain that follows it, how many tasks from which one on."""

    first: int
    last: int
    followers: tuple[tuple[str, int, int], ...]


def followers(program: Program) -> dict[str, list[tuple[int, int]]]:
    """Chain that follows compute -> for each of its tasks the first and the last task of compute beside it.

    >>> from trainsim.contracts.instructions import Kernel
    >>> k = Kernel("k", "forward", 1.0)
    >>> main, side = Template.of("B", 0, [k, Signal("go"), k, Wait("done")]), [Wait("go"), k, Signal("done")]
    >>> chains = {"compute": (Task(main, 0), Task(main, 1)), "tp": (Task(Template.of("tp", 0, side), 1),)}
    >>> followers(Program(chains=chains))
    {'tp': [(1, 1)]}
    """
    candidates = {
        name: ends for name, tasks in program.chains.items() if name != COMPUTE and (ends := _ends(program, tasks))
    }
    if not candidates or COMPUTE not in program.chains:
        return {}
    pairs = [pair for ends in candidates.values() for pair in ends.values() if pair]
    begins, overs = {event for event, _ in pairs}, {event for _, event in pairs}
    begins -= set(_set_by_others(program))
    found = _found(program.chains[COMPUTE], begins, overs)
    known = {name: _beside(program.chains[name], ends, found) for name, ends in candidates.items()}
    return {name: beside for name, beside in known.items() if beside}


def stretches(beside: dict[str, list[tuple[int, int]]]) -> list[Stretch]:
    """The stretches of compute, given what is beside its tasks: those that share a task of compute are one."""
    every = sorted((first, last, name) for name, tasks in beside.items() for first, last in tasks)
    out: list[Stretch] = []
    done = dict.fromkeys(beside, 0)
    k = 0
    while k < len(every):
        first, last, _ = every[k]
        count = dict.fromkeys(beside, 0)
        while k < len(every) and every[k][0] <= last:
            last = max(last, every[k][1])
            count[every[k][2]] += 1
            k += 1
        out.append(Stretch(first, last, tuple((name, done[name], n) for name, n in count.items() if n)))
        for name, n in count.items():
            done[name] += n
    return out


def _ends(program: Program, tasks: tuple[Task, ...]) -> dict[int, tuple[str, str] | None]:
    """Template -> the event that it first waits for and the one that it sets last, None if it only tells compute
    something; nothing if a task is not like that."""
    out: dict[int, tuple[str, str] | None] = {}
    for template in _templates(tasks):
        out[id(template)] = _ends_of(template)
        only_tells = all(isinstance(i, Signal) for i in template.instructions)
        if out[id(template)] is None and (template is tasks[0].template or not only_tells):
            return {}
    told = {i.event for template in _templates(tasks) for i in template.instructions if isinstance(i, Signal)}
    rest = [_templates(other) for name, other in program.chains.items() if name != COMPUTE and other is not tasks]
    heard = any(isinstance(i, Wait) and i.event in told for some in rest for t in some for i in t.instructions)
    return {} if heard else out


def _templates(tasks: tuple[Task, ...]) -> list[Template]:
    return list({id(task.template): task.template for task in tasks}.values())


def _ends_of(template: Template) -> tuple[str, str] | None:
    if not template.instructions:
        return None
    first, last = template.instructions[0], template.instructions[-1]
    if not isinstance(first, Wait) or not isinstance(last, Signal):
        return None
    named = any(isinstance(i, Wait | Signal) and i.microbatch is not None for i in template.instructions)
    sends = any(isinstance(i, Send) for i in template.instructions)
    return None if named or sends else (first.event, last.event)


def _set_by_others(program: Program) -> Iterator[str]:
    """Events that other chains than compute set."""
    for name, tasks in program.chains.items():
        if name != COMPUTE:
            for template in _templates(tasks):
                yield from (i.event for i in template.instructions if isinstance(i, Signal))


def _found(tasks: tuple[Task, ...], begins: set[str], overs: set[str]) -> dict[Event, int]:
    """The task of compute that sets each of *begins* and the one that waits for each of *overs*; -1 if several do."""
    known: dict[int, list[str]] = {}
    out: dict[Event, int] = {}
    for k, (template, microbatch) in enumerate(tasks):
        names = known.get(id(template))
        if names is None:
            names = known[id(template)] = list(_named(template, begins, overs))
        for name in names:
            out[name, microbatch] = -1 if (name, microbatch) in out else k
    return out


def _named(template: Template, begins: set[str], overs: set[str]) -> Iterator[str]:
    for i in template.instructions:
        if isinstance(i, Wait | Signal) and i.event in (begins if isinstance(i, Signal) else overs):
            yield i.event if i.microbatch is None else ""


def _beside(
    tasks: tuple[Task, ...], ends: dict[int, tuple[str, str] | None], found: dict[Event, int]
) -> list[tuple[int, int]]:
    """What is beside each task, in order; nothing unless that is known of all."""
    out: list[tuple[int, int]] = []
    for template, microbatch in tasks:
        pair = ends[id(template)]
        if pair is None:
            out.append(out[-1])
            continue
        begin, over = pair
        first, last = found.get((begin, microbatch), -1), found.get((over, microbatch), -1)
        if first < 0 or last < first or (out and first < out[-1][0]):
            return []
        out.append((first, last))
    return out
