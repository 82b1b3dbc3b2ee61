"""Words of ``trainsim sweep`` that cannot be: one message that names them, status 2, nothing printed or written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.test_cli import SMALL, status

WRONG = {
    "nothing to try": ([], "say what to try"),
    "unknown path": (["--grid", "parallel.tp=1", "--where", "parallel.tpp<2"], "'parallel.tp'"),
    "no condition": (["--grid", "parallel.tp=1", "--where", "import os"], "where"),
    "a call": (["--grid", "parallel.tp=1", "--where", "open('x')"], "cannot have"),
    "none left": (["--grid", "parallel.tp=1,2", "--where", "parallel.tp>2"], "none of 2 points"),
    "lengths": (["--zip", "parallel.tp=1,2 parallel.pp=1"], "parallel.tp has 2"),
    "twice": (["--grid", "parallel.tp=1", "--zip", "parallel.tp=1,2 parallel.pp=1,2"], "two parts"),
    "range": (["--sample", "parallel.tp=8..1"], "below its start"),
    "no range": (["--sample", "parallel.tp=a..b"], "1..16"),
    "samples": (["--sample", "parallel.tp=1..2", "--samples", "0"], "samples=0"),
    "seed alone": (["--grid", "parallel.tp=1", "--seed", "1"], "--sample"),
    "no file": (["--points", "none.csv"], "none.csv: cannot be read"),
    "no table": (["--points", "small.yaml"], "small.yaml: holds no list"),
    "undone": (["--grid", "parallel.tp=1", "--set", "parallel.tp=2"], "--set parallel.tp"),
}


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("name", WRONG)
def test_wrong_words_are_one_message(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, said = WRONG[name]
    assert status("sweep", "small.yaml", *words, "--csv", "a.csv") == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert printed.err.count("\n") == 1
    assert not Path("a.csv").exists()


@pytest.mark.parametrize("option", ["--csv", "--plot", "--parquet"])
def test_nothing_that_is_read_is_written_over(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("points.csv", "small.yaml"):
        Path("points.csv").write_text("parallel.tp\n1\n")
        before = Path(name).read_text()
        assert status("sweep", "small.yaml", "--points", "points.csv", option, name) == 2
        assert "would be lost" in capsys.readouterr().err
        assert Path(name).read_text() == before


LETTERS = st.text(st.sampled_from("parl.te=<>()[]{}'\"\\,*/%-+ 0123eé\t:"), max_size=20)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    option=st.sampled_from(["--where", "--zip", "--sample", "--grid"]), text=st.one_of(LETTERS, st.text(max_size=12))
)
def test_no_words_are_a_traceback(option: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    ended = status("sweep", "small.yaml", "--grid", "simulation.detail=block", f"{option}={text}", "--workers", "1")
    printed = capsys.readouterr()
    assert ended in (0, 2)
    assert "Traceback" not in printed.err
    assert "bug in trainsim" not in printed.err


def test_all_options_together(capsys: pytest.CaptureFixture[str]) -> None:
    Path("points.csv").write_text("training.recompute\nnone\nfull\n")
    words = ["--grid", "parallel.tp=1,2", "--zip", "parallel.pp=1,2 training.micro_batch=1,2", "--points", "points.csv"]
    words += [
        "--sample",
        "cluster.nic_bandwidth=100..400Gbps",
        "--samples",
        "2",
        "--where",
        "parallel.tp*parallel.pp<4",
    ]
    assert status("sweep", "small.yaml", *words, "--set", "simulation.detail=block", "--json", "--workers", "1") == 0
    data = json.loads(capsys.readouterr().out)
    assert len(data["rows"]) == 2 * 2 * 2 * 2 - 4
    assert data["summary"]["left_out"] == 4
    axes = {one["axis"] for one in data["summary"]["sensitivities"]}
    assert {"parallel.tp", "parallel.pp", "training.recompute"} <= axes
