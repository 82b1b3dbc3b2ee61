"""Whole commands of studies, at 80 columns: every line fits, tables have a line per point, JSON is one object."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.test_cli import status
from trainsim.cli.reading import grid_of, grids_of
from trainsim.errors import ScenarioError
from trainsim.scenario.scenario import Scenario

SMALL = """
name: small
model: {name: tiny, layers: 8, hidden: 1024, heads: 16, vocab: 16000, max_positions: 512}
cluster: {topology: dgx_a100, nodes: 1}
parallel: {tp: 2, pp: 4}
training: {sequence_length: 512, global_batch: 8}
"""
GRID = ["--grid", "parallel.tp=1,2,3", "--grid", "pipeline.schedule=1f1b,zb-h1,nonsense"]
WIDE = [*GRID, "--grid", "training.micro_batch=1,2", "--grid", "training.attention=flash2,eager", "--grid", "name=a,b"]
COMMANDS = {
    "sweep": ["sweep", "small.yaml", *GRID],
    "wide sweep": ["sweep", "small.yaml", *WIDE],
    "compare": ["compare", "small.yaml", *GRID],
    "explain": ["explain", "small.yaml"],
    "explain what does not fit": ["explain", "small.yaml", "--set", "model=gpt-22b", "--set", "parallel.tp=1"],
    "memory": ["show", "memory", "small.yaml", "--all"],
    "memory that does not fit": ["show", "memory", "small.yaml", "--set", "model=gpt-22b", "--set", "parallel.tp=1"],
}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_line_fits_into_80_columns(name: str, small: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*COMMANDS[name]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert [line for line in out.splitlines() if len(line) > 80] == []
    assert "Traceback" not in out
    assert "e+" not in out


@pytest.mark.parametrize("name", [name for name in COMMANDS if "wide" not in name])
def test_json_is_one_object_and_nothing_else(name: str, small: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*COMMANDS[name], "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert isinstance(data, dict)


def test_a_sweep_is_a_line_per_point_and_says_each_reason_once(small: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*COMMANDS["sweep"]) == 0
    lines = capsys.readouterr().out.splitlines()
    points = [line for line in lines if line.split()[:1] in (["1"], ["2"], ["3"])]
    assert len(points) == 9
    assert [line.split()[1] for line in points] == 3 * ["1f1b", "zb-h1", "nonsense"]
    ran, refused = [p for p in points if "not run" not in p], [p for p in points if "not run" in p]
    assert len(ran) == 4
    assert all("GiB" in line and "%" in line and " ms " in line and line.rstrip().endswith("fits") for line in ran)
    text = "\n".join(lines)
    assert len(refused) == 5
    assert text.count("16 heads are not divisible by tp=3") == 1
    assert text.count("No schedule is called 'nonsense'") == 1


def test_a_sweep_s_table_shows_what_the_json_has(small: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*COMMANDS["sweep"], "--json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    base = Scenario.load("small.yaml")
    for row in rows:
        point = {path: row[path] for path in ("parallel.tp", "pipeline.schedule")}
        if row["error"] is None:
            result = base.replace(point).run()
            assert (row["step_time_s"], row["mfu"]) == (result.step_time, result.mfu)
            assert (row["peak_memory_bytes"], row["fits"]) == (result.memory.peak, result.memory.fits)
        else:
            assert row["step_time_s"] is None
    assert sum(row["error"] is None for row in rows) == 4


def test_one_bad_value_does_not_stop_a_compare(small: None, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "small.yaml", "--grid", "parallel.tp=1,3,x,2"]
    assert status(*words) == 0
    out = capsys.readouterr().out
    assert "Not run" in out
    assert "16 heads are not divisible" in out
    assert status(*words, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert len(data["runs"]) == 2
    assert [refused["error"].partition(":")[0] for refused in data["refused"]] == [
        "parallel.tp = 3",
        "parallel.tp = 'x'",
    ]
    assert status("compare", "small.yaml", "--grid", "parallel.tp=3,5") == 2
    assert "none could be run" in capsys.readouterr().err


@pytest.mark.parametrize("words", [COMMANDS["sweep"], COMMANDS["compare"], COMMANDS["explain"], COMMANDS["memory"]])
def test_an_interrupt_prints_what_is_finished_and_is_told_by_the_status(
    words: list[str], small: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[Scenario] = []

    def run(self: Scenario, *phase: Any) -> Any:
        if len(ran) == 3:
            raise KeyboardInterrupt
        ran.append(self)
        return original(self, *phase)

    original = Scenario.run
    monkeypatch.setattr(Scenario, "run", run)
    monkeypatch.setattr("trainsim.study.runner.STARTING", float("inf"))  # other processes would not know it
    assert status(*words) == 130
    out, err = capsys.readouterr()
    assert "interrupted" in err
    assert len(out.splitlines()) > 5


SCALARS = st.one_of(
    st.integers(-(10**9), 10**9), st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["1f1b", "zb-h1", "flash2", "a b", "25GB/s", "x,y", "yes", "~", "[", "é"]),
)  # fmt: skip
PATHS = st.lists(st.sampled_from(["parallel", "tp", "what_if", "0", "pipeline"]), min_size=1, max_size=3).map(".".join)


@given(path=PATHS, values=st.lists(st.one_of(SCALARS, st.lists(SCALARS, max_size=3)), min_size=1, max_size=5))
@example(path="pipeline.layout", values=[[1, 2, 3], [2, 2, 2]])
@example(path="parallel.dp", values=[None, 4])
def test_a_grid_reads_back_what_is_written(path: str, values: list[Any]) -> None:
    text = f"{path}={json.dumps(values)[1:-1]}"
    assert grid_of(text) == (path, values)
    assert grids_of([text]) == {path: values}


@given(text=st.text(max_size=40))
def test_any_words_are_a_grid_or_one_error(text: str) -> None:
    try:
        path, values = grid_of(text)
    except ScenarioError as error:
        assert repr(text) in str(error)
    else:
        assert path
        assert len(values) >= 1
