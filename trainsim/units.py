"""
Quantities as people write them, read and printed at the border; inside there are only SI numbers.

Plain numbers are SI already: bytes, bytes/s, seconds, FLOP/s, watts. Prefixes k M G T P E are powers of 1000, Ki Mi
Gi Ti Pi powers of 1024. In a bandwidth a small b is a bit and a capital B a byte: ``200Gbps`` is ``25GB/s``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import inf, isfinite
from types import MappingProxyType

from trainsim.errors import LONGEST_VALUE, TrainsimError, shorten

Quantity = str | int | float


class BadQuantity(TrainsimError, ValueError):
    """Write a number, or a number with one of the units that the message lists."""


_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {prefix + "i": 1024.0**power for power, prefix in enumerate("KMGTP", 1)}
_NUMBER = re.compile(r"\s*([+-]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*", re.DOTALL)


def _table(prefixes: Mapping[str, float], *endings: str, factor: float = 1.0) -> dict[str, float]:
    return {prefix + ending: scale * factor for prefix, scale in prefixes.items() for ending in endings}


_BYTES = MappingProxyType(
    _table(_DECIMAL | _BINARY, "B", "", "Byte", "Bytes", "bytes")
    | {unit: scale for p, scale in _DECIMAL.items() for unit in [p.lower() + "b"] if p not in ("", "K")}
    | {unit.lower() + "b": scale for unit, scale in _BINARY.items()}
)
_BANDWIDTH = MappingProxyType(
    _table(_DECIMAL | _BINARY, "B/s", "Bps", "bytes/s")
    | _table(_DECIMAL | _BINARY, "b/s", "bps", "bit/s", "bits/s", factor=0.125)
    | {p.lower() + ending: s / 8 for p, s in _DECIMAL.items() for ending in ["bps", "bit/s"] if p not in ("", "K")}
)
_TIME = MappingProxyType(
    {"s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6}
    | {"ns": 1e-9, "ps": 1e-12, "min": 60.0, "h": 3600.0, "hour": 3600.0, "hours": 3600.0, "d": 86400.0}
)
_COUNT = MappingProxyType(_DECIMAL | _BINARY | {"m": 1e6, "B": 1e9, "b": 1e9, "t": 1e12})
_POWER = MappingProxyType({"W": 1.0, "Watt": 1.0, "watt": 1.0, "watts": 1.0, "mW": 1e-3, "kW": 1e3, "MW": 1e6})
_FLOPS = MappingProxyType(_table(_DECIMAL, "FLOP/s", "FLOPS", "FLOPs", "Flops", "flops", "FLOPs/s", "flop/s", "F"))


def _parse(value: Quantity, what: str, units: Mapping[str, float], examples: str) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadQuantity(f"{_shown(value)} is not {what}; write {examples}")
    if isinstance(value, int | float):
        number, unit = _float(value), ""
    else:
        match = _NUMBER.fullmatch(value)
        if not match:
            raise BadQuantity(f"{_shown(value)} is not {what}; write {examples}")
        number, unit = float(match[1].replace("_", "").replace(",", "")), match[2]
    if unit and unit not in units:
        hint = " (b is a bit and B a byte)" if unit.lower() in {"gb", "mb", "kb", "tb", "gb/s", "mb/s"} else ""
        raise BadQuantity(f"{_shown(value)} is not {what}: unit {_shown(unit)} is unknown{hint}; write {examples}")
    size = number * units[unit] if unit else number
    if not isfinite(size) or size < 0:
        raise BadQuantity(f"{_shown(value)} is not {what}: it must be finite and not negative")
    return size


def _shown(value: object) -> str:
    """*value* for a message: in Python's words, but never longer than a line."""
    short = value is None or isinstance(value, bool) or (isinstance(value, str) and len(value) < LONGEST_VALUE)
    return repr(value) if short else shorten(value)


def _float(value: float) -> float:
    """*value*, which is infinite where no floating-point number is as large."""
    try:
        return float(value)
    except OverflowError:
        return inf


def parse_bytes(value: Quantity) -> float:
    """Bytes.

    >>> parse_bytes("80GB"), parse_bytes("80 GiB"), parse_bytes(512)
    (80000000000.0, 85899345920.0, 512.0)
    >>> parse_bytes("25 parsecs")
    Traceback (most recent call last):
    trainsim.units.BadQuantity: '25 parsecs' is not a number of bytes: unit 'parsecs' is unknown; write 80GB, 80GiB, 512MB, 64KiB or plain bytes
    """  # noqa: E501
    return _parse(value, "a number of bytes", _BYTES, "80GB, 80GiB, 512MB, 64KiB or plain bytes")


def parse_bandwidth(value: Quantity) -> float:
    """Bytes per second; Gbps and Gb/s are bits.

    >>> parse_bandwidth("200Gbps"), parse_bandwidth("25 GB/s"), parse_bandwidth(1e9)
    (25000000000.0, 25000000000.0, 1000000000.0)
    """
    return _parse(value, "a bandwidth", _BANDWIDTH, "200Gbps or 200Gb/s (bits), 25GB/s (bytes) or plain bytes/s")


def parse_time(value: Quantity) -> float:
    """Seconds.

    >>> parse_time("1.5us"), parse_time("2 min"), parse_time(0.25)
    (1.5e-06, 120.0, 0.25)
    """
    return _parse(value, "a time", _TIME, "1.5us, 20ms, 3s, 2min, 1h or plain seconds")


def parse_count(value: Quantity) -> float:
    """A number of things (elements, parameters, tokens).

    >>> parse_count("500M"), parse_count("1.5B"), parse_count(7)
    (500000000.0, 1500000000.0, 7.0)
    """
    return _parse(value, "a count", _COUNT, "500M, 1.5B, 20k or a plain number")


def parse_flops(value: Quantity) -> float:
    """FLOP/s.

    >>> parse_flops("312 TFLOP/s"), parse_flops("1PFLOPS")
    (312000000000000.0, 1000000000000000.0)
    """
    return _parse(value, "a rate of computation", _FLOPS, "312TFLOP/s, 312TFLOPS, 1PFLOP/s or plain FLOP/s")


def parse_power(value: Quantity) -> float:
    """Watts.

    >>> parse_power("500W"), parse_power("0.7 kW"), parse_power(350)
    (500.0, 700.0, 350.0)
    """
    return _parse(value, "a power", _POWER, "500W, 0.7kW or plain watts")


def _format(value: float, scales: Sequence[tuple[float, str]]) -> str:
    """*value* in the largest unit that it reaches; two decimals below ten, else one."""
    scale, unit = _reached(value, scales)
    number = value / scale
    text = f"{number:.2f}" if abs(number) < 9.995 else f"{number:.1f}"
    return f"{text.rstrip('0').rstrip('.')}{unit}"


def _reached(value: float, scales: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The largest unit that *value* reaches when it is rounded; *scales* fall."""
    return next((pair for pair in scales if abs(value) >= pair[0] * 0.99995), scales[-1])


def _descending(prefixes: Mapping[str, float], ending: str) -> list[tuple[float, str]]:
    return sorted(((scale, f" {prefix}{ending}") for prefix, scale in prefixes.items()), reverse=True)


_SI = {prefix: scale for prefix, scale in _DECIMAL.items() if prefix != "K"}
_SIZES = _descending({"": 1.0} | _BINARY, "B")
_TIMES = ((3600.0, " h"), (1.0, " s"), (1e-3, " ms"), (1e-6, " us"), (1e-9, " ns"), (1e-12, " ps"))


def format_bytes(value: float, *, like: float | None = None) -> str:
    """A size in binary units, with one decimal; in the unit in which *like* would be written, so that a column reads.

    >>> format_bytes(79.2 * 2**30), format_bytes(2**29, like=2**36), format_bytes(512), format_bytes(0)
    ('79.2 GiB', '0.5 GiB', '512 B', '0 B')
    """
    return _fixed(value, _SIZES, 1, like)


def format_time(value: float, *, like: float | None = None, signed: bool = False) -> str:
    """A time with two decimals, in hours from two of them on; in the unit in which *like* would be written, so that a
    column reads. *signed*: a difference, with its sign.

    >>> format_time(105.218), format_time(0.01234), format_time(3.2e-6), format_time(9000), format_time(0)
    ('105.22 s', '12.34 ms', '3.20 us', '2.50 h', '0 s')
    >>> format_time(0.473, like=105.2), format_time(1e-5, like=105.2), format_time(0.0996, signed=True)
    ('0.47 s', '10.00 us', '+99.60 ms')
    """
    scales = _TIMES if abs(value if like is None else like) >= 7200 else _TIMES[1:]
    text = _fixed(value, scales, 2, like) if value else "0 s"
    return f"+{text}" if signed and value >= 0 else text


def _fixed(value: float, scales: Sequence[tuple[float, str]], decimals: int, like: float | None) -> str:
    """*value* with so many decimals; in a unit of its own where that of *like* would show nothing of it."""
    scale, unit = _reached(value if like is None else like, scales)
    if like is not None and value and not abs(value) / scale >= 0.5 * 10.0**-decimals:
        scale, unit = _reached(value, scales)
    return f"{value / scale:.{0 if unit == ' B' else decimals}f}{unit}"


def format_bandwidth(value: float) -> str:
    """
    >>> format_bandwidth(450e9), format_bandwidth(12.5e9)
    ('450 GB/s', '12.5 GB/s')
    """
    return _format(value, _descending(_SI, "B/s"))


def format_count(value: float) -> str:
    """
    >>> format_count(176.25e9), format_count(250880), format_count(112)
    ('176.2B', '250.9k', '112')
    """
    return _format(value, [(1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"), (1, "")])


def format_number_of(number: int, what: str) -> str:
    """
    >>> format_number_of(1, "class"), format_number_of(2, "class"), format_number_of(1200, "stage")
    ('1 class', '2 classes', '1,200 stages')
    """
    ending = "" if number == 1 else "es" if what.endswith("s") else "s"
    return f"{number:,} {what}{ending}"


def format_flops(value: float) -> str:
    """
    >>> format_flops(149.1e12)
    '149.1 TFLOP/s'
    """
    return _format(value, _descending(_SI, "FLOP/s"))


def format_power(value: float) -> str:
    """
    >>> format_power(700.0), format_power(1200)
    ('700 W', '1200 W')
    """
    return f"{value:g} W"


def format_layout(stages: Iterable[int]) -> str:
    """Layers per stage in few words: a number, then how many neighbours have it too.

    >>> format_layout((5, 6, 6, 6, 5))
    '[5, 6 x3, 5]'
    """
    runs = [(layers, len(list(alike))) for layers, alike in groupby(stages)]
    return f"[{', '.join(f'{layers} x{count}' if count > 1 else str(layers) for layers, count in runs)}]"
