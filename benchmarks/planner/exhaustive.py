"""Every layout of a space that may fit, run: whether the planner's best is the best, and how near its bounds are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.planner.spaces import SPACES, Case
from trainsim.study.planning.bounding import Bounded, bounded, roots
from trainsim.study.planning.objectives import objectives
from trainsim.study.planning.search import Planned, Searched, planned, search
from trainsim.study.planning.space import space_of
from trainsim.study.runner import Runner
from trainsim.study.trial import Trial


class Spread(NamedTuple):
    """The least, the median and the most of some ratios."""

    least: float
    middle: float
    most: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Spread:
        """
        >>> Spread.of([0.5, 0.9, 1.0])
        Spread(least=0.5, middle=0.9, most=1.0)
        """
        return cls(min(ratios), median(ratios), max(ratios))


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What running every layout that may fit says: seconds of the ``best`` of them and of the ``planned`` one; bounds
    over what was simulated of ``time`` and ``memory``; ``misjudged``: bounds that said that a layout fits, and it does
    not."""

    layouts: int
    simulated: int
    failed: int
    misjudged: int
    run: int
    best: float
    best_title: str
    planned: float
    planned_title: str
    time: Spread
    memory: Spread

    @property
    def missed(self) -> float:
        """By which part the planner's best takes longer than the best of all."""
        return self.planned / self.best - 1.0


def check(case: Case, store: Path | None = None) -> Checked:
    """Run every layout of *case* whose memory may fit, at the detail that the search runs at, and the search itself."""
    base = case.scenario()
    layouts = list(space_of(base, case.grid))
    every = [bound for root in roots(layouts) for bound in bounded(base, root)]
    fit = [bound for bound in every if bound.fits]
    runner = Runner(keep=planned, workers=1, store=store)
    outcomes = runner.run([Trial(base=base, parts=(b.layout.change(base),)) for b in fit], "every layout")
    ran = [(b, outcome.value) for b, outcome in zip(fit, outcomes, strict=True) if outcome.value]
    found = search(base, layouts, objective=objectives["time"], runner=runner)
    return _compared(layouts=len(layouts), ran=ran, failed=len(fit) - len(ran), found=found)


def _compared(*, layouts: int, ran: Sequence[tuple[Bounded, Planned]], failed: int, found: Searched) -> Checked:
    good = [(b, value) for b, value in ran if value.measured.fits]
    best, took = min(good, key=lambda item: item[1].measured.step_time)
    first = found.best[0]
    assert first.ran
    return Checked(
        layouts=layouts,
        simulated=len(ran),
        failed=failed,
        misjudged=len(ran) - len(good),
        run=len(found.tried),
        best=took.measured.step_time,
        best_title=best.layout.title,
        planned=first.ran.measured.step_time,
        planned_title=first.layout.title,
        time=Spread.of([b.seconds / value.measured.step_time for b, value in ran]),
        memory=Spread.of([b.nbytes / value.measured.needed_memory for b, value in ran]),
    )


def document(checks: Mapping[str, Checked]) -> list[str]:
    """A line per space, in Markdown."""
    lines = [
        "| space | layouts | may fit, and simulated | the planner ran | best of all | the planner's best | bound over "
        "simulated time: least, median, most | the same of memory |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, c in checks.items():
        lines.append(
            f"| {name} | {c.layouts:,} | {c.simulated:,} | {c.run} | {c.best:.2f} s | {c.planned:.2f} s "
            f"({c.missed:+.1%}) | {_ratios(c.time)} | {_ratios(c.memory)} |"
        )
    return lines


def _ratios(spread: Spread) -> str:
    return ", ".join(f"{ratio:.3f}" for ratio in spread)


def checked(names: Sequence[str], folder: Path | None = None) -> dict[str, Any]:
    """The checks of some spaces by their titles; answers are kept in *folder*."""
    return {SPACES[name].title: check(SPACES[name], folder / f"{name}.sqlite" if folder else None) for name in names}
