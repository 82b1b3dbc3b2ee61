"""Everything that is worked out from a simulation, each number when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from trainsim.analysis.communication import Traffic, communication
from trainsim.analysis.expectation import Expectation, Facts, contention, difference, expectation, slow_things
from trainsim.analysis.hops import Hops
from trainsim.analysis.lanes import Ints
from trainsim.analysis.likely import Range, likely, parts_of
from trainsim.analysis.links import LinkTraffic
from trainsim.analysis.memory import NEARLY_FULL, MemoryUse, memory, stores
from trainsim.analysis.network_faults import NetworkFaults, network_faults, too_late
from trainsim.analysis.rollout import RolloutUse, rollout_use
from trainsim.analysis.step_analysis import StepAnalysis
from trainsim.analysis.throughput import Throughput, throughput
from trainsim.analysis.training_cost import TrainingCost, training_cost
from trainsim.contracts.job import Delay, Job, Slow
from trainsim.contracts.trace import Trace
from trainsim.models.lora import adapter_tensors
from trainsim.simulate import Simulation

UNEVEN = 0.01
"""Stages whose busy times differ by more are called uneven."""
UNEXPLAINED = 0.10
"""A difference between closed form and simulation that is worth a warning."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Analysis(StepAnalysis):
    """The numbers of a simulated step, or of several back to back: those of its trace, and those that its job adds.
    All but ``duration``, ``trace`` and memory over time are of one step.

    ``scenario`` is the resolved scenario as plain data, ``notes`` are warnings of those who made it. Times in seconds,
    memory in bytes, speeds in FLOP/s.
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

    @property
    def pipelines(self) -> Ints:
        return self.hops.mesh.groups("pp")

    @cached_property
    def pipeline(self) -> tuple[int, ...]:
        """One rank per stage: a pipeline that ``what_if`` touches, or else the first."""
        rows = self.pipelines
        touched = [
            r
            for w in self.job.what_if
            for r in (w.ranks if isinstance(w, Slow) else (w.rank,) if isinstance(w, Delay) else ())
        ]
        row = next((row for row in rows if touched and touched[0] in row), rows[0])
        return tuple(row.tolist())

    @cached_property
    def likely(self) -> Range | None:
        """Seconds between which four of five measured steps lie; None for rollouts, of which no run was published."""
        if self.simulation.plan.rollout is not None:
            return None
        return likely(self.step_time, parts_of(self.job, self.breakdown))

    @cached_property
    def throughput(self) -> Throughput:
        return throughput(self.job, self.step_time)

    @cached_property
    def training_cost(self) -> TrainingCost | None:
        """Days, GPU-hours and cost of the whole training; None where nobody says on how many tokens it is."""
        job = self.job
        if job.training.tokens is None:
            return None
        return training_cost(
            job.training.tokens,
            self.tokens_per_s,
            gpus=job.parallel.ranks,
            price=job.cluster.price_per_gpu_hour,
            likely=None if self.likely is None else (self.step_time, self.likely),
        )

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
    def rates(self) -> Mapping[str, float]:
        return {"mfu": self.mfu}

    @property
    def hfu(self) -> float:
        return self.throughput.hfu

    @cached_property
    def memory(self) -> MemoryUse:
        cluster = self.job.cluster
        use = memory(self.lanes, cluster.memory_per_gpu, stores(self.lanes, cluster, self.job.allocation))
        return replace(use, reserved=cluster.reserved_memory, nominal=cluster.gpu.memory)

    @cached_property
    def rollout(self) -> RolloutUse | None:
        """What the step generates before it trains; None if it does not."""
        plan = self.simulation.plan.rollout
        return None if plan is None else rollout_use(self.lanes, plan)

    @cached_property
    def communication(self) -> dict[str, Traffic]:
        return communication(self.lanes, self.breakdown, self.waiting, self.hops)

    @cached_property
    def link_traffic(self) -> LinkTraffic:
        """How full the links are, when, and whose bytes they are."""
        return LinkTraffic(self.lanes, self.simulation.network)

    @cached_property
    def hops(self) -> Hops:
        """Where the groups of this job lie in the machine."""
        return Hops(self.job.cluster, self.simulation.network)

    @cached_property
    def network_faults(self) -> NetworkFaults | None:
        """What is out of service or flaps in the network, and its cost; None if all is whole. Runs the job again."""
        return network_faults(self.simulation, self.step_time)

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
        model = self.job.model
        held = float(self.lanes.count @ self.trace.parameters)
        adapters = adapter_tensors(model.kinds, 1).total
        return {
            "total": model.parameters + adapters,
            "per_rank": held / self.lanes.ranks,
            "active": model.active_parameters + adapters,
            "trainable": adapters or model.parameters,
        }

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What to know before trusting the numbers."""
        out, gpu = list(self.notes), self.job.cluster.gpu
        if not gpu.measured:
            out.append(f"No kernels were measured on {gpu.name}: its constants are derived from the datasheet.")
        kernel, curves = self.job.training.attention, gpu.kernels.attention
        if kernel != "eager" and kernel not in curves.curves:
            known = ", ".join(curves.named) or "none"
            out.append(
                f"No measurements of {kernel} attention on {gpu.name}: those of {curves.known(kernel)} are used. "
                f"Measured: {known}."
            )
        if self.memory.peak > NEARLY_FULL * self.memory.capacity and self.memory.gpus_fit:
            full = self.memory.peak / self.memory.capacity
            out.append(
                f"Memory is {full:.0%} full with the allocator's usual slack: it barely fits. Expect the allocator to "
                "free its cache and retry, which takes time; with slightly more it runs out of memory."
            )
        out += self.memory.complaints
        out += too_late(self.job, self.trace.duration)
        if self.hfu > 1.0:
            out.append(
                f"HFU {self.hfu:.0%}: a factor below 1 in what_if makes kernels faster than the datasheet's peak."
            )
        # The reason takes long to find out, so it is only asked for where the difference is large.
        if abs(difference(self.step_time, self.simulation.estimate.seconds)) > UNEXPLAINED:
            out.append(
                f"The simulation differs from the closed form by {self.estimate.difference:+.1%}: "
                f"{self.estimate.explanation}."
            )
        return tuple(out)
