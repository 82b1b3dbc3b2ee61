"""The host, from traces of a profiler: the time of a launch, and what else of a framework's profile a trace shows."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from trainsim.calibration.answer import Compared, Constant, FitAnswer
from trainsim.calibration.bases import Bases
from trainsim.calibration.fit import ConstantFit, register
from trainsim.calibration.measurements import HostTimes, Measurements
from trainsim.frameworks import Framework, load_framework
from trainsim.units import format_time

USUAL = "neutral"
"""The profile that an override starts from where nobody names one."""
FAR = 3.0
"""How many times the profile's time of a launch is not believed."""
IDLE = 0.5
"""A GPU that is busy for less than this part of a step waits for the host."""


def fit(measured: Measurements, bases: Bases, phase: Callable[[str], None]) -> FitAnswer:
    """An override of the framework that *bases* names."""
    phase("fitting the host")
    hosts = measured.hosts
    base, framework, pace = _framework(bases)
    seconds = median(host.seconds_per_launch for host in hosts)
    before, after = framework.host.seconds_per_operation, float(f"{seconds / pace:.4g}")
    document: dict[str, Any] = {"base": base, "source": f"trainsim calibrate: profiler, traces: {len(hosts)}"}
    constants = []
    graph = all(host.graph for host in hosts)
    if not graph:
        document["host"] = {"seconds_per_operation": after}
        constants.append(Constant(key="host.seconds_per_operation", before=before, after=after, unit="s"))
    words = {"cuda_graph": graph, "blocking": all(host.blocking for host in hosts)}
    if switched := {name: True for name, seen in words.items() if seen and not getattr(framework.host, name)}:
        document["host"] = {**document.get("host", {}), **switched}
    kinds = {host.attention for host in hosts} - {""}
    if len(kinds) == 1 and (kind := kinds.pop()) != framework.kernels.attention:
        document["kernels"] = {"attention": kind}
    compared = [] if graph else [Compared(what="launch", measured=seconds, before=before * pace, after=after * pace)]
    return FitAnswer(
        constants=tuple(constants),
        compared=tuple(compared),
        facts=tuple(map(_facts, hosts)),
        warnings=tuple(_remarks(hosts, bases, graph, before * pace)),
        kept=(("kernels per layer, hooks and data loading", "a trace does not say whose they are"),),
        documents={"framework": document} if len(document) > 2 else {},
    )


def _framework(bases: Bases) -> tuple[Any, Framework, float]:
    """The base as an override names it, its profile, and how much slower than the processor of the profile that of the
    scenario's machine is."""
    if bases.framework or bases.scenario is None:
        name = bases.framework or USUAL
        return name, load_framework(name), 1.0
    job = bases.scenario.resolve()
    spec = bases.scenario.data.get("framework") or job.framework.name
    profile = load_framework(spec, origin=bases.scenario.origin.part(("framework",)))
    here, there = job.framework.host.seconds_per_operation, profile.host.seconds_per_operation
    return spec if isinstance(spec, str) else job.framework.name, profile, here / there if there else 1.0


def _facts(host: HostTimes) -> str:
    steps = f"steps of {format_time(median(host.steps))}, " if host.steps else ""
    return (
        f"{host.file}: {steps}{host.kernels:,.0f} kernels in each, the GPU is busy for {host.busy:.0%} of it; "
        f"{host.waiting:.0%} of the kernels found it idle, {format_time(host.delay)} after their launch"
    )


def _remarks(hosts: tuple[HostTimes, ...], bases: Bases, graph: bool, seconds: float) -> list[str]:
    """What somebody who uses the override should know; *seconds* is what the profile says of a launch."""
    out = []
    if not graph:
        out.append("the profiler notes every operation and slows the host: without it a launch takes less; compare the "
                   "time of a step with and without")  # fmt: skip
        if all(host.busy > IDLE for host in hosts):
            out.append("the GPU is busy most of the time: the host may have waited for it, and needs less than this")
        if median(host.seconds_per_launch for host in hosts) > FAR * seconds:
            out.append("a launch takes many times what the profile says: the profiler or Python is in between; a table "
                       "of steps tells the host's time better")  # fmt: skip
    if bases.framework is None and bases.scenario is None:
        out.append(f"base {USUAL}: name the profile that your software is nearest to with --base")
    return out


register(ConstantFit(name="host", applies=lambda measured: bool(measured.hosts), run=fit))
