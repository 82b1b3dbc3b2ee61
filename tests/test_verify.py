"""A system is judged template by template; these tests judge it task by task, and both have to agree."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.jobs import small
from trainsim.contracts.groups import Group, Messages
from trainsim.contracts.instructions import Columns, Hold, Program, Task, Template
from trainsim.contracts.system import System
from trainsim.errors import InvalidProgram
from trainsim.program.lower import lower
from trainsim.program.verify import verify

JOBS: dict[str, dict[str, object]] = {
    "plain": {},
    "reductions under the backward": {"sharding__overlap": True, "simulation__steps": 2},
    "two chunks, lanes": {
        "pipeline": {"schedule": "interleaved-1f1b", "chunks": 2},
        "parallel__sequence_parallel": True,
        "framework": {"base": "neutral", "communication": {"tp_overlap": "wgrad"}},
    },
    "blocking messages": {"pipeline": {"schedule": "1f1b", "p2p": "blocking"}},
    "pairs": {"pipeline": {"schedule": "dualpipe"}},
    "no flush": {"pipeline": {"schedule": "pipedream"}, "sharding__strategy": "ddp"},
    "a delay": {"what_if": [{"delay": {"rank": 3, "at": "backward", "seconds": 0.01}}]},
}


def tasks_of(program: Program, chain: str) -> list[tuple[Template, int]]:
    return [(t.template, t.microbatch) for t in program.chains[chain]]


def legal(system: System) -> bool:
    """What ``verify`` promises, said event by event and post by post."""
    posts: list[Counter[tuple[Group, str]]] = []
    order: list[dict[Group, list[tuple[str, float]]]] = []
    sent: list[Counter[tuple[Messages, str, int]]] = []
    waits: list[set[tuple[str, int]]] = []
    signals: list[set[tuple[str, int]]] = []
    balance = 0.0
    for program in system.programs:
        chains: Counter[tuple[Group, str]] = Counter()
        posted: dict[Group, list[tuple[str, float]]] = {}
        sends: Counter[tuple[Messages, str, int]] = Counter()
        needs, gives, left = set(), set(), 0.0
        for chain in program.chains:
            for template, microbatch in tasks_of(program, chain):
                left += sum(hold.nbytes for _, hold in template.holds)
                for meet in template.posted.meets:
                    chains[meet.communicator, chain] += 1
                    posted.setdefault(meet.communicator, []).append((meet.operation, meet.nbytes))
                for send in template.posted.sends:
                    sends[send.communicator, send.event, microbatch] += 1
                for steps, into in ((template.posted.waits, needs), (template.posted.signals, gives)):
                    into |= {(i.event, microbatch if i.microbatch is None else i.microbatch) for i in steps}
        balance = max(balance, abs(left))
        for column, value in zip(
            (posts, order, sent, waits, signals), (chains, posted, sends, needs, gives), strict=True
        ):
            column.append(value)  # type: ignore[attr-defined]
    alone = all(len({chain for group, chain in chains if group == g}) == 1 for chains in posts for g, _ in chains)
    return alone and balance <= 0.5 and _together(system, order) and _arrive(system, sent, waits, signals)


def _together(system: System, order: list[dict[Group, list[tuple[str, float]]]]) -> bool:
    for peers, communicator in system.communicators.items():
        if isinstance(peers, Group):
            for group in range(communicator.groups):
                members = {int(p) for p in system.program_of[communicator.group_of[0] == group]}
                if len({tuple(order[p].get(peers, ())) for p in members}) > 1:
                    return False
    return True


def _arrive(system: System, sent: list, waits: list, signals: list) -> bool:
    got: list[set[tuple[str, int]]] = [set() for _ in system.programs]
    for peers, communicator in system.communicators.items():
        if isinstance(peers, Messages):
            for group in range(communicator.groups):
                (source,), (target,) = (system.program_of[labels == group] for labels in communicator.group_of)
                for (messages, event, microbatch), times in sent[source].items():
                    if messages == peers:
                        got[target].add((event, microbatch))
                        if times > 1 or (event, microbatch) not in waits[target]:
                            return False
    return all(waits[p] <= signals[p] | got[p] for p in range(len(system.programs)))


def spoiled(system: System, seed: int) -> System:
    """*system* with one program changed at random, mostly so that it is illegal."""
    draw = random.Random(seed)
    number = draw.randrange(len(system.programs))
    program = system.programs[number]
    chain = draw.choice(list(program.chains))
    tasks = list(program.chains[chain])
    a, b = (draw.randrange(len(tasks)) for _ in range(2))
    match draw.randrange(6):
        case 0:
            tasks[a], tasks[b] = tasks[b], tasks[a]
        case 1:
            del tasks[a]
        case 2:
            tasks.insert(b, tasks[a])
        case 3:
            tasks[a] = Task(tasks[a].template, tasks[b].microbatch)
        case 4:
            pieces = list(tasks[a].template.pieces)
            del pieces[draw.randrange(len(pieces))]
            tasks[a] = Task(Template.of(tasks[a].template.work, 0, pieces), tasks[a].microbatch)
        case _:
            old = tasks[a].template
            new = Template.of(old.work, old.chunk, (*old.pieces, Hold("activations", draw.choice([0.0, 4.0]))))
            tasks = [Task(new if t.template is old else t.template, t.microbatch) for t in tasks]
    programs = list(system.programs)
    programs[number] = replace(program, chains={**program.chains, chain: tuple(tasks)})
    return replace(system, programs=tuple(programs))


@pytest.mark.parametrize("name", JOBS)
def test_verify_says_what_a_look_at_every_task_says(name: str) -> None:
    system = lower(small(training__global_batch=32, **JOBS[name])).system
    assert legal(system)
    verdicts = []
    for seed in range(60):
        other = spoiled(system, seed)
        try:
            verify(other)
            verdicts.append(True)
        except InvalidProgram:
            verdicts.append(False)
        assert verdicts[-1] == legal(other), f"seed {seed}"
    assert set(verdicts) == {False, True}


@pytest.mark.parametrize("name", JOBS)
def test_columns_say_what_the_tasks_say(name: str) -> None:
    for program in lower(small(**JOBS[name])).system.programs:
        for chain, columns in program.columns.items():
            said = zip([columns.templates[k] for k in columns.template], columns.microbatch.tolist(), strict=True)
            assert list(said) == tasks_of(program, chain)
            assert list(columns.templates) == list(dict.fromkeys(t for t, _ in tasks_of(program, chain)))
            assert columns.times == [
                sum(t is template for t, _ in tasks_of(program, chain)) for template in columns.templates
            ]
    assert np.array_equal(Columns.of(()).times, [])


def test_a_pass_shares_its_template_with_all_that_are_alike() -> None:
    """However many microbatches there are, no more templates are made than for a few."""
    few, many = (
        [len(p.columns["compute"].templates) for p in lower(small(training__global_batch=batch)).system.programs]
        for batch in (32, 512)
    )
    assert few == many
