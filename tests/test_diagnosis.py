"""A measured job replayed: published figures, a slow replay beside it, the engine, and causes that are known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import trainsim as ts
from tests.diagnosis_oracle import Row, SlowReplay, rows_of
from tests.operation_tables import job, order, scattered, table_of
from trainsim.diagnosis.causes import causes
from trainsim.diagnosis.causes.slow_network import slow_network
from trainsim.diagnosis.causes.slow_worker import of_peers
from trainsim.diagnosis.causes.slow_worker import slow_worker as slow_worker_found
from trainsim.diagnosis.diagnosing import diagnosed, of_replica, of_stage
from trainsim.diagnosis.diagnosis import Diagnosis
from trainsim.diagnosis.evidence import Evidence
from trainsim.diagnosis.job_replay import JobReplay, types
from trainsim.diagnosis.lowering import agree, play
from trainsim.diagnosis.operations import COLUMNS, JobShape, OperationTable, operation_table
from trainsim.errors import InvalidData, UnknownName

DATA = Path(__file__).parent / "data" / "stragglers"
SHAPES = [
    JobShape(dp=2, pp=4), JobShape(dp=1, pp=1), JobShape(dp=3, pp=1), JobShape(dp=1, pp=2), JobShape(dp=2, pp=2, vpp=2),
    JobShape(dp=2, dsp=2, pp=2), JobShape(dp=1, pp=3, vpp=2),
]  # fmt: skip


@cache
def found(name: str) -> Diagnosis:
    return ts.diagnose(DATA / f"trace-{name}.parquet")


# -- what is known ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "within"), [("ST", 1e-6), ("AR-6-steps", 1e-10)])
def test_the_figures_are_those_that_are_known(name: str, within: float) -> None:
    """ST: published ones, worked out with 32-bit numbers; AR: those of the slow replay."""
    known = json.loads((DATA / f"expected-{name}.json").read_text())
    one = found(name)
    close: Callable[[Any], Any] = lambda value: pytest.approx(value, rel=within)  # noqa: E731
    assert one.slowdown == close(known["slowdown_S"])
    assert one.launch_slowdown == close(known["launch_slowdown"])
    assert one.by_operation == close(known["S_by_optype"])
    assert {str(stage): value for stage, value in one.by_stage.items()} == close(known["S_by_stage"])
    assert {str(rank): value for rank, value in one.by_replica.items()} == close(known["S_by_dp_rank"])
    assert one.step_s == close(known["mean_step_original_s"])
    assert one.step_without_launch_delay_s == close(known["mean_step_without_launch_delay_s"])
    assert one.ideal_step_s == close(known["mean_step_ideal_s"])
    assert one.last_stage_share == pytest.approx(known["M_S"], rel=1e-5, abs=1e-5)
    assert one.worst_workers_share == pytest.approx(known["M_W"], rel=1e-5, abs=1e-5)
    for step in one.steps:
        assert step.measured == close(known.get("step_s", {}).get(str(step.step), step.measured))


def test_the_cause_of_public_jobs_is_named() -> None:
    uneven, slow = found("ST"), found("AR-6-steps")
    assert (uneven.found[0].kind, slow.found[0].kind) == ("uneven stages", "slow worker")
    assert "stage 3, the last" in uneven.cause
    assert "DP rank 0, stage 0 is slow" in slow.cause
    assert [score[:3] for score in slow.worst_workers] == [(0, 0, 0)]


# -- the slow replay ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_job_of_any_shape_is_replayed_as_the_slow_replay_does(shape: JobShape) -> None:
    """Chunks, a second data-parallel dimension, reductions beside backwards, separate gradients, steps of different
    size, sends that are none."""
    for options in product((False, True), repeat=4):
        named = dict(zip(("overlapped", "separate", "recorded", "collected"), options, strict=True))
        table = job(shape, took=scattered(1), microbatches=lambda step: 6 + 6 * (step % 2), steps=2, **named)
        _agree(table, named["overlapped"])


@settings(max_examples=25, deadline=None)
@given(
    shape=some.sampled_from(SHAPES), seed=some.integers(0, 2**20), overlapped=some.booleans(), recorded=some.booleans(),
    late=some.floats(0, 0.5), by=some.floats(0, 3),
)  # fmt: skip
def test_random_jobs_are_replayed_as_the_slow_replay_does(
    shape: JobShape, seed: int, overlapped: bool, recorded: bool, late: float, by: float
) -> None:
    options = {"overlapped": overlapped, "recorded": recorded}
    delays = scattered(seed + 1)
    table = job(
        shape, steps=2, microbatches=lambda step: 6, took=scattered(seed, by),
        late=lambda row: late * delays(row) if row["type"] == "forward-compute" else 0.0, **options,
    )  # fmt: skip
    _agree(table, overlapped)


def _agree(table: OperationTable, overlapped: bool) -> None:
    fast = JobReplay.of(table)
    slow = SlowReplay(rows_of(table), pp=table.shape.pp, vpp=table.shape.vpp, overlapped=overlapped)
    close: Callable[[float], Any] = lambda value: pytest.approx(value, rel=1e-9)  # noqa: E731
    assert not fast.remarks
    assert fast.step == close(slow.mean_step(slow.own))
    assert fast.ideal_step == close(slow.mean_step(slow.ideal))
    assert fast.only(of_stage(0)) == close(slow.only(lambda row: row["stage"] == 0))
    assert fast.only(of_replica(0)) == close(slow.only(lambda row: row["dp_rank"] == 0))
    assert fast.only(types("backward-send", "backward-recv")) == close(
        slow.only(lambda row: row["type"] in ("backward-send", "backward-recv"))
    )


def test_without_launch_delays_the_replay_is_what_was_measured() -> None:
    replay = JobReplay.of(job(JobShape(dp=2, pp=4), took=scattered(3)))
    assert replay.step_times(replay.own) == pytest.approx(replay.measured_steps, rel=1e-9)


# -- the engine ---------------------------------------------------------------------------------------------------


def test_the_engine_plays_public_steps_to_the_last_bit() -> None:
    replay = JobReplay.of(ts.diagnose(DATA / "trace-ST.parquet").replay.table)
    (part,) = replay.parts
    for durations in (replay.own, replay.ideal):
        solved = part.solver.solve(durations[0])
        for column in (0, 7, 31):
            assert agree(play(part.structure, durations[0][:, column]), solved, column)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_engine_plays_every_shape_to_the_last_bit(shape: JobShape) -> None:
    for overlapped, recorded in product((False, True), repeat=2):
        table = job(
            shape, took=scattered(5), steps=1, microbatches=lambda step: 6, overlapped=overlapped, recorded=recorded
        )
        replay = JobReplay.of(table)
        for part, own, ideal in zip(replay.parts, replay.own, replay.ideal, strict=True):
            for durations in (own, ideal):
                assert agree(play(part.structure, durations[:, 0]), part.solver.solve(durations), 0)


# -- causes -------------------------------------------------------------------------------------------------------

NOISE = scattered(1, 0.02)


def slow_worker(row: Row) -> float:
    return NOISE(row) * (1.5 if (row["dp_rank"], row["stage"]) == (1, 2) and "compute" in row["type"] else 1.0)


def uneven(row: Row) -> float:
    return NOISE(row) * (1.5 if row["stage"] == 3 and "compute" in row["type"] else 1.0)


def lengths(row: Row) -> float:
    if "compute" not in row["type"]:
        return NOISE(row)
    mark = [7, row["step"], row["dp_rank"], row["lane"], row["microbatch"]]
    return NOISE(row) * (1.0 + 3.0 * float(np.random.default_rng(mark).random()) ** 4)


def slow_link(row: Row) -> float:
    between = {(1, 1, "forward-send"), (1, 2, "forward-recv")}
    return 3.0 if (row["dp_rank"], row["stage"], row["type"]) in between else NOISE(row)


def pauses(row: Row) -> float:
    mark = [9, row["step"], row["dp_rank"], row["stage"], row["microbatch"] + 1, row["seq_id"]]
    held_up = row["type"] == "forward-compute" and np.random.default_rng(mark).random() < 0.1
    return NOISE(row) + (3.0 if held_up else 0.0)


def garbage(row: Row) -> float:
    if row["type"] != "gc":
        return NOISE(row)
    return 12.0 if (row["step"] + row["stage"] + row["dp_rank"]) % 4 == 0 else 0.0


@pytest.mark.parametrize(
    ("took", "kind", "words"),
    [
        (slow_worker, "slow worker", r"DP rank 1, stage 2 is slow: passes take 1\.5 times .*forward 1\.5\d s"),
        (uneven, "uneven stages", r"uneven: .* on stage 3, the last, 1\.5 times as long"),
        (lengths, "sequence lengths", r"differ in cost.* slow forward and backward \(correlation 1"),
        (slow_link, "slow network", r"forward-pp-comm between 2 workers \(DP rank 1, stage 1; DP rank 1, stage 2\)"),
        (pauses, "passing slowness", r"mostly forwards, which Python launches"),
    ],
)  # fmt: skip
def test_a_cause_that_is_known_is_named(took: Callable[[Row], float], kind: str, words: str) -> None:
    one = diagnosed(job(JobShape(dp=4, pp=4), took=took, steps=3, microbatches=lambda step: 8))
    assert one.slowdown > 1.1
    assert one.found[0].kind == kind
    assert one.suggestions
    assert re.search(words, one.cause), one.cause
    assert one.share(one.found[0].saved) > 0.7


def test_garbage_collection_and_launch_delays_are_named() -> None:
    shape = JobShape(dp=2, pp=2)
    collected = diagnosed(job(shape, took=garbage, collected=True, steps=4))
    assert collected.found[0].kind == "garbage collection"
    assert "ython's garbage collector runs on different workers at different times" in collected.cause
    late = diagnosed(job(shape, took=NOISE, late=lambda row: 0.4 if "compute" in row["type"] else 0.0))
    assert late.found[0].kind == "launch delays"
    assert late.launch_slowdown > 1.1 > late.slowdown


def test_a_job_that_is_even_has_no_straggler() -> None:
    one = diagnosed(job(JobShape(dp=2, pp=4), took=NOISE))
    assert not one.found
    assert one.cause.startswith("No straggler: a step takes 1.00 times as long as the ideal one")


def test_moving_layers_is_tried_and_counted() -> None:
    shape = JobShape(dp=2, pp=4, layers=32)
    one = diagnosed(job(shape, took=uneven, microbatches=lambda step: 8))
    (suggestion,) = one.suggestions
    assert suggestion.startswith("move 3 layers of 32 from stage 3")  # 4.5 s of 3.375 on average, a layer takes 3 / 8
    assert "(-1" in suggestion


def test_a_slow_worker_makes_no_stage_uneven() -> None:
    one = diagnosed(job(JobShape(dp=2, pp=4), took=slow_worker, microbatches=lambda step: 8))
    assert [cause.kind for cause in one.found] == ["slow worker"]


def test_traffic_on_changing_links_is_between_no_pair_in_particular() -> None:
    message = scattered(3, 1.0)
    one = diagnosed(
        job(
            JobShape(dp=2, pp=2), steps=6, microbatches=lambda step: 8,
            took=lambda row: 200 * message(row) - 2 if row["type"].endswith(("-send", "-recv")) else NOISE(row),
        )
    )  # fmt: skip
    assert one.found[0].kind == "slow network"
    assert "-pp-comm, but between no particular pair of workers" in one.cause


def test_the_slow_link_is_the_one_that_loses_most_not_the_one_used_most() -> None:
    """Its replica is recorded in one step of four; elsewhere messages take as long as usual."""

    def took(row: Row) -> float:
        message = row["type"].endswith(("-send", "-recv"))
        return (3.0 if slow_link(row) == 3.0 else 1.0) if message else NOISE(row)

    table = job(JobShape(dp=2, pp=4), took=took, steps=4)
    some = slow_network(Evidence(JobReplay.of(table.rows((table.dp_rank == 0) | (table.step == 0)))))
    assert some is not None
    assert "between 2 workers (DP rank 1, stage 1; DP rank 1, stage 2)" in some.sentence


def test_a_worker_whose_passes_scatter_is_not_called_slow() -> None:
    evidence = Evidence(JobReplay.of(job(JobShape(dp=4, pp=4), took=lengths, steps=1)))
    ratio = evidence.worker_passes.sum(axis=0) / of_peers(evidence).sum(axis=0)
    assert ratio.max() > 1.05
    assert slow_worker_found(evidence) is None


def test_one_replica_cannot_tell_a_slow_gpu_from_an_uneven_stage() -> None:
    one = diagnosed(job(JobShape(dp=1, pp=4), took=uneven))
    assert "with one replica the two look the same" in one.cause


def test_every_known_cause_says_what_would_help() -> None:
    assert {"slow worker", "uneven stages", "sequence lengths", "slow network", "launch delays"} <= set(causes)


# -- what is missing ----------------------------------------------------------------------------------------------


def test_steps_and_workers_may_be_missing() -> None:
    table = job(JobShape(dp=3, pp=2), took=scattered(2), steps=4)
    without = table.rows(~((table.step == 2) | ((table.dp_rank == 1) & (table.step == 1))))
    one = diagnosed(without)
    assert [step.step for step in one.steps] == [0, 1, 3]
    assert one.slowdown > 0
    gone = diagnosed(table.rows(~((table.dp_rank == 0) & (table.stage == 1))))
    assert len(gone.by_worker) == 5


def test_a_step_in_which_sends_are_missing_is_left_out_and_named() -> None:
    table = job(JobShape(dp=2, pp=2), took=scattered(2), steps=3)
    damaged = (table.step == 1) & table.of("forward-send") & (table.seq_id == 2)
    one = diagnosed(table.rows(~damaged))
    assert [step.step for step in one.steps] == [0, 2]
    assert one.remarks == (
        "step 1 is left out: dp_rank 0, stage 0: 3 of forward-send, but its 4 passes have 4 of them",
    )
    with pytest.raises(InvalidData, match="no step can be replayed; steps 0, 1, 2 are left out: dp_rank 0"):
        diagnosed(table.rows(~(table.of("forward-send") & (table.seq_id == 2))))


@pytest.mark.parametrize("missing", ["forward-compute", "backward-compute"])
def test_messages_without_any_pass_are_no_step(missing: str) -> None:
    table = job(JobShape(dp=2, pp=2), took=scattered(2), steps=2)
    with pytest.raises(InvalidData, match=r"no step can be replayed; steps 0, 1 are left out: .* its 0 passes"):
        diagnosed(table.rows(~table.of(missing)))


@pytest.mark.parametrize("of", [{"dp_rank": 0, "stage": 0}, {"stage": 0}], ids=str)
def test_one_worker_or_stage_alone_is_diagnosed(of: dict[str, int]) -> None:
    """Messages whose other end is not in the table still take longer now and then."""
    table = job(JobShape(dp=2, pp=2), took=lambda row: scattered(2)(row) * (5 if row["type"] == "forward-send" else 1))
    own = np.all([getattr(table, name) == value for name, value in of.items()], axis=0)
    late = own & table.of("backward-recv") & (table.seq_id == 0)
    slow = table.rows(own)
    slow.duration[np.flatnonzero(late[own])] += 10.0
    one = diagnosed(slow)
    assert "mostly backward-pp-comm, and the other ends are not in the table" in one.cause


def test_an_operation_longer_than_its_step_is_a_remark_and_no_negative_time() -> None:
    table = job(JobShape(dp=2, pp=2), took=scattered(2), steps=2)
    table.duration[np.flatnonzero((table.step == 1) & table.of("forward-send") & (table.stage == 0))[0]] = 1e5
    one = diagnosed(table)
    assert one.remarks[0].startswith("start_ts and duration contradict each other in 1 of 2 steps: the operations of")
    assert "would take -" not in one.cause


def test_more_messages_may_be_recorded_than_took_place() -> None:
    """A worker asks once more than there is anything to receive: the others keep their passes."""
    shape = JobShape(dp=2, pp=2, vpp=2)
    table = job(shape, took=scattered(4), steps=2, microbatches=lambda step: 4)
    asked = table.rows(table.of("forward-recv") & (table.stage == 1) & (table.seq_id == 7))
    more = {name: np.concatenate([getattr(table, name), getattr(asked, name)]) for name in COLUMNS}
    last = len(table)
    more["start"][last:] = more["start"][last:] + 30.0
    more["duration"][last:] = 0.0
    more["seq_id"][last:] = 8
    usual, one = diagnosed(table), diagnosed(operation_table(name="more", shape=shape, **more))
    assert not one.remarks
    assert one.step_without_launch_delay_s == usual.step_without_launch_delay_s
    assert one.by_stage == pytest.approx(usual.by_stage, rel=0.01)  # the usual time of a receive is another


def test_operations_that_wait_for_each_other_are_no_hang() -> None:
    """A first stage whose backwards come before its forwards."""
    rows = order(JobShape(dp=1, pp=2), 0, 2)
    for row in rows:
        if row["stage"] == 0 and row["type"] == "backward-compute":
            row["start"] = -1.0 + row["seq_id"] / 10
    with pytest.raises(InvalidData, match="its operations wait for each other in a cycle, such as "):
        diagnosed(table_of(rows, JobShape(dp=1, pp=2)))


def test_a_job_in_which_nothing_takes_time_is_not_slow() -> None:
    one = diagnosed(job(JobShape(dp=2, pp=2), took=lambda row: 0.0))
    assert (one.slowdown, one.launch_slowdown, one.found, one.step_s) == (1.0, 1.0, (), 0.0)


def test_a_step_of_nothing_but_launch_delays_is_not_called_fast() -> None:
    one = diagnosed(job(JobShape(dp=2, pp=2), took=lambda row: 0.0, late=lambda row: 0.4))
    assert one.cause.startswith("Hosts launch operations late")
    assert "100% of the lost time" in one.cause
    assert (one.slowdown, one.launch_slowdown, one.to_dict()["launch_slowdown"]) == (1.0, float("inf"), None)
    assert "0 s without launch delays<" in one._repr_html_()


# -- what is shown ------------------------------------------------------------------------------------------------


def test_pictures_tables_and_files(tmp_path: Path) -> None:
    one = found("ST")
    assert one.gantt(23).get_axes()[0].get_title(loc="left").startswith("step 23, without launch delays: 2.34 s")
    with pytest.raises(UnknownName, match="No step that was replayed is called '24'"):
        one.gantt(24)
    assert one.heat_map()._repr_png_()[:4] == b"\x89PNG"
    assert [path.name for path in one.save(tmp_path)] == ["diagnosis.json", "heat_map.png", "timeline.png"]
    assert json.loads((tmp_path / "diagnosis.json").read_text())["slowdown"] == one.slowdown
    assert list(one.table("workers")) == ["dp_rank", "lane", "stage", "slowdown"]
    assert len(one.table("steps")) == 32
    with pytest.raises(UnknownName, match="table of a diagnosis"):
        one.table("step")
    assert "uneven stages" in one._repr_html_()
    assert repr(one).startswith("<Diagnosis of ST: slowdown 1.179. The stages are uneven")


def test_the_score_of_a_worker_is_the_smaller_of_both() -> None:
    one = found("AR-6-steps")
    for score in one.by_worker:
        assert score.slowdown == min(one.by_replica[score.dp_rank], one.by_stage[score.stage])
