"""Calibration on measured steps: known speeds come back, one row moves the clock alone, tables are read or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trainsim as ts
from trainsim.calibration.bases import Bases
from trainsim.calibration.calibrating import calibrate, calibrated
from trainsim.calibration.fits.speeds import MachineSpeeds
from trainsim.calibration.measurements import MeasuredStep, Measurements
from trainsim.calibration.reader import MeasuredText, readers
from trainsim.cli import main
from trainsim.errors import ScenarioError
from trainsim.study.trial import run

BASE = {
    "model": {"base": "llama-3.2-1b", "layers": 4},
    "framework": "pytorch-fsdp1",
    "cluster": {"topology": "dgx_a100", "gpus": 8},
    "parallel": {"tp": 1},
    "training": {"sequence_length": 2048, "micro_batch": 2, "global_batch": 64},
    "simulation": {"detail": "block"},
}
CELLS = ("1", "", "x", "nan", "-3", "[", "{a: 1", '"', "1e400")
ROWS = (
    {"training.micro_batch": 8},
    {"training.micro_batch": 1, "training.sequence_length": 256},
    {"cluster.gpus": 32, "parallel.tp": 2},
    {"cluster.gpus": 32, "parallel.tp": 1},
)
"""Rows of which one owes most to the clock, one to the host, and two to the network."""


def measured(speeds: MachineSpeeds, rows: tuple[dict[str, object], ...] = ROWS) -> Measurements:
    base = ts.Scenario.from_dict(BASE)
    return Measurements(
        steps=tuple(
            MeasuredStep(
                changes=row,
                step_seconds=run(base.replace(row), speeds).step_time,
                tokens_per_s_per_gpu=None,
                place=f"steps.csv:{number}",
            )
            for number, row in enumerate(rows, 2)
        )
    )


def test_known_speeds_come_back_and_the_override_is_that_machine() -> None:
    truth = MachineSpeeds(clock=0.9, network=0.6, host=1.4)
    base = ts.Scenario.from_dict(BASE)
    found = calibrated(measured(truth), Bases(scenario=base))
    fitted = found.to_dict()["fitted"]
    job = base.resolve()
    assert fitted["cluster.network_reachable"]["value"] == pytest.approx(truth.reachable(job), rel=0.15)
    clock = fitted["cluster.gpu.kernels.sustained.gemm"]
    assert clock["value"] / clock["before"] == pytest.approx(truth.clock, rel=0.03)
    host = fitted["framework.host.seconds_per_operation"]
    assert host["value"] / host["before"] == pytest.approx(truth.host, rel=0.15)
    assert found.to_dict()["after"]["median_error"] < 0.01
    assert all(row.left_out is not None for row in found.compared)
    again = ts.Scenario.from_dict(dict(found.documents["scenario"]))
    for row, compared in zip(ROWS, found.compared, strict=True):
        assert again.replace(row).run().step_time == pytest.approx(compared.after, rel=2e-3)


def test_one_row_moves_the_clock_alone() -> None:
    found = calibrated(measured(MachineSpeeds(clock=0.9), ROWS[:1]), Bases(scenario=ts.Scenario.from_dict(BASE)))
    assert {constant.key for constant in found.constants} == {
        "cluster.gpu.kernels.sustained.gemm", "cluster.gpu.kernels.sustained.attention"
    }  # fmt: skip
    assert found.to_dict()["after"]["median_error"] < 0.02
    assert {reason for _, reason in found.kept} == {"one row tells the clock alone"}


@pytest.mark.parametrize(
    ("header", "line", "says"),
    [
        ("tp,step_time_s", "2,0", "step_time_s = '0' is not a number above 0"),
        ("tp,step_time_s", "2,fast", "step_time_s = 'fast'"),
        ("micro_bach,step_time_s", "2,1.0", "did you mean 'micro_batch'?"),
        ("tp,step_time_s", "2,1.0,3", "3 cells under a header of 2"),
        ("tp,tokens_per_s_per_gpu", "2,", "neither step_time_s nor tokens_per_s_per_gpu"),
        ("tp,tp,step_time_s", "2,2,1", "tp is there twice"),
        ("tp,parallel.tp,step_time_s", "2,4,1", "columns tp and parallel.tp are both parallel.tp"),
        ("tp,step_time_s,tokens_per_s_per_gpu", "2,1,9000", "step_time_s and tokens_per_s_per_gpu are both given"),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(header: str, line: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "steps.csv"
    file.write_text(f"{header}\n{line}\n")
    with pytest.raises(ScenarioError, match="steps") as refused:
        calibrate(file, scenario=ts.Scenario.from_dict(BASE))
    assert says in str(refused.value)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(["1", "", "x", "nan", "-3", "[", "{a: 1", '"', "1e400"]), max_size=4), max_size=4)
)
def test_any_table_of_steps_is_read_or_refused_in_words(cells: list[list[str]]) -> None:
    text = "\n".join(["tp,training.micro_batch,step_time_s", *map(",".join, cells)])
    try:
        readers["step-table"].load(MeasuredText(shown="t.csv", text=text))
    except ScenarioError as error:
        assert "t.csv" in str(error)


def test_rates_and_a_row_that_cannot_run() -> None:
    base = ts.Scenario.from_dict(BASE)
    rate = base.run().tokens_per_s / 8
    rows = (
        MeasuredStep(changes={}, step_seconds=None, tokens_per_s_per_gpu=rate, place="s.csv:2"),
        MeasuredStep(changes={"parallel.tp": 3}, step_seconds=1.0, tokens_per_s_per_gpu=None, place="s.csv:3"),
    )
    found = calibrated(Measurements(steps=rows), Bases(scenario=base))
    assert [row.error(row.before) for row in found.compared] == [pytest.approx(0.0, abs=1e-9)]
    assert any("s.csv:3: left out:" in warning for warning in found.warnings)


def test_a_row_says_how_many_gpus_in_the_place_of_the_scenario() -> None:
    base = ts.Scenario.from_dict({**BASE, "cluster": {"topology": "dgx_a100", "nodes": 1}})
    rows = ({"cluster.gpus": 16}, {"cluster.nodes": 4})
    steps = tuple(
        MeasuredStep(changes=row, step_seconds=900.0, tokens_per_s_per_gpu=None, place=f"s.csv:{line}")
        for line, row in enumerate(rows, 2)
    )
    found = calibrated(Measurements(steps=steps), Bases(scenario=base))
    assert [row.what for row in found.compared] == ["gpus 16", "nodes 4"]
    assert any("s.csv:" in said and "(and 1 more); is that" in said for said in found.warnings)


def test_what_is_read_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario, table = tmp_path / "base.yaml", tmp_path / "steps.csv"
    scenario.write_text(json.dumps(BASE))
    table.write_text("micro_batch,step_time_s\n2,1\n")
    with pytest.raises(SystemExit) as ended:
        main(["calibrate", str(table), "--scenario", str(scenario), "-o", str(scenario)])
    assert ended.value.code == 2
    assert "base.yaml: is a file that is read here and would be lost" in capsys.readouterr().err
    assert json.loads(scenario.read_text()) == BASE


def test_the_command_writes_a_scenario_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    base = ts.Scenario.from_dict(BASE)
    Path("base.yaml").write_text(base.to_yaml())
    Path("steps.csv").write_text(f"name,micro_batch,step_time_s\nmine,2,{base.run().step_time * 1.08}\n")

    def command(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(list(words))
        printed = capsys.readouterr()
        return int(left.value.code or 0), printed.out, printed.err

    status, out, err = command("calibrate", "steps.csv", "--scenario", "base.yaml", "-o", "mine.yaml", "--json")
    assert status == 0, err
    assert json.loads(out)["after"]["median_error"] < 0.02
    status, out, err = command("run", "mine.yaml", "--json", "--files", "none")
    assert status == 0, err
    assert json.loads(out)["step_time_s"] == pytest.approx(base.run().step_time * 1.08, rel=0.02)
    status, out, err = command("calibrate", "steps.csv")
    assert (status, out) == (2, "")
    assert "--scenario" in err


def test_a_step_faster_than_the_datasheet_is_left_out_by_name() -> None:
    rows = measured(MachineSpeeds(clock=0.9))
    fast = rows.steps[0]
    assert fast.step_seconds is not None
    steps = (MeasuredStep(changes=fast.changes, step_seconds=fast.step_seconds / 50, tokens_per_s_per_gpu=None,
                          place="steps.csv:9", name="too fast"), *rows.steps)  # fmt: skip
    bases = Bases(scenario=ts.Scenario.from_dict(BASE))
    found = calibrated(Measurements(steps=steps), bases)
    (said,) = [said for said in found.warnings if "datasheet" in said]
    assert said.startswith("steps.csv:9: left out: too fast in ")
    assert found.constants == calibrated(rows, bases).constants
    with pytest.raises(ScenarioError, match=r"no row can be fitted; the first one: steps\.csv:9: left out: too fast"):
        calibrated(Measurements(steps=steps[:1]), bases)
