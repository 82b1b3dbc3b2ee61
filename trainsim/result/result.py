"""What a run gives: numbers on demand, pictures, files, and differences between two runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainsim.analysis.breakdown import Ledger, Wait, breakdown, ledger, waiting
from trainsim.analysis.bubble import Bubble, bubble
from trainsim.analysis.communication import Traffic, communication
from trainsim.analysis.contention import contention
from trainsim.analysis.critical import CriticalPath, critical_path
from trainsim.analysis.expectation import Expectation, expectation
from trainsim.analysis.hops import Hops
from trainsim.analysis.lanes import Lanes
from trainsim.analysis.memory import NEARLY_FULL, MemoryUse, memory
from trainsim.analysis.period import period, step_ends
from trainsim.analysis.reasons import Facts, slow_things
from trainsim.analysis.storage import stores
from trainsim.analysis.throughput import Throughput, throughput
from trainsim.contracts.job import Delay, Job, Slow
from trainsim.errors import InvalidPlan
from trainsim.models.lora import adapter_tensors
from trainsim.report.serial import result_dict
from trainsim.result.comparison import Comparison, compare

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from trainsim.contracts.trace import Trace
    from trainsim.simulate import Simulation

UNEVEN = 0.01
"""Stages whose busy times differ by more are called uneven."""
UNEXPLAINED = 0.10
"""A difference between closed form and simulation that is worth a warning."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Result:
    """A simulated step, or several back to back. Every number is worked out when it is first asked for, from the
    trace; all but ``duration``, ``trace`` and memory over time are of one step.

    ``scenario`` is the resolved scenario as plain data. Times in seconds, memory in bytes, speeds in FLOP/s.
    """

    simulation: Simulation
    scenario: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    # what was run

    @property
    def job(self) -> Job:
        return self.simulation.job

    @property
    def trace(self) -> Trace:
        return self.simulation.trace

    @property
    def name(self) -> str:
        return self.job.name

    # what came out

    @cached_property
    def lanes(self) -> Lanes:
        """The folded trace as columns: what all analyses read."""
        simulation = self.simulation
        return Lanes(trace=simulation.trace, programs=simulation.programs, program_of=simulation.program_of)

    @cached_property
    def ledger(self) -> Ledger:
        """Exposed seconds of each class of ranks."""
        return ledger(self.lanes)

    @property
    def steps(self) -> int:
        """How many steps were run back to back."""
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
    def throughput(self) -> Throughput:
        return throughput(self.job, self.step_time)

    @property
    def tokens_per_s(self) -> float:
        return self.throughput.tokens_per_s

    @property
    def samples_per_s(self) -> float:
        return self.throughput.samples_per_s

    @property
    def mfu(self) -> float:
        return self.throughput.mfu

    @property
    def hfu(self) -> float:
        return self.throughput.hfu

    @cached_property
    def bubble(self) -> Bubble:
        return bubble(self.lanes, self.hops.mesh.groups("pp"))

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
    def waits(self) -> tuple[Wait, ...]:
        """Which stage waits for what, and how long."""
        return self.ledger.waits

    @cached_property
    def memory(self) -> MemoryUse:
        cluster = self.job.cluster
        return memory(self.lanes, cluster.gpu.memory, stores(self.lanes, cluster, self.job.allocation))

    @cached_property
    def communication(self) -> dict[str, Traffic]:
        return communication(self.lanes, self.breakdown, self.waiting, self.hops)

    @cached_property
    def hops(self) -> Hops:
        """Where the groups of this job lie in the machine."""
        return Hops(self.job.cluster, self.simulation.plan.parts.network)

    @cached_property
    def critical_path(self) -> CriticalPath:
        return critical_path(self.lanes)

    @cached_property
    def estimate(self) -> Expectation:
        """The closed form, and where the simulation differs from it."""
        closed = self.simulation.estimate
        return expectation(closed.seconds, closed.parts, self.critical_path, self.step_time, self.facts)

    @cached_property
    def facts(self) -> Facts:
        """What the closed form does not know of this job."""
        busy, traffic = [stage.busy_s for stage in self.bubble.stages], self.communication
        return Facts(
            slow=slow_things(self.job),
            contention=contention(self.lanes),
            uneven=len(busy) > 1 and max(busy) > min(busy) * (1 + UNEVEN),
            messages=traffic["pp"].operations > 0,
            reductions=traffic["dp"].operations > 0,
            hidden=traffic["dp"].exposed_s < 0.99 * (traffic["dp"].time_s + traffic["dp"].waiting_s),
        )

    @cached_property
    def parameters(self) -> dict[str, float]:
        """Of the whole model, of the mean rank, of one token's path, and those that are trained."""
        model, programs = self.job.model, self.simulation.programs
        held = sum(
            programs[int(p)].parameters
            for p in self.simulation.program_of[self.trace.representative[self.trace.rank_class]]
        )
        adapters = adapter_tensors(model.kinds, 1).total
        return {
            "total": model.parameters + adapters,
            "per_rank": held / self.lanes.ranks,
            "active": model.active_parameters + adapters,
            "trainable": adapters or model.parameters,
        }

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What to know before believing the numbers."""
        out, gpu = list(self.notes), self.job.cluster.gpu
        if not gpu.measured:
            out.append(f"No kernels were measured on {gpu.name}: its constants are derived from the datasheet.")
        kernel, curves = self.job.training.attention, gpu.kernels.attention
        if kernel != "eager" and kernel not in curves.curves:
            known = ", ".join(curves.curves)
            out.append(
                f"{kernel} attention is not known on {gpu.name}, {curves.fallback} stands in; {known} are known."
            )
        if self.memory.peak > NEARLY_FULL * self.memory.capacity and self.memory.gpus_fit:
            full = self.memory.peak / self.memory.capacity
            out.append(
                f"Memory is {full:.0%} full with the allocator's usual slack: a little more and it does not fit."
            )
        out += self.memory.complaints
        if abs(self.estimate.difference) > UNEXPLAINED:
            out.append(
                f"The simulation differs from the closed form by {self.estimate.difference:+.1%}: "
                f"{self.estimate.explanation}."
            )
        return tuple(out)

    # what can be looked at

    @cached_property
    def pipeline(self) -> tuple[int, ...]:
        """One rank per stage: a pipeline that ``what_if`` touches, or else the first."""
        rows = self.hops.mesh.groups("pp")
        touched = [
            r
            for w in self.job.what_if
            for r in (w.ranks if isinstance(w, Slow) else (w.rank,) if isinstance(w, Delay) else ())
        ]
        row = next((row for row in rows if touched and touched[0] in row), rows[0])
        return tuple(row.tolist())

    def ranks(self, ranks: Sequence[int] | None = None) -> tuple[int, ...]:
        """*ranks* checked against the cluster; None: one pipeline."""
        if ranks is None:
            return self.pipeline
        wrong = [r for r in ranks if not 0 <= r < self.lanes.ranks]
        if wrong:
            raise InvalidPlan(f"rank {wrong[0]} does not exist: this job has ranks 0 to {self.lanes.ranks - 1}")
        return tuple(int(r) for r in ranks)

    def gantt(
        self,
        ranks: Sequence[int] | None = None,
        window: tuple[float, float] | None = None,
        steps: int | None = None,
    ) -> Figure:
        """A matplotlib figure with a lane per rank and stream: of all steps, or of the first *steps*. *window* in
        seconds zooms in. Without *ranks*, one pipeline: each stage, or of more than 16 a few and a strip of all."""
        from trainsim.report.gantt import gantt

        if steps is not None and not 1 <= steps <= self.steps:
            raise InvalidPlan(
                f"steps={steps}: {self.steps} {'was' if self.steps == 1 else 'were'} simulated; "
                f"simulation.steps: {max(steps, 1)} simulates more"
            )
        return gantt(self, None if ranks is None else self.ranks(ranks), window=window, steps=steps or self.steps)

    def memory_chart(self, window: tuple[float, float] | None = None) -> Figure:
        """A matplotlib figure of what the fullest rank of each stage holds over time; *window* in seconds zooms in."""
        from trainsim.report.memory_chart import memory_chart

        return memory_chart(self, window=window)

    def timeline(self, ranks: Sequence[int] | None = None) -> DataFrame:
        """Every span: rank, stream, name, kind, microbatch, layer, start, end (seconds)."""
        from trainsim.report.timeline import timeline

        return timeline(self.trace, self.ranks(ranks))

    def to_chrome(self, path: str | Path, ranks: Sequence[int] | None = None) -> Path:
        """Write a trace that Perfetto and chrome://tracing load; gzipped if the name ends in ``.gz``. Without *ranks*:
        a pipeline, of a large one an excerpt (``trainsim.report.chrome.excerpt`` says which)."""
        from trainsim.report.chrome import write_chrome

        return write_chrome(self, None if ranks is None else self.ranks(ranks), Path(path))

    def to_html(self, path: str | Path) -> Path:
        """Write a page that needs nothing else: tables, Gantt chart, memory."""
        from trainsim.report.html import page

        path = Path(path)
        path.write_text(page(self), encoding="utf-8")
        return path

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data with stable keys: what ``result.json`` holds."""
        return result_dict(self)

    def save(self, directory: str | Path) -> tuple[Path, ...]:
        """Write result.json, gantt.png, gantt.svg, trace.json.gz and report.html into *directory*."""
        from trainsim.report.files import save

        return save(self, Path(directory))

    def __sub__(self, other: Result) -> Comparison:
        """How much this run differs from *other*, and from where."""
        return compare(other, self)

    def __repr__(self) -> str:
        return (
            f"<Result {self.name}: step {self.step_time:.4g} s, MFU {self.mfu:.1%}, "
            f"bubble {self.bubble.fraction:.1%}, memory {self.memory.peak / 2**30:.1f} GiB>"
        )

    def _repr_html_(self) -> str:
        from trainsim.report.html import card

        return card(self)
