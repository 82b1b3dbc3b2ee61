"""A scenario or a measured step beside measured traces: ``trainsim compare scenario.yaml rank*.json.gz``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainsim.measured.comparison import MeasuredComparison, beside
from trainsim.measured.reading import read_trace
from trainsim.result.measured_result import MeasuredResult
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario

DETAIL = {"simulation.detail": "op"}
"""Every kernel by itself, so that kinds of kernels can be told apart."""

Step = Scenario | Result | MeasuredResult | str | Path


def compare_with_trace(
    before: Step, after: MeasuredResult | str | Path | Sequence[str | Path], *, step: int | str | None = None
) -> MeasuredComparison:
    """What a simulated step (a scenario, which is run with every kernel, its name or a result), or a measured one (its
    file), and the measured one in *after* differ in, and which constant of the scenario would mend most of it.

    *step* is that of ``read_trace``, for files that are read here.
    """
    measured = after if isinstance(after, MeasuredResult) else read_trace(after, step=step)
    if isinstance(before, Result | MeasuredResult):
        return beside(before, measured)
    scenario = before if isinstance(before, Scenario) else Scenario.load(before)
    return beside(scenario.replace(DETAIL).run(), measured)
