"""Run a folded or unfolded system."""

from __future__ import annotations

from trainsim.contracts.exact import TICK
from trainsim.contracts.trace import Trace
from trainsim.engine.actor import actors_of
from trainsim.engine.chain import Chain
from trainsim.engine.clock import Clock
from trainsim.engine.compile import Compiler
from trainsim.engine.fluid import SharedResources
from trainsim.engine.quiet import quiet_tasks
from trainsim.engine.stuck import deadlock
from trainsim.fold.quotient import Quotient


def run(quotient: Quotient, *, merge: bool = True, tick: float = TICK) -> Trace:
    """The trace of one step of *quotient*.

    *merge* off makes every kernel and collective an event of its own: slower, and equal to the last bit. *tick* is
    the grain of time in seconds; steps longer than ``exact.LONGEST`` need ``exact.COARSE_TICK``.

    Raises ``InvalidProgram`` for programs that do not fit together and ``Deadlock`` when nothing goes on although
    chains are left; the message says who waits for what.
    """
    clock = Clock()
    actors = actors_of(quotient)
    compiler = Compiler(quotient, actors, clock, SharedResources(clock, quotient.resources, tick), merge=merge)
    quiet = quiet_tasks(quotient, actors) if merge else {}
    chains: list[Chain] = []
    for actor in actors:
        for name, tasks in actor.program.chains.items():
            chain = Chain(len(chains), actor.number, name)
            loud = (False,) * len(tasks)
            chain.tasks = compiler.tasks(actor, tasks, quiet.get((actor.program_number, name), loud))
            chains.append(chain)
    for chain in chains:
        clock.process(chain.process())
    clock.run()
    if not all(chain.over for chain in chains):
        raise deadlock(quotient, actors, chains, clock.now)
    programs = [actors[chain.rank_class].program for chain in chains]
    lanes = compiler.lanes
    return Trace(
        rank_class=quotient.rank_class,
        representative=quotient.representative,
        runs=compiler.runs,
        chains=tuple((chain.rank_class, chain.name) for chain in (*chains, *lanes)),
        rows=tuple(chain.rows for chain in (*chains, *lanes)),
        tasks=(*(p.chains[c.name] for p, c in zip(programs, chains, strict=True)), *(() for _ in lanes)),
        messages=compiler.messages,
        events=clock.scheduled(),
    )
