"""
Stretches: tasks of compute during which other chains of its rank work for it, and for it alone.

A chain *follows* compute when each of its tasks begins with the wait for an event that compute sets, and ends with one
that compute waits for. Then it rests at both ends of a stretch, and nothing but compute decides when it goes on. Tasks
that do nothing but tell compute something may follow such a task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainsim.contracts.instructions import Columns, Program, Signal, Template, Wait
from trainsim.contracts.record import COMPUTE
from trainsim.contracts.system import Bools, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """The same so many ``tasks`` of compute, which come from each task of ``first`` on, and so many of each chain that
    follows it: name, where they begin each time, how many."""

    first: Ints
    tasks: int
    followers: tuple[tuple[str, Ints, int], ...]

    def only(self, which: Bools) -> Stretch:
        """Some of the times that it comes."""
        return Stretch(
            self.first[which], self.tasks, tuple((name, at[which], count) for name, at, count in self.followers)
        )

    def once(self, columns: Mapping[str, Columns]) -> dict[str, Columns]:
        """Its tasks of each chain, as they come for the first time."""
        every = ((COMPUTE, self.first, self.tasks), *self.followers)
        return {name: columns[name].part(int(at[0]), int(at[0]) + count) for name, at, count in every}


Beside = tuple[Ints, Ints]
"""Of each task of a chain that follows compute, the first and the last task of compute beside it."""


def followers(program: Program) -> dict[str, Beside]:
    """The chains that follow compute, and what is beside their tasks.

    >>> from trainsim.contracts.instructions import Kernel, Signal, Task, Wait
    >>> k = Kernel("k", "forward", 1.0)
    >>> main, side = Template.of("B", 0, [k, Signal("go"), k, Wait("done")]), [Wait("go"), k, Signal("done")]
    >>> chains = {"compute": (Task(main, 0), Task(main, 1)), "tp": (Task(Template.of("tp", 0, side), 1),)}
    >>> followers(Program(chains=chains))
    {'tp': (array([1]), array([1]))}
    """
    others = {name: _ends(program, name) for name in program.chains if name != COMPUTE}
    candidates = {name: ends for name, ends in others.items() if ends}
    if not candidates or COMPUTE not in program.chains:
        return {}
    pairs = [pair for ends in candidates.values() for pair in ends if pair]
    begins, overs = {begin for begin, _ in pairs}, {over for _, over in pairs}
    places = _found(program.columns[COMPUTE], begins - set(_set_by_others(program)), overs)
    known = {name: _beside(program.columns[name], ends, places) for name, ends in candidates.items()}
    return {name: beside for name, beside in known.items() if beside is not None}


def stretches(program: Program, beside: Mapping[str, Beside]) -> list[Stretch]:
    """The stretches of compute, given what is beside its tasks: those that share a task of compute are one."""
    if not beside:
        return []
    first, last = (np.concatenate([ends[k] for ends in beside.values()]) for k in (0, 1))
    chain = np.repeat(np.arange(len(beside)), [len(ends[0]) for ends in beside.values()])
    order = np.lexsort((last, first))
    first, last, chain = first[order], last[order], chain[order]
    until = np.maximum.accumulate(last)
    begins = np.append(True, first[1:] > until[:-1])
    stretch, heads = np.cumsum(begins) - 1, np.flatnonzero(begins)
    count = np.bincount(stretch * len(beside) + chain, minlength=len(heads) * len(beside)).reshape(-1, len(beside))
    place = np.cumsum(count, axis=0) - count
    first, tasks = first[heads], until[np.append(heads[1:], len(until)) - 1] - first[heads] + 1
    return list(_alike(program, list(beside), first, np.column_stack([tasks, count]), place))


def _alike(program: Program, names: list[str], first: Ints, shape: Ints, place: Ints) -> Iterator[Stretch]:
    """Those of the same templates, at the same distances of microbatches, together; ``shape`` is how many tasks of each
    chain each consists of, and ``place`` where those of chains *names* begin."""
    columns = program.columns
    shapes, of = np.unique(shape, axis=0, return_inverse=True)
    for k, (tasks, *counts) in enumerate(shapes.tolist()):
        some = np.flatnonzero(of.ravel() == k)
        every = [(COMPUTE, first[some], tasks), *zip(names, place[some].T, counts, strict=True)]
        base = columns[COMPUTE].microbatch[first[some], None]
        windows = [(columns[name], at[:, None] + np.arange(count)) for name, at, count in every]
        key = np.hstack(
            [part for of_chain, at in windows for part in (of_chain.template[at], of_chain.microbatch[at] - base)]
        )
        _, which = np.unique(key, axis=0, return_inverse=True)
        for same in range(int(which.max()) + 1):
            here = which.ravel() == same
            yield Stretch(
                first[some][here], tasks, tuple((name, at[here], count) for name, at, count in every[1:] if count)
            )


SEVERAL = 2  # tasks that are about the same event of a microbatch, or name one: nobody knows which it is

Ends = list[tuple[str, str] | None]
"""Of each template the event that it first waits for and the one that it sets last; None if it only tells something."""


def _ends(program: Program, chain: str) -> Ends:
    """Those of a chain; nothing if one of its templates is not like that."""
    templates = program.columns[chain].templates
    out = [_ends_of(template) for template in templates]
    for ends, template in zip(out, templates, strict=True):
        if ends is None and (template is templates[0] or len(template.posted.signals) < len(template.instructions)):
            return []
    told = {signal.event for template in templates for signal in template.posted.signals}
    others = [columns for name, columns in program.columns.items() if name not in (COMPUTE, chain)]
    heard = any(wait.event in told for columns in others for t in columns.templates for wait in t.posted.waits)
    return [] if heard else out


def _ends_of(template: Template) -> tuple[str, str] | None:
    posted = template.posted
    if not posted.waits or not posted.signals or posted.sends:
        return None
    first, last = posted.waits[0], posted.signals[-1]
    every: list[Wait | Signal] = [*posted.waits, *posted.signals]
    named = any(i.microbatch is not None for i in every)
    ends = template.instructions[0] is first and template.instructions[-1] is last
    return (first.event, last.event) if ends and not named else None


def _set_by_others(program: Program) -> Iterator[str]:
    """Events that other chains than compute set."""
    for name, columns in program.columns.items():
        if name != COMPUTE:
            yield from (signal.event for template in columns.templates for signal in template.posted.signals)


def _found(columns: Columns, begins: set[str], overs: set[str]) -> dict[str, Ints]:
    """By microbatch, the task of compute that sets each of *begins* and the one that waits for each of *overs*; -1 if
    none or several do."""
    size = int(columns.microbatch.max(initial=0)) + 2
    out: dict[str, Ints] = {}
    times: dict[str, Any] = {}
    for at, template in zip(columns.places(), columns.templates, strict=True):
        some: list[Wait | Signal] = [signal for signal in template.posted.signals if signal.event in begins]
        some += [wait for wait in template.posted.waits if wait.event in overs]
        for i in some:
            where = out.setdefault(i.event, np.full(size, -1))
            where[columns.microbatch[at]] = at
            seen = np.bincount(columns.microbatch[at] % size, minlength=size)
            times[i.event] = times.get(i.event, 0) + (seen if i.microbatch is None else np.full(size, SEVERAL))
    for event, where in out.items():
        where[times[event] >= SEVERAL] = -1
    return out


def _beside(columns: Columns, ends: Ends, places: Mapping[str, Ints]) -> Beside | None:
    """What is beside each task, or None unless that is known of all."""
    first, last = np.full(len(columns.template), -1), np.full(len(columns.template), -1)
    for at, pair in zip(columns.places(), ends, strict=True):
        if pair is None:
            continue
        if pair[0] not in places or pair[1] not in places:
            return None
        microbatch = columns.microbatch[at]
        if int(microbatch.max()) >= len(places[pair[0]]):
            return None
        first[at], last[at] = places[pair[0]][microbatch], places[pair[1]][microbatch]
        if (first[at] < 0).any() or (last[at] < first[at]).any():
            return None
    tells = np.array([pair is None for pair in ends])[columns.template]
    before = np.maximum.accumulate(np.where(tells, 0, np.arange(len(first))))  # the last that does more than tell
    first, last = first[before], last[before]
    return (first, last) if (np.diff(first) >= 0).all() else None
