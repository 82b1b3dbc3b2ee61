"""Several systems as one: laws of the merging, of late starts, and of the parts of a trace."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs import same_spans, scenario
from trainsim.contracts.exact import TICK, ticks
from trainsim.contracts.excerpt import excerpt
from trainsim.contracts.groups import TENSOR
from trainsim.contracts.instructions import Meet, Program, Task, Template
from trainsim.contracts.system import Communicator, Pattern, System
from trainsim.engine import run
from trainsim.fold import fold, unfolded
from trainsim.program.lower import lower
from trainsim.program.merging import START, merged, started
from trainsim.program.verify import verify
from trainsim.simulate import Simulation, simulate, simulate_together

FABRIC = {"topology": "dgx_a100", "nodes": 6, "fabric": "fat_tree", "nodes_per_leaf": 2, "oversubscription": 8}
LAYOUTS: dict[str, dict[str, Any]] = {
    "pipeline": {"parallel": {"tp": 2, "pp": 4}},
    "replicas": {"parallel": {"tp": 8, "pp": 1}},
    "overlapped": {"parallel": {"tp": 4, "pp": 1}, "sharding": {"strategy": "zero1", "overlap": True}},
    "sharded": {"parallel": {"tp": 2, "pp": 1}, "sharding": {"strategy": "fsdp"}},
    "offloaded": {"parallel": {"tp": 1, "pp": 1}, "sharding": {"strategy": "zero2", "offload": {"optimizer": "cpu"}}},
    "many": {"parallel": {"tp": 2, "pp": 4}, "training__global_batch": 256},
}


def alone(on: list[int], layout: str = "replicas", **changes: Any) -> Simulation:
    return simulate(scenario(cluster={**FABRIC, "on_nodes": on}, **{**LAYOUTS[layout], **changes}).resolve())


def same_systems(a: System, b: System) -> bool:
    """Whether two systems are equal, column by column."""
    columns = ("program_of", "slow", "sm", "hbm", "owner")
    if a.programs != b.programs or a.resources != b.resources or list(a.communicators) != list(b.communicators):
        return False
    pairs = [(getattr(a, name), getattr(b, name)) for name in columns]
    for peers, c in a.communicators.items():
        d = b.communicators[peers]
        pairs += list(zip(c.group_of, d.group_of, strict=True))
        for operation, p in c.patterns.items():
            pairs += [(getattr(p, f.name), getattr(d.patterns[operation], f.name)) for f in fields(Pattern)]
    return all(np.array_equal(x, y) for x, y in pairs)


# -- the merging is a function of systems ------------------------------------------------------------------------------


def test_one_system_merged_is_itself() -> None:
    one = alone([0, 1], "sharded")
    system, links = one.plan.system, one.job.cluster.links
    assert same_systems(merged([system], links), system)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.sampled_from(sorted(LAYOUTS)), min_size=3, max_size=3))
def test_merging_is_associative_and_legal(layouts: list[str]) -> None:
    runs = [
        scenario(cluster={**FABRIC, "on_nodes": [2 * k, 2 * k + 1]}, **LAYOUTS[name]) for k, name in enumerate(layouts)
    ]
    jobs = [run.resolve() for run in runs]
    systems, links = [lower(job).system for job in jobs], jobs[0].cluster.links
    whole = merged(systems, links)
    verify(whole)
    assert same_systems(merged([merged(systems[:2], links), systems[2]], links), whole)
    assert same_systems(merged([systems[0], merged(systems[1:], links)], links), whole)
    assert whole.ranks == sum(system.ranks for system in systems)
    for peers, communicator in whole.communicators.items():
        assert communicator.groups == sum(s.communicators[peers].groups for s in systems if peers in s.communicators)
        for pattern in communicator.patterns.values():
            assert all(len(column) == communicator.groups for column in pattern.timing)
    for own in (whole.sm, whole.hbm):
        assert len(np.unique(own)) == whole.ranks
        assert (whole.owner[own] == np.arange(whole.ranks)).all()


def test_a_link_that_two_jobs_use_has_no_owner() -> None:
    a, b = (alone(on).plan.system for on in ([0, 2], [1, 3]))
    links = alone([0, 2]).job.cluster.links
    whole = merged([a, b], links)
    owned = np.flatnonzero(a.owner[:links] >= 0)
    assert len(owned) > 0
    uplinks = np.arange(alone([0, 2]).job.cluster.nodes * alone([0, 2]).job.cluster.links_per_node, links)
    assert (whole.owner[uplinks] == -1).all()
    moved = merged([b, a], links).owner[owned]
    assert (moved == a.owner[owned] + b.ranks).all()


# -- what a run of it shows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_job_alone_in_a_merged_system_is_as_it_was(layout: str) -> None:
    one = alone([0, 2], layout)
    (again,) = simulate_together([one], [0.0]).simulations
    assert same_spans(again.trace, one.trace)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("start", [0.0, 0.0123, 5.0])
def test_jobs_on_links_of_their_own_do_not_change_each_other(layout: str, start: float) -> None:
    jobs = [alone([0, 1], layout), alone([2, 3], "sharded")]
    together = simulate_together(jobs, [start, 0.001])
    assert all(same_spans(now.trace, before.trace) for now, before in zip(together.simulations, jobs, strict=True))
    assert together.starts == (ticks(start), ticks(0.001))
    ends = [s + run.trace.duration for s, run in zip(together.starts, together.simulations, strict=True)]
    assert together.trace.duration == max(ends)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.sampled_from(sorted(LAYOUTS)), min_size=2, max_size=2), st.floats(0.0, 0.05))
def test_folded_and_unfolded_are_equal_and_nobody_gains(layouts: list[str], start: float) -> None:
    jobs = [alone([0, 2], layouts[0]), alone([3, 1], layouts[1])]
    folded = simulate_together(jobs, [0.0, start])
    whole = merged([jobs[0].plan.system, started(jobs[1].plan.system, ticks(start))], jobs[0].job.cluster.links)
    trace = run(unfolded(whole), tick=folded.trace.tick)
    first = 0
    for now, start_of in zip(folded.simulations, folded.starts, strict=True):
        ranks = now.plan.system.ranks
        assert same_spans(now.trace, excerpt(trace, first, ranks, start=start_of, skipped=START))
        first += ranks


@pytest.mark.parametrize("layout", ["replicas", "sharded", "overlapped", "pipeline"])
def test_jobs_that_share_uplinks_take_longer_and_never_more_than_one_after_the_other(layout: str) -> None:
    jobs = [alone([0, 2], layout), alone([1, 3], layout)]
    together = simulate_together(jobs, [0.0, 0.0])
    for now, before in zip(together.simulations, jobs, strict=True):
        assert before.trace.duration < now.trace.duration < 2 * before.trace.duration


def test_what_is_left_of_a_trace_of_all_is_all_of_it() -> None:
    one = alone([0, 2], "many")
    same = excerpt(one.trace, 0, one.trace.ranks)
    assert same_spans(same, one.trace)
    for name in ("duration", "row_count", "operations", "ranks", "classes"):
        assert getattr(same, name) == getattr(one.trace, name)
    assert np.array_equal(same.every_row.cause, one.trace.every_row.cause)
    assert np.array_equal(same.every_row.task, one.trace.every_row.task)


# -- max-min fairness in closed form ---------------------------------------------------------------------------------


def posting(amount: float, seconds: float) -> System:
    """One rank that sends for some seconds, in which it takes the part *amount* of the only link."""
    one, none = np.ones(1), np.zeros(1)
    pattern = Pattern(
        factor=one, bandwidth=one, latency=none, ramp=none, chain=none, chain_bytes=none,
        use_group=np.zeros(1, np.int64), use_resource=np.zeros(1, np.int64), use_amount=amount * one,
        use_hold=np.zeros(1, bool),
    )  # fmt: skip
    meet = Meet("send", "dp", TENSOR, "all_reduce", seconds)
    program = Program(chains={"compute": (Task(Template.of("F", 0, [meet]), 0),)})
    group = Communicator(group_of=(np.zeros(1, np.int64),), groups=1, patterns={"all_reduce": pattern})
    return System(
        programs=(program,), program_of=np.zeros(1, np.int64), slow=one, communicators={TENSOR: group}, resources=3,
        sm=np.ones(1, np.int64), hbm=np.full(1, 2), owner=np.array([-1, 0, 0]),
    )  # fmt: skip


def ends(*systems: System) -> list[float]:
    trace = run(fold(merged(systems, 1)))
    return [float(trace.spans(rank, "compute").end[-1]) for rank in range(trace.ranks)]


@pytest.mark.parametrize("jobs", [2, 3, 5])
def test_a_full_link_is_shared_out_equally(jobs: int) -> None:
    assert ends(*[posting(1.0, 0.25)] * jobs) == pytest.approx([0.25 * jobs] * jobs, abs=4 * TICK)


def test_links_that_are_not_full_slow_nobody() -> None:
    assert ends(posting(0.5, 0.25), posting(0.375, 0.5)) == [0.25, 0.5]


def test_speeds_on_a_full_link_are_equal_parts_of_those_alone() -> None:
    """Max-min over speeds: asked for 2.25 times what it has, the link lets all three go at 1 / 2.25 of their speed."""
    small, big, other = ends(posting(0.25, 1.0), posting(1.0, 0.375), posting(1.0, 0.375))
    assert (big, other) == pytest.approx((0.375 * 2.25, 0.375 * 2.25), abs=4 * TICK)
    assert small == pytest.approx(0.375 * 2.25 + 0.625, abs=4 * TICK)  # and what is left of it at its own


def test_who_comes_later_has_the_link_to_itself_once_the_other_is_done() -> None:
    first, second = ends(posting(1.0, 1.0), started(posting(1.0, 1.0), 0.5))
    assert (first, second) == pytest.approx((1.5, 2.0), abs=4 * TICK)
