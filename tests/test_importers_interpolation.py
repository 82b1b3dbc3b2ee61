"""``${...}`` in files of others, and sums: values that are known, those that are not, and bounds."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainsim.documents.document import read_text
from trainsim.importers.arithmetic import NoSum, evaluate
from trainsim.importers.interpolation import Interpolated, interpolated
from trainsim.importers.reader import leaves


def of(text: str, *sections: str) -> Interpolated:
    return interpolated(read_text(text, file="x.yaml"), *sections)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{a: 8, x: '${a}'}", 8),
        ("{a: 8, x: 'run-${a}-${a}'}", "run-8-8"),
        ("{a: {b: [1, 2]}, x: '${a.b[1]}'}", 2),
        ("{a: {b: 1}, x: '${a}'}", {"b": 1}),
        ("{a: null, x: '${a}'}", None),
        ("{a: true, x: 'is-${a}'}", "is-true"),
        ("{m: {tp: 8, pp: 9}, x: '${multiply:${m.tp}, ${m.pp}}'}", 72),
        ("{a: 4096, x: '${int_div:${multiply:${a},8},3}'}", 10922),
        ("{a: 2, x: '${eval:\"${a} * (3 + 1)\"}'}", 8),
        ("{a: 7, x: '${divide:${a},2}'}", 3.5),
        ("{x: '${oc.env:NAME,4}'}", 4),
        ("{x: '${oc.select:nothing,5}'}", 5),
        ("{k: b, b: 3, x: '${${k}}'}", 3),
        ("{x: '${a}', a: '${b}', b: 6}", 6),
    ],
)
def test_expressions_have_the_value_that_stands_elsewhere(text: str, value: Any) -> None:
    found = of(text)
    assert found.document.data["x"] == value
    assert not found.unknown


def test_a_dot_is_the_section_that_the_expression_stands_in() -> None:
    found = of("{m: {h: 64, heads: 4, k: '${div:${.h},${.heads}}', deep: {up: '${..h}'}}}")
    assert found.document.data["m"]["k"] == 16
    assert found.document.data["m"]["deep"]["up"] == 64


def test_a_section_of_variables_is_looked_into_last() -> None:
    found = of("{variables: {n: 2, seed: 17}, n: 3, x: '${n}', y: '${seed}', z: '${variables.n}'}", "variables")
    assert [found.document.data[key] for key in "xyz"] == [3, 17, 2]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{x: '${a}'}", "nothing is called a"),
        ("{x: '${x}'}", "refers to itself"),
        ("{x: '${a}', a: '${x}'}", "refers to itself"),
        ("{x: '${oc.env:HOME}'}", "environment variable"),
        ("{x: '${now:%Y}'}", "unknown resolver now"),
        ("{x: '${multiply:a,b}'}", "not a number"),
        ("{x: '${divide:1,0}'}", "division by zero"),
        ("{x: '${a'}", "not closed"),
        ("{x: '${....a}'}", "above the root"),
        ("{x: '???'}", "has to be given"),
        ("{a: [1], x: 'of ${a}'}", "section inside a string"),
    ],
)
def test_what_is_not_known_is_told_and_null(text: str, reason: str) -> None:
    found = of(text)
    assert found.document.data["x"] is None
    assert reason in found.unknown["x"]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(["x: ${v0}", *(f"v{k}: {{a: '${{v{k + 1}}}', b: '${{v{k + 1}}}'}}" for k in range(40)), "v40: 1"]),
        "\n".join(["x: ${v0}", *(f"v{k}: ${{v{k + 1}}}${{v{k + 1}}}${{v{k + 1}}}" for k in range(40)), "v40: word"]),
        "x: " + "${" * 300 + "a" + "}" * 300,
        "\n".join(f"k{k}: {{a: '${{k0}}'}}" for k in range(200)),
    ],
)
def test_nothing_grows_without_bounds(text: str) -> None:
    start = time.perf_counter()
    found = of(text)
    assert sum(1 for _ in leaves(found.document.data)) < 50_000
    assert time.perf_counter() - start < 1.0


@given(st.text("${}ab.,: []0123multiplyoc.env'", max_size=60), st.text("${}ab.:", max_size=20))
def test_any_text_is_read(first: str, second: str) -> None:
    quoted = [text.replace("'", "''") for text in (first, second)]
    found = of(f"a: '{quoted[0]}'\nb: '{quoted[1]}'\nm: {{c: '{quoted[0]}{quoted[1]}'}}")
    assert set(found.document.data) == {"a", "b", "m"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1+2*3", 7),
        ("-7/2", -3),
        ("-7%2", -1),
        ("(8 > 1) ? 1 : 0", 1),
        ("2**10", 1024),
        ("1 && 0 || 1", 1),
        ("0x1F & ~1", 30),
        ("220_000_000 / 1000", 220000),
    ],
)
def test_sums_as_bash_does_them(text: str, value: int) -> None:
    assert evaluate(text) == value


@pytest.mark.parametrize(
    "text", ["", "1+", "1/0", "2**100", "9**9**9", "(" * 50, "[0]*99999", "a", "1 2", "1e400", "__import__('os')", "$x"]
)
def test_what_is_no_sum_is_refused(text: str) -> None:
    with pytest.raises(NoSum):
        evaluate(text)


@given(st.text("0123456789+-*/%()<>=!&|^~?:[],. aTP", max_size=80))
def test_any_text_is_a_sum_or_refused_in_words(text: str) -> None:
    try:
        evaluate(text, {"TP": 8, "a": None}, "python")
    except NoSum as reason:
        assert str(reason)


@given(st.integers(-1000, 1000), st.integers(-1000, 1000), st.integers(1, 50))
def test_sums_are_those_of_python(a: int, b: int, c: int) -> None:
    text = f"({a}) * ({b}) + {c} - ({a}) // {c} * {c}"
    assert evaluate(text, style="python") == eval(text)
