"""Calibration on traces of the PyTorch profiler: what was put into a trace is what is read from it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import trainsim as ts
from trainsim.calibration.calibrating import calibrate
from trainsim.calibration.reader import MeasuredText, readers, text_of
from trainsim.cli import main
from trainsim.costs.kernels import cost
from trainsim.errors import ScenarioError
from trainsim.frameworks import load_framework
from trainsim.hardware.gpu import load_gpu
from trainsim.models.operations import Gemm

GPU = "NVIDIA A100-SXM4-80GB"
SHAPES = ((4096, 4096, 4096), (8192, 4096, 11008), (2048, 32000, 4096))


def event(name: str, kind: str, begin: float, microseconds: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": 1, "ts": begin, "dur": microseconds, "args": args}


def trace(*, gap: float = 12.0, slower: float = 1.0, shapes: bool = True, **host: Any) -> dict[str, Any]:
    """A step of 60 launches, *gap* microseconds apart, with products that take *slower* times what is simulated."""
    events = [event("ProfilerStep#3", "user_annotation", 0.0, 1_000_000.0)]
    gpu = load_gpu("a100-sxm4-80gb")
    end = 0.0
    for number in range(60):
        begin, (m, n, k) = 10.0 + number * gap, SHAPES[number % len(SHAPES)]
        dims = {"Input Dims": [[m, k], [k, n]], "Input type": ["c10::BFloat16"] * 2} if shapes else {}
        events.append(event("aten::mm", "cpu_op", begin - 5, 8.0, **{"External id": number}, **dims))
        events.append(event("cudaLaunchKernel", "cuda_runtime", begin, 4.0, correlation=number))
        seconds = slower * cost(Gemm("gemm", m, n, k), gpu, "bf16").seconds * 1e6
        end = max(end, begin + 8.0)
        ids = {"correlation": number, "External id": number}
        events.append(event("ampere_bf16_s16816gemm_128x128", "kernel", end, seconds, **ids))
        end += seconds
    for size in (1 << 20, 1 << 24, 1 << 26):
        whole = {"Collective name": "allreduce", "In msg nelems": size, "dtype": "BFloat16", "Group size": 8}
        cluster = ts.topology("dgx_a100")
        seconds = ts.collective_time(cluster, "all_reduce", range(8), 2 * size) * 1e6
        events += [event("ncclDevKernel_AllReduce", "kernel", end, seconds * wait, **whole) for wait in (3.0, 1.0)]
    return {"schemaVersion": 1, "deviceProperties": [{"name": GPU}], "traceEvents": events, **host}


def written(data: dict[str, Any], file: Path) -> Path:
    text = json.dumps(data).encode()
    file.write_bytes(gzip.compress(text) if file.suffix == ".gz" else text)
    return file


def test_the_time_of_a_launch_is_the_gap_between_launches(tmp_path: Path) -> None:
    found = calibrate(written(trace(gap=12.0), tmp_path / "t.json.gz"), base="pytorch-ddp")
    assert found.to_dict()["fitted"]["host.seconds_per_operation"]["value"] == pytest.approx(12e-6)
    profile = load_framework(yaml.safe_load(found.to_yaml("framework")))
    assert profile.host.seconds_per_operation == pytest.approx(12e-6)
    assert any("66 kernels" in fact for fact in found.facts)


def test_a_wait_between_launches_is_not_the_hosts_time(tmp_path: Path) -> None:
    data = trace(gap=12.0)
    waits = [event("cudaStreamSynchronize", "cuda_runtime", 13.0 + 12.0 * k, 1.0) for k in range(0, 60, 2)]
    data["traceEvents"] += waits
    found = calibrate(written(data, tmp_path / "t.json"), base="pytorch-ddp")
    assert found.to_dict()["fitted"]["host.seconds_per_operation"]["value"] == pytest.approx(12e-6)


def test_products_tell_the_clock(tmp_path: Path) -> None:
    file = written(trace(slower=1.1), tmp_path / "t.json")
    found = calibrate(file, base=["pytorch-ddp", "a100-sxm4-80gb"])
    clock = found.to_dict()["fitted"]["kernels.sustained.gemm"]
    assert clock["value"] / clock["before"] == pytest.approx(1 / 1.1, rel=0.03)
    gpu = load_gpu(yaml.safe_load(found.to_yaml("gpu")))
    assert gpu.kernels.sustained.gemm == clock["value"]


def test_a_gpu_that_is_another_or_unknown_is_said(tmp_path: Path) -> None:
    file = written(trace(), tmp_path / "t.json")
    assert any(f"{GPU} is a100-sxm4-80gb" in said for said in calibrate(file, base="h100-sxm5-80gb").warnings)
    file = written(trace() | {"deviceProperties": []}, tmp_path / "t.json")
    assert any("no trace names its GPU" in said for said in calibrate(file, base="pytorch-ddp").warnings)


def test_collectives_count_where_the_machine_is_named_and_then_the_shortest(tmp_path: Path) -> None:
    file = written(trace(), tmp_path / "t.json")
    assert any("all_reduce of 8" in warning for warning in calibrate(file).warnings)
    found = calibrate(file, base="dgx_a100")
    sized = [row for row in found.compared if row.nbytes]
    assert len(sized) == 3
    assert all(abs(row.error(row.before)) < 0.01 for row in sized)


def test_without_shapes_or_kernels_it_says_what_to_do(tmp_path: Path) -> None:
    data = trace(shapes=False)
    assert any("record_shapes=True" in w for w in calibrate(written(data, tmp_path / "t.json")).warnings)
    data["traceEvents"] = [e for e in data["traceEvents"] if e["cat"] != "kernel"]
    with pytest.raises(ScenarioError, match=r"ProfilerActivity\.CUDA"):
        calibrate(written(data, tmp_path / "t.json"))


WRONG = (None, "x", -1, [], {}, True, float("inf"), "NaN")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["ph", "cat", "name", "ts", "dur", "args", "pid"]), st.sampled_from(
    [*WRONG, "X", "kernel", "cuda_runtime", "cudaLaunchKernel", {"Input Dims": [[1]], "External id": 1}, 5.0]
)), max_size=8))  # fmt: skip
def test_any_list_of_events_is_read_or_refused_in_words(events: list[dict[str, Any]]) -> None:
    text = MeasuredText(shown="t.json", text=json.dumps({"traceEvents": events}))
    try:
        readers["profiler-trace"].load(text)
    except ScenarioError as error:
        assert "t.json" in str(error)


@pytest.mark.parametrize("cut", [1, 100, 1000])
def test_a_trace_that_is_cut_off_is_refused_in_words(cut: int, tmp_path: Path) -> None:
    whole = gzip.compress(json.dumps(trace()).encode())
    file = tmp_path / "t.json.gz"
    file.write_bytes(whole[:-cut])
    with pytest.raises(ScenarioError, match="cannot be read"):
        text_of(file)
    file.write_bytes(gzip.compress(json.dumps(trace()).encode()[:-cut]))
    with pytest.raises(ScenarioError, match="not valid JSON, is it cut off"):
        calibrate(file)


def test_the_command_writes_a_file_per_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    written(trace(slower=1.1), Path("t.json.gz"))
    with pytest.raises(SystemExit) as left:
        main(["calibrate", "t.json.gz", "--base", "pytorch-ddp", "-o", "mine.yaml"])
    printed = capsys.readouterr()
    assert left.value.code == 0, printed.err
    assert sorted(path.name for path in Path().glob("*.yaml")) == ["mine.gpu.yaml", "mine.yaml"]
    assert "Written: mine.yaml (for framework)" in printed.err


def test_the_same_measurements_twice_are_refused_by_name(tmp_path: Path) -> None:
    one, two = (written(trace(), tmp_path / name) for name in ("one.json", "two.json.gz"))
    with pytest.raises(ScenarioError, match=r"two\.json\.gz: says the same as .*one\.json"):
        calibrate([one, two], base="pytorch-ddp")
    with pytest.raises(ScenarioError, match=r"one\.json: is given twice"):
        calibrate([one, str(one)], base="pytorch-ddp")


def test_products_faster_than_the_datasheet_are_left_out_by_name(tmp_path: Path) -> None:
    gpu = load_gpu("a100-sxm4-80gb")
    with_one = trace(slower=1.1)
    work = Gemm("gemm", 4096, 4096, 4096)
    products = [each for each in with_one["traceEvents"] if each["cat"] == "kernel" and "gemm" in each["name"]]
    for product in products[:: len(SHAPES)]:
        product["dur"] = 0.5 * work.flops / gpu.peak("bf16") * 1e6
    found = calibrate(written(with_one, tmp_path / "t.json"), base=["pytorch-ddp", "a100-sxm4-80gb"])
    assert any("4096 x 4096 x 4096 in bf16" in said and "2 times as fast as the datasheet" in said
               for said in found.warnings)  # fmt: skip
    clock = found.to_dict()["fitted"]["kernels.sustained.gemm"]
    assert clock["value"] / clock["before"] == pytest.approx(1 / 1.1, rel=0.03)
    every = calibrate(written(trace(slower=0.3), tmp_path / "u.json"), base=["pytorch-ddp", "a100-sxm4-80gb"])
    assert "kernels.sustained.gemm" not in every.to_dict()["fitted"]
    assert sum("datasheet" in said for said in every.warnings) == len(SHAPES)


def test_no_product_becomes_faster_than_the_datasheet(tmp_path: Path) -> None:
    """What small products ask for would make large ones too fast."""
    found = calibrate(written(trace(slower=0.8), tmp_path / "t.json"), base=["pytorch-ddp", "a100-sxm4-80gb"])
    gpu, large = load_gpu(yaml.safe_load(found.to_yaml("gpu"))), Gemm("large", 16384, 16384, 16384)
    assert cost(large, gpu, "bf16").seconds == pytest.approx(large.flops / gpu.peak("bf16"), rel=0.001)
    assert any("was held at" in said and " x " in said for said in found.warnings)


@pytest.mark.parametrize(
    ("files", "options", "says"),
    [
        (3, {}, "files=3: expected the path of a file"),
        (None, {}, "files=None: expected the path"),
        (b"x", {}, "files=b'x': expected the path"),
        ({"a": 1}, {}, "files={'a': 1}: expected the path"),
        ([3], {}, r"files=\[3\]: expected .* and 3 is none"),
        ("x", {"base": 3}, "base=3: expected the name"),
        ("x", {"base": ["dgx_a100", 3]}, "and 3 is none"),
        ("x", {"scenario": 3}, "scenario=3: expected a Scenario"),
    ],
)
def test_wrong_arguments_are_said_in_words(files: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        ts.calibrate(files, **options)
