"""Designs: which points a sweep runs, in which order, and which it leaves out."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trainsim as ts
from tests.test_sweep import BASE
from trainsim.cli.design_options import design_of, ranges_of, zip_of
from trainsim.errors import ScenarioError, TrainsimError
from trainsim.study.designs.design import Design
from trainsim.study.designs.expression import Expression
from trainsim.study.designs.grid import grid
from trainsim.study.designs.listed import listed, read_points
from trainsim.study.designs.samples import latin_hypercube, read_range, samples
from trainsim.study.designs.where import Conditions
from trainsim.study.designs.zipped import zipped
from trainsim.study.swept import read_frame


@given(axes=st.integers(1, 5), count=st.integers(1, 60), seed=st.integers(0, 10**6))
def test_each_stratum_of_each_axis_is_hit_once(axes: int, count: int, seed: int) -> None:
    rows = latin_hypercube(axes, count, seed=seed)
    assert len(rows) == axes
    for row in rows:
        assert sorted(math.floor(part * count) for part in row) == list(range(count))
    assert rows == latin_hypercube(axes, count, seed=seed)


@given(count=st.integers(2, 40), seed=st.integers(0, 1000), low=st.integers(-50, 50), size=st.integers(0, 60))
def test_samples_lie_in_their_range_and_are_the_same_by_seed(count: int, seed: int, low: int, size: int) -> None:
    ranges = {"a": f"{low}..{low + size}", "b": "1e-6..1e-3 log", "c": ["x", "y", "z"]}
    points = list(samples(ranges, count, seed=seed))
    assert points == list(samples(ranges, count, seed=seed))
    assert len(points) == count
    for point in points:
        assert low <= point["a"] <= low + size
        assert isinstance(point["a"], int)
        assert 1e-6 <= point["b"] <= 1e-3
    tally = [sum(point["c"] == choice for point in points) for choice in "xyz"]
    assert max(tally) - min(tally) <= 1 or count % 3
    each = [sum(point["a"] == low + k for point in points) for k in range(size + 1)]
    assert all(abs(hits - count / (size + 1)) < 2 for hits in each), "whole numbers are hit equally often"


def test_a_logarithmic_range_has_as_many_below_as_above_its_geometric_mean() -> None:
    values = [point["x"] for point in samples({"x": "1..10000 log"}, 100, seed=3)]
    assert sum(value < 100 for value in values) == 50


def test_another_seed_is_another_draw_and_another_axis_changes_nothing() -> None:
    one, two = (list(samples({"a": "0.0..1.0"}, 10, seed=seed)) for seed in (0, 1))
    assert one != two
    more = list(samples({"a": "0.0..1.0", "b": "1..9"}, 10, seed=0))
    assert [point["a"] for point in more] == [point["a"] for point in one]


@pytest.mark.parametrize(
    ("ranges", "count", "seed", "said"),
    [
        ({"a": "5..1"}, 4, 0, "below its start"),
        ({"a": "0..8 log"}, 4, 0, "above 0"),
        ({"a": "1-8"}, 4, 0, "1..16"),
        ({"a": []}, 4, 0, "a: expected a list"),
        ({"a": "1..1e400"}, 4, 0, "too large"),
        ({}, 4, 0, "mapping"),
        ({"a": "1..8"}, 0, 0, "samples=0"),
        ({"a": "1..8"}, True, 0, "samples=True"),
        ({"a": "1..8"}, 4, -1, "seed=-1"),
        ({3: "1..8"}, 4, 0, "3 is not a path"),
    ],
)
def test_samples_that_cannot_be(ranges: Any, count: Any, seed: int, said: str) -> None:
    with pytest.raises(ScenarioError, match=said.replace("..", r"\.\.")):
        samples(ranges, count, seed=seed)


def test_designs_multiply_in_order() -> None:
    design = grid({"a": [1, 2]}) * zipped({"b": [1, 2], "c": [3, 4]}) * listed([{"d": 5}, {"e": 6}])
    assert design.axes == ("a", "b", "c", "d", "e")
    assert len(design) == len(list(design)) == 8
    assert next(iter(design)) == {"a": 1, "b": 1, "c": 3, "d": 5}
    assert list(design)[-1] == {"a": 2, "b": 2, "c": 4, "e": 6}
    assert list(Design()) == [{}]


def test_a_million_points_are_not_made_at_once() -> None:
    design = grid({f"p{k}": range(100) for k in range(3)})
    assert len(design) == 10**6
    assert next(iter(design)) == {"p0": 0, "p1": 0, "p2": 0}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: zipped({"a": [1, 2], "b": [1]}), "a has 2, b has 1"),
        (lambda: zipped({}), "same length"),
        (lambda: grid({"a": [1]}) * grid({"a": [2]}), "two parts"),
        (lambda: grid({"a": [1]}) * zipped({"a.b": [2]}), "undo"),
        (lambda: listed([]), "no points"),
        (lambda: listed([3]), "point 1 is 3"),
        (lambda: listed(3), "point 1 is 3"),
        (lambda: grid([3]), "mapping"),
    ],
)
def test_designs_that_cannot_be(make: Any, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        make()


POINTS = [{"parallel.tp": 2, "pipeline.layout": [2, 2]}, {"parallel.tp": 4}, {"training.recompute": "full"}]


def test_points_of_a_file_are_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "points.json").write_text(json.dumps(POINTS))
    (tmp_path / "points.yaml").write_text(
        "- {parallel.tp: 2, pipeline.layout: [2, 2]}\n- parallel.tp: 4\n- training.recompute: full\n"
    )
    (tmp_path / "points.csv").write_text(
        'parallel.tp,pipeline.layout,training.recompute\n2,"[2, 2]",\n4,,\n\n,,full\n', encoding="utf-8-sig"
    )
    for name in ("points.json", "points.yaml", "points.csv"):
        assert list(read_points(tmp_path / name)) == POINTS
        assert list(design_of([], points=tmp_path / name)) == POINTS


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "", "no points"),
        ("a.csv", "parallel.tp\n1,2\n", "row 2 has more cells"),
        ("a.csv", "a,a\n1,2\n", "two columns"),
        ("a.yaml", "a: 1", "no list"),
        ("a.yaml", "[1", "not valid YAML"),
        ("a.json", "[3]", "point 1 is 3"),
        ("a.yaml", "- &a [*a]", "too many or too deeply"),
        ("a.yaml", "", "no list"),
        ("a.txt", "", r"\.csv"),
        ("a.csv", "x\n\udcff", "UTF-8"),
    ],
)
def test_a_file_of_points_that_cannot_be_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ScenarioError, match=said) as raised:
        read_points(tmp_path / name)
    assert name in str(raised.value)
    with pytest.raises(ScenarioError, match="cannot be read"):
        read_points(tmp_path / "none.yaml")


# conditions

NUMBERS = st.one_of(st.integers(-20, 20), st.floats(-20, 20, allow_nan=False)).map(lambda n: f"({n!r})")
ATOMS = st.one_of(NUMBERS, st.sampled_from(["a.b", "a.c", "'x'", "a.word"]))


def _joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.tuples(inner, st.sampled_from(
        ["+", "-", "*", "/", "//", "%", "**", "<", "<=", ">", ">=", "==", "!=", "and", "or"]), inner)  # fmt: skip
    return st.one_of(
        pairs.map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        inner.map(lambda a: f"(not {a})"),
        inner.map(lambda a: f"(-{a})"),
        inner.map(lambda a: f"abs({a})"),
        st.tuples(inner, inner).map(lambda p: f"max({p[0]}, {p[1]})"),
        st.tuples(inner, inner).map(lambda p: f"({p[0]} in [{p[1]}, 4])"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} < {p[1]} <= {p[2]})"),
    )


class Names:
    b, c, word = 3, 2.5, "x"


@given(text=st.recursive(ATOMS, _joined, max_leaves=8))
def test_an_expression_comes_to_what_python_says(text: str) -> None:
    values = {"a.b": 3, "a.c": 2.5, "a.word": "x"}
    try:
        got: Any = Expression.read(text).value(values.__getitem__)
    except ScenarioError as error:
        assert text[:20] in str(error)
        got = None
    try:
        want = eval(text, {"a": Names, "abs": abs, "max": max})
    except (TypeError, ZeroDivisionError, OverflowError, ValueError):
        assert got is None
        return
    if got is not None:  # words have no arithmetic here, and numbers stay small and real
        assert got == want
    else:
        assert "**" in text or "'x'" in text or "word" in text


@given(text=st.text(max_size=60))
def test_any_words_are_an_expression_or_one_error(text: str) -> None:
    try:
        Expression.read(text).value(lambda path: 1)
    except ScenarioError as error:
        assert "where" in str(error)


NOTHING = (
    "__import__('os')", "a()", "(lambda: 1)()", "a.b.c()", "[x for x in a]", "f'{a}'", "{}", "a[b]", "a := 1", "*a",
    "a if b else c", "b'x'", "1j", "min()", "abs(1, 2)", "max(a, key=b)", "(" * 300 + "1" + ")" * 300, "9**9**9",
    "-" * 1100 + "1", "a @ b", "a is b", "~1",
)  # fmt: skip


@pytest.mark.parametrize("text", NOTHING)
def test_nothing_else_is_an_expression(text: str) -> None:
    with pytest.raises(ScenarioError):
        Expression.read(text).value(lambda path: 1)


def test_conditions_see_given_defaults_and_derived_values() -> None:
    def holds(text: Any, **point: Any) -> bool:
        changes = {path.replace("_", ".", 1): value for path, value in point.items()}
        return Conditions.read(text, BASE).hold(BASE, changes)

    assert holds("parallel.tp == 1 and parallel.dp == 8")
    assert holds("parallel.dp == 4", parallel_tp=2)
    assert holds("parallel.tp * parallel.pp <= cluster.gpus_per_node", parallel_tp=2, parallel_pp=4)
    assert not holds("parallel.tp * parallel.pp < cluster.gpus_per_node", parallel_tp=2, parallel_pp=4)
    assert holds("training.recompute == 'none' and training.precision in ('bf16', 'fp16')")
    assert holds(["parallel.tp < 3", lambda scenario: scenario.spec.parallel.tp == 2], parallel_tp=2)
    assert not holds(["parallel.tp < 3", lambda scenario: False], parallel_tp=2)
    assert holds("model.layers / parallel.pp >= 2", parallel_pp=2)
    assert holds("parallel.dp > 100", parallel_tp=3), "what cannot run says so when it is run"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("parallel.tpp < 3", "'parallel.tp'"),
        ("tp < 3", "parallel.tp"),
        ("training.microbatch < 3", "training.micro_batch"),
        ("parallel.tp <", "invalid syntax"),
        ("parallel.tp < 'x'", "not supported"),
        ("parallel.tp / 0 < 1", "division by zero"),
        ("pipeline.group > 2", "None"),
    ],
)
def test_conditions_that_cannot_be(text: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        ts.sweep(BASE, {"parallel.tp": [1, 2]}, where=text)


def test_points_that_do_not_hold_are_left_out_and_counted() -> None:
    frame = ts.sweep(
        BASE, ts.grid({"parallel.tp": [1, 2, 3], "parallel.pp": [1, 2]}), where="parallel.tp * parallel.pp <= 3"
    )
    assert list(zip(frame["parallel.tp"], frame["parallel.pp"], strict=True)) == [(1, 1), (1, 2), (2, 1), (3, 1)]
    assert frame.attrs["left_out"] == 2
    assert frame["error"].notna().tolist() == [False, False, False, True]
    with pytest.raises(ScenarioError, match="none of 2 points"):
        ts.sweep(BASE, {"parallel.tp": [1, 2]}, where="parallel.tp > 2")


def test_points_one_by_one_keep_what_they_leave_out() -> None:
    frame = ts.sweep(BASE, [{"parallel.tp": 2}, {"training.micro_batch": 2}], workers=1)
    assert frame["parallel.tp"].isna().tolist() == [False, True]
    assert frame["error"].isna().all()
    run = BASE.replace({"training.micro_batch": 2}).run()
    assert frame["step_time_s"][1] == run.step_time


# the command line


def test_options_multiply() -> None:
    design = design_of(["a=1,2"], ["b=1,2 c=3,4"], ranges=["d=1..4", "e=x,y"], samples=3)
    assert len(design) == 2 * 2 * 3
    assert design.axes == ("a", "b", "c", "d", "e")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"grids": []}, "say what to try"),
        ({"grids": ["a=1"], "seed": 3}, "--sample"),
        ({"grids": ["a=1"], "zips": ["a=1 b=2"]}, "two parts"),
        ({"grids": [], "zips": ["a=1,2 b=2"]}, "a has 2, b has 1"),
        ({"grids": [], "zips": ["a=1 a=2"]}, "twice"),
        ({"grids": [], "zips": ["  "]}, "--zip"),
        ({"grids": [], "ranges": ["a=1..2", "a=1..3"]}, "already"),
    ],
)
def test_options_that_cannot_be(words: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        design_of(**words)


TRICKY = st.text(st.sampled_from("a.=, 1-[]{}log'eé\n\0"), max_size=25)


@given(text=st.one_of(st.text(max_size=40), TRICKY))
def test_any_words_are_a_zip_or_a_range_or_one_error(text: str) -> None:
    for read in (zip_of, lambda words: list(samples(ranges_of([words]), 2)), lambda words: read_range("a", words)):
        try:
            read(text)
        except TrainsimError as error:
            assert str(error)


def test_zip_values_may_have_spaces() -> None:
    assert zip_of("a=[1, 2],[3, 4]  b=x y,z") == {"a": [[1, 2], [3, 4]], "b": ["x y", "z"]}
    assert list(product(*zip_of("a=1 b=2").values())) == [(1, 2)]


def test_whole_numbers_stay_whole_where_some_points_leave_them_out() -> None:
    frame = ts.sweep(BASE, [{"parallel.tp": 2}, {"training.micro_batch": 2}], workers=1)
    assert [point.title for point in read_frame(frame)[1]] == ["tp 2", "micro_batch 2"]
