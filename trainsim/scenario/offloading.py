"""What can be said of offload, and whether the machine has what it needs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainsim.errors import NotBuilt
from trainsim.hardware.cluster import Cluster
from trainsim.scenario.checks import Fault
from trainsim.scenario.context import Context
from trainsim.scenario.schema import OffloadSpec, ScenarioSpec
from trainsim.schedules.lookup import facts
from trainsim.sharding.offload import TOGETHER

SHARDED = ("zero3", "zeropp", "fsdp", "hsdp")
"""Strategies whose parameters are shared out between passes: those can lie elsewhere."""
HOST_OPTIMIZERS = ("adam", "adamw")
"""Optimizers that DeepSpeed runs on the host (deepspeed/ops/adam/cpu_adam.py)."""
KEY = "sharding.offload"


def offload_faults(spec: ScenarioSpec) -> Iterator[Fault]:
    """Words about offload that contradict each other, or that nobody simulates."""
    offload, strategy = spec.sharding.offload, spec.sharding.strategy
    yield from _without_use(offload)
    for key in ("ratio", "delayed_update") if strategy in TOGETHER else ():
        if getattr(offload, key) != type(offload).model_fields[key].default:
            yield Fault(f"{KEY}.{key}", f"PyTorch's {strategy} has no such thing; leave it out, or use zero3")
    if strategy in TOGETHER and {offload.optimizer, offload.parameters} not in ({"none"}, {"cpu"}):
        away = "optimizer" if offload.optimizer != "none" else "parameters"
        both = "write optimizer: cpu and parameters: cpu"
        yield Fault(
            f"{KEY}.{away}", f"{strategy} moves parameters, gradients and optimizer together, to the CPU; {both}"
        )
    if offload.parameters != "none" and strategy not in SHARDED:
        where = f"{strategy} keeps" if strategy else "the strategy that follows from dp keeps"
        yield Fault(f"{KEY}.parameters", f"{where} parameters on every GPU; {' and '.join(SHARDED)} share them out")
    if offload.optimizer != "none" and spec.training.optimizer not in HOST_OPTIMIZERS:
        known = " and ".join(HOST_OPTIMIZERS)
        yield Fault("training.optimizer", f"not simulated yet on the host; {known} are, or offload.optimizer: none")
    if offload.delayed_update and "deepspeed" in (spec.framework or ""):
        yield Fault(
            f"{KEY}.delayed_update",
            f"it stands in the ZeRO-Offload paper (arXiv 2101.06840) and not in DeepSpeed, which {spec.framework} is; "
            "leave it out, or name another framework",
        )
    if offload.delayed_update and offload.optimizer == "nvme":
        yield Fault(f"{KEY}.delayed_update", "not simulated yet with optimizer: nvme; with cpu it is")


def _without_use(offload: OffloadSpec) -> Iterator[Fault]:
    """Keys that nothing reads."""
    needs = {
        "ratio": ("cpu", "nvme"),
        "delayed_update": ("cpu", "nvme"),
        "pipeline_read": ("nvme",),
        "pipeline_write": ("nvme",),
        "buffer_count": ("nvme",),
    }
    for key, devices in needs.items():
        plain = type(offload).model_fields[key].default
        if getattr(offload, key) != plain and offload.optimizer not in devices:
            yield Fault(f"{KEY}.{key}", f"it has no use with optimizer: {offload.optimizer}; leave it out")


def require_storage(context: Context, cluster: Cluster, schedule: str) -> None:
    """Raise, in the scenario's words, where the machine has no memory or drives for what is offloaded."""
    offload = context.spec.sharding.offload
    for key, device in (("optimizer", offload.optimizer), ("parameters", offload.parameters)):
        with context.at(f"{KEY}.{key}"):
            for operation in {"cpu": ("host_step",), "nvme": ("host_step", "nvme_read")}.get(device, ()):
                cluster.storage(operation, np.arange(1))
    if offload.optimizer != "none" and facts(schedule).asynchronous:
        fault = Fault(f"{KEY}.optimizer", f"not simulated yet with {schedule}, which updates inside a step")
        context.require(fault, NotBuilt)
