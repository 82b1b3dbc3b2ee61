"""Every published run replayed: seconds and bytes predicted beside those measured, or why there are none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainsim.analysis.likely import parts_of
from trainsim.errors import InvalidData, ScenarioError, TrainsimError, UnknownName
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario
from trainsim.study.runner import Runner
from trainsim.study.store import AnswerStore
from trainsim.study.trial import Trial
from trainsim.validation.forms import rows_of
from trainsim.validation.left_out import learnt_from, without
from trainsim.validation.mapping import scenario_of
from trainsim.validation.published import SHIPPED, TABLES, PublishedRun
from trainsim.validation.scores import COLUMNS, RunScore
from trainsim.validation.summary import overall

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import RenderableType

UNSEEN = {"allocated": ("framework", "slack"), "reserved": ("framework",), "first": ("framework",), "smi": ()}
"""Categories of a predicted peak that a kind of measurement does not see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What is kept of a replayed run: seconds per step, bytes of the peak by what measures it, and the parts of its
    error."""

    step_time: float
    parts: tuple[tuple[str, float], ...]
    peaks: tuple[tuple[str, float], ...]
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """All scores in the order of the rows; ``interrupted``: those that were not run by then say so."""

    scores: tuple[RunScore, ...]
    interrupted: bool = False

    def __repr__(self) -> str:
        return f"<Validation {overall(self.scores).removesuffix('.')}>"

    def frame(self) -> DataFrame:
        """A row per run with the columns of ``COLUMNS``: seconds, bytes, errors as fractions."""
        from pandas import DataFrame

        return DataFrame([score.to_dict() for score in self.scores], columns=list(COLUMNS))

    def __rich__(self) -> RenderableType:
        from trainsim.tables.terminal import rich_sections
        from trainsim.validation.tables import sections

        return rich_sections(sections(self.scores))

    def _repr_html_(self) -> str:
        from trainsim.tables.page import card
        from trainsim.validation.tables import sections

        return card(sections(self.scores))


def validate(
    runs: str | Path | None = None,
    *,
    sources: str | Sequence[str] = (),
    left_out: bool = False,
    workers: int | None = None,
    progress: bool | None = None,
    backend: str | None = None,
    store: AnswerStore | str | Path | None = None,
) -> Validation:
    """Published runs compared with their predictions.

    *runs* is a table that ships (``runs``, which None means too, or ``nanotron``) or a CSV file with such columns,
    *sources* keeps rows of these only. ``left_out`` forgets for each run what was learnt from its source: the profile
    of its software, and constants that were fitted on it. The other options are as in ``sweep``. An interrupt
    keeps what is finished. Raises InvalidData for a file that is no such table, and UnknownName for a source that has
    no row.

    >>> scored = validate(sources=["S4"], workers=1, progress=False)
    >>> [score.run.id for score in scored.scores if abs(score.error) > 0.05]
    []
    """
    path = SHIPPED if runs is None else TABLES.get(str(runs), runs)
    rows = _of_sources(path, list(rows_of(path)), [sources] if isinstance(sources, str) else sources)
    if left_out:
        _check_taught(path, rows)
    runner = Runner(keep=replayed, workers=workers, progress=progress, backend=backend, store=store)
    mapped = [_mapped(run, left_out) for run in rows]
    outcomes = iter(runner.run([m.trial for m in mapped if m.trial is not None], "validate"))
    scores = []
    for entry in mapped:
        outcome = next(outcomes) if entry.trial is not None else None
        value = outcome.value if outcome else None
        reason = outcome.failure.message if outcome and outcome.failure else entry.score.reason
        scores.append(_scored(entry.score, value, reason))
    return Validation(scores=tuple(scores), interrupted=runner.interrupted)


def replayed(result: Result) -> Replayed:
    """What is kept of *result*."""
    use = result.memory
    peaks = tuple(
        (measure, max(stage.peak - sum(stage.part(part) for part in unseen) for stage in seen))
        for measure, unseen in UNSEEN.items()
        for seen in (use.per_stage[:1] if measure == "first" else use.per_stage,)
    )
    parts = tuple(parts_of(result.job, result.breakdown).items())
    return Replayed(step_time=result.step_time, parts=parts, peaks=peaks, fits=use.fits)


@dataclass(frozen=True, slots=True)
class _Mapped:
    score: RunScore
    trial: Trial | None


def _mapped(run: PublishedRun, left_out: bool) -> _Mapped:
    """A row as a trial, or its score with the reason why it is none."""
    published = memory = None
    try:
        published, memory = run.step_time, run.peak_memory
        mapped = scenario_of(run)
        score = RunScore(
            run=run,
            published=published,
            memory_published=memory,
            software=mapped.software.profile,
            assumed=mapped.assumed,
        )
        scenario = without(run.source, mapped.scenario) if left_out else mapped.scenario
        return _Mapped(score, Trial(base=Scenario.from_dict(scenario), name=run.id))
    except TrainsimError as error:
        return _Mapped(RunScore(run=run, published=published, memory_published=memory, reason=str(error)), None)


def _scored(score: RunScore, value: Replayed | None, reason: str) -> RunScore:
    """*score* with what its trial gave."""
    if value is None:
        return replace(score, reason=reason)
    peak = dict(value.peaks)[score.run.memory_measure] if score.memory_published else None
    return replace(score, predicted=value.step_time, parts=value.parts, memory_predicted=peak, fits=value.fits)


def _of_sources(path: str | Path, rows: list[PublishedRun], sources: Sequence[str]) -> list[PublishedRun]:
    known = dict.fromkeys(run.source for run in rows)
    for source in sources:
        if source not in known:
            raise UnknownName("source of published runs", source, known)
    kept = [run for run in rows if not sources or run.source in sources]
    if not kept:
        raise InvalidData(f"{path}: a header and no row below it; write a row per run")
    return kept


def _check_taught(path: str | Path, rows: Sequence[PublishedRun]) -> None:
    """Refuse to leave out sources of which none taught anything."""
    sources = dict.fromkeys(run.source for run in rows)
    if not any(map(learnt_from, sources)):
        raise ScenarioError(
            f"{path}: nothing was learnt from {', '.join(sources)}, so that nothing can be left out; leave --left-out "
            "(left_out) away"
        )
