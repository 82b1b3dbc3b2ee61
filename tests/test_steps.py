"""Every schedule on real layers, one step and several: laws of the numbers that come out."""

import numpy as np
import pytest

from tests.jobs import scenario
from trainsim.analysis.bubble import step_ends
from trainsim.analysis.passes import in_flight, passes_of, tasks_of
from trainsim.result.result import Result
from trainsim.schedules import schedules
from trainsim.schedules.lookup import slices_of

EVEN = {  # four equal stages on one node
    "cluster.nodes": 1,
    "sharding.strategy": "ddp",
    "training.global_batch": 32,
    "training.sequence_length": 2048,
    "model.vocab": 2048,
    "model.hidden": 4096,
    "model.ffn_hidden": 11008,
    "model.heads": 32,
}


def run(schedule, steps=1, **changes):
    chunks = {"pipeline.chunks": 2} if schedules.traits(schedule).chunks is None else {}
    settings = {"pipeline.schedule": schedule, "simulation.steps": steps, "training.global_batch": 16}
    strategy = {"sharding.strategy": "ddp"} if schedules.traits(schedule).asynchronous else {}
    base = scenario(model__vocab=2048).replace({**settings, **chunks, **strategy})
    return base.replace({key.replace("__", "."): value for key, value in changes.items()}).run()


@pytest.fixture(scope="module", params=schedules)
def three(request) -> Result:
    return run(request.param, steps=3)


@pytest.fixture(scope="module")
def even() -> dict[tuple[str, bool], Result]:
    return {
        (name, free): scenario()
        .replace(EVEN)
        .replace({"pipeline.schedule": name, "pipeline.post_validation": free, "simulation.steps": 3})
        .run()
        for name in ("1f1b", "zb-h2")
        for free in (False, True)
    }


def test_numbers_are_per_step(three):
    assert three.steps == 3
    assert three.step_time == pytest.approx(three.duration / 3, abs=1e-11)
    assert sum(three.breakdown.values()) == three.step_time
    for stage in three.breakdown_per_stage:
        assert sum(stage.values()) == three.step_time
    assert three.samples_per_s == pytest.approx(16 / three.step_time)
    assert sum(cause.seconds for cause in three.critical_path.causes) == pytest.approx(three.step_time, abs=1e-9)
    assert three.to_dict()["period_s"] == three.period


def test_the_period_is_from_update_to_update(three):
    ends = step_ends(three.lanes)
    assert three.period == (ends[2] - ends[0]) / 2
    assert 0 < three.period < 1.05 * three.step_time
    assert three.step_ends == tuple(ends)


def test_the_first_step_has_the_bubble_of_a_single_one(three):
    one = run(three.job.pipeline.schedule)
    assert one.steps == 1
    assert one.period is one.bubble.period_fraction is None
    assert one.step_ends == ()
    if not schedules.traits(three.job.pipeline.schedule).asynchronous:
        assert (one.bubble.fraction, one.bubble.stages) == (three.bubble.fraction, three.bubble.stages)
    assert one.communication["tp"].bytes_per_rank == pytest.approx(three.communication["tp"].bytes_per_rank)
    assert one.communication["pp"].operations == pytest.approx(three.communication["pp"].operations)


def test_idle_time_is_told_twice_and_each_time_in_full(three):
    for stage, share in zip(three.bubble.stages, three.bubble.per_stage, strict=True):
        assert stage.busy_s + stage.idle_s == pytest.approx(stage.window_s)
        assert stage.idle_s / stage.window_s == pytest.approx(share)
        assert stage.warmup_s + stage.steady_s + stage.cooldown_s == pytest.approx(stage.idle_s)
        reasons = stage.activations_s + stage.gradients_s + stage.network_s + stage.peers_s + stage.finished_s
        assert reasons == pytest.approx(stage.idle_s)
        assert min(stage.warmup_s, stage.steady_s, stage.cooldown_s, stage.network_s, stage.peers_s) >= -1e-12


def test_memory_returns_to_what_is_held_all_along(three):
    for stage in three.memory.per_stage:
        held = stage.top - stage.levels["slack"]  # the allocator keeps what it had to ask for
        assert held[-1] == pytest.approx(held[0])
        assert held.min() == pytest.approx(held[-1])
        assert stage.most_activations > 0


def test_passes_are_whole_and_in_order(three):
    microbatches, chunks = 3 * three.job.training.microbatches, three.job.pipeline.chunks
    name = three.job.pipeline.schedule
    forwards = microbatches * chunks * slices_of(name, None) // schedules.traits(name).replicas
    for rank in three.pipeline:
        number = int(three.trace.rank_class[rank])
        tasks = tasks_of(three.lanes, number)
        passes = passes_of(three.lanes, number)
        assert passes.work.count("F") == forwards == passes.work.count("B") + passes.work.count("W")
        assert passes.work.count("I") == passes.work.count("W")
        turns = (tasks.end - tasks.start)[[work in "FBIW" for work in tasks.work]].sum()
        assert (passes.end - passes.start).sum() >= turns * (1 - 1e-12)
        paired = passes.half != 0
        assert (passes.half[paired].reshape(-1, 2) == [1, -1]).all()
        alone = ~paired
        assert (passes.start[1:][alone[1:] & alone[:-1]] >= passes.end[:-1][alone[1:] & alone[:-1]] - 1e-12).all()
        assert 0 < in_flight(tasks) <= forwards


@pytest.mark.parametrize(("schedule", "most"), [("1f1b", [4, 3, 2, 1]), ("gpipe", [8] * 4), ("zb-h1", [4] * 4)])
def test_chunks_in_flight(schedule, most):
    result = run(schedule)
    assert [in_flight(tasks_of(result.lanes, int(result.trace.rank_class[r]))) for r in result.pipeline] == most


def test_without_a_barrier_the_period_has_only_the_bubble_of_the_span(even):
    held, free = even["zb-h2", False], even["zb-h2", True]
    assert held.bubble.period_fraction == pytest.approx(held.bubble.fraction, abs=2e-3)
    assert free.bubble.period_fraction == pytest.approx(free.bubble.span_fraction, abs=2e-3)
    assert free.bubble.fraction > 1.3 * free.bubble.period_fraction
    assert free.period < free.step_time < held.step_time


def test_one_forward_one_backward_gains_nothing_without_a_barrier(even):
    for free in (False, True):
        one = even["1f1b", free]
        assert one.bubble.period_fraction == pytest.approx(one.bubble.fraction, abs=2e-3)
        assert one.period == pytest.approx(one.step_time, rel=1e-3)


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved-1f1b", "deepspeed"])
def test_blocking_messages_make_stages_wait_for_their_peers(schedule):
    result = run(schedule, pipeline__p2p="blocking")
    assert sum(result.breakdown.values()) == result.step_time
    assert sum(stage.peers_s for stage in result.bubble.stages) > 0
    sent = run(schedule).communication["pp"].operations
    assert result.communication["pp"].operations == sent


def test_who_waits_is_told_by_the_sender_whichever_way_it_sends():
    from trainsim.report.sections.waits import waits_for

    waits = run("zb-v").waits
    ways = {wait.what: waits_for(wait.what, wait.source, wait.stage) for wait in waits}
    assert any(way.endswith("-reverse") for way in ways)
    assert all("activations from" in text for way, text in ways.items() if way.startswith("pp-forward"))
    assert all("gradients from" in text for way, text in ways.items() if way.startswith("pp-backward"))
    assert all(abs(w.source - w.stage) == 1 for w in waits if w.what.startswith("pp-"))


def test_steps_can_be_drawn_together_or_the_first_of_them(even):
    result = even["zb-h2", True]
    whole_run, first = result.gantt(), result.gantt(steps=1)
    assert whole_run.axes[-1].get_xlim()[1] == result.duration
    assert np.isclose(first.axes[-1].get_xlim()[1], result.step_ends[0])
    assert "period" in " ".join(text.get_text() for text in whole_run.texts)
