"""A simulated step beside a measured one, or two measured ones: where they differ, and what would mend it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trainsim.measured.collective_rows import CollectiveKey, CollectiveUse, collective_uses
from trainsim.measured.mending import Mending, mendings
from trainsim.measured.step_parts import StepPart, step_parts
from trainsim.result.measured_result import MeasuredResult
from trainsim.result.result import Result
from trainsim.result.step_result import StepResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MeasuredComparison:
    """*before* (a simulation, or a measured step) beside *after* (a measured step), each with the ranks that are
    compared; seconds of the mean rank and one step. ``note`` says if these ranks are not the same."""

    before: StepResult
    after: MeasuredResult
    before_ranks: tuple[int, ...]
    after_ranks: tuple[int, ...]
    note: str = ""

    @property
    def simulated(self) -> bool:
        """Whether the first of the two is a simulation, whose constants can be mended."""
        return isinstance(self.before, Result)

    @property
    def names(self) -> tuple[str, str]:
        """What the two are called."""
        return ("simulated" if self.simulated else self.before.name), "measured" if self.simulated else self.after.name

    @cached_property
    def parts(self) -> tuple[Mapping[StepPart, float], Mapping[StepPart, float]]:
        """Where each step goes; both sum to their steps."""
        return step_parts(self.before, self.before_ranks), step_parts(self.after, self.after_ranks)

    @cached_property
    def collectives(self) -> tuple[Mapping[CollectiveKey, CollectiveUse], Mapping[CollectiveKey, CollectiveUse]]:
        """The collectives and messages of each."""
        return collective_uses(self.before, self.before_ranks), collective_uses(self.after, self.after_ranks)

    @cached_property
    def mendings(self) -> tuple[Mending, ...]:
        """What differs notably, the largest difference first, and the constant that would mend it."""
        step = max(self.before.step_time, self.after.step_time)
        return mendings(*self.parts, self.collectives, step)

    @property
    def difference(self) -> float:
        """Seconds by which the second step is longer."""
        return self.after.step_time - self.before.step_time

    @property
    def first_key(self) -> str:
        """The constant of the scenario that mends most; nothing where none would."""
        return next((one.key for one in self.mendings if one.key), "") if self.simulated else ""

    def gantt(self, window: tuple[float, float] | None = None) -> Figure:
        """The two above each other on one time axis, as a matplotlib figure; *window* in seconds zooms in."""
        from trainsim.report.stack import stacked

        ranks = (few(self.before_ranks), few(self.after_ranks))
        names = tuple(f"{title}: {result.name}" for title, result in zip(self.names, self._both, strict=True))
        return stacked(self._both, names if self.simulated else self.names, window=window, ranks=ranks)

    @property
    def _both(self) -> tuple[StepResult, StepResult]:
        return self.before, self.after

    def to_dict(self) -> dict[str, Any]:
        """Plain data with units in the keys: ``step_time_s``, ``parts``, ``collectives`` and ``mendings``."""
        return {
            "before": self.before.name,
            "after": self.after.name,
            "ranks": [list(self.before_ranks), list(self.after_ranks)],
            "step_time_s": [self.before.step_time, self.after.step_time],
            "difference_s": self.difference,
            "bubble_fraction": [result.bubble.fraction for result in self._both],
            "parts": [
                {"part": str(part), "seconds": [of.get(part, 0.0) for of in self.parts]}
                for part in dict.fromkeys([*self.parts[0], *self.parts[1]])
            ],
            "collectives": [
                {**key._asdict(), "uses": [_plain(of.get(key), key.nbytes) for of in self.collectives]}
                for key in dict.fromkeys([*self.collectives[0], *self.collectives[1]])
            ],
            "mendings": [asdict(one) for one in self.mendings] if self.simulated else [],
            "note": self.note,
            "warnings": list(self.after.warnings),
        }

    def __repr__(self) -> str:
        return f"<MeasuredComparison {self.names[0]} {self.before.step_time:.4g} s, {self.after.step_time:.4g} s>"

    def __rich__(self) -> RenderableType:
        from trainsim.measured.sections import comparison_sections
        from trainsim.tables.terminal import rich_sections

        return rich_sections(comparison_sections(self))

    def _repr_html_(self) -> str:
        from trainsim.measured.sections import comparison_sections
        from trainsim.report.sections.gantt_chart import drawn, png_of
        from trainsim.tables.page import card

        return card([*comparison_sections(self), drawn(png_of(self.gantt()))])


MOST_DRAWN = 8
"""Ranks of each of the two that a picture shows."""


def few(ranks: Sequence[int]) -> tuple[int, ...]:
    """As many of *ranks* as a picture has room for, evenly spread.

    >>> few(range(4)), few(range(64))
    ((0, 1, 2, 3), (0, 8, 16, 24, 32, 40, 48, 56))
    """
    stride = -(-len(ranks) // MOST_DRAWN)
    return tuple(ranks[::stride])


def beside(before: Result | MeasuredResult, after: MeasuredResult) -> MeasuredComparison:
    """A step, simulated or measured, beside a measured one. The rank numbers of the files choose which simulated ranks
    stand beside them; where a simulation has not so many, all of its ranks do."""
    ranks = tuple(range(after.lanes.ranks))
    if isinstance(before, MeasuredResult):
        return MeasuredComparison(
            before=before, after=after, before_ranks=tuple(range(before.lanes.ranks)), after_ranks=ranks
        )
    numbers = after.measured.rank_numbers
    if max(numbers) < before.lanes.ranks:
        return MeasuredComparison(before=before, after=after, before_ranks=numbers, after_ranks=ranks)
    note = (
        f"The files have ranks up to {max(numbers)} and the scenario has {before.lanes.ranks} ranks: all of these are "
        "compared with them. Is it the same job?"
    )
    return MeasuredComparison(
        before=before, after=after, before_ranks=tuple(range(before.lanes.ranks)), after_ranks=ranks, note=note
    )


def _plain(use: CollectiveUse | None, nbytes: float) -> dict[str, float] | None:
    if use is None:
        return None
    return {
        "count": use.count, "seconds": use.seconds, "late_s": use.late, "bandwidth_bytes_per_s": use.bandwidth(nbytes),
    }  # fmt: skip
