"""Laws of the analyses on pipelines executed by their definition."""

import numpy as np
import pytest

import trainsim.analysis.expectation as closed_form
from tests.jobs import small
from tests.traces import Shape, pipeline
from trainsim.analysis.breakdown import breakdown, ledger, waiting
from trainsim.analysis.bubble import bubble
from trainsim.analysis.communication import communication
from trainsim.analysis.critical import critical_path
from trainsim.analysis.expectation import Expectation, Phase, expectation
from trainsim.analysis.kinds import PARTS
from trainsim.analysis.lanes import Lanes
from trainsim.analysis.memory import memory
from trainsim.analysis.throughput import throughput
from trainsim.contracts.groups import REPLICAS

SHAPES = [
    Shape(),
    Shape(schedule="gpipe", stages=3, microbatches=5),
    Shape(schedule="interleaved-1f1b", stages=4, microbatches=8, chunks=2),
    Shape(stages=4, microbatches=9, latency=0.13, tp=0.1, recompute=0.7, reduce=1.3, update=0.4, replicas=3),
    Shape(stages=1, microbatches=3, reduce=0.3, update=0.1),
    Shape(stages=2, microbatches=1, forward=0.3, backward=1 / 7, latency=0.01, tp=1 / 3),
]


def lanes_of(shape):
    return Lanes(trace=pipeline(shape))


@pytest.fixture(params=SHAPES, ids=str)
def shape(request):
    return request.param


@pytest.fixture
def lanes(shape):
    return lanes_of(shape)


def test_the_breakdown_sums_to_the_step_exactly(lanes):
    parts = breakdown(lanes, ledger(lanes))
    assert sum(parts.values()) == lanes.step
    assert sum(reversed(parts.values())) == lanes.step
    assert tuple(parts) == tuple(PARTS)


def test_so_does_that_of_every_stage_and_of_every_class(lanes):
    book = ledger(lanes)
    assert (book.seconds.sum(1) == lanes.step).all()
    assert (book.seconds >= 0).all()
    assert (book.waiting <= book.seconds[:, :-1]).all()
    for stage in range(lanes.stages):
        assert sum(breakdown(lanes, book, stage=stage).values()) == lanes.step


def test_compute_is_what_the_kernels_take(lanes, shape):
    parts = breakdown(lanes, ledger(lanes))
    passes = shape.microbatches * shape.chunks
    assert parts["compute"] == pytest.approx(passes * (shape.forward + shape.backward), rel=1e-9)
    assert parts["recompute"] == pytest.approx(passes * shape.recompute, abs=1e-9)
    assert parts["tp"] == pytest.approx(passes * 2 * shape.tp, abs=1e-9)
    assert parts["dp"] == pytest.approx(shape.reduce, abs=1e-9)


@pytest.mark.parametrize(
    ("schedule", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved-1f1b", 2), ("interleaved-1f1b", 4)]
)
@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (8, 16)])
def test_closed_forms_of_the_bubble(schedule, chunks, p, m):
    b = bubble(lanes_of(Shape(schedule=schedule, stages=p, microbatches=m, chunks=chunks, reduce=5.0, update=1.0)))
    assert b.fraction == pytest.approx((p - 1) / (chunks * m + p - 1), rel=1e-9)
    assert b.idle_over_ideal == pytest.approx((p - 1) / (chunks * m), rel=1e-9)
    assert b.warmup_s + b.steady_s + b.cooldown_s == pytest.approx(b.window_s)


def test_one_stage_has_no_bubble():
    b = bubble(lanes_of(Shape(stages=1)))
    assert (b.fraction, b.span_fraction, b.idle_over_ideal, b.per_stage) == (0.0, 0.0, 0.0, (0.0,))


def test_messages_in_flight_are_pp_and_the_rest_of_the_gap_is_bubble():
    lanes = lanes_of(Shape(stages=2, microbatches=1, latency=0.25))
    parts = breakdown(lanes, ledger(lanes), stage=0)
    assert parts["pp"] == pytest.approx(0.25)
    assert parts["bubble"] == pytest.approx(
        1.0 + 2.0 + 0.25
    )  # F and B of the next stage; its first message is not ours


def test_waits_say_who_waits_for_whom():
    waits = ledger(lanes_of(Shape(stages=3, microbatches=2))).waits
    first = [w for w in waits if w.stage == 0]
    assert [(w.source, w.what) for w in first] == [(1, "pp-backward")]
    assert {(w.source, w.what) for w in waits if w.stage == 2} == {(1, "pp-forward")}


def test_the_critical_path_has_no_hole(lanes):
    path = critical_path(lanes)
    assert path.legs[0].start == 0.0
    assert path.legs[-1].end == lanes.step
    assert all(a.end == b.start for a, b in zip(path.legs, path.legs[1:], strict=False))
    assert sum(c.seconds for c in path.causes) == pytest.approx(lanes.step, abs=1e-9)
    assert "bubble" not in {c.kind for c in path.causes}


def test_the_critical_path_of_1f1b_counts_the_latency_of_the_closed_form():
    p, m, c = 4, 8, 0.5
    path = critical_path(lanes_of(Shape(stages=p, microbatches=m, forward=1, backward=2, latency=c)))
    q, s = divmod(m - 1, p)
    hops = 2 * (p - 1) * q + 2 * s + 2 * (p - 2)
    lanes = lanes_of(Shape(stages=p, microbatches=m, forward=1, backward=2, latency=c))
    assert lanes.step == pytest.approx((m + p - 1) * 3 + c * hops)
    assert {x.kind: x.seconds for x in path.causes}["pp"] == pytest.approx(c * hops)


@pytest.mark.parametrize(("schedule", "most"), [("1f1b", lambda p, r, m: min(p - r, m)), ("gpipe", lambda p, r, m: m)])
def test_activations_in_flight(schedule, most):
    p, m = 4, 8
    use = memory(lanes_of(Shape(schedule=schedule, stages=p, microbatches=m)), 80e9)
    for stage in use.per_stage:
        assert stage.part("activations") == pytest.approx(most(p, stage.stage, m) * 1e9)
        assert stage.part("temporary") == pytest.approx(0.5e9)
        assert stage.peak == pytest.approx(41e9 + stage.part("activations") + 0.5e9)
    assert use.fullest.stage == use.peak_rank == 0
    assert use.fits


def test_memory_over_time_returns_to_what_is_held_all_along(lanes):
    for stage in memory(lanes, 80e9).per_stage:
        assert stage.top[0] == stage.top[-1] == stage.lowest == 41e9
        assert (np.diff(stage.times) >= 0).all()
        assert stage.top.max() == stage.peak


def test_traffic_of_the_mean_rank():
    shape = Shape(stages=2, microbatches=4, latency=0.1, tp=0.2, reduce=0.5, replicas=2)
    lanes = lanes_of(shape)
    book = ledger(lanes)
    traffic = communication(
        lanes, breakdown(lanes, book), waiting(lanes, book), lambda peers, _: (2, 0.5 if peers == REPLICAS else 0.0)
    )
    assert traffic["tp"].operations == 4 * 2 * 2
    assert traffic["tp"].bytes_per_rank == pytest.approx(16 * 1e6)  # two ranks: 2 (n - 1) / n = 1
    assert traffic["dp"].bytes_inter_node_per_rank == pytest.approx(0.5e9)
    assert traffic["pp"].time_s == pytest.approx(4 * 0.1)  # a message counts where it is sent, as its bytes do
    assert traffic["dp"].exposed_s == pytest.approx(0.5)
    assert traffic["ep"].operations == 0


def test_what_is_exposed_is_an_operation_or_waiting_for_a_peer(lanes):
    book = ledger(lanes)
    late = waiting(lanes, book)
    parts = breakdown(lanes, book)
    for kind, traffic in communication(lanes, parts, late, lambda *_: (2, 0.0)).items():
        ends = 2 if kind == "pp" else 1
        assert 0 <= traffic.exposed_s <= ends * traffic.time_s + traffic.waiting_s + 1e-9, kind
    for part, seconds in late.items():
        assert 0 <= seconds <= parts[part] + 1e-9, part


def test_waiting_at_the_end_of_the_step_is_no_gap_of_the_pipeline():
    lanes = lanes_of(Shape(stages=3, microbatches=4))
    book = ledger(lanes)
    assert waiting(lanes, book)["bubble"] == pytest.approx((0 + 2 + 4) / 3)  # a backward pass later, stage by stage
    assert breakdown(lanes, book)["bubble"] == pytest.approx(2 * 3)


def test_nothing_is_said_where_there_is_nothing_to_explain():
    path = critical_path(lanes_of(Shape(stages=1)))
    facts = closed_form.Facts(slow=(), contention=0.0)
    same = expectation(24.0, {"steady": 24.0}, path, 24.0, facts)
    assert same.explanation == "the two agree"
    assert (
        expectation(20.0, {"steady": 20.0}, path, 24.0, facts).explanation
        == "most of it in passes and messages (+4.00 s)"
    )


def test_phases_that_cancel_are_both_named_with_their_signs():
    facts = closed_form.Facts(slow=(), contention=0.0)
    passes, reductions = "passes and messages", "reductions and update"

    def said(of_passes: float, of_reductions: float) -> str:
        phases = (Phase(passes, 90.0, 90.0 + of_passes), Phase(reductions, 10.0, 10.0 + of_reductions))
        simulated = 100.0 + of_passes + of_reductions
        return Expectation(seconds=100.0, simulated=simulated, phases=phases, facts=facts).explanation

    assert said(-1.24, 1.94).startswith("+1.94 s in reductions and update and -1.24 s in passes and messages")
    assert said(-1.94, 1.24).startswith("-1.94 s in passes and messages and +1.24 s in reductions and update")
    assert said(-0.1, 1.94).startswith("most of it in reductions and update (+1.94 s)")


def test_causes_are_named_that_are_there():
    assert list(closed_form.Facts(contention=0.95, messages=True, uneven=True).of_passes(1.0)) == [
        "kernels take 950.00 ms longer alongside collectives than alone"
    ]
    assert len(list(closed_form.Facts(contention=0.05, messages=True, uneven=True).of_passes(1.0))) == 2
    assert list(closed_form.Facts(slow=("node 3's kernels take 10.0% longer",), messages=True).of_passes(1.0)) == [
        "node 3's kernels take 10.0% longer"
    ]
    assert list(closed_form.Facts().of_passes(1.0)) == list(closed_form.Facts().of_the_end()) == []


@pytest.mark.parametrize("attention", ["eager", "flash2"])
def test_selective_recomputation_repeats_the_scores_of_unfused_attention_only(attention):
    """HFU counts what is computed again: two products over the square of the sequence, where they were kept at all."""
    job = small(training__recompute="selective", training__attention=attention)
    rates = throughput(job, step=1.0)
    model, batch = job.model, job.training.global_batch
    scores = model.layers * 4 * batch * job.training.sequence_length**2 * model.kind.query_width
    again = scores if attention == "eager" else 0
    assert (rates.hardware_flops_per_gpu - rates.model_flops_per_gpu) * job.cluster.ranks == pytest.approx(again)
