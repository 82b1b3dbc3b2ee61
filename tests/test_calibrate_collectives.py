"""Calibration of collectives: logs in every shape are read alike, known constants come back, public sweeps fit."""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import trainsim as ts
from trainsim.calibration.bases import Bases
from trainsim.calibration.calibrating import calibrate, calibrated
from trainsim.calibration.fits.least_squares import solve
from trainsim.calibration.measurements import CollectiveSweep, Measurements
from trainsim.calibration.reader import MeasuredText, read, reader_of, readers
from trainsim.cli import main
from trainsim.collectives import OPERATIONS, factor
from trainsim.errors import ScenarioError, TrainsimError
from trainsim.hardware.devices import _known
from trainsim.hardware.gpu import gpu_names
from trainsim.hardware.topology import topology_names

PUBLIC = Path(__file__).parent / "data" / "calibration" / "sweeps.csv"
SIZES = tuple(2.0**k for k in range(10, 34))
NOISE = ("\0", "\n", "1e999 ", "-", "nan ", "é", " 8 2 float sum -1 ", "#", "N/A ", "{", '"', "99999999999999999999 ")
CELLS = ("", "1", "-1", "nan", "1e9", "all_reduce", "x", '"', "0", ";")
TESTS = {"all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
         "all_to_all": "alltoall", "broadcast": "broadcast", "shift": "sendrecv",
         "reduce": "reduce", "gather": "gather", "scatter": "scatter"}  # fmt: skip


def times(topology: object, operation: str, *, nodes: int, ranks: int) -> list[float]:
    cluster = ts.topology(topology, nodes=nodes)
    return [ts.collective_time(cluster, operation, range(ranks), size) for size in SIZES]


def log(
    operation: str, seconds: list[float], *, ranks: int = 8, nodes: int = 1, gpu: str = "NVIDIA H100 80GB HBM3",
    header: bool = True, prefix: str = "", root: bool = True, checked: bool = True,
) -> str:  # fmt: skip
    """A log as nccl-tests prints it."""
    lines = [f"$ mpirun -np {ranks} ./build/{TESTS[operation]}_perf -b 1K -e 8G -f 2 -g 1"]
    if header:
        lines += ["# nThread 1 nGpus 1 minBytes 1024 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20",
                  "#", "# Using devices"]  # fmt: skip
        lines += [
            f"#  Rank {rank:2d} Group 0 Pid {1000 + rank} on host{rank * nodes // ranks} device {rank % 8} [0x0f] {gpu}"
            for rank in range(ranks)
        ]
        lines += [f"#       size         count      type   redop  {'root' if root else ''}  time  algbw  busbw #wrong",
                  "#        (B)    (elements)                     (us)  (GB/s)  (GB/s)"]  # fmt: skip
    redop = "sum" if "reduce" in operation else "none"
    for size, time in zip(SIZES, seconds, strict=True):
        rate = size / time / 1e9
        half = f"{time * 1e6:.2f} {rate:.2f} {rate * factor(operation, ranks):.2f} {'0' if checked else 'N/A'}"
        lines.append(f"{size:12.0f} {size / 4:12.0f} float {redop} {'-1' if root else ''} {half} {half}")
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 123.4"]
    return "\n".join(prefix + line for line in lines)


def sweep_of(text: str, name: str = "some.log") -> CollectiveSweep:
    (sweep,) = reader_of(MeasuredText(shown=name, text=text)).load(MeasuredText(shown=name, text=text)).sweeps
    return sweep


@pytest.mark.parametrize("prefix", ["", "node1: ", "[1,0]<stdout>:", " 0: ", "[pod/launcher/x] ", "2024-05-01T10:00Z "])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_log_is_read_alike_whatever_stands_around_it(operation: str, prefix: str) -> None:
    seconds = [12e-6 + size / 300e9 for size in SIZES]
    for root, checked in ((True, True), (False, True), (True, False)):
        text = log(operation, seconds, ranks=16, nodes=2, prefix=prefix, root=root, checked=checked)
        sweep = sweep_of(text)
        assert (sweep.operation, sweep.ranks, sweep.nodes, sweep.gpu) == (operation, 16, 2, "NVIDIA H100 80GB HBM3")
        assert sweep.nbytes == SIZES
        assert sweep.seconds == pytest.approx(seconds, rel=1e-3)
        assert not sweep.one_launcher


def test_without_a_header_the_rates_tell_how_many_ranks_there_were() -> None:
    seconds = times("dgx_a100", "all_reduce", nodes=1, ranks=4)
    assert sweep_of(log("all_reduce", seconds, ranks=4, header=False)).ranks == 4


def test_one_thread_on_all_gpus_gives_no_latencies() -> None:
    text = log("all_reduce", [max(t, 35e-6) for t in times("dgx_a100", "all_reduce", nodes=1, ranks=8)])
    text = re.sub(r"Pid \d+", "Pid 1000", text.replace("nThread 1 nGpus 1", "nThread 1 nGpus 8"))
    sweep = sweep_of(text)
    assert sweep.one_launcher
    found = calibrated(Measurements(sweeps=(sweep,)), Bases(topology="dgx_a100"))
    assert "collectives.latency_scale" not in found.to_dict()["fitted"]
    assert any("one process per GPU" in warning for warning in found.warnings)


def test_several_tests_in_one_file_are_several_sweeps(tmp_path: Path) -> None:
    texts = [log(name, times("dgx_h100", name, nodes=1, ranks=8)) for name in ("all_reduce", "all_gather")]
    file = tmp_path / "both.log"
    file.write_text("\n".join(texts))
    assert [sweep.operation for sweep in read(file).sweeps] == ["all_reduce", "all_gather"]


def test_a_line_whose_rate_is_not_size_over_time_is_left_out() -> None:
    lines = log("all_reduce", times("dgx_h100", "all_reduce", nodes=1, ranks=8)).splitlines()
    damaged = [
        line.replace("float sum -1 ", "float sum -1 9") if line.split()[:1] == ["1073741824"] else line
        for line in lines
    ]
    source = MeasuredText(shown="x.log", text="\n".join(damaged))
    found = reader_of(source).load(source)
    assert len(found.sweeps[0].nbytes) == len(SIZES) - 1
    assert "1 line is damaged" in found.warnings[0]


def test_wrong_results_and_other_gpus_are_said(tmp_path: Path) -> None:
    lines = log("all_reduce", times("dgx_h100", "all_reduce", nodes=1, ranks=8)).splitlines()
    file = tmp_path / "x.log"
    file.write_text("\n".join(line.removesuffix(" 0") + " 7" if "float sum" in line else line for line in lines))
    warnings = calibrate(file, base="dgx_h100").warnings
    assert any(f"#wrong is not 0 in {len(SIZES)} of its lines" in said for said in warnings)
    assert not any("--base names another" in said for said in warnings)
    file.write_text("\n".join(lines))
    warnings = calibrate(file, base="dgx_a100").warnings
    assert "NVIDIA H100 80GB HBM3 is h100-sxm5-80gb, and what is calibrated has a100-sxm4-80gb" in "\n".join(warnings)
    assert not any("#wrong" in said for said in warnings)


@pytest.mark.parametrize(
    ("header", "line", "says"),
    [
        ("nrank", "8", "unknown column 'nrank'; is 'nranks' meant?"),
        ("nranks,node", "16,2", "is 'nodes' meant?"),
        ("nranks,algo", "8,banana", "x.csv:2: algo = 'banana' is not a known algorithm"),
    ],
)
def test_a_column_or_an_algorithm_that_nobody_knows_is_refused(
    header: str, line: str, says: str, tmp_path: Path
) -> None:
    file = tmp_path / "x.csv"
    file.write_text(f"size_bytes,time_us,collective,{header}\n1048576,30,all_reduce,{line}\n")
    with pytest.raises(ScenarioError, match=re.escape(says)):
        calibrate(file, base="dgx_h100")


def test_one_base_of_each_kind() -> None:
    with pytest.raises(ScenarioError, match="dgx_h100 and --base dgx_a100 are both a topology"):
        calibrate("x.log", base=["dgx_h100", "dgx_a100"])


def test_a_table_has_one_time_per_line(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("size_bytes,time_us,time_ms,collective,nranks\n1048576,30,30,all_reduce,8\n")
    with pytest.raises(ScenarioError, match=r"x\.csv:2: time_us and time_ms are both given"):
        calibrate(file, base="dgx_h100")


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_logs_are_read_or_refused_in_words(data: st.DataObject) -> None:
    whole = log("all_reduce", [1e-5] * len(SIZES))
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    noise = "".join(data.draw(st.lists(st.sampled_from(NOISE), max_size=3)))
    text = whole[:start] + noise + whole[end:]
    for reader in readers.values():
        try:
            reader.load(MeasuredText(shown="x.log", text=text))
        except TrainsimError as error:
            assert "x.log" in str(error)


@settings(max_examples=60, deadline=None)
@given(
    cells=st.lists(
        st.lists(st.sampled_from(["", "1", "-1", "nan", "1e9", "all_reduce", "x", '"', "0", ";"]), max_size=5)
    )
)
def test_any_table_is_read_or_refused_in_words(cells: list[list[str]]) -> None:
    text = "\n".join(["collective,size_bytes,time_us,nranks", *map(",".join, cells)])
    try:
        readers["collective-table"].load(MeasuredText(shown="t.csv", text=text))
    except ScenarioError as error:
        assert "t.csv" in str(error)


@pytest.mark.parametrize(
    ("override", "operation", "nodes", "ranks"),
    [
        ({"fabric": {"reachable": 0.6}}, "all_gather", 4, 32),
        ({"collectives": {"nvls_rate": 1.0, "latency_scale": 2.0}}, "all_reduce", 1, 8),
        ({"collectives": {"ramp": 30e-6}}, "broadcast", 1, 8),
        ({"fabric": {"reachable": 0.5}}, "all_reduce", 4, 32),
    ],
)
def test_known_constants_come_back(
    override: dict[str, dict[str, float]], operation: str, nodes: int, ranks: int
) -> None:
    seconds = times({"base": "dgx_h100", **override}, operation, nodes=nodes, ranks=ranks)
    sweep = CollectiveSweep(
        operation=operation, ranks=ranks, nodes=nodes, nbytes=SIZES, seconds=tuple(seconds), file="x.log"
    )
    found = calibrated(Measurements(sweeps=(sweep,)), Bases(topology="dgx_h100"))
    made = yaml.safe_load(found.to_yaml("topology"))
    again = times(made, operation, nodes=nodes, ranks=ranks)
    assert np.abs(np.log(np.array(again) / seconds)).max() < 0.05
    for group, values in override.items():
        for name, value in values.items():
            assert found.to_dict()["fitted"][f"{group}.{name}"]["value"] == pytest.approx(value, rel=0.1)


def test_what_fits_already_stays() -> None:
    seconds = tuple(times("dgx_h100", "all_reduce", nodes=1, ranks=8))
    sweep = CollectiveSweep(operation="all_reduce", ranks=8, nodes=1, nbytes=SIZES, seconds=seconds, file="x.log")
    found = calibrated(Measurements(sweeps=(sweep,)), Bases(topology="dgx_h100"))
    assert all(constant.after == pytest.approx(constant.before, rel=0.02) for constant in found.constants)
    assert {name for name, reason in found.kept if reason == "no group in the logs depends on it"}


def test_one_size_moves_one_constant() -> None:
    sweep = CollectiveSweep(operation="all_reduce", ranks=32, nodes=4, nbytes=(2.0**30,), seconds=(0.02,), file="x.log")
    found = calibrated(Measurements(sweeps=(sweep,)), Bases(topology="dgx_h100"))
    assert len(found.constants) == 1
    assert found.to_dict()["after"]["median_error"] < 0.05


def public_sweeps() -> dict[tuple[str, ...], list[tuple[float, float]]]:
    groups: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
    with PUBLIC.open() as file:
        for row in csv.DictReader(file):
            key = row["source"], row["gpu"], row["nodes"], row["nranks"], row["collective"], row["algo"] or "auto"
            groups[key].append((float(row["size_bytes"]), float(row["time_us"]) * 1e-6))
    return groups


def alone_in_fast_tests(key: tuple[str, ...]) -> object:
    """Two nodes take seconds."""
    return pytest.param(key, marks=[pytest.mark.slow] * (key[2] != "1"))


@pytest.mark.parametrize("key", list(map(alone_in_fast_tests, public_sweeps())), ids=lambda key: f"{key[1]}x{key[2]}")
def test_half_of_the_sizes_of_a_public_sweep_tells_the_other_half(key: tuple[str, ...]) -> None:
    """Sources stand in the file. From 1 MiB on, half of the sizes that took no part are within 5 %."""
    points = sorted(public_sweeps()[key])
    sizes, seconds = zip(*points[::2], strict=True)
    sweep = CollectiveSweep(
        operation=key[4], ranks=int(key[3]), nodes=int(key[2]), nbytes=sizes, seconds=seconds, file="x", gpu=key[1],
        algorithm=key[5],
    )  # fmt: skip
    found = calibrated(Measurements(sweeps=(sweep,)), Bases())
    cluster = ts.topology(yaml.safe_load(found.to_yaml("topology")), nodes=int(key[2]))
    others = [point for point in points[1::2] if point[0] >= 2**20]
    errors = [
        abs(ts.collective_time(cluster, key[4], range(int(key[3])), size, algorithm=key[5]) / time - 1)
        for size, time in others
    ]
    assert np.median(errors) <= 0.05


def test_every_device_leads_to_a_gpu_and_a_topology_that_ship() -> None:
    for _, device in _known():
        assert device.gpu in gpu_names()
        assert device.topology in topology_names()


def test_an_outlier_counts_once() -> None:
    seen = np.array([0.1, 0.1, 0.1, 0.1, 3.0])
    assert solve(lambda x: x[0] - seen, np.array([1.0]), 0.02).at[0] == pytest.approx(0.1, abs=0.02)


def test_the_command_from_a_log_to_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    slow = {"base": "dgx_h100", "fabric": {"reachable": 0.6}}
    Path("gather.log").write_text(log("all_gather", times(slow, "all_gather", nodes=4, ranks=32), ranks=32, nodes=4))

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(list(words))
        printed = capsys.readouterr()
        return int(left.value.code or 0), printed.out, printed.err

    usual = ["--topology", "dgx_h100"]
    status, out, err = run("calibrate", "gather.log", *usual, "-o", "mine.yaml", "--plot", "mine.png", "--json")
    assert status == 0, err
    said = json.loads(out)
    assert set(said) == {"fitted", "before", "after", "kept", "warnings"}
    assert said["after"]["median_error"] < 0.02 < said["before"]["median_error"]
    assert "Written: mine.yaml (for cluster.topology)" in err
    assert Path("mine.png").stat().st_size > 1000
    status, out, err = run("show", "topology", "mine.yaml", "--nodes", "4")
    assert status == 0, err
    status, out, err = run("calibrate", "gather.log", *usual)
    assert status == 0
    assert "fabric.reachable" in out
    Path("empty.log").write_text("")
    Path("other.txt").write_text("hello\n")
    wrong = ("", "empty.log", "other.txt", "missing.log", "gather.log --topology dgx_h1000", "gather.log -o x.txt")
    for words in wrong:
        status, out, err = run("calibrate", *words.split())
        assert (status, out) == (2, "")
        assert "Traceback" not in err
        assert len(err.strip().splitlines()) == 1
