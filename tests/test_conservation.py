"""What is conserved: over stages, over steps, over detail and folding, whatever the job."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trainsim.simulate as simulation
from tests.jobs import scenario
from tests.traces import Shape, pipeline
from trainsim.analysis.analysis import Analysis
from trainsim.analysis.bubble import bubble
from trainsim.analysis.expectation import Expectation, Facts, Phase, contention
from trainsim.analysis.lanes import Lanes
from trainsim.analysis.memory import memory
from trainsim.analysis.throughput import throughput
from trainsim.contracts.exact import TICK, longest, tick_for
from trainsim.program.estimate import Estimate
from trainsim.result.result import Result
from trainsim.sharding import strategies

ONE_STAGE = {"parallel.pp": 1, "cluster.nodes": 1}
"""Steps of these follow each other without an overlap."""


def result(**changes) -> Result:
    return scenario().replace(changes).run()


def exact(run: Result) -> None:
    """Sums of the breakdown, whole and per stage, are the step to the last bit."""
    assert sum(run.breakdown.values()) == run.step_time
    assert [sum(stage.values()) for stage in run.breakdown_per_stage] == [run.step_time] * run.lanes.stages
    assert run.duration < longest(run.trace.tick)


# -- steps ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[{"sharding.overlap": True}, {"parallel.tp": 8}, {"sharding.strategy": "zero2"}])
def once_and_twice(request) -> tuple[Result, Result]:
    return tuple(result(**ONE_STAGE, **request.param, **{"simulation.steps": n}) for n in (1, 2))


def test_two_steps_take_twice_one(once_and_twice):
    one, two = once_and_twice
    assert (two.steps, two.duration) == (2, pytest.approx(2 * one.duration, rel=1e-9))
    assert two.step_time == pytest.approx(one.step_time, rel=1e-9)


def test_numbers_of_a_step_do_not_depend_on_the_number_of_steps(once_and_twice):
    one, two = once_and_twice
    assert two.breakdown == pytest.approx(one.breakdown, rel=1e-9, abs=1e-12)
    assert two.waiting == pytest.approx(one.waiting, rel=1e-9, abs=1e-12)
    assert contention(two.lanes) == pytest.approx(contention(one.lanes), rel=1e-9, abs=1e-12)
    for kind, traffic in one.communication.items():
        again = two.communication[kind]
        for name in traffic.__slots__:
            assert getattr(again, name) == pytest.approx(getattr(traffic, name), rel=1e-9, abs=1e-12), (kind, name)
    seconds = {cause.kind: cause.seconds for cause in one.critical_path.causes}
    assert {cause.kind: cause.seconds for cause in two.critical_path.causes} == pytest.approx(seconds, rel=1e-9)
    assert two.critical_path.phases == pytest.approx(one.critical_path.phases, rel=1e-9, abs=1e-12)
    assert sum(w.seconds for w in two.waits) == pytest.approx(sum(w.seconds for w in one.waits), rel=1e-9, abs=1e-12)
    assert two.tokens_per_s == pytest.approx(one.tokens_per_s, rel=1e-9)


def test_kernels_beside_collectives_are_slower_than_alone(once_and_twice):
    one, _ = once_and_twice
    shared = any(record.marks for record in one.trace.records) or any(run.alone for run in one.trace.runs)
    assert (contention(one.lanes) > 0) == shared


# -- stages and ranks ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[{}, {"pipeline.schedule": "zb-h1"}, {"pipeline.p2p": "blocking"}])
def piped(request) -> Result:
    return result(**request.param)


def test_the_mean_rank_is_the_mean_of_the_stages(piped):
    ranks = np.bincount(piped.lanes.stage, piped.lanes.count) / piped.lanes.ranks
    for part, seconds in piped.breakdown.items():
        mean = sum(share * stage[part] for share, stage in zip(ranks, piped.breakdown_per_stage, strict=True))
        assert seconds == pytest.approx(mean, abs=1e-11), part


def test_the_phases_of_the_path_sum_to_the_step(piped):
    assert sum(piped.critical_path.phases.values()) == pytest.approx(piped.step_time, rel=1e-9)
    exact(piped)


def test_tensor_parallel_collectives_on_the_path_belong_to_the_passes():
    """With one replica nothing but the passes lies before the last of them ends."""
    for overlap in (False, True):
        run = result(
            **ONE_STAGE, **{"parallel.tp": 8, "parallel.sequence_parallel": True, "training.tp_overlap": overlap}
        )
        assert run.breakdown["tp"] > 0
        assert run.critical_path.phases["passes"] == pytest.approx(run.bubble.window_s, rel=1e-9)


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (5, 12)])
def test_when_each_stage_of_1f1b_is_idle(p, m):
    """Stage k waits for k forwards, later for p - 1 - k backwards; and in the end the other way round."""
    forward, backward = 1.0, 2.0
    b = bubble(Lanes(trace=pipeline(Shape(stages=p, microbatches=m, forward=forward, backward=backward))))
    for k, stage in enumerate(b.stages):
        rest = p - 1 - k
        assert stage.warmup_s == pytest.approx(k * forward + rest * backward), k
        assert stage.steady_s == pytest.approx(0.0, abs=1e-9), k
        assert stage.cooldown_s == pytest.approx(rest * forward + k * backward), k
    assert b.warmup_s == pytest.approx(p * forward + (p - 1) * backward)
    assert b.cooldown_s == pytest.approx((p - 1) * forward + p * backward)
    assert b.warmup_s + b.steady_s + b.cooldown_s == pytest.approx(b.window_s)


def test_gpipe_has_no_steady_state():
    p, m = 4, 8
    b = bubble(Lanes(trace=pipeline(Shape(schedule="gpipe", stages=p, microbatches=m))))
    assert (b.steady_s, [stage.steady_s for stage in b.stages]) == (0.0, [0.0] * p)
    assert b.warmup_s == pytest.approx((m + p - 1) * 1.0 + (p - 1) * 2.0)
    assert b.cooldown_s == pytest.approx(m * 2.0)


@pytest.mark.parametrize("strategy", strategies)
def test_every_bubble_is_a_fraction(strategy):
    """Also where a rank waits for parameters before its first pass: it is busy longer than from first to last pass."""
    b = result(**ONE_STAGE, **{"sharding.strategy": strategy}).bubble
    assert 0.0 <= b.span_fraction <= b.fraction + 1e-12 < 1.0
    assert all(0.0 <= share < 1.0 for share in b.per_stage)


# -- detail and folding --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"parallel.sequence_parallel": True}, {"training.tp_overlap": True}, {}])
def test_bytes_do_not_depend_on_the_detail(changes):
    every = [result(**changes, **{"simulation.detail": detail}).communication for detail in ("op", "layer", "block")]
    assert every[0]["tp"].bytes_per_rank > 0
    for other in every[1:]:
        for kind, traffic in every[0].items():
            for name in ("bytes_per_rank", "bytes_inter_node_per_rank", "operations"):
                assert getattr(other[kind], name) == pytest.approx(getattr(traffic, name)), (kind, name)


@pytest.mark.parametrize(
    "what",
    [
        [{"slow": {"gpu": "node0.gpu0", "factor": 1.5}}],
        [{"delay": {"rank": 3, "at": "forward", "seconds": 1.0}}],
        [{"slow": {"node": 1, "factor": 1.1}}, {"skip": {"step": 0}}],
    ],
)
def test_folding_changes_no_number(what):
    folded, every = (result(**{"what_if": what, "simulation.fold": fold}).to_dict() for fold in (True, False))
    for key in ("simulation", "scenario", "waits"):
        del folded[key], every[key]
    assert folded == every


# -- time ----------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    strategy=st.sampled_from(["ddp", "zero1", "zero2", "fsdp"]),
    offload=st.sampled_from(["none", "cpu"]),
    pp=st.sampled_from([1, 2]),
    steps=st.integers(1, 3),
    delay=st.sampled_from([0.0, 1e-6, 1.0, 3e3, 2e5, 1e6]),
    at=st.sampled_from(["forward", "backward", "optimizer"]),
    factor=st.sampled_from([1.0, 1.1, 10.0, 1e4]),
)
def test_sums_are_exact_however_long_the_step_is(strategy, offload, pp, steps, delay, at, factor):
    if strategy in ("zero2", "fsdp"):
        pp, offload = 1, "none" if strategy == "fsdp" else offload
    exact(
        result(**{
            "model.layers": 2, "cluster.nodes": 1, "parallel.pp": pp, "training.global_batch": 8,
            "sharding.strategy": strategy, "simulation.steps": steps, "simulation.detail": "block",
            "sharding.offload": {"optimizer": offload},
            "what_if": [{"delay": {"rank": 1, "at": at, "seconds": delay}}, {"slow": {"rank": 2, "factor": factor}}],
        })
    )  # fmt: skip


def test_the_clock_is_as_fine_as_the_whole_run_allows():
    delays = {"what_if": [{"delay": {"rank": 1, "at": "forward", "seconds": 2e5}}]}
    assert result().trace.tick == TICK
    assert result(**delays).trace.tick > 16 * TICK
    job = scenario().replace({"simulation.steps": 20}).resolve()
    expected = simulation.expected_duration(job, Estimate(seconds=540.0, parts={}))
    assert longest(tick_for(expected)) > 4 * 20 * 540.0


def test_a_run_that_is_longer_than_expected_is_run_again(monkeypatch):
    monkeypatch.setattr(simulation, "expected_duration", lambda job, expected: 1.0)
    run = result(**{"what_if": [{"delay": {"rank": 1, "at": "forward", "seconds": 2e5}}]})
    assert run.trace.tick > TICK
    exact(run)


@pytest.mark.parametrize("factor", [1.0, 1.5, 10.0])
@pytest.mark.parametrize("at", ["forward", "backward", "optimizer"])
def test_a_delay_costs_no_more_than_itself_where_nothing_is_shared(factor, at):
    changes = {**ONE_STAGE, "parallel.tp": 1, "sharding.overlap": False}
    slow = {"slow": {"rank": 1, "factor": factor}}
    before = result(**changes, what_if=[slow])
    after = result(**changes, what_if=[slow, {"delay": {"rank": 1, "at": at, "seconds": 0.25}}])
    assert not any(record.marks for run in (before, after) for record in run.trace.records)
    assert 0 < after.duration - before.duration <= 0.25 + 1e-11


# -- words and shares ----------------------------------------------------------------------------------------------


def test_memory_that_is_full_to_the_last_byte_fits():
    lanes = Lanes(trace=pipeline(Shape()))
    need = memory(lanes, 80e9).needed
    assert memory(lanes, need).fits
    assert not memory(lanes, np.nextafter(need, 0.0)).fits


@pytest.mark.parametrize(("attention", "repeats"), [("eager", True), ("flash2", False)])
def test_selective_recomputation_repeats_what_only_eager_attention_keeps(attention, repeats):
    def rates(recompute: str):
        job = scenario(training__recompute=recompute, training__attention=attention).resolve()
        return throughput(job, 1.0)

    none, selective, full = (rates(recompute) for recompute in ("none", "selective", "full"))
    assert none.hfu == none.mfu == selective.mfu == full.mfu
    assert (selective.hfu > selective.mfu) == repeats
    assert full.hfu > selective.hfu


def test_hfu_above_one_is_explained():
    run = result(**{"what_if": [{"slow": {"node": k, "factor": 1e-6}} for k in range(2)]})
    assert any("faster than the datasheet" in text for text in run.warnings) == (run.hfu > 1)
    assert not any("faster than the datasheet" in text for text in result().warnings)


@pytest.mark.parametrize("strategy", ["fsdp", "zero3"])
def test_a_rank_holds_its_share_of_shared_parameters(strategy):
    run = result(**{"parallel.pp": 1, "sharding.strategy": strategy})
    dp = run.job.parallel.dp
    whole = result(**{"parallel.pp": 1, "sharding.strategy": "ddp"}).parameters
    assert run.parameters["per_rank"] == pytest.approx(whole["per_rank"] / dp)
    assert run.parameters["total"] == whole["total"]


def test_both_signs_of_a_difference_are_said():
    phases = (Phase("passes and messages", 10.0, 8.1), Phase("reductions and update", 1.0, 2.92))
    text = Expectation(seconds=11.0, simulated=11.02, phases=phases, facts=Facts()).explanation
    assert text == "+1.92 s in reductions and update and -1.90 s in passes and messages"


def test_a_result_is_an_analysis_with_views():
    assert issubclass(Result, Analysis)
    bare = Analysis(simulation=SimpleNamespace(trace=pipeline(Shape())))
    assert bare.step_time == bare.trace.duration
    assert bare.critical_path.legs[-1].end == bare.duration
