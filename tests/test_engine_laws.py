"""What the engine must keep whatever the job: holds leave something, messages of a chain are in its own way too."""

from __future__ import annotations

import numpy as np
import pytest

from tests.agreement import assert_same, distance
from tests.workload import FORWARD, Hardware, pairs, rings
from trainsim.contracts.exact import grains
from trainsim.contracts.groups import TENSOR
from trainsim.contracts.instructions import Kernel, Meet, Program, Send, Task, Template, Wait
from trainsim.engine import run
from trainsim.engine.actor import actors_of
from trainsim.engine.fairshare import Use, max_min
from trainsim.engine.quiet import quietness
from trainsim.fold import fold, prune, unfolded


@pytest.mark.parametrize(
    ("held", "left"), [(0.0, 1.0), (0.5, 0.5), (0.9, 0.1), (0.94, 0.06), (0.97, 0.05), (3.0, 0.05)]
)
def test_what_holds_leave_is_all_the_rest_and_never_less_than_a_twentieth(held, left):
    rates = max_min([Use(loads=((0, 1.0),)), Use(holds=((0, grains(held)),))])
    assert rates == [pytest.approx(left, abs=1e-8), 1.0]


def sender_that_meets(between):
    """A rank that sends a long message and meets its peer over the same port *between* seconds later."""
    hardware = Hardware(ranks=2)
    communicators = {
        FORWARD: pairs(hardware, np.array([0]), np.array([1])),
        TENSOR: rings(hardware, np.array([[0, 1]])),
    }
    send, meet = Send("m", "pp", FORWARD, 300e9, "in"), Meet("sum", "tp", TENSOR, "all_reduce", 150e9)
    kernel = Kernel("k", "forward", between)
    first = [(send, kernel), (meet,), (kernel,)]
    second = [(kernel,), (meet,), (Wait("in", 0), kernel)]
    programs = [
        Program(chains={"compute": tuple(Task(Template("F", 0, task), m) for m, task in enumerate(tasks))})
        for tasks in (first, second)
    ]
    return hardware.system(programs, [0, 1], communicators)


@pytest.mark.parametrize("between", [0.1, 0.5, 2.0])
def test_a_message_under_way_shares_the_port_of_what_its_own_chain_does_next(between):
    system = sender_that_meets(between)
    trace = run(fold(prune(system)))
    assert_same(trace, run(unfolded(system), merge=False))
    assert distance(system, trace) < 1e-7
    both = max(0.0, 1.0 - between)  # seconds of the message that are left when the collective starts
    alone = 1.0 + 3e-6
    assert trace.spans(0, "compute").end[1] == pytest.approx(between + alone + both, abs=1e-4)


def test_kernels_after_a_send_share_the_gpu_with_the_message():
    """The sender's SMs are used by nothing but its own chain, which still is not alone once it has sent."""
    hardware = Hardware(ranks=2, nvlink=1e9)
    message = pairs(hardware, np.array([0]), np.array([1]), sm=0.5)
    kernel, send = Kernel("k", "forward", 1.0), Send("m", "pp", FORWARD, 2e9, "in")
    sender = Program(chains={"main": tuple(Task(Template("F", 0, t), m) for m, t in enumerate(
        [(kernel,), (send, kernel), (kernel,)]))})  # fmt: skip
    receiver = Program(chains={"main": (Task(Template("F", 0, (Wait("in", 1), kernel)), 0),)})
    system = hardware.system([sender, receiver], [0, 1], {FORWARD: message})
    quotient = fold(prune(system))
    assert quietness(quotient, actors_of(quotient)).tasks[0, "main"].tolist() == [True, False, False]
    trace = run(quotient)
    assert_same(trace, run(unfolded(system), merge=False))
    # Half of the SMs for the 2 s of the message, of which the first kernel takes all; then alone.
    assert trace.spans(0, "main").end == pytest.approx([1.0, 3.0, 4.0], abs=1e-4)


def test_a_task_with_host_time_between_its_kernels_still_uses_the_gpu():
    """Kernels of kind ``host`` take no SMs; the others of the same task do, and share them with another chain."""
    kernel, host = Kernel("k", "forward", 1.0), Kernel("host", "host", 0.5, 0.0, 0.0)
    chains = {
        "compute": (Task(Template("F", 0, (kernel, host, kernel)), 0),),
        "side": (Task(Template("C", 0, (kernel,)), 0),),
    }
    system = Hardware(ranks=1).system([Program(chains=chains)], [0], {})
    quotient = fold(prune(system))
    assert quietness(quotient, actors_of(quotient)).tasks[0, "compute"].tolist() == [False]
    trace = run(quotient)
    assert_same(trace, run(unfolded(system), merge=False))
    assert trace.spans(0, "compute").end == pytest.approx([2.0, 2.5, 3.5])  # half the GPU for two seconds
