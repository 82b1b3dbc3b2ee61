"""The result as users see it: numbers, stable keys, tables, differences."""

import json

import numpy as np
import pytest

from tests.runs import result
from tests.tools.same_steps import random_document
from tests.traces import Shape
from trainsim.contracts.instructions import Kernel
from trainsim.errors import InvalidPlan
from trainsim.scenario.scenario import Scenario

SHAPE = Shape(stages=3, microbatches=4, tp=0.2, recompute=0.5, latency=0.1, reduce=0.7, update=0.2, replicas=2)

KEYS = {
    "scenario", "step_time_s", "tokens_per_s", "tokens_per_s_per_gpu", "samples_per_s", "model_flops_per_gpu",
    "hardware_flops_per_gpu", "mfu", "hfu", "bubble", "breakdown_s", "memory", "communication", "critical_path",
    "parameters", "simulation", "warnings",
}  # fmt: skip


@pytest.fixture(scope="module")
def run():
    return result(SHAPE, "run", {"name": "run", "parallel": {"tp": 2, "pp": 3}})


def test_the_keys_are_those_of_the_interface(run):
    data = run.to_dict()
    assert set(data) >= KEYS
    assert set(data["bubble"]) >= {
        "fraction",
        "span_fraction",
        "idle_over_ideal",
        "per_stage",
        "warmup_s",
        "steady_s",
        "cooldown_s",
    }
    assert list(data["breakdown_s"]) == [
        "compute",
        "recompute",
        "tp",
        "cp",
        "ep",
        "pp",
        "dp",
        "offload",
        "optimizer",
        "bubble",
        "other",
        "prefill",
        "decode",
        "scoring",
    ]
    assert set(data["memory"]) >= {"peak_bytes", "capacity_bytes", "fits", "peak_rank", "not_counted", "per_stage"}
    assert set(data["memory"]["per_stage"][0]) >= {
        "weights",
        "gradients",
        "optimizer",
        "activations",
        "buffers",
        "temporary",
        "framework",
        "peak",
    }
    assert set(data["communication"]) == {"tp", "cp", "ep", "pp", "dp", "offload"}
    assert set(data["communication"]["tp"]) == {
        "bytes_per_rank",
        "bytes_inter_node_per_rank",
        "time_s",
        "waiting_s",
        "exposed_s",
        "operations",
    }
    assert set(data["critical_path"][0]) == {"kind", "seconds", "share"}
    assert set(data["parameters"]) == {"total", "per_rank", "active", "trainable"}
    assert set(data["simulation"]) == {"ranks", "classes", "operations", "events", "wall_s"}


def test_it_is_json_and_sums_survive_the_trip(run):
    data = json.loads(json.dumps(run.to_dict(), allow_nan=False))
    assert sum(data["breakdown_s"].values()) == data["step_time_s"] == run.step_time
    assert data == json.loads(json.dumps(run.to_dict()))


def test_attributes_are_the_same_numbers(run):
    data = run.to_dict()
    assert (run.mfu, run.hfu, run.tokens_per_s) == (data["mfu"], data["hfu"], data["tokens_per_s"])
    assert run.bubble.fraction == data["bubble"]["fraction"]
    assert run.memory.peak == data["memory"]["peak_bytes"]
    assert run.tokens_per_s == pytest.approx(1024 * 8 / run.step_time)
    assert run.estimate.simulated == run.step_time
    assert sum(p.simulated for p in run.estimate.phases) == pytest.approx(run.step_time)
    assert sum(p.closed_form for p in run.estimate.phases) == pytest.approx(run.estimate.seconds)


def test_parameters_of_the_mean_rank(run):
    assert run.parameters["per_rank"] == 5e9


def test_the_timeline_is_a_table_of_all_spans(run):
    table = run.timeline()
    assert list(table.columns) == ["rank", "stream", "name", "kind", "microbatch", "layer", "start", "end"]
    assert len(table) == run.trace.operations
    assert set(table["rank"]) == set(run.pipeline)
    tp = table[table["kind"] == "tp"]
    assert set(tp["stream"]) == {"tp"}
    assert (tp["end"] - tp["start"]).sum() == pytest.approx(3 * 4 * 2 * 0.2)
    assert table.groupby("rank")["start"].is_monotonic_increasing.all()
    assert set(run.timeline(ranks=[1])["rank"]) == {1}
    with pytest.raises(InvalidPlan, match="ranks 0 to 5"):
        run.timeline(ranks=[6])


def test_a_difference_says_how_much_and_from_where(run):
    other = result(
        Shape(stages=3, microbatches=4, tp=0.1, recompute=0.5, latency=0.1, reduce=0.7, update=0.2),
        "faster",
        {"name": "faster", "parallel": {"tp": 4, "pp": 3}},
    )
    change = other - run
    assert change.seconds == other.step_time - run.step_time < 0
    assert sum(change.breakdown.values()) == pytest.approx(change.seconds, abs=1e-12)
    assert change.breakdown["tp"] == pytest.approx(-4 * 2 * 0.1)
    assert change.changes == {"name": ("run", "faster"), "parallel.tp": (2, 4)}
    assert "s tensor-parallel" in str(change)
    assert json.dumps(change.to_dict())
    assert "tensor-parallel" in change._repr_html_()


def test_runs_of_one_name_are_told_apart_by_what_differs(run):
    one, two = (result(SHAPE, "same", {"parallel": {"tp": tp}}) for tp in (2, 4))
    assert (two - one).titles == ("before (parallel.tp 2)", "after (parallel.tp 4)")
    assert (two - run).titles == ("run", "same")
    assert (one - one).titles == ("before", "after")


def test_a_run_differs_from_itself_by_nothing(run):
    assert (run - run).seconds == 0
    assert (run - run).causes == ()


def test_reprs_are_for_people(run):
    assert repr(run).startswith("<Result run: step ")
    assert "data:image/png" in run._repr_html_()


def test_a_card_never_raises(run, monkeypatch):
    monkeypatch.setattr("trainsim.report.html.report", lambda *_: 1 / 0)
    assert "division" in run._repr_html_()


@pytest.fixture(scope="module")
def straggler():
    from trainsim import Scenario

    scenario = Scenario.from_dict(
        {
            "name": "a slow node",
            "model": {"name": "small", "family": "gpt", "layers": 8, "hidden": 2048, "heads": 16, "vocab": 51200},
            "cluster": {"topology": "dgx_a100", "nodes": 4},
            "parallel": {"tp": 4, "pp": 4},
            "sharding": {"strategy": "zero1", "overlap": True},
            "training": {"sequence_length": 2048, "micro_batch": 1, "global_batch": 16},
            "what_if": [{"slow": {"node": 0, "factor": 1.5}}],
        }
    )
    return scenario.run()


def test_who_waits_for_a_slow_node(straggler):
    slow = {w.stage for w in straggler.waits if w.source == 0}
    assert slow
    assert sum(straggler.breakdown.values()) == straggler.step_time
    assert sum(sum(stage.values()) for stage in straggler.breakdown_per_stage) == pytest.approx(4 * straggler.step_time)
    assert 0 < straggler.bubble.fraction < 1
    assert straggler.estimate.phases[0].name == "passes and messages"
    path = straggler.critical_path
    assert path.legs[0].start == 0.0
    assert path.legs[-1].end == straggler.step_time


def test_a_straggler_is_named_and_waiting_for_it_is_no_communication(straggler):
    assert "node 0's kernels take 50.0% longer" in straggler.estimate.explanation
    assert straggler.waiting["dp"] >= 0
    for kind, traffic in straggler.communication.items():
        assert traffic.exposed_s <= traffic.time_s + traffic.waiting_s + 1e-9, kind
    assert sum(straggler.waiting.values()) <= sum(straggler.breakdown.values())


def test_contention_is_what_kernels_take_beyond_their_own_time():
    from tests.jobs import scenario

    run = scenario().replace({"training.global_batch": 16}).run()
    kinds = ["forward", "backward", "recompute", "optimizer"]
    alone = sum(
        i.seconds
        for number in run.simulation.program_of.tolist()
        for task in run.simulation.programs[number].chains["compute"]
        for i in task.template.instructions
        if isinstance(i, Kernel) and i.kind in kinds
    )
    table = run.timeline(ranks=range(run.lanes.ranks))
    kernels = table[table["kind"].isin(kinds) & (table["stream"] == "compute")]
    longer = (kernels["end"] - kernels["start"]).sum() - alone
    assert 0 < run.facts.contention == pytest.approx(longer / run.lanes.ranks, rel=1e-6)


def test_the_engine_and_the_trace_agree_on_the_step(straggler):
    assert straggler.step_time == straggler.trace.duration
    folded = straggler.timeline(ranks=range(straggler.lanes.ranks))
    assert folded["end"].max() == straggler.step_time


def test_sums_of_rows_are_sums_of_spans(straggler):
    """The analyses work on rows; the spans, expanded one by one, must say the same."""
    from trainsim.analysis.kinds import COLUMN

    kinds = np.array([COLUMN[label.kind] for label in straggler.trace.labels])
    for lane in straggler.lanes.all:
        rank = int(straggler.trace.representative[lane.owner])
        spans = straggler.trace.spans(rank, lane.name)
        total = np.bincount(kinds[spans.label], spans.end - spans.start, len(COLUMN))
        waited = spans.start - spans.posted
        assert (lane.seconds.sum(0) == total).all()
        assert lane.held.sum() + (lane.start - lane.posted).sum() == waited.sum()
        assert lane.end[-1] == spans.end[-1]
        begun, over = straggler.trace.task_times(lane.number)
        assert (begun <= over).all()
        assert (begun[1:] >= over[:-1]).all()


@pytest.mark.parametrize("seed", [41, 77, 188])
def test_of_equally_full_ranks_the_lowest_is_named(seed: int) -> None:
    """Whatever folding numbers first: which rank is named is not left to the order of communicators."""
    document = random_document(seed)
    folded = Scenario.from_dict(document).run().memory
    document["simulation"] = {**document["simulation"], "fold": False}
    every = Scenario.from_dict(document).run().memory
    assert folded.peak_rank == every.peak_rank
    assert [stage.rank for stage in folded.per_stage] == [stage.rank for stage in every.per_stage]
