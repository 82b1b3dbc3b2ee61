"""``ts.what_fits``: what would make a step fit in memory, found out by running it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainsim.analysis.memory import MemoryUse
from trainsim.errors import TrainsimError
from trainsim.report.progress import bar
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario
from trainsim.study.explain.options import Trial
from trainsim.study.fitting import ways

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


@dataclass(frozen=True, slots=True)
class Together:
    """One or more changes at once; a later one takes the place of those whose keys it all sets."""

    parts: tuple[Trial, ...]

    @property
    def title(self) -> str:
        return " + ".join(part.title for part in self.parts)

    @property
    def changes(self) -> dict[str, Any]:
        """What to change in the scenario: dotted path -> value."""
        return {path: value for part in self.parts for path, value in part.changes.items()}

    def plus(self, trial: Trial) -> Together:
        """
        >>> more, most = (Trial(kind="gpus", title=f"{n} nodes", changes={"cluster.nodes": n}) for n in (2, 4))
        >>> Together((more,)).plus(most).title
        '4 nodes'
        """
        kept = (part for part in self.parts if not set(part.changes) <= set(trial.changes))
        return Together((*kept, trial))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """Changes and what came out of them: ``peak`` of the fullest GPU (bytes), whether all fits, ``step`` (s).

    ``full`` is the part that is used of what is fullest: GPU, memory of a node or its drives. ``longer`` is by what
    part the step is longer than without the changes, for as many tokens. ``error`` says in a line why they could not be
    run, or what else is full. ``saves`` is whether less is held than without them: on the GPUs, or if these have room,
    where there is none.
    """

    what: Together
    peak: float | None = None
    full: float = 0.0
    fits: bool | None = None
    step: float | None = None
    longer: float | None = None
    saves: bool = False
    global_batch: int | None = None
    gpus: int | None = None
    error: str | None = None

    @property
    def title(self) -> str:
        return self.what.title

    @property
    def ran(self) -> bool:
        return self.peak is not None

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """The best first: what fits, the fastest of it; then what comes nearest; then what could not be run."""
        return not self.ran, not self.fits, (self.longer or 0.0) if self.fits else self.full

    def to_dict(self) -> dict[str, Any]:
        """Plain data; seconds and bytes."""
        return {
            "change": self.title, "changes": self.what.changes, "peak_memory_bytes": self.peak, "fits": self.fits,
            "step_time_s": self.step, "step_time_change": self.longer, "global_batch": self.global_batch,
            "gpus": self.gpus, "error": self.error,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """A run as it is, and what was tried to make it take less memory, the best first."""

    base: Result = field(repr=False)
    tried: tuple[Tried, ...]

    @property
    def fitting(self) -> tuple[Tried, ...]:
        """The changes with which all fits and less is held, the fastest first."""
        return tuple(one for one in self.tried if one.fits and one.saves)

    @property
    def smaller(self) -> tuple[Tried, ...]:
        """Those that take less, but too much."""
        return tuple(one for one in self.tried if one.ran and one.saves and not one.fits)

    @property
    def useless(self) -> tuple[Tried, ...]:
        """Those that take no less."""
        return tuple(one for one in self.tried if one.ran and not one.saves)

    @property
    def refused(self) -> tuple[Tried, ...]:
        """Those that could not be run."""
        return tuple(one for one in self.tried if not one.ran)

    def frame(self) -> DataFrame:
        """A row per change."""
        from pandas import DataFrame

        rows = [one.to_dict() for one in self.tried]
        return DataFrame(rows, columns=list(COLUMNS)).astype(TYPES)

    def __rich__(self) -> RenderableType:
        from trainsim.study.fitting.text import fitting

        return fitting(self)


def what_fits(scenario: Scenario | str | Path, *, progress: bool | None = None) -> DataFrame:
    """Changes that could make *scenario* (or the file or name) fit in memory, each run: a row each, the best first.

    Columns: ``change`` in words, ``changes`` (as ``Scenario.replace`` takes them), ``peak_memory_bytes``, ``fits``,
    ``step_time_s``, ``step_time_change`` (a part, for as many tokens), ``global_batch``, ``gpus``, ``error`` (why it
    could not be run, or what else is full). Combinations are tried if no single change does, or only at the cost of a
    quarter more time. ``progress`` shows bars on standard error (None: where somebody looks at it). Raises what running
    the scenario raises.

    >>> machine = {"topology": "dgx_a100", "nodes": 1, "gpus_per_node": 1}
    >>> model = {"family": "gpt", "layers": 2, "hidden": 4096, "heads": 32, "vocab": 65536, "max_positions": 2048}
    >>> large = Scenario.from_dict({"model": model, "cluster": machine, "training": {"micro_batch": 64}})
    >>> large.run().memory.fits, what_fits(large).change[0]
    (False, 'micro batch 32')
    """
    base = scenario if isinstance(scenario, Scenario) else Scenario.load(scenario)
    return search(base, base.run(), progress=progress).frame()


def search(scenario: Scenario, now: Result, *, progress: bool | None = None) -> Fitting:
    """What was tried with *scenario*, whose result is *now*: every way alone, then together while nothing fits, or only
    what costs much time."""
    seen = {scenario}
    alone = [Together((trial,)) for trial in trials(scenario)]
    found = _run(scenario, now, list(_fresh(scenario, alone, seen)), "try", progress)
    last = found
    for _ in range(ROUNDS - 1):
        if now.memory.fits or any(one.fits and (one.longer or 0.0) <= DEAR for one in found):
            break
        more = list(_fresh(scenario, _together(scenario, last, found), seen))[:MOST]
        last = [one for one in _run(scenario, now, more, "combine", progress) if one.ran]
        found = [*found, *last]
    return Fitting(base=now, tried=tuple(sorted(found, key=lambda one: one.rank)))


def trials(scenario: Scenario) -> Iterator[Trial]:
    """All changes that the ways of the registry give for *scenario*."""
    job = scenario.resolve()
    for way in ways.values():
        yield from way(scenario, job)


def _fresh(scenario: Scenario, some: Iterable[Together], seen: set[Scenario]) -> Iterator[Together]:
    """Those of *some* that say something new; one that cannot be said stays, to be refused."""
    for one in some:
        try:
            then = scenario.replace(one.changes)
        except TrainsimError:
            yield one
            continue
        if then not in seen:
            seen.add(then)
            yield one


def _together(scenario: Scenario, last: Sequence[Tried], found: Sequence[Tried]) -> list[Together]:
    """The ways once more, upon the changes that come nearest; those first of which most can be hoped.

    What could not be run alone, or took no less, is left out.
    """
    alone = {one.title: one for one in found}
    worst = max(one.full for one in found)
    hopes: list[tuple[float, Together]] = []
    short = [one for one in last if one.saves and not one.fits]
    for parent in sorted(short, key=lambda one: one.full)[:PARENTS]:
        for trial in trials(scenario.replace(parent.what.changes)):
            before = alone.get(trial.title)
            if before is None or before.saves:
                hopes.append((parent.full * (before.full if before else worst / 2), parent.what.plus(trial)))
    return [both for _, both in sorted(hopes, key=lambda hope: hope[0])]


def _run(scenario: Scenario, now: Result, some: Sequence[Together], title: str, progress: bool | None) -> list[Tried]:
    out = []
    with bar(title, len(some), progress) as advance:
        for one in some:
            out.append(_tried(scenario, now, one))
            advance()
    return out


def _tried(scenario: Scenario, now: Result, what: Together) -> Tried:
    try:
        then = scenario.replace(what.changes).run()
    except TrainsimError as error:
        return Tried(what=what, error=_short(str(error), scenario.origin.file))
    use, batch = then.memory, then.job.training.global_batch
    same = now.job.training.global_batch / batch
    return Tried(
        what=what, peak=use.peak, full=_full(use), fits=use.fits, step=then.step_time,
        longer=then.step_time * same / now.step_time - 1.0 if now.step_time else 0.0,
        saves=_saves(use, now.memory), global_batch=batch, gpus=then.lanes.ranks,
        error="; ".join(store.complaint for store in (use.host, use.nvme) if not store.fits) or None,
    )  # fmt: skip


def _full(use: MemoryUse) -> float:
    """The part that is used of what is fullest."""
    beside = [store for store in (use.host, use.nvme) if store.peak_per_node]
    return max(use.peak / use.capacity, *(store.peak_per_node / max(store.capacity, 1.0) for store in beside), 0.0)


def _saves(use: MemoryUse, before: MemoryUse) -> bool:
    if before.gpus_fit and not before.fits:
        return _full(use) < _full(before)
    return use.peak < before.peak


def _short(text: str, file: str) -> str:
    """The first line of an error, without the place in the file."""
    line = text.partition("\n")[0]
    if file and line.startswith(f"{file}:"):
        line = line.partition(": ")[2]
    return line
