"""Traces as the PyTorch profiler writes them, against the simulation and by the arithmetic of their readers."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.jobs import scenario
from tests.kineto import (
    assert_nested,
    common,
    idle_breakdown,
    kind_of,
    length,
    on_gpu,
    spans_in,
    temporal_breakdown,
    times,
    union,
)
from trainsim import Scenario
from trainsim.analysis.kinds import COLUMN, COMMUNICATION
from trainsim.calibration.reader import MeasuredText
from trainsim.calibration.readers.profiler_trace import load
from trainsim.cli.trace_ranks import ranks_in
from trainsim.errors import InvalidPlan, ScenarioError, TrainsimError
from trainsim.report import chrome, kineto
from trainsim.report.trace_launches import OnStreams, launches
from trainsim.result.result import Result

COMPUTING = ("forward", "backward", "recompute", "optimizer")

JOBS: dict[str, dict[str, Any]] = {
    "3D": {},
    "ZeRO-3": {"parallel.pp": 1, "sharding.strategy": "zero3"},
    "interleaved 1F1B": {"pipeline.schedule": "interleaved-1f1b", "pipeline.chunks": 2},
}
"""What is compared with HolisticTraceAnalysis: changes of the small job of the tests."""


@pytest.fixture(scope="module", params=JOBS)
def run(request: pytest.FixtureRequest) -> Result:
    return scenario().replace(JOBS[request.param]).run()


@pytest.fixture(scope="module")
def documents(run: Result, tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    return written(run, tmp_path_factory.mktemp("traces"))


def written(run: Result, folder: Path, ranks: Iterable[int] | None = None) -> dict[int, dict[str, Any]]:
    """The files of a run by their ranks."""
    paths = run.to_kineto(folder, ranks=None if ranks is None else list(ranks))
    found = [json.loads(gzip.decompress(path.read_bytes())) for path in paths]
    assert [path.name for path in paths] == [f"rank-{one['distributedInfo']['rank']}.json.gz" for one in found]
    return {one["distributedInfo"]["rank"]: one for one in found}


def simulated(run: Result, rank: int) -> list[tuple[str, str, int, int]]:
    """(Chain, kind, begin, end) of all spans of a rank: a collective begins when its rank posts it; nanoseconds."""
    out = []
    for chain in run.trace.chain_names(rank):
        spans = run.trace.spans(rank, chain)
        labels = [run.trace.labels[k] for k in spans.label.tolist()]
        begin, end = (np.round(of * 1e9).astype(int).tolist() for of in (spans.posted, spans.end))
        out += [(chain, label.kind, *when) for label, *when in zip(labels, begin, end, strict=True)]
    return out


def sent(kind: str) -> bool:
    return kind in COMMUNICATION or kind == "other"


def test_kernels_are_those_of_the_simulation(run, documents):
    assert set(documents) == set(run.pipeline)
    for rank, document in documents.items():
        mine = [(begin, end) for _, kind, begin, end in simulated(run, rank) if kind not in ("host", "delay")]
        file = [(begin - kineto.AHEAD, end - kineto.AHEAD) for begin, end in map(times, on_gpu(document))]
        assert len(mine) == len(file) > 0
        for theirs, ours in zip(zip(*file, strict=True), zip(*mine, strict=True), strict=True):
            assert np.abs(np.sort(theirs) - np.sort(ours)).max() <= 5  # readers may lose as many nanoseconds in a row


def test_times_add_up_as_hta_adds_them(run, documents):
    """Compute is what the breakdown has; idle time and what is hidden follow from the spans."""
    lanes = run.lanes
    for rank, document in documents.items():
        mine, file = simulated(run, rank), temporal_breakdown(document)
        near = 4 * len(mine)
        busy = union((b, e) for _, kind, b, e in mine if kind not in ("host", "delay"))
        computing = union((b, e) for _, kind, b, e in mine if kind in COMPUTING)
        talking = union((b, e) for _, kind, b, e in mine if sent(kind))
        total = busy[-1][1] - busy[0][0]
        assert file["total"] == pytest.approx(total, abs=4)
        assert file["compute"] == pytest.approx(length(computing), abs=near)
        assert file["idle"] == pytest.approx(total - length(busy), abs=near)
        assert file["non_compute"] == pytest.approx(length(busy) - length(computing), abs=near)
        assert file["hidden"] == pytest.approx(common(talking, computing) / length(talking), abs=near / length(talking))
        seconds = run.ledger.seconds[int(run.trace.rank_class[rank])]
        assert file["compute"] == pytest.approx(1e9 * sum(seconds[COLUMN[k]] for k in COMPUTING), abs=near)
        assert lanes.steps == 1


def test_a_gpu_that_waits_for_its_host_does_so_in_the_file(run, documents):
    """A gap on the compute stream is waiting for the host where the chain had to since the kernel before."""
    for rank, document in documents.items():
        expected, over, why = {"host_wait": 0, "other": 0}, None, "other"
        for chain, kind, begin, end in simulated(run, rank):
            if chain == "compute" and kind in (*COMPUTING, "copy"):
                expected[why] += begin - over if over is not None else 0
                over, why = end, "other"
            elif chain == "compute" and kind == "host":
                why = "host_wait"
        file = idle_breakdown(document)
        assert expected["other"] > 0
        for reason, gap in expected.items():
            assert file.get((7, reason), 0) == pytest.approx(gap, abs=4 * len(on_gpu(document)))


def test_launches_come_before_their_kernels_and_never_overlap(documents):
    for document in documents.values():
        assert_nested(document)
        launched = {e["args"]["correlation"]: e for e in document["traceEvents"] if e.get("cat") == "cuda_runtime"}
        kernels = on_gpu(document)
        assert len(launched) == len(kernels)
        order = []
        for e in kernels:
            launch = launched[e["args"]["correlation"]]
            assert times(launch)[0] < times(e)[0]
            assert times(launch)[1] <= times(e)[0]
            assert launch["name"] == ("cudaMemcpyAsync" if e["cat"] == "gpu_memcpy" else "cudaLaunchKernel")
            order.append((e["tid"], times(e), times(launch)[0]))
        order.sort()
        for stream in {thread for thread, *_ in order}:
            begins = [launch for thread, _, launch in order if thread == stream]
            assert begins == sorted(begins)
        flows = {ph: {e["id"]: e for e in document["traceEvents"] if e["ph"] == ph} for ph in "sf"}
        assert flows["s"].keys() == flows["f"].keys() == launched.keys()
        assert all(flows["s"][k]["ts"] == launched[k]["ts"] for k in launched)
        assert all(flows["f"][e["args"]["correlation"]]["ts"] == e["ts"] for e in kernels)


def test_kernels_are_told_apart_by_their_names_as_we_tell_them_by_kind(documents):
    for document in documents.values():
        for e in on_gpu(document):
            kind = e["args"]["kind"]
            expected = "communication" if sent(kind) else "memory" if kind == "copy" else "computation"
            assert kind_of(e["name"]) == expected, e


def test_every_label_of_every_scenario_that_ships_has_a_name(tmp_path):
    for name in ("mixtral_8x7b", "t5_3b_zero", "ring_attention", "zero_offload_v100", "rlhf_7b"):
        run = Scenario.load(name).run()
        (document,) = written(run, tmp_path / name, [0]).values()
        assert_nested(document)
        for e in on_gpu(document):
            kind = e["args"]["kind"]
            assert (kind_of(e["name"]) == "communication") == (sent(kind) and e["cat"] == "kernel"), e
        if name == "zero_offload_v100":
            names = {e["name"] for e in on_gpu(document) if e["cat"] == "gpu_memcpy"}
            assert names >= {"Memcpy DtoH (Device -> Pinned)", "Memcpy HtoD (Pinned -> Device)"}
            assert any(e["name"] == "CPU Adam" and e["cat"] == "cpu_op" for e in spans_in(document))


def test_arguments_are_enough_to_know_what_a_span_was(run, documents):
    for rank, document in documents.items():
        stage = int(run.trace.stage[run.trace.rank_class[rank]])
        assert document["otherData"]["stage"] == stage
        mine: Counter[Any] = Counter()
        for chain in run.trace.chain_names(rank):
            spans = run.trace.spans(rank, chain)
            waited = np.round((spans.start - spans.posted) * 1e6, 1).tolist()
            for k, microbatch, wait in zip(spans.label.tolist(), spans.microbatch.tolist(), waited, strict=True):
                label = run.trace.labels[k]
                mine[label.name, label.kind, label.layer, microbatch, wait if sent(label.kind) else 0.0] += 1
        file = Counter(
            (a["operation"], a["kind"], a["layer"], a["microbatch"], round(a.get("waited_us", 0.0), 1))
            for a in (e["args"] for e in spans_in(document))
        )
        assert len(mine - file) <= 0.01 * len(mine)  # waits at the edge of a tenth of a microsecond
        assert sum(mine.values()) == sum(file.values())


def test_passes_and_steps_are_marked(run, documents):
    for rank, document in documents.items():
        marks = Counter(e["cat"] for e in document["traceEvents"] if e["ph"] == "X")
        assert marks["user_annotation"] == 1
        passes = [e for e in document["traceEvents"] if e.get("cat") == "gpu_user_annotation"]
        works = Counter(e["args"]["work"] for e in passes)
        number = run.trace.number[int(run.trace.rank_class[rank]), "compute"]
        tasks = Counter(run.trace.facts[k].work for k in run.trace.tasks[number].facts.tolist())
        assert all(works[work] == tasks[work] for work in "FB")
        assert any(e["name"] == "forward 0" for e in passes)


def test_several_steps_are_numbered_and_their_launches_lie_in_them(tmp_path):
    run = scenario(simulation__steps=3).run()
    for document in written(run, tmp_path).values():
        steps = [e for e in document["traceEvents"] if e.get("cat") == "user_annotation"]
        assert [e["name"] for e in steps] == [f"ProfilerStep#{k}" for k in range(3)]
        assert_nested(document)
        first, last = times(steps[0])[0], times(steps[-1])[1]
        assert all(a[1] == b[0] for a, b in zip(map(times, steps), list(map(times, steps))[1:], strict=False))
        assert all(first <= times(e)[0] < last for e in document["traceEvents"] if e.get("cat") == "cuda_runtime")


def test_memory_is_what_the_analysis_says(run, documents):
    for stage in run.memory.per_stage:
        document = documents.get(stage.rank)
        if document is None:
            continue
        told = [e for e in document["traceEvents"] if e["name"] == "[memory]"]
        reserved = max(e["args"]["Total Reserved"] for e in told)
        assert reserved == pytest.approx(stage.peak - stage.part("framework"), rel=1e-3)
        assert sum(e["args"]["Bytes"] for e in told) == told[-1]["args"]["Total Allocated"]
        device = document["deviceProperties"][0]
        assert device["totalGlobalMem"] == int(run.job.cluster.gpu.usable_memory)


def test_memory_that_is_reserved_and_not_given_out_is_slack(run, documents):
    for stage in run.memory.per_stage:
        told = [e["args"] for e in documents[stage.rank]["traceEvents"] if e["name"] == "[memory]"]
        kept = np.array([args["Total Reserved"] - args["Total Allocated"] for args in told])
        slack = stage.levels["slack"]
        assert (np.abs(kept[:, None] - slack[None, :]).min(axis=1) <= 1).all()
        assert kept.max() > 0


def test_the_groups_are_those_of_the_ranks(run, tmp_path):
    ranks = range(run.trace.ranks)
    documents = written(run, tmp_path, ranks)
    meetings: Counter[Any] = Counter()
    for rank, document in documents.items():
        info = document["distributedInfo"]
        assert info["world_size"] == run.trace.ranks
        config = {group["pg_name"]: group for group in info["pg_config"]}
        assert info["pg_count"] == len(config)
        assert all(rank in group["ranks"] and len(group["ranks"]) == group["pg_size"] for group in config.values())
        for e in on_gpu(document):
            if "Process Group Ranks" in e["args"]:
                group = config[e["args"]["Process Group Name"]]
                assert e["args"]["Process Group Ranks"] == str(group["ranks"])
                assert e["args"]["Group size"] == group["pg_size"]
                assert e["args"]["Process Group Description"] == group["pg_desc"]
                if e["args"]["kind"] != "pp":
                    meetings[group["pg_name"], e["args"]["Process Group Ranks"], e["args"]["operation"],
                             e["args"]["microbatch"], e["args"]["layer"]] += 1  # fmt: skip
    assert meetings
    for (_, members, *_), count in meetings.items():  # whoever is in a group takes part in all that it does
        assert count % len(json.loads(members)) == 0


def test_calibration_reads_the_collectives_with_their_bytes(run, documents):
    wanted = {
        (p.operation, round(p.nbytes)) for label in run.trace.labels for p in label.payloads if len(label.payloads) == 1
    }
    text = json.dumps(next(iter(documents.values())))
    sweeps = load(MeasuredText(shown="rank-0.json", text=text)).sweeps
    found = {(sweep.operation, round(size)) for sweep in sweeps for size in sweep.nbytes}
    assert found
    assert found <= wanted


def test_the_same_run_gives_the_same_bytes_whatever_other_ranks_are_asked_for(run, tmp_path):
    (alone,) = run.to_kineto(tmp_path / "a", ranks=[1])
    two = run.to_kineto(tmp_path / "b", ranks=[0, 1])
    assert alone.read_bytes() == two[1].read_bytes()


def test_the_rank_stands_where_readers_look_for_it(run, tmp_path):
    (path,) = run.to_kineto(tmp_path, ranks=[1])
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()[:4]
    assert any(re.search(r'"rank":\s+1\b', line) for line in lines)


def test_too_much_is_refused_with_its_size_and_a_way_out(run, tmp_path, monkeypatch):
    monkeypatch.setattr(kineto, "MOST_SPANS", 10)
    with pytest.raises(InvalidPlan, match=r"would hold [\d,]+ kernels.* [KMG]iB .*choose some ranks"):
        run.to_kineto(tmp_path / "none", ranks=range(run.trace.ranks))
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("words", ["", "x", "8", "0,9", "3-1", "-1", "1-", "0,,1"])
def test_ranks_that_are_none_are_one_message(words):
    with pytest.raises(ScenarioError, match="--ranks"):
        ranks_in(words, 8)


def test_a_rank_that_is_not_there_is_refused(run, tmp_path):
    with pytest.raises(TrainsimError, match="does not exist"):
        run.to_kineto(tmp_path, ranks=[999])


@pytest.mark.parametrize("seed", range(20))
def test_launches_of_random_kernels_are_in_order(seed):
    """Streams without overlap, kernels without length, gaps without end: launches never overlap nor come late."""
    random = np.random.default_rng(seed)
    begin, end, thread = [], [], []
    for stream in range(3):
        edges = np.sort(random.integers(0, random.choice([50, 5000]), 40)) * random.choice([1, 100]) + 10_000
        begin += edges[::2].tolist()
        end += edges[1::2].tolist()
        thread += [stream] * 20
    count = len(begin)
    late = np.where(random.random(count) < 0.3, begin, 0)
    some = OnStreams(
        *(np.array(column) for column in (begin, end, thread, range(count), late, [False] * count, [0] * count))
    )
    found = launches(some, 70)
    over = found.begin + found.length
    order = np.argsort(found.begin, kind="stable")
    assert (over[order][:-1] <= found.begin[order][1:]).all()
    assert (over <= some.begin).all()
    assert (found.begin < some.begin).all()
    assert (found.length <= 70).all()
    assert (found.length > 0).all()


@pytest.mark.parametrize(
    ("host", "step", "begins", "over"),
    [(0, 0, range(2000), range(2001)), (5000, 0, range(2001, 5000), [5000]), (0, 1, range(5000), [5000])],
    ids=["nothing to wait for", "waits for the host", "another step"],
)
def test_the_second_launch_comes_when_the_gpu_had_to_wait_for_it(host, step, begins, over):
    """Nanoseconds: kernels from 1000 to 2000 and from 5000 on, launches that would take longer than the gap."""
    columns = ([1000, 5000], [2000, 6000], [7, 7], [0, 1], [0, host], [False] * 2, [0, step])
    found = launches(OnStreams(*map(np.array, columns)), 4500)
    assert int(found.begin[1]) in begins
    assert int(found.begin[1] + found.length[1]) in over


def test_arrows_lead_from_a_message_to_the_pass_that_it_lets_start(run, tmp_path):
    events = json.loads(run.to_chrome(tmp_path / "trace.json").read_text())["traceEvents"]
    arrows = {ph: {e["id"]: e for e in events if e.get("cat") == "pp" and e["ph"] == ph} for ph in "sf"}
    assert len(arrows["s"]) == len(arrows["f"])
    assert bool(arrows["s"]) == (len(run.pipeline) > 1)
    spans = {}
    passes = [e for e in events if e.get("cat") == "gpu_user_annotation"]
    begins = {(e["pid"], e["tid"], times(e)[0]) for e in passes}
    for e in spans_in({"traceEvents": events}):
        spans.setdefault((e["pid"], e["tid"]), []).append((*times(e), e["args"]["kind"]))
    for number, tail in arrows["s"].items():
        head = arrows["f"][number]
        sent, woken = round(tail["ts"] * 1e3), round(head["ts"] * 1e3)
        assert sent < woken
        assert tail["pid"] != head["pid"]
        assert any(a <= sent <= b <= woken + 2 and kind == "pp" for a, b, kind in spans[tail["pid"], tail["tid"]])
        assert (head["pid"], head["tid"], woken) in begins


def test_an_excerpt_has_the_passes_and_arrows_that_begin_in_its_window(run, tmp_path, monkeypatch):
    whole = json.loads(run.to_chrome(tmp_path / "whole.json").read_text())["traceEvents"]
    monkeypatch.setattr(chrome, "MOST_EVENTS", sum(e["ph"] == "X" for e in whole) // 3)
    part = json.loads(run.to_chrome(tmp_path / "part.json").read_text())["traceEvents"]
    _, (_, until), words = chrome.excerpt(run)
    assert words
    ranks = {e["pid"] for e in part}

    def inside(events: list[dict[str, Any]], category: str, phase: str) -> Counter[Any]:
        shown = [e for e in events if e.get("cat") == category and e["ph"] == phase and e["ts"] < until * 1e6]
        return Counter((e["pid"], e["ts"]) for e in shown if e["pid"] in ranks)

    found = inside(part, "gpu_user_annotation", "X")
    assert found == inside(whole, "gpu_user_annotation", "X")
    assert sum(found.values()) == sum(e.get("cat") == "gpu_user_annotation" for e in part) > 0
    assert all(e["ts"] < until * 1e6 for e in part if e.get("cat") == "pp" and e["ph"] == "f")


def test_a_measured_step_is_written_under_its_own_names(run, tmp_path):
    from trainsim.contracts.measured import from_spans, span_columns
    from trainsim.contracts.measured_trace import MeasuredTrace
    from trainsim.result.measured_result import MeasuredResult

    trace = from_spans(span_columns(run.trace, [0]))
    measured = MeasuredTrace(name="measured", trace=trace, files=("a",), rank_numbers=(0,), part="all of it")
    document = json.loads(MeasuredResult(measured=measured).to_chrome(tmp_path / "trace.json").read_text())
    assert_nested(document)
    spans = spans_in(document)
    assert {e["name"] for e in spans if e["cat"] == "kernel"} == {
        e["args"]["operation"] for e in spans if e["cat"] == "kernel"
    }
    assert len(spans) == sum(len(trace.spans(0, chain).label) for chain in trace.chain_names(0))


def test_files_of_an_earlier_run_do_not_stay_beside_those_of_this_one(tmp_path, capsys):
    from trainsim.cli import main

    for ranks in ("0,1", "1"):
        with pytest.raises(SystemExit) as ended:
            main(["run", "quickstart", "--files", "kineto", "--ranks", ranks, "--out", str(tmp_path)])
        assert not ended.value.code
    assert [path.name for path in (tmp_path / "traces").iterdir()] == ["rank-1.json.gz"]


@pytest.mark.parametrize("words", [["--files", "result"], ["--files", "kineto,none"]])
def test_ranks_without_files_that_have_them_are_refused(words, capsys):
    from trainsim.cli import main

    with pytest.raises(SystemExit) as ended:
        main(["run", "quickstart", "--ranks", "0", *words])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") <= 2
