"""Two runs side by side: how much one differs from the other, and where the difference comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainsim.analysis.kinds import TITLES, WAITING
from trainsim.units import format_time

if TYPE_CHECKING:
    from rich.console import RenderableType

    from trainsim.result.result import Result


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison:
    """``after`` less ``before``. ``breakdown`` are differences of exposed seconds of the mean rank; they sum to
    ``seconds``; ``waiting`` are those of the part of each row in which peers were late. ``changes`` are the fields of
    the scenario that differ: path -> (before, after)."""

    before: str
    after: str
    step_before: float
    step_after: float
    breakdown: dict[str, float]
    waiting: dict[str, float]
    memory_before: float
    memory_after: float
    bubble_before: float
    bubble_after: float
    mfu_before: float
    mfu_after: float
    changes: dict[str, tuple[Any, Any]]

    @property
    def seconds(self) -> float:
        """How much longer (+) or shorter (-) the step is."""
        return self.step_after - self.step_before

    @property
    def ratio(self) -> float:
        """The same as a part of the step before."""
        return self.seconds / self.step_before if self.step_before else 0.0

    @property
    def causes(self) -> tuple[tuple[str, float], ...]:
        """Parts of the breakdown that changed, the largest change first."""
        moved = [(part, change) for part, change in self.breakdown.items() if change]
        return tuple(sorted(moved, key=lambda item: -abs(item[1])))

    @property
    def titles(self) -> tuple[str, str]:
        """What the two are called: their names, or where these are equal the one field that differs."""
        if self.before != self.after:
            return self.before, self.after
        if len(self.changes) != 1:
            return "before", "after"
        (path, (old, new)) = next(iter(self.changes.items()))
        return f"before ({path} {old})", f"after ({path} {new})"

    def words(self, part: str) -> str:
        """What a part of the breakdown is, and how much of its change is waiting for somebody late."""
        late = self.waiting.get(part, 0.0)
        text = f"{TITLES[part]}{self._part_of_pipeline if part == 'bubble' else ''}"
        if part not in WAITING or abs(late) < 0.1 * abs(self.breakdown[part]):
            return text
        return f"{text}, {format_time(late, signed=True)} of it {WAITING[part]}"

    @property
    def _part_of_pipeline(self) -> str:
        """Said where the bubble is shorter in seconds and yet a larger part of the pipeline's time, or the reverse."""
        grows = self.bubble_after > self.bubble_before
        if self.breakdown["bubble"] * (self.bubble_after - self.bubble_before) >= 0:
            return ""
        return f", yet a {'larger' if grows else 'smaller'} part of a {'shorter' if grows else 'longer'} pipeline"

    def to_dict(self) -> dict[str, Any]:
        """Plain data; SI units."""
        return {
            "before": self.before,
            "after": self.after,
            "step_time_s": [self.step_before, self.step_after],
            "difference_s": self.seconds,
            "ratio": self.ratio,
            "breakdown_s": self.breakdown,
            "waiting_s": self.waiting,
            "memory_peak_bytes": [self.memory_before, self.memory_after],
            "bubble_fraction": [self.bubble_before, self.bubble_after],
            "mfu": [self.mfu_before, self.mfu_after],
            "changes": {path: list(pair) for path, pair in self.changes.items()},
        }

    def __repr__(self) -> str:
        return f"<Comparison {self.titles[1]} against {self.titles[0]}: {self}>"

    def __str__(self) -> str:
        steps = f"{format_time(self.step_before)} -> {format_time(self.step_after)}"
        text = f"{format_time(self.seconds, signed=True)} ({self.ratio:+.1%}): {steps}"
        causes = [f"{format_time(change, signed=True)} {self.words(part)}" for part, change in self.causes[:4]]
        return "; ".join([text, *causes])

    def __rich__(self) -> RenderableType:
        from trainsim.report.compared import comparison
        from trainsim.tables.terminal import rich_section

        return rich_section(comparison(self))

    def _repr_html_(self) -> str:
        from trainsim.report.compared import comparison
        from trainsim.tables.page import card

        return card([comparison(self)])


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparableStep:
    """What a comparison takes of a run: seconds, bytes, parts of 1, and the scenario as it is ``stated``."""

    name: str
    step_time: float
    breakdown: dict[str, float]
    waiting: dict[str, float]
    memory_peak: float
    bubble_fraction: float
    mfu: float
    stated: dict[str, Any]


def comparable(result: Result) -> ComparableStep:
    """What a comparison takes of *result*."""
    return ComparableStep(
        name=result.name,
        step_time=result.step_time,
        breakdown=dict(result.breakdown),
        waiting=dict(result.waiting),
        memory_peak=result.memory.peak,
        bubble_fraction=result.bubble.fraction,
        mfu=result.mfu,
        stated=stated(result.scenario),
    )


def compare(before: ComparableStep, after: ComparableStep) -> Comparison:
    """What changes from *before* to *after*."""
    return Comparison(
        before=before.name,
        after=after.name,
        step_before=before.step_time,
        step_after=after.step_time,
        breakdown={part: after.breakdown[part] - value for part, value in before.breakdown.items()},
        waiting={part: after.waiting[part] - value for part, value in before.waiting.items()},
        memory_before=before.memory_peak,
        memory_after=after.memory_peak,
        bubble_before=before.bubble_fraction,
        bubble_after=after.bubble_fraction,
        mfu_before=before.mfu,
        mfu_after=after.mfu,
        changes=differences(before.stated, after.stated),
    )


def stated(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """A *resolved* scenario without the remarks on what was derived from what."""
    return {section: value for section, value in resolved.items() if section != "derived"}


def differences(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> dict[str, tuple[Any, Any]]:
    """Leaves of two nested mappings that are not equal, by dotted path.

    >>> differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": 4})
    {'a.c': (2, 3), 'd': (None, 4)}
    """
    out: dict[str, tuple[Any, Any]] = {}
    for key in [*before, *(k for k in after if k not in before)]:
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            out |= differences(old, new, f"{path}{key}.")
        elif old != new:
            out[f"{path}{key}"] = (old, new)
    return out
