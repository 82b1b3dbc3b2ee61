"""Links that are slower or gone for a while: the engine against the oracle, with and without all that it leaves out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.agreement import assert_contiguous, assert_same, distance
from tests.steps import STEPS, step
from tests.test_engine_random import systems
from tests.workload import Hardware, Job, build
from trainsim.contracts.exact import grains
from trainsim.contracts.system import Outage, System
from trainsim.engine import run
from trainsim.engine.fairshare import Use, max_min
from trainsim.fold import fold, prune, unfolded
from trainsim.fold.graph import used_resources
from trainsim.scenario.scenario import Scenario

RELAXED = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def with_outages(system: System, outages: list[Outage]) -> System:
    owner = system.owner.copy()
    owner[[outage.resource for outage in outages]] = -1
    return replace(system, outages=tuple(outages), owner=owner)


@st.composite
def disturbed(draw: st.DrawFn, some: System) -> System:
    """*some* system with outages of links that it uses, at times at which it runs."""
    links = [r for r in used_resources(some).tolist() if r < some.resources - 2 * some.ranks]
    if not links:
        return some
    duration = run(fold(prune(some))).duration
    outages = []
    for link in draw(st.lists(st.sampled_from(links), max_size=3, unique=True)):
        since = duration * draw(st.integers(0, 12)) / 10
        until = since + duration * draw(st.integers(1, 8)) / 10
        lost = grains(draw(st.sampled_from([1.0, 0.5, 0.9, 0.3])))
        outages.append(Outage(link, since, until, lost))
        if draw(st.booleans()):
            outages.append(Outage(link, until + duration / 10, until + duration / 5, 1.0))
    return with_outages(some, outages)


def assert_all_ways_agree(system: System) -> None:
    pruned = prune(system)
    plain = run(unfolded(system), merge=False)
    for other in (
        run(fold(pruned)),
        run(fold(system), leap=False),
        run(unfolded(pruned)),
        run(fold(pruned), merge=False),
    ):
        assert_same(other, plain)
        assert_contiguous(other)


@settings(max_examples=40, **RELAXED)
@given(systems(), st.data())
def test_any_system_with_outages(some: System, data: st.DataObject) -> None:
    system = data.draw(disturbed(some))
    assert_all_ways_agree(system)
    assert distance(system, run(fold(prune(system)))) < 1e-6


@settings(max_examples=25, **RELAXED)
@given(st.sampled_from(sorted(STEPS)), st.data())
def test_steps_with_outages(name: str, data: st.DataObject) -> None:
    system = data.draw(disturbed(step(name)))
    pruned = prune(system)
    assert_same(run(fold(pruned)), run(fold(pruned), merge=False))
    assert_same(run(fold(pruned)), run(unfolded(pruned)))


@pytest.mark.parametrize("lost", [1.0, 0.5])
@pytest.mark.parametrize("part", [0.3, 0.8, 2.0])
def test_a_long_pipeline_leaps_up_to_an_outage_and_on_after_it(lost: float, part: float) -> None:
    long = Job(tp=2, pp=4, dp=2, microbatches=200, layers=(1, 1, 1, 1))
    some = build(long, Hardware(ranks=long.ranks))
    whole = run(fold(prune(some)))
    links = [r for r in used_resources(some).tolist() if r < some.resources - 2 * some.ranks]
    outage = Outage(links[0], part * whole.duration, (part + 0.1) * whole.duration, lost)
    system = prune(with_outages(some, [outage]))
    trace, slowly = run(fold(system)), run(fold(system), leap=False)
    assert_same(trace, slowly)
    assert trace.events < slowly.events / 2
    assert lost < 1.0 or (trace.duration > whole.duration) == (part < 1)


def job(what_if: list[dict[str, Any]], **simulation: Any) -> Scenario:
    return Scenario.from_dict(
        {
            "model": {"layers": 4, "hidden": 4096, "heads": 32, "vocab": 64000},
            "cluster": {"topology": "dgx_h100", "nodes": 2},
            "parallel": {"tp": 8},
            "training": {"global_batch": 8, "sequence_length": 1024},
            "what_if": what_if,
            "simulation": simulation,
        }
    )


def test_traffic_waits_until_a_link_is_back() -> None:
    before = job([]).run().step_time
    down = {"nic": "node0.nic0", "from": 0.0, "until": before + 1.0}
    after = job([{"flap": down}]).run()
    assert 1.0 < after.step_time - before < 1.0 + 2 * before
    assert after.duration > before + 1.0
    twice = job([{"flap": down}, {"flap": down}]).run()
    assert twice.step_time == after.step_time


def test_an_outage_that_takes_nothing_or_comes_too_late_changes_nothing() -> None:
    before = job([]).run().step_time
    late = {"link": "node0.nic0", "from": "1h", "until": "2h"}
    same = {"link": "node0.nic0", "from": 0.0, "until": 1.0, "factor": 1.0}
    assert [job([{"flap": flap}]).run().step_time for flap in (late, same)] == [before, before]


@settings(max_examples=8, **RELAXED)
@given(
    st.sampled_from(["node0.nic0", "node1", "node0.gpu3>nvswitch", "leaf2>node1.nic2"]),
    st.floats(0, 0.2),
    st.floats(0.001, 0.1),
    st.sampled_from([0.0, 0.25, 0.8]),
)
def test_folded_is_unfolded_with_flaps(link: str, since: float, seconds: float, factor: float) -> None:
    what_if = [{"flap": {"link": link, "from": since, "until": since + seconds, "factor": factor}}]
    results = [job(what_if, fold=fold).run() for fold in (True, False)]
    assert_same(*(result.trace for result in results))
    assert results[0].trace.classes < results[1].trace.classes
    assert results[0].step_time >= job([]).run().step_time


def test_a_flap_is_written_as_it_was_read() -> None:
    flap = {"nic": "node0.nic0", "from": 0.5, "until": 1.5, "factor": 0.25}
    written = job([{"flap": flap}]).resolved
    assert written["what_if"] == [{"flap": flap}]
    assert Scenario.from_dict(written).resolve() == job([{"flap": flap}]).resolve()


def test_no_resource_gives_more_than_an_outage_leaves() -> None:
    loads = [Use(((0, grains(0.6)), (1, 1.0))), Use(((0, grains(0.9)),))]
    for lost in (0.0, 0.3, 0.9, 1.0):
        rates = max_min([*loads, Use(lost=((0, grains(lost)),))])
        taken = sum(rate * dict(use.loads)[0] for rate, use in zip(rates, loads, strict=False))
        assert taken <= 1 - grains(lost) + 1e-9
        assert np.isclose(taken, min(1 - lost, 1.5))
