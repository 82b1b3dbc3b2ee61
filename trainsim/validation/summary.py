"""The errors of many runs in a few numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean, median
from typing import NamedTuple

from trainsim.validation.scores import RunScore, by_source, errors_of


class ErrorSummary(NamedTuple):
    """Of some runs: how many were scored, their median error, the error that nine in ten stay below, and the bias (the
    median with its sign); fractions."""

    runs: int
    median: float
    ninety: float
    bias: float


def errors(values: Iterable[float]) -> ErrorSummary | None:
    """The summary of some errors; None where there is none.

    >>> errors([0.1, -0.2, 0.3])
    ErrorSummary(runs=3, median=0.2, ninety=0.28, bias=0.1)
    """
    from numpy import quantile

    listed = list(values)
    if not listed:
        return None
    sizes = [abs(value) for value in listed]
    return ErrorSummary(len(listed), median(sizes), round(float(quantile(sizes, 0.9)), 12), median(listed))


class RoomForeseen(NamedTuple):
    """Of runs that say whether they were out of memory: how many, for how many that was foreseen, how many were, how
    many of those were taken to fit (``missed``), and how many of the others not to (``alarms``)."""

    runs: int
    right: int
    ran_out: int
    missed: int
    alarms: int


def room(scores: Iterable[RunScore]) -> RoomForeseen | None:
    """Who had room and who had not; None where nobody was out of memory."""
    told = [(ran_out, score.fits) for score in scores if (ran_out := score.ran_out) is not None]
    known = [(ran_out, fits) for ran_out, fits in told if fits is not None]
    full = sum(ran_out for ran_out, _ in known)
    missed = sum(ran_out and fits for ran_out, fits in known)
    alarms = sum(not ran_out and not fits for ran_out, fits in known)
    return RoomForeseen(len(known), len(known) - missed - alarms, full, missed, alarms) if full else None


def overall(scores: Sequence[RunScore]) -> str:
    """The whole table in a sentence."""
    medians = [e.median for of_one in by_source(scores).values() if (e := errors(errors_of(of_one)))]
    whole = errors(errors_of(scores))
    if whole is None:
        return "No run has a time and a prediction."
    middle = f"the median of the {len(medians)} sources' medians is {median(medians):.1%} (mean {mean(medians):.1%})"
    if len(medians) == 1:
        middle = f"the median error is {whole.median:.1%}"
    return f"{whole.runs} of {len(scores)} runs: {middle}, and nine in ten runs are within {whole.ninety:.1%}."
