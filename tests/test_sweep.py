"""Sweeps: a row per point, in order, whatever happens to a point."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trainsim as ts
from trainsim.errors import ScenarioError
from trainsim.scenario.scenario import Scenario
from trainsim.study.sweep import COLUMNS, points
from trainsim.study.trial import NOT_RUN

BASE = Scenario.from_dict(
    {
        "model": {"name": "tiny", "layers": 4, "hidden": 256, "heads": 4, "vocab": 1000, "max_positions": 512},
        "cluster": {"topology": "dgx_a100", "nodes": 1},
        "training": {"sequence_length": 256, "global_batch": 32},
    }
)
GRID = {"parallel.tp": [1, 2, 3], "parallel.pp": [1, 2]}


def test_points_are_all_combinations_last_path_fastest() -> None:
    assert [tuple(p.values()) for p in points(GRID)] == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)]


@pytest.mark.parametrize("values", [[], "12", 3, None])
def test_a_grid_wants_lists(values: Any) -> None:
    with pytest.raises(ScenarioError, match=r"parallel\.tp"):
        ts.sweep(BASE, {"parallel.tp": values})


@pytest.mark.parametrize("workers", [0, -1, True])
def test_workers_are_one_or_more(workers: int) -> None:
    with pytest.raises(ScenarioError, match="workers"):
        ts.sweep(BASE, GRID, workers=workers)


def test_a_point_that_cannot_run_is_a_row_that_says_why() -> None:
    frame = ts.sweep(BASE, GRID, workers=1)
    assert list(frame.columns) == [*GRID, *COLUMNS]
    assert frame["parallel.tp"].tolist() == [1, 1, 2, 2, 3, 3]
    ran = frame[frame["error"].isna()]
    assert len(ran) == 4
    assert (ran["step_time_s"] > 0).all()
    assert ran["fits"].all()
    assert ran["mfu"].between(0, 1).all()
    for message in frame["error"][4:]:
        assert "4 heads are not divisible by tp=3" in message
    assert math.isnan(frame["step_time_s"].iloc[5])
    assert not frame.attrs["interrupted"]


def test_unknown_paths_and_wrong_types_are_rows_too() -> None:
    frame = ts.sweep(BASE, {"parallel.tpp": [1, 2]}, workers=1)
    assert frame["error"].str.contains("did you mean 'tp'").all()
    assert "whole number" in ts.sweep(BASE, {"parallel.tp": ["x"]}, workers=1)["error"][0]


def test_a_bug_in_one_point_is_a_row_with_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Scenario) -> Any:
        if self.spec.parallel.tp == 2:
            raise ZeroDivisionError("division by zero")
        return original(self)

    original = Scenario.run
    monkeypatch.setattr(Scenario, "run", broken)
    frame = ts.sweep(BASE, {"parallel.tp": [1, 2]}, workers=1)
    assert frame["error"].tolist()[1] == "ZeroDivisionError: division by zero"
    assert frame["step_time_s"][0] > 0


def interrupting(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Ctrl-C comes in the run after so many."""
    ran: list[Scenario] = []

    def run(self: Scenario) -> Any:
        if len(ran) == after:
            raise KeyboardInterrupt
        ran.append(self)
        return original(self)

    original = Scenario.run
    monkeypatch.setattr(Scenario, "run", run)


def test_an_interrupt_keeps_what_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupting(monkeypatch, 2)
    frame = ts.sweep(BASE, GRID, workers=1)
    assert frame.attrs["interrupted"]
    assert len(frame) == 6
    assert frame["error"].isna().sum() == 2
    assert (frame["error"][2:4] == NOT_RUN.reason).all()


@pytest.mark.slow
def test_processes_give_the_same_table_as_none() -> None:
    import pandas as pd

    here, there = ts.sweep(BASE, GRID, workers=1), ts.sweep(BASE, GRID, workers=2)
    pd.testing.assert_frame_equal(here, there)


def test_a_grid_may_be_an_array() -> None:
    grids = ({"training.global_batch": np.array([8, 16])}, {"training.global_batch": [8, 16]})
    one, two = (ts.sweep(BASE, grid, workers=1) for grid in grids)
    assert one["error"].isna().all()
    assert one.equals(two)


def test_a_scenario_may_be_a_name_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(BASE.to_yaml())
    grid = {"training.global_batch": [8, 16]}
    for given in (str(tmp_path / "own.yaml"), tmp_path / "own.yaml"):
        assert ts.sweep(given, grid, workers=1).equals(ts.sweep(BASE, grid, workers=1))
    assert (
        ts.sweep("quickstart", {"parallel.tp": [2]})["step_time_s"][0] == ts.Scenario.load("quickstart").run().step_time
    )


@pytest.mark.parametrize("given", [3, None, {"model": "gpt2-xl"}, ["quickstart"]])
def test_what_is_no_scenario_is_refused(given: Any) -> None:
    for study in (
        lambda: ts.sweep(given, {"parallel.tp": [1]}),
        lambda: ts.explain(given),
        lambda: ts.what_fits(given),
    ):
        with pytest.raises(ScenarioError, match="is not a scenario"):
            study()


@pytest.mark.parametrize("name", ["sweep", "explain", "compare", "what_fits"])
def test_help_shows_the_function(name: str) -> None:
    import importlib
    import pydoc

    importlib.import_module(f"trainsim.study.{name}")
    text = pydoc.plain(pydoc.render_doc(getattr(ts, name)))
    assert f"function {name} in module trainsim.study.{name}" in text
    assert "Raises" in text
