"""What a sweep says on the whole: fronts against a slow oracle, axes without effect, and what is told in a terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trainsim as ts
from tests.test_cli import SMALL, status
from tests.test_sweep import BASE
from trainsim.errors import ScenarioError
from trainsim.report.style import GIB
from trainsim.study.sweep import run_design
from trainsim.study.sweep_summary import BINS, SweepGoal, pareto_front, summarize
from trainsim.study.swept import SweptPoint, read_frame
from trainsim.study.trial import Measures


def ran(
    step: float, memory: float = 1.0, *, fits: bool = True, gpus: int = 8, batch: int = 32, **more: Any
) -> Measures:
    tokens = batch * 100 / step
    return Measures(
        step_time=step, tokens_per_s=tokens, tokens_per_s_per_gpu=tokens / gpus, mfu=0.4, hfu=0.4, bubble_fraction=0.1,
        peak_memory=memory, needed_memory=memory, capacity=80.0 * GIB, full=memory / 80.0 / GIB, gpus_fit=fits,
        fits=fits,
        complaint="", warnings=0, global_batch=batch, gpus=gpus, **more,
    )  # fmt: skip


def swept(*measured: Measures | str, **axes: list[Any]) -> list[SweptPoint]:
    values = [dict(zip(axes, each, strict=True)) for each in zip(*axes.values(), strict=True)] or [{}] * len(measured)
    return [
        SweptPoint(values=v, reason=m) if isinstance(m, str) else SweptPoint(values=v, ran=m)
        for v, m in zip(values, measured, strict=True)
    ]


PAIRS = st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), max_size=20)


@given(pairs=PAIRS)
def test_the_front_is_what_no_other_point_beats(pairs: list[tuple[int, int]]) -> None:
    points = swept(*(ran(step, memory) for step, memory in pairs))
    front = [(p.ran.step_time, p.ran.peak_memory) for p in pareto_front(points, SweepGoal.STEP) if p.ran]

    def beaten(one: tuple[int, int]) -> bool:
        return any(other != one and other[0] <= one[0] and other[1] <= one[1] for other in pairs)

    assert sorted(front) == sorted({pair for pair in pairs if not beaten(pair)})
    assert [memory for _, memory in front] == sorted(memory for _, memory in front)


def test_what_does_not_fit_is_not_on_the_front_and_not_the_best() -> None:
    one = summarize((), swept(ran(1, fits=False), ran(2), ran(3, 0.5), "no", "no"))
    assert one.fastest is not None
    assert one.fastest.ran == ran(2)
    assert [p.ran.step_time for p in one.front if p.ran] == [3, 2]
    assert (one.points, one.ran, one.fit) == (5, 3, 2)
    assert [(r.reason, r.points) for r in one.not_run] == [("no", 2)]


@pytest.mark.parametrize(
    ("measured", "objective", "fastest", "thriftiest"),
    [
        ([ran(3), ran(2)], SweepGoal.STEP, 1, 1),
        ([ran(3, batch=64), ran(2)], SweepGoal.TOKENS, 0, 0),
        ([ran(3, gpus=16), ran(4)], SweepGoal.PER_GPU, 0, 1),
        ([ran(3, cost=5.0, days=1.0), ran(4, cost=4.0, days=1.0)], SweepGoal.STEP, 0, 1),
    ],
)
def test_points_compare_by_what_is_alike(
    measured: list[Measures], objective: SweepGoal, fastest: int, thriftiest: int
) -> None:
    points = swept(*measured)
    one = summarize((), points)
    assert one.objective is objective
    assert one.fastest is points[fastest]
    assert one.thriftiest is points[thriftiest]


def test_nothing_ran() -> None:
    one = summarize(("a",), swept("no 3", "no 4", a=[1, 2]))
    assert one.fastest is one.thriftiest is None
    assert one.front == one.sensitivities == ()
    assert [(r.points, r.reasons) for r in one.not_run] == [(2, 2)]
    json.dumps(one.to_dict())


@given(times=st.lists(st.floats(0.1, 10), min_size=2, max_size=5))
def test_an_axis_without_effect_has_none(times: list[float]) -> None:
    values = [(a, b) for a in range(len(times)) for b in "xyz"]
    points = swept(*(ran(times[a]) for a, _ in values), a=[a for a, _ in values], b=[b for _, b in values])
    effects = {one.axis: (one.effect, one.effect_on_best) for one in summarize(("a", "b"), points).sensitivities}
    assert effects["b"] == (0.0, 0.0)
    assert effects["a"] == pytest.approx((max(times) / min(times) - 1,) * 2)


@given(numbers=st.lists(st.integers(0, 30), min_size=9, max_size=60))
def test_many_numbers_are_taken_together_and_none_is_lost(numbers: list[int]) -> None:
    points = swept(*(ran(1.0 + n) for n in numbers), a=numbers)
    found = summarize(("a",), points).sensitivities
    levels = found[0].levels if found else ()
    if len(set(numbers)) > 8:
        assert 2 <= len(levels) <= BINS
        assert sum(level.points for level in levels) == len(numbers)
        assert found[0].best is levels[0]
        assert found[0].worst is levels[-1]
    else:
        assert len(levels) == (len(set(numbers)) if len(set(numbers)) > 1 else 0)


def test_a_table_reads_back_as_points(tmp_path: Path) -> None:
    swept_here = run_design(BASE, {"parallel.tp": [1, 2, 3], "training.recompute": ["none", "full"]}, workers=1)
    frame = swept_here.frame()
    axes, points = read_frame(frame)
    assert axes == swept_here.axes
    assert [p.row() for p in points] == [p.row() for p in swept_here.points]
    frame.to_csv(tmp_path / "a.csv", index=False)
    assert read_frame(pd.read_csv(tmp_path / "a.csv"))[0] == axes
    assert ts.sweep_summary(frame).to_dict() == swept_here.summary().to_dict()
    some = frame[frame["training.recompute"] == "full"]
    assert ts.sweep_summary(some).points == 3
    with pytest.raises(ScenarioError, match="mfu"):
        ts.sweep_summary(frame.drop(columns="mfu"))


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def test_a_long_sweep_shows_the_best_and_says_where_all_are(small: None, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "small.yaml", "--grid", "parallel.tp=1,2,3", "--grid", "simulation.seed=0,1,2,3,4,5,6,7"]
    words += ["--grid", "simulation.detail=block,layer"]
    assert status(*words, "--workers", "1") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "48 points" in out
    assert "the best 20 of 32 that ran" in out
    assert "--csv FILE" in out
    assert "(16 points)" in out


def test_json_has_the_summary(small: None, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "small.yaml", "--grid", "parallel.tp=1,2,3", "--where", "parallel.tp != 1", "--json"]
    assert status(*words) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["summary"]["left_out"] == 1
    assert data["summary"]["fastest"]["parallel.tp"] == 2
    assert data["summary"]["not_run"][0]["points"] == 1
    assert set(data["summary"]["fastest"]) == set(data["rows"][0])
