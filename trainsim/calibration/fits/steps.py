"""
Measured steps: how fast the clock, the network and the host are, from a few rows of one's own.

A step is nearly a sum of parts that each go with one of the three, so a few runs per row say how its time depends on
them; the fit is made on that plane, run again, and repeated once from where it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainsim.calibration.answer import Compared, FitAnswer
from trainsim.calibration.bases import Bases, scenario_base
from trainsim.calibration.fit import ConstantFit, register
from trainsim.calibration.fits.least_squares import Floats, Solution, solve
from trainsim.calibration.fits.speeds import MachineSpeeds, scenario_override
from trainsim.calibration.measurements import MeasuredStep, Measurements
from trainsim.calibration.priors import priors
from trainsim.documents.catalogue import merged
from trainsim.errors import ScenarioError
from trainsim.study.runner import Runner
from trainsim.study.trial import Change, Measures, Trial, measures

Bools = npt.NDArray[np.bool_]

NAMES = ("clock", "network", "host")
WORDS = {
    "clock": "the clock that kernels sustain",
    "network": "the rate of the network",
    "host": "the time that the host takes for a launch",
}
AWAY = 1.25
"""How much slower each of the three is made to see what a step owes to it."""
ROUNDS = 2
PARTS = (1.0, 0.5, 0.25)
"""Of the way that a plane points to: a step is not quite one."""
ENOUGH = 3
"""Rows from which on a fit must be a help to rows that took no part in it."""
NO_HELP = (
    "nothing was changed: a fit to the other rows predicts a row no better than no fit at all; the rows differ by "
    "more than clock, network and host"
)
FAR_AS_IT_IS, FAR_AFTER = 3.0, 1.5
"""So many times what is simulated, before or after a fit: the step was not of this scenario, or not in seconds."""
SAME = 1e-4
"""A logarithm that moved less than this did not."""


@dataclass(frozen=True, eq=False)
class Plane:
    """Seconds of each row as a plane: ``at`` in logarithms of the factors, ``seconds`` there, and ``slopes`` over how
    many times slower each of the three is, relative to there [rows, 3]."""

    at: Floats
    seconds: Floats
    slopes: Floats

    def predicted(self, logarithms: Floats) -> Floats:
        """Seconds of each row with other factors."""
        slower = np.exp(_slower(logarithms) - _slower(self.at))
        seconds = self.seconds + self.slopes @ (slower - 1.0)
        return np.asarray(np.maximum(seconds, 0.05 * self.seconds))


def fit(measured: Measurements, bases: Bases, phase: Callable[[str], None]) -> FitAnswer:
    """An override of the scenario on which the rows are based. Raises ScenarioError without one, or if no row runs."""
    if bases.scenario is None:
        raise ScenarioError(
            f"{measured.steps[0].place}: a table of steps says what differs from a scenario; name that with --scenario"
        )
    runner = Runner(keep=measures)
    trials = [_trial(bases, step) for step in measured.steps]
    here, steps, left = _first(runner, trials, measured.steps)
    trials = [trial for trial, step in zip(trials, measured.steps, strict=True) if step in steps]
    seconds = np.array([_seconds(step, value) for step, value in zip(steps, here, strict=True)])
    before = np.array([value.step_time for value in here])
    phase("fitting steps")
    found = _search(runner, trials, seconds, before)
    document, constants = scenario_override(bases.scenario, _speeds(found.at))
    said = [NO_HELP] * found.gave_up + _far_off(steps, seconds, before, found.after)
    return FitAnswer(
        constants=constants,
        compared=tuple(_compared(steps, seconds, before, found)),
        kept=tuple((WORDS[name], _why(name, seconds, found.plane)) for name in NAMES if name not in found.chosen),
        warnings=(*left, *said),
        documents={"scenario": merged(scenario_base(bases.scenario), document)} if document else {},
    )


@dataclass(frozen=True, eq=False)
class Found:
    """Where a search ended: the logarithms of the factors, what is simulated there, the unknowns that moved, the plane
    that was last used, and what each row is by a fit on all others. ``gave_up``: a fit was no help and was dropped."""

    at: Floats
    after: Floats
    chosen: list[str]
    plane: Plane
    left_out: list[float | None]
    gave_up: bool = False


def _search(runner: Runner[Measures], trials: Sequence[Trial], seconds: Floats, before: Floats) -> Found:
    """Factors whose steps are nearer to those measured, also for rows that took no part; else none."""
    nowhere = np.zeros(len(NAMES))
    plane = _plane(runner, trials, nowhere)
    best = Found(nowhere, before, [], plane, [None] * len(seconds))
    for _ in range(ROUNDS):
        chosen = _chosen(plane, seconds)
        wanted = _fitted(plane, seconds, chosen, np.ones(len(seconds), bool))
        at, after = _nearer(runner, trials, best, wanted, seconds)
        if _away(after, seconds) >= _away(best.after, seconds):
            break
        best = Found(at, after, chosen, plane, _left_out(plane, seconds, chosen, after, at))
        plane = _plane(runner, trials, at)
    alone = [value for value in best.left_out if value is not None]
    if len(alone) >= ENOUGH and _away(np.array(alone), seconds) >= _away(before, seconds):
        return Found(nowhere, before, [], plane, [None] * len(seconds), gave_up=True)
    return best


def _nearer(
    runner: Runner[Measures], trials: Sequence[Trial], best: Found, wanted: Floats, seconds: Floats
) -> tuple[Floats, Floats]:
    """*wanted*, or as much of the way there as makes steps nearer to those measured, and the steps there."""
    for part in PARTS:
        at = best.at + part * (wanted - best.at)
        after = _run(runner, trials, at)
        if _away(after, seconds) < _away(best.after, seconds):
            break
    return at, after


def _away(simulated: Floats, seconds: Floats) -> float:
    """How far steps are from those measured, on average."""
    return float(np.abs(np.log(simulated / seconds)).mean())


def _trial(bases: Bases, step: MeasuredStep) -> Trial:
    assert bases.scenario is not None
    values = dict(step.changes)
    for key, other in (("cluster.gpus", "cluster.nodes"), ("cluster.nodes", "cluster.gpus")):
        if key in values and other not in values:
            values[other] = None  # a row that says how many GPUs says so in the place of the scenario
    return Trial(base=bases.scenario, parts=(Change(title=step.title, values=values),))


def _first(
    runner: Runner[Measures], trials: Sequence[Trial], steps: Sequence[MeasuredStep]
) -> tuple[list[Measures], list[MeasuredStep], list[str]]:
    """What the rows that run give as the scenario is, those rows, and why the others do not."""
    outcomes = runner.run(trials, "steps as they are")
    left = [f"{step.place}: left out: {o.failure.reason}" for step, o in zip(steps, outcomes, strict=True) if o.failure]
    good = [(o.value, step) for step, o in zip(steps, outcomes, strict=True) if o.value is not None]
    left += [_impossible(step, value) for value, step in good if not _possible(step, value)]
    good = [(value, step) for value, step in good if _possible(step, value)]
    if not good:
        raise ScenarioError(f"no row can be fitted; the first one: {left[0]}")
    return [value for value, _ in good], [step for _, step in good], left


def _possible(step: MeasuredStep, value: Measures) -> bool:
    """Whether the GPUs of the scenario can have taken such a step: its FLOPs at the speed of the datasheet."""
    return _seconds(step, value) >= value.mfu * value.step_time


def _impossible(step: MeasuredStep, value: Measures) -> str:
    least = value.mfu * value.step_time
    return (
        f"{step.place}: left out: {step.title} in {_seconds(step, value):.4g} s is {least / _seconds(step, value):.3g} "
        f"times as fast as the datasheet of its GPUs allows ({least:.4g} s); is that the step of this scenario?"
    )


def _seconds(step: MeasuredStep, value: Measures) -> float:
    """The measured time of a step; a rate is turned into one by the tokens that the row trains on."""
    if step.step_seconds is not None:
        return step.step_seconds
    return value.tokens_per_s_per_gpu * value.step_time / (step.tokens_per_s_per_gpu or 1.0)


def _plane(runner: Runner[Measures], trials: Sequence[Trial], at: Floats) -> Plane:
    """How the rows depend on the three, around *at*."""
    seconds = _run(runner, trials, at)
    away = [at - np.log(AWAY) * (1 if name != "host" else -1) * (np.array(NAMES) == name) for name in NAMES]
    slopes = [(_run(runner, trials, there) - seconds) / (AWAY - 1.0) for there in away]
    return Plane(at, seconds, np.array(slopes).T)


def _run(runner: Runner[Measures], trials: Sequence[Trial], at: Floats) -> Floats:
    """Seconds of each row with the factors whose logarithms are *at*."""
    changed = [Trial(base=t.base, parts=t.parts, name=t.name, job_change=_speeds(at)) for t in trials]
    outcomes = runner.run(changed, "steps")
    if failed := next((outcome.failure for outcome in outcomes if outcome.failure), None):
        raise ScenarioError(failed.message)
    return np.array([outcome.value.step_time for outcome in outcomes if outcome.value], np.float64)


def _speeds(at: Floats) -> MachineSpeeds:
    return MachineSpeeds(*(float(np.exp(value)) if abs(value) > SAME else 1.0 for value in at))


def _slower(logarithms: Floats) -> Floats:
    """How much slower each of the three is, in logarithms: a clock and a rate count the other way round."""
    return np.asarray(logarithms * np.array([-1.0, -1.0, 1.0]), np.float64)


def _chosen(plane: Plane, seconds: Floats) -> list[str]:
    """Which of the three the rows tell: at most as many as there are rows, and of one row the clock alone."""
    prior = priors("steps")
    names = list(NAMES) if len(seconds) > 1 else ["clock"]
    while names:
        told = _solution(plane, seconds, names, np.ones(len(seconds), bool)).told
        least = min(range(len(names)), key=lambda k: told[k])
        if told[least] >= prior["told"] and len(names) <= len(seconds):
            return names
        names.pop(least)
    return []


def _fitted(plane: Plane, seconds: Floats, names: Sequence[str], used: Bools) -> Floats:
    """The logarithms of all three factors."""
    at = np.zeros(len(NAMES))
    if names:
        at[[NAMES.index(name) for name in names]] = _solution(plane, seconds, names, used).at
    return at


def _solution(plane: Plane, seconds: Floats, names: Sequence[str], used: Bools) -> Solution:
    prior = priors("steps")
    places = [NAMES.index(name) for name in names]

    def residuals(values: Floats) -> Floats:
        at = np.zeros(len(NAMES))
        at[places] = values
        return np.asarray(np.log(plane.predicted(at) / seconds)[used])

    return solve(residuals, np.array([prior[name] for name in names]), prior["noise"])


def _left_out(plane: Plane, seconds: Floats, names: Sequence[str], after: Floats, at: Floats) -> list[float | None]:
    """Seconds of each row by a fit on all others; the plane is scaled to what was simulated in the end."""
    rows = len(seconds)
    if rows < 2 or not names:
        return [None] * rows
    out: list[float | None] = []
    for row in range(rows):
        fewer = list(names)[: max(1, rows - 1)]
        without = _fitted(plane, seconds, fewer, np.arange(rows) != row)
        out.append(float(plane.predicted(without)[row] / plane.predicted(at)[row] * after[row]))
    return out


def _compared(steps: Sequence[MeasuredStep], seconds: Floats, before: Floats, found: Found) -> list[Compared]:
    return [
        Compared(
            what=step.title,
            measured=float(seconds[k]), before=float(before[k]), after=float(found.after[k]),
            left_out=found.left_out[k],
        )
        for k, step in enumerate(steps)
    ]  # fmt: skip


def _far_off(steps: Sequence[MeasuredStep], seconds: Floats, before: Floats, after: Floats) -> list[str]:
    """What to say of rows that no clock, network or host explains."""
    times = np.log(np.array([before, after]) / seconds)
    far = np.flatnonzero((np.abs(times) > np.log([[FAR_AS_IT_IS], [FAR_AFTER]])).any(axis=0))
    if not len(far):
        return []
    step, (was, then) = steps[int(far[0])], np.exp(times[:, far[0]])
    more = f" (and {len(far) - 1} more)" if len(far) > 1 else ""
    return [
        f"{step.place}: {step.title} is simulated as {was:.3g} times what was measured, and {then:.3g} times after "
        f"the fit{more}; is that the step of this scenario?"
    ]


def _why(name: str, seconds: Floats, plane: Plane) -> str:
    """Why one of the three stays."""
    share = plane.slopes[:, NAMES.index(name)] / plane.seconds
    if len(seconds) == 1 and name != "clock":
        return "one row tells the clock alone"
    if share.max() < priors("steps")["noise"]:
        return "no row depends on it"
    return "the rows do not tell it from the others, or no change of it brings them nearer"


register(ConstantFit(name="steps", applies=lambda measured: bool(measured.steps), run=fit))
