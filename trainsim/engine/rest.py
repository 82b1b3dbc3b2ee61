"""
When one chain of a rank may be at work, in terms of the tasks of another chain of the same rank.

A chain rests where it waits for an event that the other chain sets. It is known to rest from the task in which the
other chain has waited for the last thing that it signalled before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from trainsim.contracts.instructions import Columns, Send, Signal, Template, Wait

Event = tuple[str, int]


def intervals_at_work(
    chains: Mapping[str, Columns], chain: str, other: str, messages: frozenset[str] = frozenset()
) -> list[tuple[int, int]]:
    """Intervals of tasks of *chain*, ends included, in which *other* may be doing something.

    *messages* are events that other ranks set: nobody here knows when.

    >>> from trainsim.contracts.instructions import Kernel, Task
    >>> k = Kernel("k", "forward", 1.0)
    >>> main = [(Signal("go"), k, Wait("done")), (k,), (Signal("again"), k)]
    >>> side = [(Wait("go", 0), k, Signal("done", 0), Wait("again", 2), k)]
    >>> tasks = {"main": main, "side": side}
    >>> chains = {name: [Task(Template("", 0, t), m) for m, t in enumerate(ts)] for name, ts in tasks.items()}
    >>> intervals_at_work({name: Columns.of(tasks) for name, tasks in chains.items()}, "main", "side")
    [(0, 0), (2, 2)]
    """
    names = _names(chains[chain]) & _names(chains[other])
    waits = _first(chains[chain], Wait, names)
    setters = Counter(e for tasks in chains.values() for e, kind in _events(tasks, names) if kind is Signal)
    once = {e for e, times in setters.items() if times == 1 and e[0] not in messages}
    signalled = {e: k for e, k in _first(chains[chain], Signal, names).items() if e in once}
    out: list[tuple[int, int]] = []
    since: int | None = None  # the task from which *other* may be at work
    rest: int | None = None  # the task after which all that it did since then is known to be over
    for event, kind in _events(chains[other], names):
        if since is None:
            since = signalled.get(event, 0) if kind is Wait else 0
        elif kind is Wait:
            if event in signalled and rest is not None:
                out.append((since, rest))
                since = signalled[event]
            rest = None
        elif kind is Signal:
            rest = waits.get(event, rest) if event in once else rest
        else:
            rest = None
    if since is not None:
        out.append((since, len(chains[chain].template) - 1 if rest is None else rest))
    return out


def _names(columns: Columns) -> set[str]:
    waits = {wait.event for template in columns.templates for wait in template.posted.waits}
    return waits | {signal.event for template in columns.templates for signal in template.posted.signals}


def _first(columns: Columns, kind: type[Wait] | type[Signal], names: set[str]) -> dict[Event, int]:
    """The first task in which each event of *names* is waited for, or set."""
    every: list[tuple[Wait | Signal, ...]] = [
        template.posted.waits if kind is Wait else template.posted.signals for template in columns.templates
    ]
    some = [[i for i in listed if i.event in names] for listed in every]
    out: dict[Event, int] = {}
    for task in np.flatnonzero(np.array([bool(i) for i in some], bool)[columns.template]).tolist():
        for i in some[columns.template[task]]:
            out.setdefault((i.event, int(columns.microbatch[task]) if i.microbatch is None else i.microbatch), task)
    return out


def _events(columns: Columns, names: set[str]) -> Iterator[tuple[Event, type]]:
    """Waits and signals of *names* and work of a chain in order; work that follows work is left out."""
    outlines = [list(_outline(template, names)) for template in columns.templates]
    work = ("", 0), Send
    told = np.array([any(kind is not Send for _, _, kind in some) for some in outlines], bool)
    busy = np.cumsum(np.append(0, np.array([bool(some) for some in outlines], bool)[columns.template]))
    done = 0
    for task in np.flatnonzero(told[columns.template]).tolist():
        if busy[task] > busy[done]:
            yield work
        microbatch, done = int(columns.microbatch[task]), task + 1
        for event, fixed, kind in outlines[columns.template[task]]:
            yield (event, microbatch if fixed is None else fixed), kind
    if busy[-1] > busy[done]:
        yield work


def _outline(template: Template, names: set[str]) -> Iterator[tuple[str, int | None, type]]:
    """Whatever else it waits for, nobody here knows when that ends: as good as work."""
    working = False
    for i in template.instructions:
        if isinstance(i, Wait | Signal) and i.event in names:
            working = False
            yield i.event, i.microbatch, type(i)
        elif not working and not isinstance(i, Signal):
            working = True
            yield "", None, Send
