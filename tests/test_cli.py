"""The command line: what goes to which stream, and with which exit status."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainsim.cli import main
from trainsim.study.trial import NOT_RUN

SMALL = """
name: small
model: {name: tiny, layers: 4, hidden: 256, heads: 4, vocab: 1000, max_positions: 512}
cluster: {topology: dgx_a100, nodes: 1}
parallel: {tp: 2, pp: 2}
training: {sequence_length: 256, global_batch: 16}
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "small.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    return "small.yaml"


def status(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_run_prints_the_scenario_then_the_result_and_writes_the_files(
    small: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status("run", small) == 0
    out, err = capsys.readouterr()
    assert out.index("parallel.dp") < out.index("bubble")
    assert err == ""
    names = {file.name for file in Path("out/small").iterdir()}
    assert names == {"result.json", "gantt.png", "trace.json.gz", "report.html"}


def test_json_is_one_object_on_standard_output(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("run", small, "--json", "--out", "elsewhere", "--set", "parallel.tp=1") == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert result["scenario"]["parallel"]["dp"] == 4
    assert result["step_time_s"] > 0
    assert sum(result["breakdown_s"].values()) == pytest.approx(result["step_time_s"])
    assert "elsewhere" in err
    assert json.loads(Path("elsewhere/result.json").read_text()) == result


def test_no_fold_gives_the_same_numbers(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    results = []
    for more in ([], ["--no-fold"]):
        assert status("run", small, "--json", *more) == 0
        results.append(json.loads(capsys.readouterr().out))
    assert results[0]["step_time_s"] == results[1]["step_time_s"]
    assert results[0]["simulation"]["classes"] < results[1]["simulation"]["classes"] == 8


def test_strict_says_no_when_it_does_not_fit(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    big = [
        "run",
        small,
        "--set",
        "model=gpt-22b",
        "--set",
        "training.sequence_length=2048",
        "--set",
        "training.micro_batch=8",
    ]
    assert status(*big) == 0
    assert status(*big, "--strict") == 1
    assert "oes not fit" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "Usage"),
        (
            ["sneep", "x"],
            "run, sweep, plan, compare, explain, diagnose, memory, validate, import, calibrate, export, list, show",
        ),
        (["run"], "SCENARIO"),
        (["run", "nothing.yaml"], "no such file"),
        (["run", "small.yaml", "--fold"], "No such option"),
        (["plan", "small.yaml", "--top", "abc"], "--top abc: expected a whole number"),
        (["plan", "small.yaml", "--days", "soon"], "--days soon: expected a number"),
        (["run", "small.yaml", "--set", "parallel.tp"], "path=value"),
        (["run", "small.yaml", "--set", "parallel.tp=3"], "4 heads are not divisible by tp=3"),
        (["run", "small.yaml", "--set", "parallel.tpp=3"], "did you mean 'tp'"),
        (["run", "small.yaml", "--set", "cluster.nic_bandwidth=25 parsecs"], "200Gbps"),
        (["run", "small.yaml", "--out", "small.yaml"], "small.yaml"),
        (["run", "small.yaml", "--out", "small.yaml/inside"], "small.yaml"),
        (["sweep", "small.yaml"], "--grid"),
        (["sweep", "small.yaml", "--grid", "parallel.tp"], "path=value"),
        (["sweep", "small.yaml", "--grid", "parallel.tp="], "commas"),
        (["sweep", "small.yaml", "--grid", "parallel.tp=1", "--grid", "parallel.tp=2"], "has a --grid already"),
        (["sweep", "small.yaml", "--grid", "parallel.tp=1", "--workers", "0"], "workers"),
        (["sweep", "small.yaml", "--grid", "parallel.tp=1", "--csv", "small.yaml/x.csv"], "small.yaml"),
        (["run", "small.yaml", "--set", "parallel.tp=1", "--set", "parallel.tp=2"], "undo the --set of parallel.tp"),
        (["run", "small.yaml", "--set", "parallel.tp=1", "--set", "parallel={pp: 2}"], "undo the --set of parallel.tp"),
        (["run", "small.yaml", "--files", "gantt,none"], "none stands alone"),
        (["sweep", "small.yaml", "--grid", "parallel.tp=1", "--set", "parallel.tp=2"], "undo --set parallel.tp"),
        (["sweep", "small.yaml", "--grid", "parallel.tp=1", "--grid", "parallel={pp: 2}"], "undo those of parallel.tp"),
        (["compare", "small.yaml", "--grid", "parallel.tp=1,2", "--set", "parallel.tp=1"], "undo --set parallel.tp"),
        (["compare", "small.yaml"], "B"),
        (["list", "planets"], "frameworks"),
        (["show", "model", "gpt-2"], "gpt2"),
        (["show", "topology", "dgx_a10"], "dgx_a100"),
        (["show", "schedule", "1f1c"], "1f1b"),
    ],
)
def test_wrong_words_are_one_message_and_status_2(
    small: str, words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(*words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("trainsim: ")
    assert expected in err
    assert "Traceback" not in err


def test_sweep_writes_its_table(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", small, "--grid", "parallel.tp=1,2,3", "--csv", "table.csv", "--workers", "1"]
    assert status(*words) == 0
    lines = Path("table.csv").read_text().splitlines()
    assert lines[0].startswith("parallel.tp,step_time_s,tokens_per_s")
    assert len(lines) == 4
    assert "4 heads are not divisible" in lines[3]
    assert status(*words, "--json") == 0
    out = capsys.readouterr().out
    assert len(json.loads(out.splitlines()[-1])["rows"]) == 3


def test_a_sweep_of_which_nothing_ran_says_so(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("sweep", small, "--grid", "parallel.tpp=1,2", "--workers", "1") == 2
    out, err = capsys.readouterr()
    assert "tpp" in out
    assert "no point could run" in err
    assert "did you mean 'tp'" in err


@pytest.mark.parametrize("name", ["2024-13-45", "!!bool abc", "$x^$", "Modèle"])
def test_odd_names_are_names(name: str, small: str) -> None:
    assert status("run", small, "--set", f"name={name}") == 0


def test_an_interrupted_sweep_writes_what_finished(
    small: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from trainsim.scenario.scenario import Scenario

    def second_is_interrupted(self: Scenario) -> Any:
        if self.spec.parallel.tp == 2:
            raise KeyboardInterrupt
        return original(self)

    original = Scenario.run
    monkeypatch.setattr(Scenario, "run", second_is_interrupted)
    assert status("sweep", small, "--grid", "parallel.tp=1,2,4", "--csv", "table.csv", "--workers", "1") == 130
    lines = Path("table.csv").read_text().splitlines()
    assert len(lines) == 4
    assert lines[2].endswith(NOT_RUN.message)
    assert "interrupted" in capsys.readouterr().err


def test_compare_says_how_much_and_from_where(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.yaml").write_text(SMALL.replace("tp: 2", "tp: 1"))
    assert status("compare", small, "other.yaml", "--json") == 0
    difference = json.loads(capsys.readouterr().out)
    assert difference["step_time_s"][1] - difference["step_time_s"][0] == pytest.approx(difference["difference_s"])
    assert "parallel.tp" in difference["changes"]
    assert status("compare", small, "other.yaml") == 0


@pytest.mark.parametrize(
    "kind", ["models", "gpus", "topologies", "schedules", "collectives", "strategies", "frameworks", "scenarios"]
)
def test_list_prints_a_name_per_line(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("list", kind) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert len(names) >= 2
    assert names == sorted(names)


def test_list_without_a_kind_lists_the_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("list") == 0
    assert {"models", "gpus", "schedules"} < set(capsys.readouterr().out.split())


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    from trainsim import __version__

    assert status("--version") == 0
    assert capsys.readouterr().out == f"trainsim {__version__}\n"


def test_show_model_and_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("show", "model", "llama-2-7b") == 0
    assert "6,738,415,616" in capsys.readouterr().out
    assert status("show", "schedule", "1f1b", "--stages", "2", "--microbatches", "2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["order"][1] == ["1F0", "1B0", "1F1", "1B1"]


def test_show_topology_draws_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert status("show", "topology", "dgx1_v100", "--nodes", "1") == 0
    assert (tmp_path / "out/dgx1_v100.svg").stat().st_size > 1000
    assert status("show", "topology", "dgx1_v100", "--out", "x.nonsense") == 2


def test_a_reader_that_goes_away_is_told_of_by_the_exit_status_alone(tmp_path: Path) -> None:
    command = f"{sys.executable} -m trainsim list models | head -1; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert ended.stderr == ""
    assert ended.stdout.split()[-1] in ("0", "141")  # as the reader was fast or slow


def test_import_is_cheap() -> None:
    heavy = "numpy pandas matplotlib networkx rich typer joblib pydantic simpy yaml".split()  # noqa: SIM905
    code = f"import trainsim, sys; print([m for m in {heavy} if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.stdout.strip() == "[]"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, trainsim.cli\n"
        "try: trainsim.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('numpy', 'pandas', 'matplotlib', 'networkx', 'pydantic', 'simpy') if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.stdout.strip().endswith("[]")
