"""A trace says the same however it came about: folded runs, scaled runs, or spans that were measured."""

import json
from itertools import pairwise

import numpy as np
import pytest

from tests.jobs import scenario
from tests.kineto import assert_nested, spans_in
from tests.traces import Shape, pipeline
from trainsim.analysis.breakdown import breakdown, ledger, waiting
from trainsim.analysis.bubble import bubble
from trainsim.analysis.critical import critical_path
from trainsim.analysis.idle import idle
from trainsim.analysis.lanes import Lanes
from trainsim.analysis.passes import passes_of, update_spans
from trainsim.contracts.exact import TICK, ticks
from trainsim.contracts.instructions import Memory
from trainsim.contracts.measured import REQUIRED, from_spans, span_columns
from trainsim.contracts.record import Label, Record, Run, TaskFacts, Tasks
from trainsim.contracts.trace import Trace
from trainsim.errors import InvalidPlan, TrainsimError
from trainsim.report.trace_tracks import COMPUTE_STREAM, nanoseconds
from trainsim.schedules import schedules
from trainsim.sharding import strategies

MEASURED = {
    "1f1b": {},
    "zb-h1": {"pipeline.schedule": "zb-h1"},
    "interleaved": {"pipeline.schedule": "interleaved-1f1b", "pipeline.chunks": 2},
    "fsdp": {"parallel.pp": 1, "sharding.strategy": "fsdp"},
    "zero3": {"parallel.pp": 1, "sharding.strategy": "zero3"},
    "two steps": {"simulation.steps": 2},
    "straggler": {"what_if": [{"slow": {"node": 1, "factor": 1.3}}]},
    "delay": {"what_if": [{"delay": {"rank": 3, "at": "backward", "seconds": 0.01}}]},
}


@pytest.fixture(scope="module", params=MEASURED.values(), ids=MEASURED)
def twice(request):
    """A simulated step, and the lanes of a trace made of nothing but its spans."""
    run = scenario().replace(request.param).run()
    stages = run.trace.stage[run.trace.rank_class]
    return run, Lanes(trace=from_spans(span_columns(run.trace), stages=stages.tolist(), messages=run.trace.messages))


def test_spans_alone_give_the_same_breakdown(twice):
    run, lanes = twice
    book = ledger(lanes)
    assert (lanes.duration, lanes.steps, lanes.step) == (run.duration, run.steps, run.step_time)
    assert breakdown(lanes, book) == run.breakdown
    assert tuple(breakdown(lanes, book, stage=s) for s in range(lanes.stages)) == run.breakdown_per_stage
    assert waiting(lanes, book) == pytest.approx(run.waiting, abs=1e-12)


def test_spans_alone_give_the_same_bubble_and_critical_path(twice):
    run, lanes = twice
    again = bubble(lanes, run.hops.mesh.groups("pp"))
    for name in ("fraction", "span_fraction", "warmup_s", "steady_s", "cooldown_s", "window_s"):
        assert getattr(again, name) == pytest.approx(getattr(run.bubble, name), abs=1e-12), name
    for one, two in zip(again.stages, run.bubble.stages, strict=True):
        for name in one.__slots__:
            assert getattr(one, name) == pytest.approx(getattr(two, name), abs=1e-12), (one.stage, name)
    causes, expected = critical_path(lanes).causes, run.critical_path.causes
    assert {c.kind: c.seconds for c in causes} == pytest.approx({c.kind: c.seconds for c in expected})
    assert critical_path(lanes).phases == pytest.approx(run.critical_path.phases, abs=1e-12)


def test_spans_alone_give_the_same_rows_of_the_gantt_chart(twice):
    run, lanes = twice
    for rank in run.pipeline:
        c = int(run.trace.rank_class[rank])
        for mine, theirs in zip(passes_of(lanes, rank), passes_of(run.lanes, c), strict=True):
            assert np.array_equal(mine, theirs)
        for mine, theirs in zip(idle(lanes, rank), idle(run.lanes, c), strict=True):
            assert np.array_equal(mine, theirs)
        assert update_spans(lanes, rank) == update_spans(run.lanes, c)


def test_what_passes_do_is_known_from_the_kinds_of_their_spans():
    run = scenario(training__sequence_length=4096).run()  # the host is ahead of the layers
    columns = {name: column for name, column in span_columns(run.trace).items() if name in (*REQUIRED, "posted")}
    stages = run.trace.stage[run.trace.rank_class].tolist()
    lanes = Lanes(trace=from_spans(columns, stages=stages, messages=run.trace.messages))
    assert breakdown(lanes, ledger(lanes)) == run.breakdown
    for rank in run.pipeline:
        mine, theirs = passes_of(lanes, rank), passes_of(run.lanes, int(run.trace.rank_class[rank]))
        assert mine.work == theirs.work
        assert mine.start == pytest.approx(theirs.start, abs=2e-5)  # where F meets B, a host span may be either's


ONE = {"rank": [0], "chain": ["compute"], "name": ["a"], "kind": ["forward"], "microbatch": [0], "layer": [0]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"start": [0.0]}, "no column 'end'"),
        ({"start": [1.0], "end": [0.0]}, "ends before it starts"),
        ({"start": [1.0], "end": [2.0], "posted": [1.5]}, "before it was posted"),
        ({"start": [0.0, 1.0], "end": [1.0, 2.0]}, "equally long"),
        ({"start": [0.0], "end": [1.0], "kind": ["forwards"]}, "Did you mean 'forward'"),
        ({"start": [0.0], "end": [1.0], "rank": [1]}, "numbered from 0"),
    ],
)
def test_columns_that_are_no_spans_are_refused(change, words):
    with pytest.raises(TrainsimError, match=words):
        from_spans({**ONE, **change})


def test_no_spans_are_refused():
    with pytest.raises(InvalidPlan, match="not empty"):
        from_spans({name: [] for name in REQUIRED})


def scaled(scales: list[float]) -> Trace:
    """Rows of one run of two spans, each at its own pace."""
    record = Record()
    run = Run((Label("a", "forward", "compute", 0), Label("b", "tp", "tp", 0)), (0.0, 1.0), (0.0, 1.5), (1.0, 2.0))
    at = 0.0
    for k, scale in enumerate(scales):
        record.table.extend((0, k, at, at))
        record.tasks.append(k + 1)
        at = ticks(at + 2.0 * scale)
    record.scales.extend(scales)
    zeros = np.zeros(1, np.int64)
    return Trace(
        rank_class=zeros, representative=zeros, stage=zeros, parameters=np.zeros(1), memory=(Memory(),), runs=[run],
        chains=((0, "compute"),), records=(record,), facts=(TaskFacts("F", 0),),
        tasks=(Tasks(np.zeros(len(scales), np.int64), np.arange(len(scales))),),
    )  # fmt: skip


def test_a_row_is_its_run_times_its_scale():
    trace = scaled([1.0, 2.0, 0.5])
    spans, lane = trace.spans(0, "compute"), Lanes(trace=trace).compute[0]
    assert spans.start.tolist() == [0.0, 1.5, 2.0, 5.0, 6.0, 6.75]
    assert spans.end.tolist() == [1.0, 2.0, 4.0, 6.0, 6.5, 7.0]
    assert spans.posted.tolist() == [0.0, 1.0, 2.0, 4.0, 6.0, 6.5]
    assert lane.seconds.sum(1).tolist() == [1.5, 3.0, 0.75]
    assert lane.held.sum(1).tolist() == [0.5, 1.0, 0.25]
    assert trace.duration == lane.end[-1] == 7.0
    assert not lane.literal.any()


def test_scaled_spans_stay_on_the_clocks_grid():
    trace = scaled([1.0 / 3.0, 0.1])
    assert not (trace.spans(0, "compute").end % TICK).any()


def test_rows_that_are_asked_for_are_those_of_all():
    trace = pipeline(Shape(stages=3, microbatches=4, latency=0.1))
    every = trace.spans_of(0)
    for row in (0, 3, 7):
        some = trace.spans_of(0, np.array([row]))
        of = every.row == row
        for name in every._fields:
            assert np.array_equal(getattr(some, name), getattr(every, name)[of])


def events(run, tmp_path):
    text = run.to_chrome(tmp_path / "trace.json").read_text()
    return spans_in(json.loads(text))


def assert_none_cross(run, tmp_path):
    """Every span is in the file, and no two of a thread overlap; marks lie around spans or beside them."""
    document = json.loads(run.to_chrome(tmp_path / "trace.json").read_text())
    written = sum(len(run.trace.spans(r, c).label) for r in run.pipeline for c in run.trace.chain_names(r))
    assert len(spans_in(document)) == written
    assert_nested(document)


@pytest.mark.parametrize("name", schedules)
def test_no_two_events_of_a_thread_cross_in_any_schedule(name, tmp_path):
    chunks = {"pipeline.chunks": 2} if schedules.traits(name).chunks is None else {}
    strategy = {"sharding.strategy": "ddp"} if schedules.traits(name).asynchronous else {}
    assert_none_cross(scenario(pipeline__schedule=name).replace({**chunks, **strategy}).run(), tmp_path)


@pytest.mark.parametrize("name", strategies)
def test_no_two_events_of_a_thread_cross_with_any_strategy(name, tmp_path):
    assert_none_cross(scenario(parallel__pp=1, sharding__strategy=name).run(), tmp_path)


def test_neighbours_touch_on_the_grid_of_the_file(tmp_path):
    spans = [e for e in events(scenario().run(), tmp_path) if e["pid"] == 0 and e["tid"] == COMPUTE_STREAM]
    spans.sort(key=lambda e: e["ts"])
    grid = [(round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000)) for e in spans]
    assert sum(a[1] == b[0] for a, b in pairwise(grid)) > len(grid) / 2


def test_every_nanosecond_of_the_grid_is_read_back():
    grid = nanoseconds(np.arange(0, 3_000_000, 7) * 1e-9 + 12.345)
    assert ((grid / 1e3 * 1e3).astype(np.int64) == grid).all()
    assert (np.diff(grid) >= 0).all()
    assert np.abs(grid - (np.arange(0, 3_000_000, 7) + 12_345_000_000)).max() <= 1
