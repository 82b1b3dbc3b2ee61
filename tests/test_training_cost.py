"""Days, GPU-hours and cost of a whole training: arithmetic on top of a step."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trainsim as ts
from tests.test_cli import SMALL, status
from tests.test_sweep import BASE
from trainsim.analysis.likely import Range
from trainsim.analysis.training_cost import training_cost
from trainsim.errors import InvalidPlan, TrainsimError

POSITIVE = st.floats(1e-3, 1e15)


def test_deepseek_v3_by_hand() -> None:
    """2.664M H800 hours for 14.8T tokens on 2,048 GPUs (arXiv 2412.19437, table 1 and section 3.1): arithmetic only."""
    per_gpu = 14.8e12 / (2.664e6 * 3600)  # tokens/s
    cost = training_cost(14.8e12, per_gpu * 2048, gpus=2048, price=2.0)
    assert cost.gpu_hours == pytest.approx(2.664e6)
    assert cost.days == pytest.approx(2.664e6 / 2048 / 24)
    assert round(cost.days) == 54, "the report says less than two months"
    assert cost.cost == pytest.approx(5.328e6), "the report's 5.328M at 2 per hour"


@given(tokens=POSITIVE, speed=POSITIVE, gpus=st.integers(1, 10**6), price=POSITIVE)
def test_all_is_in_proportion(tokens: float, speed: float, gpus: int, price: float) -> None:
    cost = training_cost(tokens, speed, gpus=gpus, price=price, likely=(2.0, Range(low=1.0, high=3.0, because=())))
    assert cost.gpu_hours == pytest.approx(cost.days * 24 * gpus)
    assert cost.cost == pytest.approx(cost.gpu_hours * price)
    assert cost.between(cost.days) == pytest.approx((0.5 * cost.days, 1.5 * cost.days))
    data = cost.to_dict()
    assert data["range_cost"] == pytest.approx([0.5 * data["cost"], 1.5 * data["cost"]])


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
@pytest.mark.parametrize("name", ["tokens", "tokens_per_s", "gpus", "price"])
def test_what_is_not_above_zero_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidPlan, match=name):
        training_cost(**{"tokens": 1.0, "tokens_per_s": 1.0, "gpus": 1, "price": 1.0, name: value})


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "x", True, [1]])
@pytest.mark.parametrize("path", ["training.tokens", "cluster.price_per_gpu_hour"])
def test_a_scenario_refuses_them_too(path: str, value: Any) -> None:
    with pytest.raises(TrainsimError, match=path.rpartition(".")[2]):
        BASE.replace({path: value}).resolve()


def test_a_result_has_it_and_the_step_is_the_same() -> None:
    with_cost = BASE.replace({"training.tokens": "1.5B", "cluster.price_per_gpu_hour": 3}).run()
    plain = BASE.run()
    assert plain.training_cost is None
    assert plain.step_time == with_cost.step_time
    whole = with_cost.training_cost
    assert whole is not None
    assert whole.seconds == pytest.approx(1.5e9 / (32 * 256) * plain.step_time)
    assert whole.cost == pytest.approx(whole.seconds / 3600 * 8 * 3)
    assert plain.likely is not None
    assert whole.to_dict()["range_days"][0] == pytest.approx(whole.days * plain.likely.low / plain.step_time)
    assert ts.Scenario.from_dict(with_cost.scenario).run().training_cost == whole


def test_a_sweep_has_columns_of_it() -> None:
    frame = ts.sweep(BASE.replace({"training.tokens": "1T"}), {"cluster.price_per_gpu_hour": [1, 2]}, workers=1)
    assert frame["cost"][1] == 2 * frame["cost"][0]
    assert frame["days"].nunique() == 1
    assert (frame["cost"] == frame["gpu_hours"] * frame["cluster.price_per_gpu_hour"]).all()
    assert (frame["days_low"] < frame["days"]).all()
    assert (frame["days"] < frame["days_high"]).all()
    assert ts.sweep(BASE, {"parallel.tp": [1]})["days"].isna().all()


def test_a_price_without_tokens_is_told() -> None:
    alone = BASE.replace({"cluster.price_per_gpu_hour": 2.5})
    assert "without effect" in alone.resolved["derived"]["cluster.price_per_gpu_hour"]
    both = alone.replace({"training.tokens": "1T"})
    assert "cluster.price_per_gpu_hour" not in both.resolved["derived"]


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    assert status("run", "small.yaml", "--no-files", "--tokens", "1T", "--price", "2.5") == 0
    assert "GPU-hours; cost" in " ".join(capsys.readouterr().out.split())
    assert status("run", "small.yaml", "--json", "--tokens", "1T", "--price", "2.5") == 0
    whole = json.loads(capsys.readouterr().out)["training_cost"]
    assert whole["cost"] == pytest.approx(2.5 * whole["gpu_hours"])
    assert status("sweep", "small.yaml", "--grid", "parallel.tp=1,2", "--json", "--tokens", "1T") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert all(row["days"] > 0 and row["cost"] is None for row in rows)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--price", "2"], "--tokens"),
        (["--price", "-2", "--tokens", "1T"], "price_per_gpu_hour"),
        (["--price", "nan", "--tokens", "1T"], "price_per_gpu_hour"),
        (["--price", "0", "--tokens", "1T"], "price_per_gpu_hour"),
        (["--tokens", "0"], "tokens"),
        (["--tokens", "many"], "tokens"),
        (["--tokens", "1T", "--set", "training.tokens=2T"], "undo"),
    ],
)
def test_wrong_words_are_one_message(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    for command in (["run", "--json"], ["sweep", "--grid", "parallel.tp=1", "--json"]):
        assert status(command[0], "small.yaml", *command[1:], *words) == 2
        printed = capsys.readouterr()
        assert said in printed.err
        assert "Traceback" not in printed.err
