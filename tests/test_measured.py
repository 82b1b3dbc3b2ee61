"""Measured traces: what was put into a file is what comes out of it, whatever its form, and whole or not."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trainsim as ts
from trainsim.analysis.gpu_use import covered
from trainsim.cli import main
from trainsim.errors import ScenarioError, TrainsimError
from trainsim.measured.activities import GpuActivity
from trainsim.measured.clocks import matched
from trainsim.measured.collective_records import CollectiveRecord
from trainsim.measured.comparing import compare_with_trace
from trainsim.measured.file import FileText
from trainsim.measured.kernel_categories import category_of
from trainsim.measured.kineto import measured, profiled
from trainsim.measured.mending import mendings
from trainsim.measured.reader import TraceRequest
from trainsim.measured.step_parts import StepPart
from trainsim.measured.trace_events import trace_of

STEP = 1000.0
"""Microseconds of a hand-made step."""
REDUCE = {
    "Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "dtype": "Float",
    "Group size": 2, "Process Group Name": "0", "Process Group Description": "default_pg",
    "Process Group Ranks": "[0, 1]",
}  # fmt: skip
Event = dict[str, Any]


def x(cat: str, name: str, ts: float, dur: float, tid: object, **args: Any) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 100, "tid": tid, "ts": ts, "dur": dur, "args": args}


def step_events(number: int, *, gpu: int = 0, late: float = 0.0, library: str = "nccl") -> list[Event]:
    """One step: forward 100 us, backward 200 us under whose second half a reduction of 150 us begins, 50 us of it
    exposed; after 20 us the optimizer for 30 us. The host launches in time but for 40 us before the backward."""
    t = number * STEP
    link = number * 10
    out = [x("user_annotation", f"ProfilerStep#{number}", t, STEP, 1)]

    def kernel(k: int, name: str, begin: float, length: float, launch: float, tid: int, **args: Any) -> None:
        api = "cudaLaunchKernel" if library == "nccl" else "hipLaunchKernel"
        out.append(x("cuda_runtime", api, t + launch, 5.0, tid, correlation=link + k))
        stream = 20 if "Collective name" in args else 7
        args |= {"device": gpu, "stream": stream, "correlation": link + k}
        out.append({**x("kernel", name, t + begin, length, stream, **args), "pid": gpu})

    out.append(x("cpu_op", "aten::mm", t + 5, 20.0, 1, **{"Sequence number": 3, "Fwd thread id": 0}))
    kernel(0, "ampere_bf16_s16816gemm_128x128", 50, 100, 10, 1)
    out.append(x("cpu_op", "autograd::engine::evaluate_function: MmBackward0", t + 160, 60.0, 2))
    kernel(1, "ampere_bf16_s16816gemm_256x128", 190, 200, 165, 2)
    out.append(x("user_annotation", "nccl:all_reduce", t + 175, 20.0, 2))
    kernel(2, f"{library}DevKernel_AllReduce_Sum_f32_RING_LL", 290 + late, 150 - late, 180, 2, **REDUCE)
    out.append(x("user_annotation", "Optimizer.step#Adam.step", t + 225, 60.0, 1))
    kernel(3, "multi_tensor_apply_kernel<Adam>", 460, 30, 230, 1)
    return out


def job(rank: int = 0, steps: int = 3, **how: Any) -> dict[str, Any]:
    events = [event for number in range(4, 4 + steps) for event in step_events(number, **how)]
    return {
        "schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA A100"}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}, "traceEvents": events,
    }  # fmt: skip


def written(data: Any, file: Path) -> Path:
    raw = (data if isinstance(data, str) else json.dumps(data)).encode()
    file.write_bytes(gzip.compress(raw) if file.suffix == ".gz" else raw)
    return file


def micro(seconds: dict[str, float]) -> dict[str, float]:
    return {part: round(value * 1e6, 3) for part, value in seconds.items() if round(value * 1e6, 3)}


EXPECTED = {"compute": 300.0, "dp": 50.0, "optimizer": 30.0, "other": 620.0}
"""Exposed: the host is late for 40 us before the backward and 20 before the optimizer, and has nothing to do until the
next step begins."""


def test_a_step_comes_out_as_it_was_put_in(tmp_path: Path) -> None:
    result = ts.read_trace(written(job(), tmp_path / "r0.json.gz"))
    assert result.measured.part == "step 5, of median length among steps 4, 5, 6"
    assert [step.number for step in result.measured.marked if step.read] == [5]
    assert result.measured.gpu == "NVIDIA A100"
    assert micro({"step": result.step_time}) == {"step": STEP}
    assert micro(result.breakdown) == EXPECTED
    (use,) = result.gpu_use
    assert micro(use._asdict()) == {
        "computing_s": 330.0, "communicating_s": 150.0, "hidden_s": 100.0, "idle_s": 620.0, "kernels_s": 330.0
    }  # fmt: skip
    kinds = result.timeline().groupby("kind", observed=True)["end"].count()
    assert dict(kinds) == {"forward": 1, "backward": 1, "optimizer": 1, "dp": 1, "host": 3}


def without_streams(data: dict[str, Any]) -> Any:
    for event in data["traceEvents"]:
        event["args"].pop("stream", None)
    return data


def in_pairs(data: dict[str, Any]) -> Any:
    out = []
    for event in data["traceEvents"]:
        end = {**event, "ph": "E", "ts": event["ts"] + event["dur"], "args": {}}
        out += [{k: v for k, v in {**event, "ph": "B"}.items() if k != "dur"}, end]
    out.sort(key=lambda event: (event["ts"], event["ph"] == "B"))
    return {**data, "traceEvents": out}


OLD_KINDS = {"kernel": "Kernel", "cuda_runtime": "Runtime", "cpu_op": "Operator", "user_annotation": "Operator"}


def old(data: dict[str, Any]) -> Any:
    """Kineto of 2021: no records of collectives, whole microseconds since 1970, which launch is told by annotations."""
    for event in data["traceEvents"]:
        event["args"] = {k: v for k, v in event["args"].items() if k in ("device", "stream", "correlation")}
        event["ts"] = 1682725898000000 + int(event["ts"])
        if event["cat"] == "kernel":
            event["name"] = event["name"].replace("ncclDevKernel_AllReduce", "ncclKernel_SendRecv")
        event["cat"] = OLD_KINDS[event["cat"]]
    del data["deviceProperties"], data["distributedInfo"]
    return data


FORMS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "object": lambda data: data,
    "list": lambda data: data["traceEvents"],
    "pairs": in_pairs,
    "tid only": without_streams,
    "old": old,
    "text times": lambda data: {
        **data, "traceEvents": [{**e, "ts": str(e["ts"]), "dur": str(e["dur"])} for e in data["traceEvents"]]
    },
    "shuffled": lambda data: {**data, "traceEvents": random.Random(1).sample(data["traceEvents"], 30)},
    "comma at the end": lambda data: json.dumps(data["traceEvents"])[:-1] + ",\n]",
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["rank_0.json", "rank_0.json.gz"])
def test_the_form_of_a_file_changes_nothing(form: str, name: str, tmp_path: Path) -> None:
    result = ts.read_trace(written(FORMS[form](job()), tmp_path / name))
    assert micro(result.breakdown) == EXPECTED
    assert not result.warnings
    assert result.measured.rank_numbers == (0,)


def test_kernels_of_rccl_are_communication(tmp_path: Path) -> None:
    assert micro(ts.read_trace(written(job(library="rccl"), tmp_path / "t.json")).breakdown) == EXPECTED


def test_a_name_with_half_a_pair_of_surrogates_is_shown(tmp_path: Path) -> None:
    data = job()
    for event in data["traceEvents"]:
        if event.get("cat") == "kernel":
            event["name"] += " \ud800 \u6838"
    result = ts.read_trace(written(data, tmp_path / "t.json"))
    assert micro(result.breakdown) == EXPECTED
    assert "\u6838" in result.timeline().to_csv()
    result.to_html(tmp_path / "t.html")


def test_clocks_are_put_right_by_collectives(tmp_path: Path) -> None:
    """The second rank is 70 us late with its reduction, and its clock is 5 s ahead."""
    first = written(job(0), tmp_path / "a.json")
    other = job(1, late=70.0)
    for event in other["traceEvents"]:
        event["ts"] += 5e6
    second = written(other, tmp_path / "b.json")
    result = ts.read_trace([second, first])
    assert result.measured.rank_numbers == (0, 1)
    assert result.measured.shifts == (0.0, -5.0)
    assert any("5 s" in warning or "5.00 s" in warning for warning in result.warnings)
    waits = result.timeline([0, 1])
    starts = waits[waits.kind == "dp"].start.tolist()
    assert starts[0] == starts[1]  # both begin when the later one is there
    assert result.waiting["dp"] == pytest.approx(0.0)  # that wait was under the backward


def test_ranks_without_a_collective_in_common_are_said(tmp_path: Path) -> None:
    files = []
    for rank in (0, 3):
        data = job(rank)
        data["traceEvents"] = [e for e in data["traceEvents"] if "AllReduce" not in e["name"]]
        files.append(written(data, tmp_path / f"{rank}.json"))
    result = ts.read_trace(files)
    assert result.measured.rank_numbers == (0, 3)
    assert any("Ranks 3 share no collective" in warning for warning in result.warnings)


def test_collectives_that_are_missing_in_one_file_do_not_move_clocks() -> None:
    record = CollectiveRecord("all_reduce", 1e6)
    every = [GpuActivity("20", "nccl", "", 1000 * k * k, 1000 * k * k + 10, -1, 0, record) for k in range(1000, 1010)]
    assert matched(every, every) == {k: k for k in range(10)}
    assert matched(every, every[3:]) == {k: k - 3 for k in range(3, 10)}


def test_several_ranks_in_one_file(tmp_path: Path) -> None:
    both = job(0, steps=1)
    both["traceEvents"] += step_events(4, gpu=1)
    result = ts.read_trace(written(both, tmp_path / "t.json"))
    assert result.lanes.ranks == 2
    assert micro(result.breakdown)["compute"] == 300.0


def test_two_gpus_of_one_process_are_two_ranks(tmp_path: Path) -> None:
    """The second one's first kernel is 30 us longer: the breakdown is that of the mean."""
    both = job(0)
    for event in [e for number in (4, 5, 6) for e in step_events(number, gpu=1) if e["cat"] == "kernel"]:
        longer = 30.0 if "gemm_128" in event["name"] else 0.0
        both["traceEvents"].append({**event, "dur": event["dur"] + longer})
    result = ts.read_trace(written(both, tmp_path / "t.json"))
    assert result.measured.rank_numbers == (0, 1)
    assert [micro({"kernels": use.kernels_s}) for use in result.gpu_use] == [{"kernels": 330.0}, {"kernels": 360.0}]
    assert micro(result.breakdown)["compute"] == 315.0


def test_a_kernel_at_an_absurd_time_is_warned_of(tmp_path: Path) -> None:
    data = job()
    data["traceEvents"] = [e for e in data["traceEvents"] if "Profiler" not in e["name"]]
    for event in data["traceEvents"]:
        event["ts"] += 1.7e15
    file = tmp_path / "t.json"
    assert not ts.read_trace(written(data, file)).warnings
    data["traceEvents"].append({**x("kernel", "stray_kernel", -5.0, 3.0, 7, device=0), "pid": 0})
    (warning,) = ts.read_trace(written(data, file)).warnings
    assert "Nothing runs for 472222.22 h" in warning
    assert "'stray_kernel' on rank 0 and 'ampere_bf16_s16816gemm_128x128' on rank 0" in warning


def test_files_of_another_format_are_named(tmp_path: Path) -> None:
    for rank in range(3):
        written(job(rank), tmp_path / f"rank{rank}.json")
    for k in range(2):
        (tmp_path / f"table{k}.parquet").write_bytes(b"PAR1")
    with pytest.raises(ScenarioError, match="not traces of the PyTorch profiler") as refused:
        ts.read_trace(tmp_path)
    assert "table0.parquet" in str(refused.value)
    assert "rank" not in str(refused.value).replace(str(tmp_path), "")


def test_the_rank_is_in_the_name_of_the_file_where_the_file_does_not_say(tmp_path: Path) -> None:
    files = []
    for rank in (8, 3):
        data = job(rank)
        del data["distributedInfo"]
        files.append(written(data, tmp_path / f"out_rank{rank}.pt.trace.json"))
    assert ts.read_trace(files).measured.rank_numbers == (3, 8)
    with pytest.raises(ScenarioError, match="both from rank 8"):
        ts.read_trace([files[0], files[0]])


def test_steps_are_chosen(tmp_path: Path) -> None:
    data = job()
    file = written(data, tmp_path / "t.json")
    assert ts.read_trace(file, step=5).measured.part == "step 5"
    every = ts.read_trace(file, step="all")
    assert every.steps == 3
    assert micro({"step": every.step_time}) == {"step": STEP}
    assert micro(every.breakdown) == EXPECTED
    assert [micro({"end": end}) for end in every.step_ends[:1]] == [{"end": 440.0}]
    for step, words in ((9, "steps 4, 5, 6"), (True, "expected the number"), ("5", "expected the number")):
        with pytest.raises(ScenarioError, match=words):
            ts.read_trace(file, step=step)
    data["traceEvents"] = [e for e in data["traceEvents"] if "Profiler" not in e["name"]]
    whole = ts.read_trace(written(data, tmp_path / "u.json"))
    assert "no steps are marked" in whole.measured.part
    assert micro({"compute": whole.breakdown["compute"]}) == {"compute": 900.0}


def test_events_without_usable_times_are_counted(tmp_path: Path) -> None:
    data = job()
    data["traceEvents"] += [x("kernel", "gemm", 5.0, length, 7) for length in (-1.0, float("nan"))]
    result = ts.read_trace(written(data, tmp_path / "t.json"))
    assert any("2 events without a usable ts or dur" in warning for warning in result.warnings)
    assert micro(result.breakdown) == EXPECTED


@pytest.mark.parametrize("part", [0.5, 0.8, 0.99])
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_is_cut_off_gives_what_is_before(part: float, packed: bool, tmp_path: Path) -> None:
    text = json.dumps(job(steps=40)).encode()
    raw = gzip.compress(text) if packed else text
    file = tmp_path / "t.json"
    file.write_bytes(raw[: int(len(raw) * part)])
    result = ts.read_trace(file, step=5)
    assert any("ends early" in warning for warning in result.warnings)
    assert micro(result.breakdown) == EXPECTED


DAMAGES = ('"', "{", "[", "]", "null", "-1e999", "9" * 400, "")
SMALL = json.dumps(job(steps=1))


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, len(SMALL)),
    st.integers(0, 40),
    st.sampled_from(DAMAGES),
)
def test_a_damaged_file_is_read_or_refused_in_words(at: int, length: int, put: str) -> None:
    text = SMALL[:at] + put + SMALL[at + length :]
    try:
        trace = trace_of("t.json", FileText(text, whole=True))
        measured([profiled(trace)], TraceRequest())
    except TrainsimError as error:
        assert "t.json" in str(error)


WRONG = (None, "x", -1, [], {}, True, 1e300, "NaN", 5.0, "kernel", "X", "B", "E", {"correlation": 1, "device": []})


@settings(max_examples=150, deadline=None)
@given(st.lists(st.dictionaries(
    st.sampled_from(["ph", "cat", "name", "ts", "dur", "args", "pid", "tid"]), st.sampled_from(WRONG)), max_size=6
))  # fmt: skip
def test_events_that_are_none_are_left_out(events: list[Event]) -> None:
    data = job(steps=1)
    data["traceEvents"] += events
    trace = trace_of("t.json", FileText(json.dumps(data), whole=True))
    assert measured([profiled(trace)], TraceRequest(step=4)).trace.ranks >= 1


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "empty"), ("hello", "not a known kind of trace"), ("{}", "no list of traceEvents"), ("[]", "no kernels"),
     ("[" * 5000, "t.json"), ('{"traceEvents": [', "t.json"), ('{"traceEvents": 5}', "no list"), ("[1,2", "t.json")],
)  # fmt: skip
def test_what_is_no_trace_is_refused_in_words(text: str, words: str, tmp_path: Path) -> None:
    file = written(text, tmp_path / "t.json")
    with pytest.raises(ScenarioError, match=words):
        ts.read_trace(file)
    with pytest.raises(ScenarioError):
        ts.read_trace([])
    (tmp_path / "none").mkdir()
    with pytest.raises(ScenarioError, match="no trace files"):
        ts.read_trace(tmp_path / "none")


# what this program writes


@pytest.mark.parametrize(
    "changes",
    [{"simulation.detail": "block"}, {"pipeline.schedule": "zb-h1", "simulation.detail": "block"},
     {"simulation.steps": 2, "simulation.detail": "block"}],
    ids=["1f1b", "zb-h1", "steps"],
)  # fmt: skip
def test_a_simulation_comes_back_from_its_own_file(changes: dict[str, Any], tmp_path: Path) -> None:
    run = ts.Scenario.load("quickstart").replace(changes).run()
    back = ts.read_trace(run.to_chrome(tmp_path / "t.json.gz", ranks=range(run.lanes.ranks)))
    assert back.measured.rank_numbers == tuple(range(8))
    assert back.steps == run.steps
    assert back.step_time == pytest.approx(run.step_time, rel=1e-7)
    assert back.bubble.fraction == pytest.approx(run.bubble.fraction, abs=1e-6)
    assert back.breakdown == pytest.approx(run.breakdown, abs=2e-4 * run.step_time)
    ours, theirs = ({cause.kind: cause.seconds for cause in of.critical_path.causes} for of in (run, back))
    assert theirs == pytest.approx(ours, abs=1e-4 * run.step_time)


def test_files_per_rank_come_back_exactly(tmp_path: Path) -> None:
    """Those in the form of the profiler have everything to the nanosecond."""
    run = ts.Scenario.load("quickstart").replace({"simulation.detail": "block"}).run()
    back = ts.read_trace(run.to_kineto(tmp_path, ranks=range(run.lanes.ranks)))
    assert back.breakdown == pytest.approx(run.breakdown, abs=1e-6)
    assert back.bubble.fraction == pytest.approx(run.bubble.fraction, abs=1e-8)
    assert back.trace.stage.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    ours, theirs = ({cause.kind: cause.seconds for cause in of.critical_path.causes} for of in (run, back))
    assert theirs == pytest.approx(ours, abs=1e-6)


def test_the_same_files_read_as_those_of_a_machine_say_nearly_the_same(tmp_path: Path) -> None:
    """Without what this program notes of its spans there are kernels, launches, groups and messages: enough for all but
    which pass a kernel is of, and whom a rank waits for at the end."""
    run = ts.Scenario.load("quickstart").replace({"simulation.detail": "block"}).run()
    files = run.to_kineto(tmp_path, ranks=range(run.lanes.ranks))
    for file in files:
        data = json.loads(gzip.decompress(file.read_bytes()))
        events = [e for e in data["traceEvents"] if e.get("cat") != "gpu_user_annotation"]
        events = [e for e in events if not (e.get("cat") == "cpu_op" and "kind" in e["args"])]
        for event in events:
            own = ("operation", "kind", "microbatch", "layer", "bytes", "waited_us", "work", "chunk")
            event["args"] = {k: v for k, v in event.get("args", {}).items() if k not in own}
        written({**data, "traceEvents": events}, file)
    read = ts.read_trace(files)
    assert "rank-0" in read.name
    assert read.trace.stage.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert read.step_time == pytest.approx(run.step_time, rel=1e-3)
    assert read.bubble.fraction == pytest.approx(run.bubble.fraction, abs=1e-3)
    for part in ("compute", "tp", "pp", "optimizer"):
        assert read.breakdown[part] == pytest.approx(run.breakdown[part], rel=1e-3), part
    for ours, theirs in zip(run.gpu_use, read.gpu_use, strict=True):
        assert theirs.kernels_s == pytest.approx(ours.kernels_s, rel=1e-4)
        assert theirs.hidden_s == pytest.approx(ours.hidden_s, abs=1e-6)


CHANGED = {
    "cluster.gpu.kernels.sustained.gemm": {
        "cluster.gpu": {"base": "h100-sxm5-80gb", "kernels": {"base": "hopper", "sustained": {"gemm": 0.5}}}
    },
    "cluster.nvlink_bandwidth": {"cluster.nvlink_bandwidth": "150 GB/s"},
    "framework.host.seconds_per_operation": {"framework": {"base": "neutral", "host": {"seconds_per_operation": 4e-5}}},
}


@pytest.mark.parametrize("key", CHANGED)
def test_the_constant_that_was_changed_is_named(key: str, tmp_path: Path) -> None:
    base = ts.Scenario.load("quickstart")
    file = base.replace(CHANGED[key]).run().to_chrome(tmp_path / "t.json.gz")
    both = compare_with_trace(base, file)
    assert both.first_key == key
    assert both.before_ranks == both.after.measured.rank_numbers
    for parts, result in zip(both.parts, (both.before, both.after), strict=True):
        assert sum(parts.values()) == pytest.approx(result.step_time, rel=0.02)
    assert json.loads(json.dumps(both.to_dict()))["mendings"][0]["key"] == key


def test_a_factor_multiplies_what_stands_in_the_scenario() -> None:
    """Twice the time is half the speed; the host counts with the fourth root."""
    simulated = {StepPart("products", "forward"): 1.0, StepPart("host"): 1.0}
    measured_parts = {StepPart("products", "forward"): 2.0, StepPart("host"): 16.0}
    host, products = mendings(simulated, measured_parts, ({}, {}), 18.0)
    assert (host.seconds, host.factor, products.seconds, products.factor) == (15.0, 2.0, 1.0, 0.5)


def test_kernels_are_known_by_their_names() -> None:
    known = {
        "products": ["sm90_xmma_gemm_bf16", "Cijk_Alik_Bljk_BBS", "nvjet_hsh_128x256", "void cutlass::Kernel2",
                     "sm80_xmma_fprop_implicit_gemm"],
        "attention": ["pytorch_flash::flash_bwd_dq_dk_dv_loop", "fmha_cutlassF_bf16", "aten::sdpa"],
        "memory-bound": ["void at::native::vectorized_elementwise_kernel<4>", "layer_norm_grad_input_kernel"],
    }  # fmt: skip
    for category, names in known.items():
        assert {category_of(name, ()) for name in names} == {category}


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=12))
def test_what_is_covered_is_what_a_count_of_moments_says(intervals: list[tuple[int, int]]) -> None:
    start, length = np.array(intervals, float).T
    moments = {at for begin, long in intervals for at in range(begin, begin + long)}
    assert covered(start, start + length) == len(moments)


# the command line


def status(*words: object) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0)


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = written(job(0), tmp_path / "a.json.gz")
    slower = job(0)
    for event in slower["traceEvents"]:
        if event["name"] == "multi_tensor_apply_kernel<Adam>":
            event["dur"] = 90.0
    second = written(slower, tmp_path / "b.json.gz")
    picture = tmp_path / "step.png"
    assert status("show", "trace", first, "--out", picture) == 0
    assert picture.stat().st_size > 10_000
    assert "Where the time goes" in capsys.readouterr().out
    assert status("show", "trace", first, "--json", "--step", "all") == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 3
    assert status("compare", first, second, "--json", "--out", picture) == 0
    parts = {row["part"]: row["seconds"] for row in json.loads(capsys.readouterr().out)["parts"]}
    assert parts["optimizer"] == pytest.approx([30e-6, 90e-6])
    assert status("compare", "quickstart", first, "--set", "simulation.detail=block") == 0
    assert "What would mend it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [(["compare", "a.json", "b.json", "a.json"], "folder"),
     (["compare", "quickstart", "rank*.json.gz"], "rank*.json.gz: no such file"),
     (["compare", "quickstart", "a.json", "--grid", "x=1"], "--grid"),
     (["show", "trace", "a.json", "--step", "x"], "--step x"), (["show", "trace", "none.json"], "none.json"),
     (["compare", "quickstart", "bloom_3d", "--step", "3"], "--step 3")],
)  # fmt: skip
def test_wrong_words_are_refused(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.json", "b.json"):
        written(job(), Path(name))
    assert status(*words) == 2
    assert said in capsys.readouterr().err
