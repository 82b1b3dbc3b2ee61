"""What repeats is carried out once, and the trace is the same to the last bit: rows, marks, causes, tasks."""

from __future__ import annotations

import numpy as np
import pytest

from tests.agreement import assert_contiguous, assert_same
from tests.jobs import small
from tests.random_documents import document
from tests.steps import STEPS
from tests.workload import FORWARD, Hardware, Job, build, pairs
from trainsim.contracts.instructions import Kernel, Program, Send, Signal, Task, Template, Wait
from trainsim.engine import run
from trainsim.errors import Deadlock, TrainsimError
from trainsim.fold import fold, prune, unfolded
from trainsim.program.lower import lower
from trainsim.scenario.scenario import Scenario
from trainsim.schedules import schedules
from trainsim.schedules.lookup import facts


def both(quotient):
    """The step with and without leaps, the same in every row."""
    leaping, full = run(quotient), run(quotient, leap=False)
    assert leaping.chains == full.chains
    for k in range(len(full.chains)):
        for name, mine, theirs in zip(full.rows(k)._fields, leaping.rows(k), full.rows(k), strict=True):
            assert np.array_equal(mine, theirs), (full.chains[k], name)
        assert leaping.records[k].tasks == full.records[k].tasks
    assert_same(leaping, full)
    return leaping, full


def leaps(quotient, least=2):
    """Compare both, and have at least so many times fewer events."""
    leaping, full = both(quotient)
    assert leaping.events * least < full.events
    return leaping


def scheduled(schedule, microbatches=160, **changes):
    """The small job under a schedule, with detail by layer."""
    changes = {
        "pipeline.schedule": schedule,
        "pipeline.chunks": facts(schedule).chunks or 2,
        "model.layers": 16,
        "training.global_batch": 2 * microbatches,
        "simulation.detail": "layer",
        "sharding.strategy": "ddp" if schedule.startswith("pipedream") else "zero1",
        **changes,
    }
    return fold(prune(lower(small(**{key.replace(".", "__"): value for key, value in changes.items()})).system))


STRAGGLER = {"what_if": [{"slow": {"rank": 5, "factor": 1.1}}]}
IN_FULL = {"looped-bfs", "looped-bfs-ascending"}
"""Schedules without a steady state of all stages: some run ahead of others all the time."""
ONE_WAY = {"gpipe", "terapipe"}
"""The same on the way forward only."""


@pytest.mark.parametrize("name", schedules)
def test_every_schedule(name):
    leaping, full = both(scheduled(name))
    if name not in IN_FULL:
        assert leaping.events * (1.3 if name in ONE_WAY else 2) < full.events
    assert_contiguous(leaping)


@pytest.mark.parametrize("name", ["1f1b", "interleaved-1f1b", "zb-v", "hanayo"])
def test_a_straggler_leaves_each_replica_its_own_period(name):
    leaps(scheduled(name, **STRAGGLER))


WGRAD = {"framework": {"base": "neutral", "communication": {"tp_overlap": "wgrad"}}, "parallel.sequence_parallel": True}


@pytest.mark.slow
@pytest.mark.parametrize("name", schedules)
@pytest.mark.parametrize("changes", [WGRAD, STRAGGLER, {**WGRAD, **STRAGGLER}], ids=["wgrad", "slow", "both"])
def test_every_schedule_in_trouble(name, changes):
    both(scheduled(name, **changes))


def test_shared_resources():
    leaps(scheduled("1f1b", **WGRAD), 4)
    leaps(scheduled("interleaved-1f1b", **WGRAD, **STRAGGLER), 3)


@pytest.mark.parametrize("strategy", ["ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp"])
def test_strategies_without_a_pipeline(strategy):
    both(scheduled("1f1b", **{"sharding.strategy": strategy, "parallel.pp": 1, "training.global_batch": 960}))


@pytest.mark.parametrize("name", STEPS)
def test_named_steps_of_many_microbatches(name):
    changes, hardware = STEPS[name]
    job = Job(**{"tp": 2, "pp": 4, "dp": 4, "layers": (1, 1, 1, 1), **changes, "microbatches": 150})
    both(fold(prune(build(job, Hardware(ranks=job.ranks, **hardware)))))


def test_a_system_that_is_not_folded():
    job = Job(tp=2, pp=3, dp=2, layers=(1, 2, 1), microbatches=120, slow={5: 1.37})
    leaping = leaps(unfolded(prune(build(job))))
    assert_same(leaping, run(fold(prune(build(job))), merge=False))


@pytest.mark.parametrize("slow", [{}, {5: 1.25, 0: 1.25}])
def test_replicas_that_do_the_same_at_the_same_instants(slow):
    """Each is an island of its own; of all that come last where they meet, the same one is the cause."""
    leaps(unfolded(prune(build(Job(tp=2, pp=2, dp=4, layers=(1, 1), microbatches=120, norm=True, slow=slow)))))


def test_a_thousand_microbatches_cost_no_more_events_than_a_hundred():
    few, many = (run(scheduled("1f1b", m)).events for m in (100, 1000))
    assert many < 1.1 * few


def test_a_small_job_is_not_watched():
    quotient = scheduled("1f1b", 48)
    assert run(quotient).events == run(quotient, leap=False).events


def test_several_steps_back_to_back():
    leaps(scheduled("1f1b", 100, **{"simulation.steps": 3}))


def test_blocking_messages():
    leaps(scheduled("1f1b", 200, **{"pipeline.p2p": "blocking"}))


@pytest.mark.parametrize("seed", range(300))
@pytest.mark.slow
def test_random_jobs(seed):
    some = document(seed)
    some["training"]["global_batch"] = some["training"]["micro_batch"] * 8 * 72
    try:
        system = lower(Scenario.from_dict(some).resolve()).system
        both(fold(prune(system)))
    except (Deadlock, TrainsimError):
        pytest.skip("refused")


# -- by hand: two ranks, one of which works for the other --


def handed_on(kernels, after=(), nbytes=1e6):
    """Rank 0 does kernels of these seconds, one per task, and hands each on to rank 1; *after* follows there."""
    hardware = Hardware(ranks=2)
    send = Send("m", "pp", FORWARD, nbytes, "in")
    templates = {s: Template("F", 0, (Kernel("k", "forward", s), send)) for s in set(kernels)}
    work = Template("F", 0, (Wait("in"), Kernel("r", "forward", 1e-3)))
    chains = {"compute": tuple(Task(work, m) for m in range(len(kernels)))}
    for k, template in enumerate(after):
        chains[f"after {k}"] = (Task(template, -1),)
    sender = Program(chains={"compute": tuple(Task(templates[s], m) for m, s in enumerate(kernels))})
    system = hardware.system(
        [sender, Program(chains=chains)], [0, 1], {FORWARD: pairs(hardware, np.array([0]), np.array([1]))}
    )
    return fold(prune(system))


def test_a_tail_that_differs():
    assert leaps(handed_on([1e-3] * 150 + [3e-3] * 5), 3).duration > 0.16


def test_a_change_in_the_middle():
    leaps(handed_on([2e-3] * 200 + [3e-3] + [2e-3] * 200), 4)


def test_a_state_that_almost_repeats():
    """The second rank falls behind by a little each time, so that no state comes again."""
    leaping, full = both(handed_on([1e-3 - 2.0**-30] * 200))
    assert leaping.events > 0.9 * full.events


def test_kernels_that_never_repeat():
    kernels = [1e-3 + (k * k % 101) * 2.0**-20 for k in range(150)]
    leaping, full = both(handed_on(kernels))
    assert full.events <= leaping.events < 1.4 * full.events  # a look is an event


@pytest.mark.parametrize("microbatch", [0, 40, 77, 149])
def test_somebody_who_waits_for_one_microbatch_is_woken_in_time(microbatch):
    late = Template("C", 0, (Wait("in", microbatch), Kernel("c", "other", 5e-3, 0.5)))
    leaping = leaps(handed_on([2e-3] * 150, after=(late,)), 1.3)
    assert leaping.spans(1, "after 0").start[0] == pytest.approx(2e-3 * (microbatch + 1), abs=1e-4)


def test_a_deadlock_after_a_leap_says_where():
    quotient = handed_on([2e-3] * 150, after=(Template("C", 0, (Wait("never"),)),))
    messages = []
    for leap in (True, False):
        with pytest.raises(Deadlock) as stuck:
            run(quotient, leap=leap)
        messages.append(str(stuck.value))
    assert messages[0] == messages[1]


def test_signals_of_a_named_microbatch_are_not_repeated():
    mark = Template("F", 0, (Kernel("k", "forward", 1e-3), Signal("done", 7)))
    chains = {
        "a": tuple(Task(mark, m) for m in range(100)),
        "b": (Task(Template("W", 0, (Wait("done", 7), Kernel("w", "other", 1.0, 0.0))), -1),),
    }
    both(fold(Hardware(ranks=1).system([Program(chains=chains)], [0], {})))
