"""Run a folded or unfolded system."""

from __future__ import annotations

import numpy as np

from trainsim.contracts.exact import TICK
from trainsim.contracts.instructions import Columns, Template
from trainsim.contracts.record import TaskFacts, Tasks
from trainsim.contracts.trace import Trace
from trainsim.engine.actor import actors_of
from trainsim.engine.chain import Chain
from trainsim.engine.clock import URGENT, Clock
from trainsim.engine.compile import Compiler
from trainsim.engine.fluid import SharedResources, Uses
from trainsim.engine.outages import begin_outages, changes
from trainsim.engine.quiet import Quietness, quietness
from trainsim.engine.rehearsal import Room
from trainsim.engine.steady import watch
from trainsim.engine.stuck import deadlock
from trainsim.engine.weave import Weaver
from trainsim.fold.quotient import Quotient
from trainsim.garbage import no_search_for_cycles


def run(quotient: Quotient, *, merge: bool = True, leap: bool = True, tick: float = TICK) -> Trace:
    """The trace of one step of *quotient*.

    *merge* off makes every kernel and collective an event of its own, *leap* off carries out what repeats each time:
    slower, and equal to the last bit. Nothing is left out unless both are on. *tick* is the grain of time in seconds,
    as ``exact.tick_for`` chooses it for a run of some length.

    Raises ``InvalidProgram`` for programs that do not fit together and ``Deadlock`` when nothing goes on although
    chains are left; the message says who waits for what.
    """
    with no_search_for_cycles():
        return _run(quotient, merge=merge, leap=leap, tick=tick)


def _run(quotient: Quotient, *, merge: bool, leap: bool, tick: float) -> Trace:
    clock = Clock()
    actors = actors_of(quotient)
    compiler = Compiler(quotient, actors, clock, SharedResources(clock, quotient.resources, Uses(tick)), merge=merge)
    quiet = quietness(quotient, actors) if merge else Quietness()
    chains: list[Chain] = []
    own: list[dict[str, Chain]] = [{} for _ in actors]
    for actor in actors:
        for name, columns in actor.program.columns.items():
            own[actor.number][name] = chain = Chain(len(chains), actor.number, name)
            loud = np.zeros(len(columns.template), bool)
            chain.tasks = compiler.tasks(actor, columns, quiet.tasks.get((actor.program_number, name), loud))
            chains.append(chain)
    weaver = Weaver(clock, Room(quotient, compiler), actors, own)
    for program, stretches in quiet.stretches.items():
        weaver.weave(program, stretches)
    if merge and leap:
        watch(clock, actors, chains, compiler.lanes, changes(quotient.outages, tick))
    begin_outages(compiler.shared, quotient.outages)
    for chain in chains:
        clock.call(chain.start, 0.0, URGENT)
    clock.run_out()
    if not all(chain.over for chain in chains):
        raise deadlock(quotient, actors, chains, clock.now)
    return _trace(quotient, compiler, chains, weaver, tick=tick, events=clock.scheduled())


def _trace(
    quotient: Quotient, compiler: Compiler, chains: list[Chain], weaver: Weaver, *, tick: float, events: int
) -> Trace:
    """What *chains* and the lanes of messages have written, with all that is known of the classes and their tasks."""
    lanes = compiler.lanes
    facts, nothing = _TaskFactsTable(), Tasks(np.zeros(0, np.int64), np.zeros(0, np.int64))
    everybody = [actor.program for actor in compiler.actors]
    return Trace(
        rank_class=quotient.rank_class,
        representative=quotient.representative,
        stage=np.array([program.stage for program in everybody], np.int64),
        parameters=np.array([program.resident for program in everybody]),
        memory=tuple(program.memory for program in everybody),
        runs=compiler.runs,
        chains=tuple((chain.rank_class, chain.name) for chain in (*chains, *lanes)),
        records=tuple(chain.rows for chain in (*chains, *lanes)),
        tasks=(*(facts.of(everybody[c.rank_class].columns[c.name]) for c in chains), *(nothing for _ in lanes)),
        facts=tuple(facts.all),
        messages=compiler.messages,
        passages=weaver.room.passages,
        tick=tick,
        events=events,
    )


class _TaskFactsTable:
    """The facts of all tasks, those of equal templates once."""

    def __init__(self) -> None:
        self.all: list[TaskFacts] = []
        self._number: dict[Template, int] = {}
        self._known: dict[int, Tasks] = {}

    def of(self, columns: Columns) -> Tasks:
        """The tasks of one chain; chains of ranks with the same program share them."""
        if id(columns) not in self._known:
            for template in columns.templates:
                if template not in self._number:
                    self._number[template] = len(self.all)
                    self.all.append(TaskFacts.of(template))
            numbers = np.array([self._number[template] for template in columns.templates], np.int64)
            self._known[id(columns)] = Tasks(numbers[columns.template], columns.microbatch)
        return self._known[id(columns)]
