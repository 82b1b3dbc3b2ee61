"""Quantities: what people write is read, what is printed reads back, what makes no sense is refused."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainsim import units
from trainsim.errors import TrainsimError

PAIRS: list[tuple[Callable[[float], str], Callable[[units.Quantity], float]]] = [
    (units.format_bandwidth, units.parse_bandwidth),
    (units.format_time, units.parse_time),
    (units.format_count, units.parse_count),
    (units.format_flops, units.parse_flops),
]
PARSERS = [units.parse_bytes, *(parse for _, parse in PAIRS)]


@pytest.mark.parametrize(("form", "parse"), PAIRS, ids=lambda f: f.__name__)
@given(value=st.floats(1e-9, 1e18))
@settings(deadline=None, max_examples=80)
def test_what_is_printed_reads_back(
    form: Callable[[float], str], parse: Callable[[units.Quantity], float], value: float
) -> None:
    assert parse(form(value)) == pytest.approx(value, rel=0.006, abs=0.006 if form is not units.format_time else 1e-14)


@given(value=st.floats(1e-9, 1e15), like=st.floats(1e-9, 1e15))
@settings(deadline=None, max_examples=80)
def test_a_column_in_one_unit_is_rounded_to_its_last_decimal(value: float, like: float) -> None:
    for form, parse in ((units.format_bytes, units.parse_bytes), (units.format_time, units.parse_time)):
        number, _, unit = form(value, like=like).partition(" ")
        last = 10.0 ** -len(number.partition(".")[2])
        assert parse(form(value, like=like)) == pytest.approx(value, rel=1e-9, abs=0.5 * last * parse(f"1{unit}"))
        shows = float(number) != 0
        assert shows or value <= 0.5
        assert not shows or unit in (form(like).partition(" ")[2], form(value).partition(" ")[2])


@pytest.mark.parametrize("parse", PARSERS, ids=lambda f: f.__name__)
@given(value=st.floats(0, 1e20))
@settings(deadline=None, max_examples=30)
def test_plain_numbers_are_si(parse: Callable[[units.Quantity], float], value: float) -> None:
    assert parse(value) == value
    assert parse(repr(value)) == value


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (units.parse_bytes, "80GB", 80e9),
        (units.parse_bytes, "80 GiB", 80 * 2**30),
        (units.parse_bytes, "1_000", 1000),
        (units.parse_bytes, "16gb", 16e9),
        (units.parse_bandwidth, "200Gbps", 25e9),
        (units.parse_bandwidth, "200 Gb/s", 25e9),
        (units.parse_bandwidth, "200gbps", 25e9),
        (units.parse_bandwidth, "25GB/s", 25e9),
        (units.parse_bandwidth, "2 GiB/s", 2**31),
        (units.parse_time, "1.5us", 1.5e-6),
        (units.parse_time, "20 ms", 0.02),
        (units.parse_time, "2min", 120),
        (units.parse_count, "500M", 5e8),
        (units.parse_count, "1.5e3", 1500),
        (units.parse_flops, "989.4 TFLOPS", 989.4e12),
    ],
)
def test_what_people_write(parse: Callable[[units.Quantity], float], text: str, value: float) -> None:
    assert parse(text) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize("parse", PARSERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "value", ["25 parsecs", "-3", "nan", "inf", "", "GB", "1.2.3", True, -1.0, float("nan"), [1], None]
)
def test_nonsense_is_refused_with_units_that_would_work(parse: Callable[[object], float], value: object) -> None:
    with pytest.raises(TrainsimError) as error:
        parse(value)
    assert repr(value) in str(error.value) or str(value) in str(error.value)


def test_small_b_in_lower_case_bandwidth_is_ambiguous() -> None:
    with pytest.raises(units.BadQuantity, match="b is a bit and B a byte"):
        units.parse_bandwidth("25gb/s")


@given(text=st.text(max_size=30))
@settings(deadline=None, max_examples=200)
def test_no_text_crashes_a_parser(text: str) -> None:
    for parse in PARSERS:
        try:
            assert parse(text) >= 0
        except units.BadQuantity as error:
            assert repr(text) in str(error)


@given(value=st.integers(min_value=1 << 1024) | st.integers(max_value=-(1 << 1024)))
@settings(deadline=None, max_examples=30)
def test_numbers_that_no_float_holds_are_refused(value: int) -> None:
    for parse in PARSERS:
        for written in (value, hex(value), "9" * 400, "1e400", "9e307GB"):
            with pytest.raises(units.BadQuantity) as error:
                parse(written)
            assert len(str(error.value)) < 300
