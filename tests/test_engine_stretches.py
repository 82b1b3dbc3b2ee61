"""Stretches: compute and the chains that follow it as one event, equal to every event of its own to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.agreement import assert_contiguous, assert_same, distance
from tests.jobs import small
from tests.random_documents import document
from tests.workload import FORWARD, Hardware, pairs, rings
from trainsim.analysis.critical import critical_path
from trainsim.analysis.expectation import contention
from trainsim.analysis.lanes import Lanes
from trainsim.contracts.groups import TENSOR, Queue
from trainsim.contracts.instructions import Kernel, Meet, Program, Send, Signal, Task, Template, Wait
from trainsim.contracts.trace import Trace
from trainsim.engine import run
from trainsim.engine.stretches import followers, stretches
from trainsim.errors import Deadlock, TrainsimError
from trainsim.fold import fold, prune, unfolded
from trainsim.program.lower import lower
from trainsim.program.tensor_overlap import tensor_overlaps
from trainsim.scenario.scenario import Scenario
from trainsim.schedules import schedules
from trainsim.schedules.lookup import facts

WGRAD = {"framework": {"base": "neutral", "communication": {"tp_overlap": "wgrad"}}, "parallel.sequence_parallel": True}
NODES = {"parallel.tp": 8, "cluster.nodes": 8}
"""A stage on each node, so that its messages go other ways than its collectives."""
STRAGGLER = {"what_if": [{"slow": {"rank": 5, "factor": 1.1}}]}


def both(quotient) -> tuple[Trace, Trace]:
    """The step with stretches and with every operation an event of its own: the same spans, path and contention."""
    together, apart = run(quotient), run(quotient, merge=False)
    assert_same(together, apart)
    assert_contiguous(together)
    lanes = [Lanes(trace=trace) for trace in (together, apart)]
    mine, theirs = ({cause.kind: cause.seconds for cause in critical_path(one).causes} for one in lanes)
    assert mine == theirs
    if all(name == "compute" for _, name in together.chains):
        assert contention(lanes[0]) == contention(lanes[1])
    return together, apart


def system_of(**changes):
    return lower(small(**{key.replace(".", "__"): value for key, value in changes.items()})).system


def scheduled(schedule, **changes):
    """A small job under a schedule."""
    changes = {
        "pipeline.schedule": schedule,
        "pipeline.chunks": facts(schedule).chunks or 2,
        "training.global_batch": 2 * 12,
        "sharding.strategy": "ddp" if schedule.startswith("pipedream") else "zero1",
        **changes,
    }
    return fold(prune(system_of(**changes)))


@pytest.mark.parametrize("schedule", schedules)
def test_every_schedule_with_collectives_under_kernels(schedule):
    both(scheduled(schedule, **WGRAD))


@pytest.mark.parametrize("schedule", ["dualpipe", "dualpipev", "1f1b", "interleaved-1f1b", "chimera"])
def test_a_stretch_is_one_event(schedule):
    together, apart = both(scheduled(schedule, **WGRAD, **NODES))
    assert len(together.passages)
    assert together.events * 4 < apart.events


@pytest.mark.slow
@pytest.mark.parametrize("schedule", schedules)
@pytest.mark.parametrize("overlap", tensor_overlaps)
def test_every_schedule_with_a_straggler(schedule, overlap):
    framework = {"base": "neutral", "communication": {"tp_overlap": overlap}}
    both(scheduled(schedule, **{**WGRAD, "framework": framework}, **STRAGGLER))


@pytest.mark.parametrize("name", ["dualpipe", "dualpipev", "1f1b", "zb-h1"])
def test_a_straggler_splits_groups_that_go_on_together(name):
    together, apart = both(scheduled(name, **WGRAD, **STRAGGLER, **NODES))
    if name != "zb-h1":  # whose weight gradients come later: there is nothing to hide collectives under
        assert len(together.passages)
        assert together.events * 4 < apart.events


@pytest.mark.parametrize("strategy", ["zero2", "zero3", "fsdp", "hsdp", "zeropp", "mics"])
@pytest.mark.parametrize("trouble", [{}, STRAGGLER], ids=["even", "slow"])
def test_strategies_that_work_beside_the_passes(strategy, trouble):
    changes = {"sharding.strategy": strategy, "parallel.pp": 1, "training.global_batch": 64, **WGRAD, **trouble}
    both(fold(prune(system_of(**changes))))


def test_not_folded():
    changes = {**WGRAD, "pipeline.schedule": "dualpipe", "pipeline.chunks": 2, **STRAGGLER, **NODES}
    system = system_of(**changes)
    folded = run(fold(prune(system)))
    assert_same(folded, run(unfolded(prune(system))))
    assert_same(folded, run(unfolded(system), merge=False))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_random_jobs(seed):
    try:
        quotient = fold(prune(lower(Scenario.from_dict(document(seed)).resolve()).system))
        together = run(quotient)
    except (Deadlock, TrainsimError):
        pytest.skip("refused")
    assert_same(together, run(quotient, merge=False))
    assert_contiguous(together)


def test_contention_is_that_of_every_kernel():
    """What kernels lose to collectives beside them does not depend on how they are written down."""
    together, apart = both(scheduled("1f1b", **WGRAD, **NODES))
    assert contention(Lanes(trace=together)) == pytest.approx(contention(Lanes(trace=apart)), rel=1e-12)
    assert contention(Lanes(trace=together)) > 0


# -- who follows --

K = Kernel("k", "forward", 1e-3, 0.5)
LANE = TENSOR.on(Queue.OVERLAP)
MEET = Meet("sum", "tp", LANE, "all_reduce", 30e6)


def program(main, side, count=3, **others):
    """A program whose chains are a template each, *count* times; *others* by name."""
    chains = {"compute": main, "side": side, **others}
    templates = {name: Template(name, 0, tuple(instructions)) for name, instructions in chains.items()}
    return Program(chains={name: tuple(Task(t, m) for m in range(count)) for name, t in templates.items()})


MAIN = [K, Signal("go"), K, Wait("done"), K]
SIDE = [Wait("go"), MEET, Signal("done")]


@pytest.mark.parametrize(
    ("main", "side", "others"),
    [
        (MAIN, [MEET, Signal("done")], {}),  # it begins by itself
        (MAIN, [Wait("go"), MEET], {}),  # nobody knows when it is over
        ([K, Signal("go"), K], SIDE, {}),  # compute does not wait for it
        ([K, Signal("go"), K, Wait("done", 0)], SIDE, {}),  # but once
        ([K, Signal("go"), Signal("go"), K, Wait("done")], SIDE, {}),  # which of the two?
        (MAIN, [*SIDE[:2], Send("m", "pp", FORWARD, 1e6, "in"), SIDE[2]], {}),  # what it sends is under way for longer
        (MAIN, SIDE, {"third": [Wait("done"), K]}),  # somebody else waits for it
        (MAIN, SIDE, {"third": [K, Signal("go")]}),  # somebody else lets it begin
    ],
)
def test_chains_that_do_not_follow(main, side, others):
    assert "side" not in followers(program(main, side, **others))


def test_stretches_that_share_a_task_of_compute_are_one():
    f, b = ([Signal(f"{x}"), K, Wait(f"{x}.done")] for x in "fb")
    turns = [[K, f[0]], [K, b[0]], [f[2], K], [b[2], K]]
    side = {x: Template("", 0, (Wait(x), MEET, Signal(f"{x}.done"))) for x in "fb"}
    templates = [Template("", 0, tuple(turn)) for turn in turns]
    compute = tuple(Task(template, m) for m in range(4) for template in templates)
    one = Program(chains={"compute": compute, "side": tuple(Task(side[x], m) for m in range(4) for x in "fb")})
    (found,) = stretches(one, followers(one))
    assert (found.first.tolist(), found.tasks) == ([0, 4, 8, 12], 4)
    assert [(name, at.tolist(), count) for name, at, count in found.followers] == [("side", [0, 2, 4, 6], 2)]


def test_a_task_that_only_tells_goes_with_the_one_before():
    done = Template("over", 0, (Signal("all done"),))
    one = program(MAIN, SIDE)
    chains = {**one.chains, "side": (*one.chains["side"], Task(done, 0))}
    assert [ends.tolist() for ends in followers(Program(chains=chains))["side"]] == [[0, 1, 2, 2], [0, 1, 2, 2]]


# -- by hand: two stages of two ranks that hand microbatches on --


def pipeline(first, second, microbatches=5, slow=None, nbytes=1e7):
    """(Instructions of compute, of the side chain) of both stages."""
    hardware = Hardware(ranks=4, gpus_per_node=2)
    grid = np.arange(4).reshape(2, 2)
    communicators = {
        TENSOR: rings(hardware, grid),
        LANE: rings(hardware, grid, sm=0.2, hbm=0.1),
        FORWARD: pairs(hardware, np.array([0, 1]), np.array([2, 3])),
    }
    programs = [program(main, side, microbatches) for main, side in (first, second)]
    return hardware.system(programs, [0, 0, 1, 1], communicators, slow)


SEND = Send("m", "pp", FORWARD, 1e7, "in")


@pytest.mark.parametrize("slow", [None, {0: 1.3}, {3: 1.2}], ids=["even", "first", "last"])
@pytest.mark.parametrize(
    ("sender", "receiver"),
    [
        ([*MAIN, SEND], [Wait("in"), *MAIN]),
        ([K, Signal("go"), SEND, K, Wait("done"), K], [Wait("in"), *MAIN]),  # sent from the middle of a stretch
        ([*MAIN, SEND], [K, Signal("go"), K, Wait("in"), K, Wait("done")]),  # awaited in the middle
        ([*MAIN, SEND], [K, Signal("go"), Wait("in"), Wait("done"), K]),
        ([SEND, *MAIN], [Signal("go"), Wait("in"), K, Wait("done")]),
        ([K, Signal("go"), K, SEND, K, Wait("done")], [K, Signal("go"), K, Wait("in"), K, Wait("done")]),
    ],
)
def test_messages_out_of_and_into_a_stretch(sender, receiver, slow):
    system = pipeline((sender, SIDE), (receiver, SIDE), slow=slow)
    together, apart = both(fold(prune(system)))
    assert len(together.passages)
    assert together.events < apart.events
    assert distance(system, together) < 1e-7


def test_a_stretch_that_sends_before_it_has_waited_goes_on_operation_by_operation():
    """The message is out before that of the others is in."""
    early = [K, Signal("go"), SEND, K, Wait("late"), Wait("done"), K]
    late = Template("late", 0, (Kernel("l", "other", 4e-3, 0.0), Signal("late")))
    system = pipeline((early, SIDE), ([Wait("in"), *MAIN], SIDE))
    sender = system.programs[0]
    sender.chains["other"] = tuple(Task(late, m) for m in range(5))
    both(fold(prune(system)))


def test_what_a_stretch_tells_may_be_asked_for_later():
    """Compute waits for it in a task of its own, after the stretch."""
    side = [Wait("go"), MEET, Signal("later"), Signal("done")]
    system = pipeline(([*MAIN, SEND], side), ([Wait("in"), *MAIN], SIDE))
    sender = system.programs[0]
    after = Template("after", 0, (Wait("later"), K))
    sender.chains["compute"] = tuple(
        t for task in sender.chains["compute"] for t in (task, Task(after, task.microbatch))
    )
    together, _ = both(fold(prune(system)))
    assert len(together.passages)


@pytest.mark.parametrize("slow", [{0: 4.0}, {1: 4.0, 2: 3.0}])
def test_a_message_of_a_member_does_not_wait_for_the_others(slow):
    """It is sent before all members of the group have met."""
    sender = [K, Signal("go"), SEND, K, Wait("done"), K]
    both(fold(prune(pipeline((sender, SIDE), ([Wait("in"), *MAIN], SIDE), slow=slow))))


def test_members_that_run_different_programs():
    """Their stretches differ, so they go through them each by itself, collective by collective."""
    hardware = Hardware(ranks=2)
    programs = [program(MAIN, SIDE, 4), program([K, *MAIN, K], SIDE, 4)]
    system = hardware.system(programs, [0, 1], {LANE: rings(hardware, np.arange(2).reshape(1, 2), sm=0.2)})
    together, _ = both(fold(prune(system)))
    assert not len(together.passages)


def test_who_is_stuck_in_a_stretch_is_told():
    stuck = [K, Signal("go"), K, Wait("never"), Wait("done"), K]
    quotient = fold(prune(pipeline((stuck, SIDE), ([Wait("in"), *MAIN], SIDE))))
    for merge in (True, False):
        with pytest.raises(Deadlock, match="'never'"):
            run(quotient, merge=merge)


def test_chains_that_wait_for_each_other_in_a_stretch_are_told():
    """It cannot be rehearsed, and is as stuck as it would be."""
    main = [K, Signal("go"), Wait("half"), Signal("again"), Wait("done"), K]
    side = [Wait("go"), Wait("again"), MEET, Signal("half"), Signal("done")]
    quotient = fold(prune(pipeline((main, side), ([Wait("in"), *MAIN], SIDE))))
    for merge in (True, False):
        with pytest.raises(Deadlock, match="half"):
            run(quotient, merge=merge)


# -- at random --

seconds = st.sampled_from([1e-4, 1e-3, 3e-3])
kernels = st.builds(lambda s, sm, hbm: Kernel("k", "forward", s, sm, hbm), seconds, *[st.sampled_from([0.3, 1.0])] * 2)
meets = st.builds(lambda size: Meet("sum", "tp", TENSOR, "all_reduce", size), st.sampled_from([1e6, 3e7]))


@st.composite
def stages(draw, ends):
    """Compute with collectives beside it, and *ends* of messages somewhere in between; the chain beside it."""
    main, side = [draw(kernels)], []
    for k in range(draw(st.integers(1, 3))):
        size = draw(st.sampled_from([1e6, 3e7, 2e8]))
        side += [Wait(f"go {k}"), Meet("beside", "tp", LANE, "all_reduce", size), Signal(f"done {k}")]
        main += [Signal(f"go {k}"), *draw(st.lists(st.one_of(kernels, meets), max_size=2)), Wait(f"done {k}")]
        main += draw(st.lists(st.one_of(kernels, meets), max_size=1))
    for end in ends:
        main.insert(draw(st.integers(0, len(main))), end)
    return main, side


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    first=stages([SEND]),
    second=stages([Wait("in")]),
    slow=st.dictionaries(st.integers(0, 3), st.sampled_from([1.1, 1.5]), max_size=2),
    microbatches=st.integers(2, 6),
)
def test_at_random(first, second, slow, microbatches):
    system = pipeline(first, second, microbatches, slow)
    folded = run(fold(prune(system)))
    apart = run(unfolded(system), merge=False)
    assert_same(folded, apart)
    assert_contiguous(folded)
