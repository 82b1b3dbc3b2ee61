"""Pictures of sweeps: whatever a sweep holds can be drawn, every point is in it, and no label lies on another."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trainsim as ts
from tests.test_cli import SMALL, status
from tests.test_sweep import BASE
from tests.test_sweep_summary import ran
from trainsim.errors import ScenarioError, TrainsimError
from trainsim.report.style import GIB
from trainsim.study.pictures.quantities import QUANTITIES
from trainsim.study.pictures.ticks import ticks
from trainsim.study.sweep_plot import by_weight, draw
from trainsim.study.sweep_summary import summarize
from trainsim.study.swept import SweptPoint


def made(axes: dict[str, list[Any]], *, holes: int = 0) -> list[SweptPoint]:
    """A grid whose points differ; each *holes*-th cannot run, and each fifth does not fit."""
    points = []
    for k, values in enumerate(product(*axes.values())):
        point = dict(zip(axes, values, strict=True))
        if holes and k % holes == 0:
            points.append(SweptPoint(values=point, reason=f"{k} heads are not divisible by {k + 1}: $x_{k}$ <b>" * 3))
        else:
            measured = ran(1.0 + (k * 7 % 11) / 10, (20 + k % 17) * GIB, fits=k % 5 > 0)
            points.append(SweptPoint(values=point, ran=measured))
    return points


DESIGNS: dict[str, dict[str, list[Any]]] = {
    "one": {"parallel.tp": [1, 2, 4]},
    "words": {"pipeline.schedule": ["1f1b", "zb-h1", "a" * 60, "日本 $x$"]},
    "line": {"training.micro_batch": list(range(1, 30))},
    "two": {"parallel.tp": [1, 2, 4], "parallel.pp": [1, 2]},
    "three": {"parallel.tp": [1, 2, 4], "parallel.pp": [1, 2], "training.recompute": ["none", "full", None]},
    "five": {"a.a": [1, 2], "b.b": [1, 2], "c.c": [1, 2], "d.d": [1, 2], "e.e": [True, False]},
    "many": {"a.a": list(range(40)), "b.b": [0.5 + k for k in range(13)]},
    "panels": {"a.a": [1, 2], "b.b": [1, 2], "c.c": list("abcdefghijk")},
    "lists": {"pipeline.layout": [[1, 2], [2, 1]], "parallel.pp": [2, 4]},
}


@pytest.mark.parametrize("holes", [0, 3])
@pytest.mark.parametrize("name", DESIGNS)
def test_whatever_a_sweep_holds_can_be_drawn(name: str, holes: int, tmp_path: Path) -> None:
    axes, points = tuple(DESIGNS[name]), made(DESIGNS[name], holes=holes)
    for kind, value in [("map", None), ("map", "mfu"), ("pareto", None)]:
        figure = draw(axes, points, kind=kind, value=value)  # type: ignore[arg-type]
        figure.savefig(tmp_path / "a.png")
        width, height = figure.get_size_inches()
        assert width < 25
        assert height < 15


def test_a_heat_map_has_the_number_of_every_cell_and_why_others_are_empty() -> None:
    axes = ("parallel.tp", "parallel.pp")
    points = made({"parallel.tp": [1, 2, 4], "parallel.pp": [1, 2]}, holes=4)
    figure = draw(axes, points)
    texts = [text.get_text() for text in figure.axes[0].texts]
    shown = [QUANTITIES["step_time_s"].text(p.ran.step_time) for p in points if p.ran]
    assert sorted(texts) == sorted([*shown, "(1)", "(1)"])
    notes = " ".join(text.get_text() for text in figure.texts)
    assert "(1) such as: 0 heads are not divisible" in notes
    bold = [text.get_text() for text in figure.axes[0].texts if text.get_fontweight() == "bold"]
    assert bold == [QUANTITIES["step_time_s"].text(min(p.ran.step_time for p in points if p.ran and p.fits))]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.floats(1, 2), st.floats(1, 100)), min_size=1, max_size=30))
def test_no_label_of_a_pareto_lies_on_another_or_on_a_point(pairs: list[tuple[float, float]]) -> None:
    points = [
        SweptPoint(values={"parallel.tp": k, "pipeline.schedule": "interleaved"}, ran=ran(step, memory * GIB))
        for k, (step, memory) in enumerate(pairs)
    ]
    figure = draw(("parallel.tp", "pipeline.schedule"), points, kind="pareto")
    plot = figure.axes[0]
    labels = [text for text in plot.texts if "interleaved" in text.get_text()]
    boxes = [label.get_window_extent() for label in labels]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    for line in plot.lines:
        if line.get_marker() == "o":
            x, y = plot.transData.transform((line.get_xdata()[0], line.get_ydata()[0]))
            assert not any(box.contains(x, y) for box in boxes)


def test_axes_with_one_value_are_left_out_and_the_rest_is_ordered_by_effect() -> None:
    points = [
        SweptPoint(values={"a": a, "b": b, "c": 1}, ran=ran(1.0 + b / 10 + a)) for a, b in product([1, 2], [1, 2, 3])
    ]
    assert by_weight(("a", "b", "c"), points, summarize(("a", "b", "c"), points)) == ["a", "b"]


def test_places_of_numbers_are_in_their_order_and_many_are_together() -> None:
    points = [SweptPoint(values={"a": value}) for value in (8, 1, 2)]
    assert ticks("a", points).titles == ("1", "2", "8")
    many = [SweptPoint(values={"a": value}) for value in range(100)]
    found = ticks("a", many)
    assert len(found) == 6
    assert [found.at(point) for point in many] == sorted(found.at(point) for point in many)
    mixed = [SweptPoint(values={"a": 1}), SweptPoint(values={})]
    assert ticks("a", mixed).titles == ("1", "as it is")


def test_one_call_draws_a_table(tmp_path: Path) -> None:
    frame = ts.sweep(BASE, {"parallel.tp": [1, 2, 3], "parallel.pp": [1, 2]}, workers=1)
    for name in ("a.png", "a.svg"):
        ts.sweep_plot(frame, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 5000
    frame.to_csv(tmp_path / "a.csv", index=False)
    ts.sweep_plot(pd.read_csv(tmp_path / "a.csv"), tmp_path / "b.png", kind="pareto")
    ts.sweep_plot(frame[frame["parallel.pp"] == 1], value="peak_memory_bytes")
    with pytest.raises(TrainsimError, match="mfu"):
        ts.sweep_plot(frame, value="mfoo")
    with pytest.raises(ScenarioError, match="'map' and 'pareto'"):
        ts.sweep_plot(frame, kind="pie")  # type: ignore[arg-type]
    with pytest.raises(ScenarioError, match="no point could run"):
        ts.sweep_plot(frame[frame.error.notna()])
    with pytest.raises(TrainsimError, match=r"a\.foo"):
        ts.sweep_plot(frame, tmp_path / "a.foo")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    (tmp_path / "small.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    return ["sweep", "small.yaml", "--grid", "parallel.tp=1,2"]


def test_the_command_draws_a_file_or_a_folder(small: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*small, "--plot", "a.png", "--json") == 0
    assert Path("a.png").exists()
    assert "Drawn: a.png" in capsys.readouterr().err
    assert status(*small, "--plot", "pictures") == 0
    assert {file.name for file in Path("pictures").iterdir()} == {"map.png", "pareto.png"}


@pytest.mark.parametrize("file", ["a.foo", "b.yaml"])
def test_a_picture_that_cannot_be_is_refused_before_any_work(
    small: list[str], file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(*small, "--plot", file) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "ending" in printed.err
