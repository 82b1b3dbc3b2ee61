"""Points of a sweep at the places of a picture: the best of each, and why nothing ran where nothing did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap

from trainsim.figures import legible
from trainsim.study.pictures.quantities import Quantity
from trainsim.study.sweep_summary import RefusedPoints, Summary, kind_of
from trainsim.study.swept import SweptPoint

MOST_REASONS, MOST_LINES = 5, 2
"""Reasons that are written under a picture, and lines of each."""
PER_INCH = 15.5
"""Letters of small print."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCell:
    """What a place shows: a ``value`` and whether it ``fits``, or the number of the reason why there is none."""

    value: float | None = None
    fits: bool = False
    reason: int = 0


def cell(points: Sequence[SweptPoint], shown: Quantity, summary: Summary) -> HeatCell | None:
    """The best of *points*, of which those that fit go first; None where there are none."""
    if not points:
        return None
    best = [(not p.fits, shown.of(p.ran) * (1 if shown.less_is_better else -1)) for p in points if p.ran]
    if best:
        unfit, value = min(best)
        return HeatCell(value=abs(value), fits=not unfit)
    kinds = [kind_of(refusal.reason) for refusal in summary.not_run]
    return HeatCell(reason=1 + min(kinds.index(kind_of(point.reason)) for point in points))


def reasons(summary: Summary, used: Sequence[int], width: float) -> list[str]:
    """Lines for the reasons that a picture of *width* inches names by number; nothing where it names none."""
    named = sorted({number for number in used if number})
    lines = ["grey: cannot run"] if named else []
    for number in named[:MOST_REASONS]:
        lines += _wrapped(f"({number}) {_words(summary.not_run[number - 1])}", int(width * PER_INCH))
    return lines if len(named) <= MOST_REASONS else [*lines, f"and {len(named) - MOST_REASONS} more reasons"]


def _words(refusal: RefusedPoints) -> str:
    return refusal.reason if refusal.reasons == 1 else f"such as: {refusal.reason}"


def _wrapped(text: str, width: int) -> list[str]:
    """
    >>> _wrapped("one two three four", 9)
    ['one two', '      th…']
    """
    first, *rest = wrap(legible(text).text, width, subsequent_indent="      ") or [""]
    if len(rest) < MOST_LINES:
        return [first, *rest]
    return [first, *rest[: MOST_LINES - 2], f"{rest[MOST_LINES - 2][: width - 1]}…"]
