"""
The search for the best layout: bounds first, then runs of those that could still be the best, the likeliest first.

A layout whose bound is no better than what has been run cannot be the best, so the search ends when the next bound is
beyond that. What is found is the best of the whole space, not only of what was run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import inf

from trainsim.report.progress import AdvanceBar, bar
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario
from trainsim.study.backends.processes import as_they_come
from trainsim.study.planning.bounding import Bounded, bounded, roots
from trainsim.study.planning.layout import Layout
from trainsim.study.planning.objectives import Objective
from trainsim.study.runner import Runner
from trainsim.study.trial import NOT_RUN, Measures, Outcome, Trial, measures

FEW, BATCH = 4, 16
"""Layouts that are run one by one at first, and then together, before the search looks again which may be the best."""
MANY = 4000
"""Layouts from which on it pays to bound them in several processes."""
MARGIN = 0.01
"""Layouts are run until nothing that is left can come so near to the best: to that part the list is exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What a plan keeps of a run: its numbers, and the seconds of each part of the step."""

    measured: Measures
    breakdown: Mapping[str, float]


def planned(result: Result) -> Planned:
    """The numbers of a result that plans compare."""
    return Planned(measured=measures(result), breakdown=dict(result.breakdown))


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedLayout:
    """A layout that was run: what it needs at least, and what came of it."""

    bound: Bounded
    outcome: Outcome[Planned]

    @property
    def layout(self) -> Layout:
        return self.bound.layout

    @property
    def ran(self) -> Planned | None:
        return self.outcome.value

    @property
    def fits(self) -> bool:
        return self.ran is not None and self.ran.measured.fits


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """All that a search has seen: the bounds of the whole space, and what was run, the best first. What was not run has
    at least ``rest`` of what is to be small (None: all was run). ``interrupted``: not all was looked at."""

    bounds: tuple[Bounded, ...]
    tried: tuple[TriedLayout, ...]
    rest: float | None = None
    interrupted: bool = False

    @property
    def best(self) -> tuple[TriedLayout, ...]:
        """Those that fit, the best first; of each kind the best one."""
        out: dict[object, TriedLayout] = {}
        for tried in self.tried:
            if tried.fits:
                out.setdefault(tried.layout.degrees, tried)
        return tuple(out.values())


def search(
    base: Scenario,
    layouts: Iterable[Layout],
    *,
    objective: Objective,
    runner: Runner[Planned],
    top: int = 1,
    progress: bool | None = None,
) -> Searched:
    """The best of *layouts* by *objective*, and at least *top* kinds that fit, if there are as many. Ties go to the one
    that is listed first."""
    bounds, whole = _bounds(base, list(layouts), runner.workers, progress)
    hopes = sorted((b for b in _distinct(bounds) if b.fits), key=objective.at_least)
    runs = _Runs(base, objective, runner, top)
    with bar("simulate", len(hopes), progress) as advance:
        while whole and not runner.interrupted and (batch := runs.next(hopes)):
            runs.run(batch, advance)
    return Searched(
        bounds=tuple(bounds),
        tried=tuple(sorted(runs.tried, key=lambda t: _rank(t, objective))),
        rest=min((objective.at_least(b) for b in hopes if b.layout not in runs.seen), default=None),
        interrupted=runner.interrupted or not whole,
    )


class _Runs:
    """What was run so far, and what is worth running next."""

    def __init__(self, base: Scenario, objective: Objective, runner: Runner[Planned], top: int):
        self.base, self.objective, self.runner, self.top = base, objective, runner, top
        self.tried: list[TriedLayout] = []
        self.seen: set[Layout] = set()
        self._best: dict[object, float] = {}  # by kind of layout

    def next(self, hopes: Sequence[Bounded]) -> list[Bounded]:
        """The likeliest of *hopes*, which are sorted: one at a time at first, for what they take says how many of the
        others there is any need to run."""
        size = BATCH if len(self.tried) >= FEW else 1
        return list(islice((b for b in hopes if b.layout not in self.seen and self._worth(b)), size))

    def run(self, batch: Sequence[Bounded], advance: AdvanceBar) -> None:
        trials = [Trial(base=self.base, parts=(b.layout.change(self.base),)) for b in batch]
        outcomes = self.runner.run_under(advance, trials)
        for bound, outcome in zip(batch, outcomes, strict=True):
            if outcome.failure is NOT_RUN:
                continue
            self.tried.append(TriedLayout(bound=bound, outcome=outcome))
            self.seen.add(bound.layout)
            if self.tried[-1].fits and outcome.value:
                kind, score = bound.layout.degrees, self.objective.of(outcome.value.measured)
                self._best[kind] = min(score, self._best.get(kind, inf))

    def _worth(self, bound: Bounded) -> bool:
        """Whether a layout may come near the best, and be better than others of its kind; or whether there are fewer
        kinds yet than are wanted."""
        least, known = self.objective.at_least(bound), self._best.get(bound.layout.degrees)
        if known is not None and least >= known:
            return False
        if len(self._best) < self.top and known is None:
            return True
        return least <= min(self._best.values(), default=inf) * (1 + MARGIN)


def finished(found: Searched, outcomes: Sequence[Outcome[Planned]], objective: Objective) -> Searched:
    """*found* with runs of its first layouts at another detail in the place of theirs."""
    again = [replace(t, outcome=o) for t, o in zip(found.best, outcomes, strict=False) if o.value]
    done = {id(t.layout) for t in again}
    others = [t for t in found.tried if id(t.layout) not in done]
    return replace(found, tried=(*sorted(again, key=lambda t: _rank(t, objective)), *others))


def _bounds(
    base: Scenario, layouts: list[Layout], workers: int | None, progress: bool | None
) -> tuple[list[Bounded], bool]:
    """The bounds of *layouts* in their order, and whether all of them are there."""
    out: dict[int, Bounded] = {}
    number = {layout: k for k, layout in enumerate(layouts)}
    try:
        with bar("bound", len(layouts), progress) as advance:
            for b in _all_bounds(base, layouts, workers, advance):
                out[number[b.layout]] = b
    except KeyboardInterrupt:
        return [out[k] for k in sorted(out)], False
    return [out[k] for k in sorted(out)], True


def _all_bounds(
    base: Scenario, layouts: list[Layout], workers: int | None, advance: Callable[[], None]
) -> Iterator[Bounded]:
    """The same in any order: in several processes where there are many."""
    every = roots(layouts)
    if workers == 1 or (workers is None and len(layouts) < MANY) or len(every) == 1:
        for root in every:
            yield from bounded(base, root, advance)
        return
    for some in as_they_come(partial(bounded, base), every, workers):
        for b in some:
            advance()
            yield b


def _distinct(bounds: Iterable[Bounded]) -> Iterator[Bounded]:
    """Without those that differ from an earlier one in nothing but a recomputation that changes nothing, or the name of
    how states are shared."""
    seen = set()
    for b in bounds:
        key = repr(replace(b.layout, recompute="", sharding=b.sharing)), b.seconds, b.nbytes
        if b.refused or key not in seen:
            seen.add(key)
            yield b


def _rank(tried: TriedLayout, objective: Objective) -> tuple[bool, bool, float]:
    """The best first; what does not fit behind what does, what could not be run at the end."""
    score = objective.of(tried.ran.measured) if tried.ran else 0.0
    return tried.ran is None, not tried.fits, score
