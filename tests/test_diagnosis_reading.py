"""Operation tables in files: what is written is read again, and what is damaged is one clear message."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

import trainsim as ts
from tests.operation_tables import job, scattered
from trainsim.cli import main
from trainsim.diagnosis.operations import COLUMNS, JobShape
from trainsim.diagnosis.reading import IN_FILES, read_operations, save_operations
from trainsim.errors import InvalidData, TrainsimError

DATA = Path(__file__).parent / "data" / "stragglers"
TABLE = job(JobShape(dp=2, pp=2), took=scattered(1), steps=2)


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
@pytest.mark.parametrize("shape", [JobShape(dp=2, pp=2, tp=4), JobShape(dp=1, dsp=2, pp=2, vpp=2, layers=8)], ids=str)
def test_what_is_written_is_read_again(tmp_path: Path, ending: str, shape: JobShape) -> None:
    table = job(shape, took=scattered(1), steps=2)
    path = save_operations(table, tmp_path / f"trace-mine.{ending}")
    again = read_operations(path)
    assert again.shape == shape
    assert again.name == "made"
    for column in COLUMNS:
        assert getattr(again, column) == pytest.approx(getattr(table, column), abs=1e-12)


def test_several_files_are_one_job(tmp_path: Path) -> None:
    one = save_operations(TABLE.rows(TABLE.step == 0), tmp_path / "first.parquet")
    two = save_operations(TABLE.rows(TABLE.step == 1), tmp_path / "second.parquet")
    assert ts.diagnose([one, two]).slowdown == ts.diagnose(TABLE).slowdown
    with pytest.raises(InvalidData, match="appears twice; give each file once, and only files of one job"):
        read_operations([one, one])


def test_the_layout_comes_from_meta_or_from_the_operations(tmp_path: Path) -> None:
    frame = pd.read_parquet(DATA / "trace-ST.parquet")
    frame.to_parquet(tmp_path / "trace-X.parquet")
    assert read_operations(tmp_path / "trace-X.parquet").shape == JobShape(dp=2, pp=4)
    (tmp_path / "meta.yaml").write_text("dp_size: 2\npp_size: 4\ntp_size: 8\nlayers: 32\nother: [1]\n")
    assert read_operations(tmp_path / "trace-X.parquet").shape == JobShape(dp=2, pp=4, tp=8, layers=32)
    (tmp_path / "meta-X.yaml").write_text("trial_name: mine\ndp_size: 2\npp_size: 4\n")
    assert read_operations(tmp_path / "trace-X.parquet").name == "mine"
    given_meta = read_operations(tmp_path / "trace-X.parquet", meta=DATA / "meta-ST.yaml")
    assert (given_meta.name, given_meta.shape.tp) == ("ST", 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pp_size: 2\ndp_size: 2\n", r"pp allows 2 stages, but trace-ST\.parquet has 4"),
        ("dp_size: 1\npp_size: 4\n", "dp allows 1 data-parallel ranks, but .* has 2"),
        ("dp_size: two\n", "meta.yaml:1.*dp_size is a whole number, 1 or more, not 'two'"),
        ("dp_size: 2\npp_size: 4\ntp_size: 1\nworld_size: 9\n", "world_size is 9, but the sizes multiply out to 8"),
        ("- 1\n", "meta.yaml"),
    ],
)
def test_a_wrong_meta_file_is_one_message(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "meta.yaml").write_text(text)
    with pytest.raises(TrainsimError, match=words):
        read_operations(DATA / "trace-ST.parquet", meta=tmp_path / "meta.yaml")


@pytest.mark.parametrize("column", list(IN_FILES.values()))
def test_a_missing_column_is_named(tmp_path: Path, column: str) -> None:
    frame = pd.read_parquet(save_operations(TABLE, tmp_path / "whole.parquet")).drop(columns=column)
    frame.to_parquet(tmp_path / "less.parquet")
    with pytest.raises(InvalidData, match=f"less.parquet: has no column {column} "):
        read_operations(tmp_path / "less.parquet")


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("duration", -1.0, "row 3: duration is -1.0; a duration is 0 s or more"),
        ("duration", np.nan, "row 3: duration is nan; expected a finite number"),
        ("start_ts", np.inf, "row 3: start_ts is inf; expected a finite number"),
        ("stage", 7, "pp allows 2 stages, but trace-a.parquet has 8"),
        ("stage", -1, "row 3: stage is -1; a job with pp=2 has stages 0 to 1"),
        ("dp_rank", -1, "row 3: dp_rank is -1; ranks are numbered from 0"),
        ("optype", "forward-computes", "row 3: No type of operation .* Did you mean 'forward-compute'"),
        ("optype", None, "row 3: No type of operation"),
        ("mb_id", 0.5, "row 3: mb_id is 0.5; expected a whole number"),
        ("gmc", 9, "row 3: model_chunk is 9; a model of 2 chunks"),
    ],
)
def test_a_wrong_value_is_named_with_its_row(tmp_path: Path, column: str, value: Any, words: str) -> None:
    frame = pd.read_parquet(save_operations(TABLE, tmp_path / "trace-a.parquet"))
    frame[column] = frame[column].astype(object if isinstance(value, str | None) else float)
    frame.loc[3, column] = value
    frame.to_parquet(tmp_path / "trace-a.parquet")
    with pytest.raises(InvalidData, match=words):
        read_operations(tmp_path / "trace-a.parquet")


@pytest.mark.parametrize(
    ("column", "kind", "words"),
    [
        ("start_ts", "datetime64[ms]", r"start_ts is a column of datetime64\[ms\]; wanted are numbers of seconds"),
        ("duration", "timedelta64[us]", r"duration is a column of timedelta64\[us\]; wanted are numbers of seconds"),
        ("start_ts", "float32", "float32 tells only times 128.00 s apart, .* store it as float64, or count from"),
    ],
)
def test_times_in_another_form_are_refused(tmp_path: Path, column: str, kind: str, words: str) -> None:
    frame = pd.read_parquet(save_operations(TABLE, tmp_path / "trace-a.parquet"))
    frame["start_ts"] += 1.7e9
    frame.to_parquet(tmp_path / "trace-a.parquet")
    assert ts.diagnose(tmp_path / "trace-a.parquet").slowdown == pytest.approx(ts.diagnose(TABLE).slowdown, rel=1e-5)
    frame[column] = (frame[column] * 1e3).astype("int64").astype(kind) if "64" in kind else frame[column].astype(kind)
    frame.to_parquet(tmp_path / "trace-a.parquet")
    with pytest.raises(InvalidData, match=words):
        read_operations(tmp_path / "trace-a.parquet")


def test_what_is_no_operation_table_is_told_what_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "empty.parquet").write_bytes(b"")
    (tmp_path / "rank0.json").write_text("{}")
    (tmp_path / "some.csv").write_text("a,b\n1,2\n")
    (tmp_path / "none.csv").write_text(",".join(IN_FILES.values()) + "\n")
    for name, words in {
        "empty.parquet": "is empty; expected an operation table",
        "rank0.json": "A JSON profiler trace shows one rank",
        "some.csv": r"has no column dp_rank, .* \(it has a, b\)",
        "none.csv": "has no rows",
        "missing.parquet": "cannot be read: No such file",
        ".": "cannot be read: Is a directory",
    }.items():
        with pytest.raises(InvalidData, match=words):
            ts.diagnose(tmp_path / name)
    with pytest.raises(InvalidData, match="no file was given"):
        ts.diagnose([])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=some.data())
def test_a_damaged_file_is_one_message_or_a_diagnosis(tmp_path: Path, data: some.DataObject) -> None:
    """Bytes cut off or changed anywhere: never a traceback, never a hang."""
    ending = data.draw(some.sampled_from(["parquet", "csv"]))
    path = tmp_path / f"trace-x.{ending}"
    raw = bytearray(save_operations(TABLE, path).read_bytes())
    for at in data.draw(some.lists(some.integers(0, len(raw) - 1), max_size=4)):
        raw[at] = data.draw(some.integers(0, 255))
    path.write_bytes(raw[: data.draw(some.integers(0, len(raw)))])
    _refused_or_diagnosed(path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=some.data())
def test_damaged_rows_are_one_message_or_a_diagnosis(tmp_path: Path, data: some.DataObject) -> None:
    """Values and rows that no job has."""
    frame = pd.read_parquet(save_operations(TABLE, tmp_path / "trace-x.parquet"))
    odd = some.one_of(some.integers(-3, 9), some.floats(), some.text(max_size=3), some.none())
    for column in data.draw(some.lists(some.sampled_from(sorted(IN_FILES.values())), max_size=3)):
        frame[column] = frame[column].astype(object)
        frame.loc[data.draw(some.integers(0, len(frame) - 1)), column] = data.draw(odd)
    gone = data.draw(some.lists(some.integers(0, len(frame) - 1), max_size=5))
    path = tmp_path / "trace-x.csv"
    frame.drop(index=gone).to_csv(path, index=False)
    _refused_or_diagnosed(path)


def _refused_or_diagnosed(path: Path) -> None:
    try:
        one = ts.diagnose(path)
    except TrainsimError as fault:
        assert str(fault)
        assert "Traceback" not in str(fault)
        assert len(str(fault)) < 2000
    else:
        json.dumps(one.to_dict(), allow_nan=False)


def test_the_command_prints_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        for words in ([], ["--json"], ["--json", "--out", "some"]):
            with pytest.raises(SystemExit) as ended:
                main(["diagnose", str(DATA / "trace-ST.parquet"), *words])
            assert ended.value.code == 0
            out = capsys.readouterr().out
            if words:
                keys = {"slowdown", "by_operation", "by_stage", "by_replica", "last_stage_share", "worst_workers_share",
                        "step_s", "step_without_launch_delay_s", "ideal_step_s", "cause"}  # fmt: skip
                assert keys <= set(json.loads(out))
            else:
                assert "uneven stages" in out
    finally:
        os.chdir(here)
    assert sorted(path.name for path in (tmp_path / "out" / "ST").iterdir()) == [
        "diagnosis.json", "heat_map.png", "timeline.png",
    ]  # fmt: skip
    assert (tmp_path / "some" / "timeline.png").exists()
    with pytest.raises(SystemExit) as ended:
        main(["diagnose", str(tmp_path / "some" / "diagnosis.json")])
    assert ended.value.code == 2
    assert "not a Parquet file" in capsys.readouterr().err
