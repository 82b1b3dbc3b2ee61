"""A machine and a host that are faster or slower than what ships: three factors, and where a scenario writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainsim.calibration.answer import Constant
from trainsim.calibration.bases import written_topology
from trainsim.contracts.job import Job
from trainsim.frameworks import Framework, HostProfile, load_framework
from trainsim.hardware.gpu import GPU, GPUS
from trainsim.hardware.kernel_constants import KernelConstants
from trainsim.hardware.topology import TOPOLOGIES
from trainsim.scenario.scenario import Scenario

HOST = ("seconds_per_operation", "seconds_per_peer", "seconds_per_far_peer", "seconds_per_hook",
        "seconds_per_counted_tensor", "recompute_seconds")  # fmt: skip
"""What a faster processor makes shorter; what a step waits for beside it (``step_seconds``) is not the processor's."""
DIGITS = ".4g"


@dataclass(frozen=True, slots=True)
class MachineSpeeds:
    """Factors: on the ``clock`` that a long load sustains, on the rate of the ``network``, on times of the ``host``.

    Called with a job, it gives the same job on such a machine.
    """

    clock: float = 1.0
    network: float = 1.0
    host: float = 1.0

    def __call__(self, job: Job) -> Job:
        fabric = replace(job.cluster.fabric, reachable=self.reachable(job))
        gpu = replace(job.cluster.gpu, kernels=self.kernels(job.cluster.gpu))
        cluster = replace(job.cluster, fabric=fabric, gpu=gpu)
        return replace(
            job, cluster=cluster, framework=replace(job.framework, host=self.slower_host(job.framework.host))
        )

    def reachable(self, job: Job) -> float:
        """The part of the NICs' rate that is reached, at most all of it."""
        return min(1.0, job.cluster.fabric.reachable * self.network)

    def kernels(self, gpu: GPU) -> KernelConstants:
        """How well the GPU runs kernels at this clock."""
        sustained = gpu.kernels.sustained
        faster = sustained._replace(gemm=sustained.gemm * self.clock, attention=sustained.attention * self.clock)
        return replace(gpu.kernels, sustained=faster)

    def slower_host(self, host: HostProfile) -> HostProfile:
        """The host's times on this processor."""
        return replace(host, **{name: getattr(host, name) * self.host for name in HOST})


def scenario_override(scenario: Scenario, speeds: MachineSpeeds) -> tuple[dict[str, Any], tuple[Constant, ...]]:
    """The scenario with *speeds* written into it, as one that names it, and each constant that it changes."""
    job = scenario.resolve()
    document: dict[str, Any] = {"cluster": {}}
    constants: list[Constant] = []

    def moved(key: str, before: float, after: float, unit: str = "") -> float:
        constants.append(Constant(key=key, before=before, after=float(format(after, DIGITS)), unit=unit))
        return constants[-1].after

    if speeds.clock != 1.0:
        old, new = job.cluster.gpu.kernels.sustained, speeds.kernels(job.cluster.gpu).sustained
        sustained = {
            kind: moved(f"cluster.gpu.kernels.sustained.{kind}", getattr(old, kind), getattr(new, kind))
            for kind in ("gemm", "attention")
        }
        document["cluster"]["gpu"] = gpu_with(written_gpu(scenario), {"sustained": sustained})
    if speeds.network != 1.0:
        before, after = job.cluster.fabric.reachable, speeds.reachable(job)
        document["cluster"]["network_reachable"] = moved("cluster.network_reachable", before, after)
    if speeds.host != 1.0:
        host = _profile(scenario, job).host  # as its file says, for the processor that it names
        slower = speeds.slower_host(host)
        times = {
            name: moved(f"framework.host.{name}", getattr(host, name), getattr(slower, name), "s")
            for name in HOST
            if getattr(host, name)
        }
        document["framework"] = {**_based(scenario.data.get("framework"), job.framework.name), "host": times}
    return {key: value for key, value in document.items() if value}, tuple(constants)


def gpu_with(gpu: Any, kernels: Mapping[str, Any]) -> dict[str, Any]:
    """*gpu* (a name, a path or a mapping) with other constants of kernels on top of its own.

    >>> gpu_with("h100-sxm5-80gb", {"sustained": {"gemm": 0.9}})["kernels"]
    {'base': 'hopper', 'sustained': {'gemm': 0.9}}
    """
    own = GPUS.find(gpu).data["kernels"]
    return {**_based(gpu, ""), "kernels": {**_based(own, ""), **kernels}}


def _based(given: Any, usual: str) -> dict[str, Any]:
    """*given* as a mapping on which more can be laid."""
    return dict(given) if isinstance(given, Mapping) else {"base": str(given or usual)}


def _profile(scenario: Scenario, job: Job) -> Framework:
    """The profile of a scenario, before the machine's own processor has its say."""
    spec = scenario.data.get("framework") or job.framework.name
    return load_framework(spec, job.training.precision, origin=scenario.origin.part(("framework",)))


def written_gpu(scenario: Scenario) -> Any:
    """The GPU that a scenario names, or that its topology does."""
    cluster = scenario.data["cluster"]
    return cluster.get("gpu") or TOPOLOGIES.find(written_topology(scenario)).data["gpu"]
