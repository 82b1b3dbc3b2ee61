"""What stands in a table: numbers with a unit, words with a tone, bars."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from trainsim.units import (
    format_bandwidth,
    format_bytes,
    format_count,
    format_flops,
    format_time,
)

Tone = Literal["", "quiet", "strong", "good", "doubtful", "bad"]
"""How a word is meant: colour and weight follow from it, and no meaning is in the colour alone."""


class Unit(Enum):
    """What the numbers of a column are; inside they are SI: seconds, bytes, FLOP/s, fractions of one.

    >>> Unit.TIME.format(0.0123), Unit.BYTES.format(2.0**31), Unit.SHARE.format(0.365), Unit.CHANGE.format(-0.028)
    ('12.30 ms', '2.0 GiB', '36.5%', '-2.8%')
    >>> Unit.TIME.format(0.0123, like=100.0), Unit.COUNT.format(176.2e9), Unit.WHOLE.format(40445.2)
    ('0.01 s', '176.2B', '40,445')
    """

    TIME = "time"
    TIME_CHANGE = "change of a time"
    BYTES = "bytes"
    BANDWIDTH = "bandwidth"
    FLOPS = "FLOP/s"
    SHARE = "share"
    PERCENT = "whole percent"
    CHANGE = "relative change"
    COUNT = "count"
    WHOLE = "whole number"
    NUMBER = "number"

    def format(self, value: float, like: float | None = None) -> str:
        """*value* for people; *like* is a value whose prefix it takes, so that a column reads in one unit."""
        match self:
            case Unit.TIME | Unit.TIME_CHANGE:
                return format_time(value, like=like, signed=self is Unit.TIME_CHANGE)
            case Unit.BYTES:
                return format_bytes(value, like=like)
            case Unit.SHARE | Unit.PERCENT | Unit.CHANGE:
                return f"{value:{_FRACTIONS[self]}}"
            case Unit.WHOLE | Unit.NUMBER:
                return f"{value:,.0f}" if self is Unit.WHOLE else f"{value:g}"
        return _ALONE[self](value)

    @property
    def scales(self) -> bool:
        """Whether the numbers of a column are written in the unit of the largest."""
        return self in (Unit.TIME, Unit.TIME_CHANGE, Unit.BYTES)


_FRACTIONS = {Unit.SHARE: ".1%", Unit.PERCENT: ".0%", Unit.CHANGE: "+.1%"}
_ALONE = {Unit.BANDWIDTH: format_bandwidth, Unit.FLOPS: format_flops, Unit.COUNT: format_count}


@dataclass(frozen=True, slots=True)
class Amount:
    """A number with a unit of its own, in a column of other things."""

    value: float
    unit: Unit

    def __str__(self) -> str:
        return self.unit.format(self.value)


@dataclass(frozen=True, slots=True)
class Sign:
    """A word or few with a tone: a verdict, a remark.

    >>> str(Sign("does not fit", "bad"))
    'does not fit'
    """

    text: str
    tone: Tone = "quiet"

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a bar: its share of the whole width, its colour, and the letter that stands for it where there are no
    colours."""

    share: float
    colour: str
    letter: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """Pieces side by side; the whole width is 1. ``mark`` is a line across it, such as a capacity."""

    parts: tuple[Part, ...]
    mark: float | None = None

    @classmethod
    def of(cls, share: float, colour: str) -> Bar:
        """A bar of one piece."""
        return cls((Part(share, colour),))


Cell = str | float | Amount | Sign | Bar | None
"""A number is in the unit of its column; None is an empty cell."""
