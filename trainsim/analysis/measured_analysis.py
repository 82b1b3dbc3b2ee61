"""What is worked out from a measured step: all that its trace tells."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainsim.analysis.lanes import Ints
from trainsim.analysis.step_analysis import StepAnalysis
from trainsim.contracts.measured_trace import MeasuredTrace
from trainsim.contracts.trace import Trace


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MeasuredAnalysis(StepAnalysis):
    """The numbers of a step that a machine has run. Times in seconds."""

    measured: MeasuredTrace

    @property
    def trace(self) -> Trace:
        return self.measured.trace

    @property
    def name(self) -> str:
        return self.measured.name

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.measured.warnings

    @cached_property
    def pipelines(self) -> Ints:
        """Ranks of the stages in order, the first of each stage in one row and so on; where stages have not as many
        ranks as each other, all ranks are one row."""
        stage = self.trace.stage[self.trace.rank_class]
        count = np.bincount(stage)
        if (count != count[0]).any():
            return np.arange(len(stage))[None, :]
        return np.argsort(stage, kind="stable").reshape(len(count), -1).T
