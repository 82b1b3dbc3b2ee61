"""Schedules that plan by times plan by those of the job's own blocks, and lose nothing by it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs import run_small, small
from trainsim.program import parts as parts_module
from trainsim.program.parts import work_out
from trainsim.replaying import replay
from trainsim.schedules import Slot, Work, schedules
from trainsim.schedules.cells import schedule
from trainsim.schedules.lookup import facts
from trainsim.schedules.makespan import makespan

PLANNED = sorted(name for name in schedules if facts(name).planned)
UNPAIRED = sorted(
    name
    for name in schedules
    if not (facts(name).paired or facts(name).asynchronous or facts(name).sliced or facts(name).replicas > 1)
)


def job_of(name: str, **changes: Any) -> dict[str, Any]:
    return {"pipeline__schedule": name, "pipeline__chunks": facts(name).chunks, "model__layers": 16, **changes}


@pytest.mark.parametrize("name", PLANNED)
@pytest.mark.parametrize(("pp", "batch"), [(2, 8), (4, 8), (4, 24), (8, 16)])
@pytest.mark.parametrize("tp", [1, 2])
def test_a_plan_for_the_jobs_times_is_no_slower(
    name: str, pp: int, batch: int, tp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Than one for passes of equal length, but for what messages and collectives add that no plan knows of."""
    changes = job_of(name, parallel__pp=pp, parallel__tp=tp, training__global_batch=batch)
    own = run_small(**changes).trace.duration
    monkeypatch.setattr(parts_module, "planned_costs", lambda *_: None)
    assert own <= run_small(**changes).trace.duration * 1.001


def test_the_v_of_zero_bubbles_gains_by_the_jobs_times(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = job_of("zb-v-greedy", parallel__pp=4, parallel__tp=2, training__global_batch=8)
    own = run_small(**changes).trace.duration
    monkeypatch.setattr(parts_module, "planned_costs", lambda *_: None)
    assert own < 0.98 * run_small(**changes).trace.duration


def test_what_plans_nothing_has_no_times() -> None:
    assert work_out(small()).planned_for is None
    forward, inputs, weights, message = work_out(small(**job_of("zb-h1"))).planned_for or (0.0,) * 4
    assert min(forward, inputs, weights, message) > 0
    assert inputs > weights


@pytest.mark.parametrize("name", UNPAIRED)
@given(times=st.tuples(*[st.floats(0.1, 3.0)] * 3), p2p=st.floats(0.0, 0.5))
@settings(deadline=None, max_examples=10)
def test_the_makespan_is_that_of_a_replay(name: str, times: tuple[float, ...], p2p: float) -> None:
    traits, ranks, microbatches = facts(name), 4, 8
    chunks = traits.chunks or 2
    rows = [list(schedules[name](rank, ranks, microbatches=microbatches, chunks=chunks)) for rank in range(ranks)]
    slots = [[slot for slot in row if isinstance(slot, Slot)] for row in rows]
    seconds = {Work.F: times[0], Work.I: times[1], Work.W: times[2], Work.B: times[1] + times[2]}
    taken = makespan(slots, lambda _, work: seconds[work], chunks=chunks, message=p2p, placement=traits.placement)
    order = schedule(name, ranks, microbatches, chunks=chunks)
    again = replay(order, forward=times[0], input_gradient=times[1], weight_gradient=times[2], p2p=p2p)
    assert taken == pytest.approx(again.makespan)
