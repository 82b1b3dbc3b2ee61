"""``ts.what_fits``: what would make a step fit in memory, found out by running it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainsim.errors import TrainsimError
from trainsim.scenario.scenario import Scenario
from trainsim.study.runner import Runner
from trainsim.study.store import AnswerStore
from trainsim.study.trial import NOT_RUN, Measures, Outcome, Trial, as_scenario, measures
from trainsim.study.ways import MEMORY, suggestions

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import RenderableType

ROUNDS = 3
"""Changes that are tried together, if fewer do not do."""
DEAR = 0.25
"""A step that is longer by more than this part is not all that there should be to choose from."""
PARENTS, MOST = 3, 16
"""Changes that are built upon, those that come nearest; and combinations that are run in a round."""
COLUMNS = (
    "change", "changes", "peak_memory_bytes", "fits", "step_time_s", "step_time_change", "global_batch", "gpus",
    "error",
)  # fmt: skip
TYPES = {
    **dict.fromkeys(("peak_memory_bytes", "step_time_s", "step_time_change"), "float64"),
    **dict.fromkeys(("global_batch", "gpus"), "Int64"),
    "fits": "boolean",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of a trial, beside the run as it is ``now``."""

    outcome: Outcome[Measures]
    now: Measures

    @property
    def title(self) -> str:
        return self.outcome.title

    @property
    def trial(self) -> Trial:
        return self.outcome.trial

    @property
    def ran(self) -> Measures | None:
        """The numbers, if it could be run."""
        return self.outcome.value

    @property
    def fits(self) -> bool:
        return self.ran is not None and self.ran.fits

    @property
    def full(self) -> float:
        """The part that is used of what is fullest: GPU, memory of a node or its drives."""
        return self.ran.full if self.ran else 0.0

    @property
    def longer(self) -> float:
        """By what part the step is longer than without the changes, for as many tokens."""
        if self.ran is None or not self.now.step_time:
            return 0.0
        return self.ran.time_for(self.now.global_batch) / self.now.step_time - 1.0

    @property
    def saves(self) -> bool:
        """Whether less is held than without the changes: on the GPUs, or if these have room, where there is none."""
        if self.ran is None:
            return False
        if self.now.gpus_fit and not self.now.fits:
            return self.ran.full < self.now.full
        return self.ran.peak_memory < self.now.peak_memory

    @property
    def problem(self) -> str:
        """Why the changes could not be run, or what is full beside the GPUs; in a line."""
        if self.outcome.failure:
            return self.outcome.failure.reason
        return self.ran.complaint if self.ran else ""

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """The best first: what fits, the fastest of it; then what comes nearest; then what could not be run."""
        return self.ran is None, not self.fits, self.longer if self.fits else self.full

    def to_dict(self) -> dict[str, Any]:
        """Plain data; seconds and bytes."""
        ran = self.ran
        return {
            "change": self.title,
            "changes": self.trial.changes,
            "peak_memory_bytes": ran and ran.peak_memory,
            "fits": ran and ran.fits,
            "step_time_s": ran and ran.step_time,
            "step_time_change": self.longer if ran else None,
            "global_batch": ran and ran.global_batch,
            "gpus": ran and ran.gpus,
            "error": self.problem or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """A run as it is, and what was tried to make it take less memory, the best first; ``interrupted``: not all was."""

    now: Measures
    tried: tuple[Tried, ...]
    interrupted: bool = False

    @property
    def fitting(self) -> tuple[Tried, ...]:
        """The changes with which all fits and less is held, the fastest first."""
        return tuple(tried for tried in self.tried if tried.fits and tried.saves)

    @property
    def smaller(self) -> tuple[Tried, ...]:
        """Those that take less, but too much."""
        return tuple(tried for tried in self.tried if tried.saves and not tried.fits)

    @property
    def useless(self) -> tuple[Tried, ...]:
        """Those that take no less."""
        return tuple(tried for tried in self.tried if tried.ran and not tried.saves)

    @property
    def refused(self) -> tuple[Tried, ...]:
        """Those that could not be run."""
        return tuple(tried for tried in self.tried if not tried.ran)

    def frame(self) -> DataFrame:
        """A row per change."""
        from pandas import DataFrame

        rows = [tried.to_dict() for tried in self.tried]
        frame = DataFrame(rows, columns=list(COLUMNS)).astype(TYPES)
        frame.attrs["interrupted"] = self.interrupted
        return frame

    def __rich__(self) -> RenderableType:
        from trainsim.study.what_fits_sections import fitting
        from trainsim.tables.terminal import rich_section

        return rich_section(fitting(self))


def what_fits(
    scenario: Scenario | str | Path,
    *,
    workers: int | None = None,
    progress: bool | None = None,
    backend: str | None = None,
    store: AnswerStore | str | Path | None = None,
) -> DataFrame:
    """Changes that could make *scenario* (or the file or name) fit in memory, each simulated: a row each, best first.

    Columns: ``change`` in words, ``changes`` (as ``Scenario.replace`` takes them), ``peak_memory_bytes``, ``fits``,
    ``step_time_s``, ``step_time_change`` (a part, for as many tokens), ``global_batch``, ``gpus``, ``error`` (why it
    could not be run, or what else is full). Combinations are tried if no single change does, or only at the cost of a
    quarter more time. The options are those of ``sweep``. Raises what running the scenario raises.

    >>> machine = {"topology": "dgx_a100", "nodes": 1, "gpus_per_node": 1}
    >>> model = {"family": "gpt", "layers": 2, "hidden": 4096, "heads": 32, "vocab": 65536, "max_positions": 2048}
    >>> large = Scenario.from_dict({"model": model, "cluster": machine, "training": {"micro_batch": 64}})
    >>> large.run().memory.fits, what_fits(large).change[0]
    (False, 'fused linear cross entropy')
    """
    base = as_scenario(scenario)
    now = measures(base.run())
    return search(base, now, workers=workers, progress=progress, backend=backend, store=store).frame()


def search(
    scenario: Scenario,
    now: Measures,
    *,
    workers: int | None = None,
    progress: bool | None = None,
    backend: str | None = None,
    store: AnswerStore | str | Path | None = None,
) -> Fitting:
    """What was tried with *scenario*, whose run gave *now*: every way alone, then together while nothing fits, or only
    what costs much time."""
    runner = Runner(keep=measures, workers=workers, progress=progress, backend=backend, store=store)

    def run(trials: Iterable[Trial], title: str) -> list[Tried]:
        return [Tried(outcome=o, now=now) for o in runner.run(trials, title) if o.failure is not NOT_RUN]

    seen = {scenario}
    singles = (Trial(base=scenario, parts=(change,)) for change in suggestions(scenario, MEMORY))
    every = last = run(_fresh(singles, seen), "try")
    for _ in range(ROUNDS - 1):
        if now.fits or runner.interrupted or any(tried.fits and tried.longer <= DEAR for tried in every):
            break
        trials = list(_fresh(_combined(last, every), seen))[:MOST]
        last = [tried for tried in run(trials, "combine") if tried.ran]
        every = [*every, *last]
    tried = tuple(sorted(every, key=lambda tried: tried.rank))
    return Fitting(now=now, tried=tried, interrupted=runner.interrupted)


def _fresh(trials: Iterable[Trial], seen: set[Scenario]) -> Iterator[Trial]:
    """Those of *trials* that say something new; one that cannot be said stays, to be refused."""
    for trial in trials:
        try:
            scenario = trial.scenario()
        except TrainsimError:
            yield trial
            continue
        if scenario not in seen:
            seen.add(scenario)
            yield trial


def _combined(last: Sequence[Tried], every: Sequence[Tried]) -> list[Trial]:
    """The ways once more, upon the changes that come nearest; those first of which most can be hoped.

    What could not be run alone, or took no less, is left out.
    """
    alone = {tried.title: tried for tried in every}
    worst = max((tried.full for tried in every), default=0.0)
    hopes: list[tuple[float, Trial]] = []
    short = [tried for tried in last if tried.saves and not tried.fits]
    for parent in sorted(short, key=lambda tried: tried.full)[:PARENTS]:
        for change in suggestions(parent.trial.scenario(), MEMORY):
            before = alone.get(change.title)
            if before is None or before.saves:
                hopes.append((parent.full * (before.full if before else worst / 2), parent.trial.plus(change)))
    return [trial for _, trial in sorted(hopes, key=lambda hope: hope[0])]
