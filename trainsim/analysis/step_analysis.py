"""Everything that is worked out from a trace alone, simulated or measured; each number when it is first asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property

from trainsim.analysis.breakdown import Ledger, StageWait, breakdown, ledger, waiting
from trainsim.analysis.bubble import Bubble, bubble, fraction, period, step_ends
from trainsim.analysis.critical import CriticalPath, critical_path
from trainsim.analysis.gpu_use import GpuUse, gpu_use
from trainsim.analysis.lanes import Ints, Lanes
from trainsim.contracts.trace import Trace


class StepAnalysis(ABC):
    """The numbers of a step, or of several back to back, that its trace tells; all but ``duration`` and ``trace`` are
    of one step. Times in seconds.

    Whoever has a trace says what it is called and which ranks are a pipeline; what else is known of the job adds
    numbers of its own.
    """

    @property
    @abstractmethod
    def trace(self) -> Trace:
        """What happened when."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called."""

    @property
    @abstractmethod
    def pipelines(self) -> Ints:
        """A row per pipeline: the ranks that pass microbatches to each other, stage by stage."""

    @property
    def pipeline(self) -> tuple[int, ...]:
        """One rank per stage: the first pipeline."""
        return tuple(self.pipelines[0].tolist())

    @property
    def rates(self) -> Mapping[str, float]:
        """Parts of 1 that titles name beside the bubble, by their short names: nothing that a trace tells."""
        return {}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know before trusting the numbers."""
        return ()

    @cached_property
    def lanes(self) -> Lanes:
        """The folded trace as columns: what all analyses read."""
        return Lanes(trace=self.trace)

    @cached_property
    def ledger(self) -> Ledger:
        """Exposed seconds of each class of ranks."""
        return ledger(self.lanes)

    @property
    def steps(self) -> int:
        """How many steps there are, back to back."""
        return self.lanes.steps

    @property
    def duration(self) -> float:
        """Seconds that all steps took together."""
        return self.lanes.duration

    @cached_property
    def step_time(self) -> float:
        """Seconds of a step: of several, their mean, the first and the last included."""
        return self.lanes.step

    @property
    def step_ends(self) -> tuple[float, ...]:
        """Seconds at which each of several steps is over; nothing for a single one."""
        return tuple(step_ends(self.lanes).tolist()) if self.steps > 1 else ()

    @property
    def period(self) -> float | None:
        """Seconds from the end of a step to that of the next when several run back to back; None for a single one."""
        return period(self.lanes)

    @cached_property
    def bubble(self) -> Bubble:
        return bubble(self.lanes, self.pipelines)

    @cached_property
    def bubble_fraction(self) -> float:
        """``bubble.fraction``, without the rest of the bubble."""
        return fraction(self.lanes, self.pipelines)

    @cached_property
    def breakdown(self) -> dict[str, float]:
        """Exposed seconds of the mean rank; they sum to the step exactly."""
        return breakdown(self.lanes, self.ledger)

    @cached_property
    def breakdown_per_stage(self) -> tuple[dict[str, float], ...]:
        """The same for the mean rank of each stage."""
        return tuple(breakdown(self.lanes, self.ledger, stage=s) for s in range(self.lanes.stages))

    @cached_property
    def waiting(self) -> dict[str, float]:
        """Of each row of the breakdown the seconds in which peers were late; of ``bubble`` those at the step's end."""
        return waiting(self.lanes, self.ledger)

    @property
    def waits(self) -> tuple[StageWait, ...]:
        """Which stage waits for what, and how long."""
        return self.ledger.waits

    @cached_property
    def critical_path(self) -> CriticalPath:
        return critical_path(self.lanes)

    @cached_property
    def gpu_use(self) -> tuple[GpuUse, ...]:
        """What the GPU of each rank does, in seconds of all steps; ranks of one class are alike."""
        of_class = [gpu_use(self.lanes, c) for c in range(self.trace.classes)]
        return tuple(of_class[c] for c in self.trace.rank_class.tolist())
