"""Quiet tasks: when nobody else can be on a chain's resources, and when that cannot be known."""

from __future__ import annotations

import numpy as np
import pytest

from tests.agreement import assert_same
from tests.workload import FORWARD, Hardware, Job, build, pairs
from trainsim.contracts.instructions import Columns, Kernel, Program, Send, Signal, Task, Template, Wait
from trainsim.engine import run
from trainsim.engine.actor import actors_of
from trainsim.engine.quiet import quietness
from trainsim.engine.rest import intervals_at_work
from trainsim.fold import fold, prune

K = Kernel("k", "forward", 1.0)


def chains(**instructions):
    """Chains from lists of tasks; task m is about microbatch m."""
    return {name: tuple(Task(Template("", 0, t), m) for m, t in enumerate(ts)) for name, ts in instructions.items()}


def columns(**instructions):
    """The same as columns."""
    return {name: Columns.of(tasks) for name, tasks in chains(**instructions).items()}


GO = [(Signal("go"), K, Wait("done")), (K,), (Signal("again"), K)]


@pytest.mark.parametrize(
    ("side", "intervals"),
    [
        ([(Wait("go", 0), K, Signal("done", 0))], [(0, 0)]),
        ([(Wait("go", 0), K)], [(0, 2)]),  # nobody knows when it is done
        ([(K, Signal("done", 0))], [(0, 0)]),  # it starts at once
        ([(Wait("other"), K, Signal("done", 0))], [(0, 0)]),  # nobody knows when it starts
        ([(Wait("again", 2), K)], [(2, 2)]),
        ([(Wait("go", 0), K, Signal("done", 0), Wait("again", 2), K)], [(0, 0), (2, 2)]),
        ([(Wait("go", 0), K, Signal("done", 0), K)], [(0, 2)]),  # it goes on after it said that it was done
        ([(Wait("go", 0), K, Signal("done", 0), Wait("other"), K)], [(0, 2)]),
        ([(Wait("go", 0), Signal("done", 0), K, Signal("done", 0))], [(0, 2)]),  # which of the two was waited for?
        ([], []),
    ],
)
def test_when_another_chain_may_be_at_work(side, intervals):
    assert intervals_at_work(columns(main=GO, side=side), "main", "side") == intervals


def test_events_that_others_set_prove_nothing():
    side = [(Wait("go", 0), K, Signal("done", 0))]
    third = [(Signal("done", 0),)]
    assert intervals_at_work(columns(main=GO, side=side, third=third), "main", "side") == [(0, 2)]
    assert intervals_at_work(columns(main=GO, side=side), "main", "side", frozenset({"done"})) == [(0, 2)]
    late = [(K,), (Signal("go", 5),)]
    assert intervals_at_work(columns(main=late, side=[(Wait("go", 5), K)]), "main", "side") == [(1, 1)]
    assert intervals_at_work(columns(main=late, side=[(Wait("go", 5), K)]), "main", "side", frozenset({"go"})) == [
        (0, 1)
    ]


def test_only_the_last_backward_pass_is_loud():
    job = Job(tp=2, pp=2, dp=2, microbatches=6, layers=(2, 2), slow={1: 1.1})
    quotient = fold(prune(build(job, Hardware(ranks=8, gpus_per_node=4))))
    quiet = quietness(quotient, actors_of(quotient)).tasks
    assert quiet[0, "compute"].tolist() == [True] * 11 + [False] * 2
    assert not any(quiet[0, "dp"])  # compute may be at work at any time


def test_a_chain_that_sends_is_not_known_to_rest():
    """Its messages travel on after it has said that it is done."""
    hardware = Hardware(ranks=2, nvlink=1e9)
    c = {FORWARD: pairs(hardware, np.array([0]), np.array([1]), sm=0.5)}
    send = Send("m", "pp", FORWARD, 1e9, "in")
    sender = Program(chains=chains(main=[*GO, (K,)], side=[(Wait("go", 0), send, send, Signal("done", 0))]))
    receiver = Program(chains=chains(main=[(Wait("in", 0), K)]))
    system = hardware.system([sender, receiver], [0, 1], c)
    quotient = fold(system)
    assert not any(quietness(quotient, actors_of(quotient)).tasks[0, "main"])
    assert_same(run(quotient), run(quotient, merge=False))
