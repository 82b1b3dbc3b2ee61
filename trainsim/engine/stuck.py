"""Say who waits for whom when nothing goes on."""

from __future__ import annotations

import numpy as np

from trainsim.contracts.groups import Peers
from trainsim.contracts.instructions import Send, Signal
from trainsim.engine.actor import Actor
from trainsim.engine.chain import Chain
from trainsim.engine.joint import Joint
from trainsim.engine.running_operations import Await, Post
from trainsim.errors import Deadlock
from trainsim.fold.quotient import Quotient

SHOWN = 12  # stuck chains that a message lists


def deadlock(quotient: Quotient, actors: list[Actor], chains: list[Chain], now: float) -> Deadlock:
    """The error of chains that nothing can wake: where each is and what it waits for."""
    stuck = [chain for chain in chains if not chain.over]
    ranks = _count(quotient, stuck)
    waiting = [
        f"  {_who(quotient, actors, chain)} waits for {_what(quotient, actors, chain)}" for chain in stuck[:SHOWN]
    ]
    if len(stuck) > SHOWN:
        waiting.append(f"  and {len(stuck) - SHOWN} more")
    return Deadlock(f"deadlock at {now:.6g} s: {len(stuck)} chains of {ranks} ranks are still waiting:", waiting)


def _count(quotient: Quotient, stuck: list[Chain]) -> int:
    return int(np.isin(quotient.rank_class, [chain.rank_class for chain in stuck]).sum())


def _who(quotient: Quotient, actors: list[Actor], chain: Chain) -> str:
    actor = actors[chain.rank_class]
    alike = int((quotient.rank_class == chain.rank_class).sum()) - 1
    task = actor.program.chains[chain.name][len(chain.rows.tasks)]
    who = f"rank {actor.rank}" + (f" (and {alike} like it)" if alike else "")
    return f"{who}, chain {chain.name!r}, in {task.template.work} of microbatch {task.microbatch},"


def _what(quotient: Quotient, actors: list[Actor], chain: Chain) -> str:
    assert chain.waits is not None
    operation, microbatch = chain.waits
    if isinstance(operation, Await):
        return _event(quotient, actors[chain.rank_class], operation.event, microbatch)
    assert isinstance(operation, Post | Joint)
    meet = operation.meet
    made, left_out = actors[chain.rank_class].turns[meet.communicator]
    turn = made - (operation.meets if isinstance(operation, Joint) else 1)
    missing = _missing(quotient, actors, chain, meet.communicator, turn)
    return (
        f"{meet.operation} {meet.name!r} of communicator {str(meet.communicator)!r} (turn {turn + left_out}), "
        f"which {_ranks(missing)} did not join"
    )


def _event(quotient: Quotient, actor: Actor, event: str, microbatch: int) -> str:
    """An event that nobody set, and who could."""
    chains = [
        name
        for name, tasks in actor.program.chains.items()
        if any(isinstance(i, Signal) and i.event == event for t in tasks for i in t.template.instructions)
    ]
    communicators = {
        i.communicator
        for program in quotient.system.programs
        for template in {id(t.template): t.template for tasks in program.chains.values() for t in tasks}.values()
        for i in template.instructions
        if isinstance(i, Send) and i.event == event
    }
    setters = [f"its own chain {name!r}" for name in chains]
    for name in sorted(communicators, key=str):
        senders, receivers = quotient.system.communicators[name].group_of
        if receivers[actor.rank] >= 0:
            sender = np.flatnonzero(senders == receivers[actor.rank])
            setters += [f"a message {str(name)!r} from {_ranks(sender.tolist())}"]
    who = f"only {' or '.join(setters)} could" if setters else "nothing in any program sets it"
    return f"event {event!r} of microbatch {microbatch}, which was never set: {who}"


def _missing(quotient: Quotient, actors: list[Actor], chain: Chain, communicator: Peers, turn: int) -> list[int]:
    """Members of the group of the chain's representative who have posted less than *turn* + 1 times."""
    group_of = quotient.system.communicators[communicator].group_of[0]
    members = np.flatnonzero(group_of == group_of[actors[chain.rank_class].rank])
    classes = quotient.rank_class[members].tolist()
    return [r for r, c in zip(members.tolist(), classes, strict=True) if actors[c].turn(communicator)[0] <= turn]


def _ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(map(str, ranks[:8]))
    return f"ranks {shown}" + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
