"""
What sharding goes together with, in one place: options, pipelines, groups of replicas, offload and the machine.

A rule yields what is wrong, with what would work; what belongs to one strategy only stands in its file (``refuses``).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainsim.contracts.job import Job
from trainsim.errors import InvalidPlan, NotBuilt, TrainsimError
from trainsim.frameworks import load_framework
from trainsim.scenario.checks import Fault
from trainsim.scenario.context import Context
from trainsim.scenario.sharding_section import OffloadSpec, ShardingSpec
from trainsim.schedules.lookup import facts
from trainsim.sharding import strategies
from trainsim.sharding.replicas import replicas
from trainsim.sharding.strategy import Refusal

HOST_OPTIMIZERS = ("adam", "adamw")
"""Optimizers that DeepSpeed runs on the host (deepspeed/ops/adam/cpu_adam.py)."""
OFFLOAD = "sharding.offload"

Rule = tuple[Fault, type[TrainsimError]]


def check_sharding(context: Context, job: Job) -> None:
    """Raise for the first rule that is broken, in the scenario's words; note what is worth knowing of the others."""
    for fault, error in _broken(context.spec.sharding, job):
        context.require(fault, error)
    _require_storage(context, job)
    strategy = strategies[job.sharding.strategy]
    for key, value, reason in strategy.notes(job):
        context.derived(f"sharding.{key}", value, reason)
    _foreign(context, job)


def _broken(spec: ShardingSpec, job: Job) -> Iterator[Rule]:
    yield from ((fault, NotBuilt) for fault in _offload(spec, job))
    yield from ((fault, InvalidPlan) for rule in (_kept, _updates, _chunks, _groups) for fault in rule(job))
    yield from ((fault, InvalidPlan) for fault in _options(spec, job))
    yield from ((fault, NotBuilt) for rule in (_schedule, _experts) for fault in rule(job))
    yield from ((Fault(f"sharding.{key}", reason), InvalidPlan) for key, reason in _refused(job))


def _refused(job: Job) -> Iterator[Refusal]:
    return strategies[job.sharding.strategy].refuses(job)


def _options(spec: ShardingSpec, job: Job) -> Iterator[Fault]:
    """Options that the strategy has no use for."""
    strategy = strategies[job.sharding.strategy]
    for key, value in sorted(spec.options.items()):
        if key not in strategy.uses and value is not type(spec).model_fields[key].default:
            able = [name for name in strategies if key in strategies[name].uses]
            yield Fault(f"sharding.{key}", f"{job.sharding.strategy} does not use it; {_and(able)}")


def _updates(job: Job) -> Iterator[Fault]:
    """Updates inside a step need whole states."""
    if facts(job.pipeline.schedule).asynchronous and strategies[job.sharding.strategy].shares:
        reason = f"{job.pipeline.schedule} updates weights while microbatches are in flight, which rules out sharding"
        able = [name for name in strategies if not strategies[name].shares]
        yield Fault("sharding.strategy", f"{reason}; {', '.join(able)} would work")


def _schedule(job: Job) -> Iterator[Fault]:
    """Exchanges beside every pass need passes that are whole, of one stage."""
    shape = facts(job.pipeline.schedule)
    if strategies[job.sharding.strategy].every_pass and (
        shape.split or shape.sliced or shape.paired or shape.replicas > 1
    ):
        asked = " (training.moe_overlap: true)" if job.training.moe_overlap else ""
        reason = f"not simulated with {job.pipeline.schedule}{asked}; 1f1b, gpipe and interleaved-1f1b are"
        yield Fault("sharding.strategy", reason)


def _chunks(job: Job) -> Iterator[Fault]:
    """Without a pipeline, passes go through the whole model."""
    strategy, chunks = job.sharding.strategy, len(job.pipeline.layout)
    if strategies[strategy].every_pass and job.parallel.pp == 1 and chunks > 1:
        key = "chunks" if facts(job.pipeline.schedule).chunks is None else "schedule"
        reason = (
            f"{strategy} communicates alongside passes through the whole model, which pp=1 does not split into {chunks}"
        )
        yield Fault(f"pipeline.{key}", f"{reason} chunks; schedule: 1f1b with chunks: 1 would work")


def _experts(job: Job) -> Iterator[Fault]:
    """Experts that fewer ranks hold than the layers around them."""
    if not job.experts_apart:
        return
    if not strategies[job.sharding.strategy].experts_apart:
        able = [name for name in strategies if strategies[name].experts_apart]
        degrees = f"ep {job.parallel.ep} and etp {job.parallel.etp}"
        yield Fault("sharding.strategy", f"not simulated yet with experts on fewer ranks ({degrees}); {_and(able)}")
    if job.sharding.offload.any:
        yield Fault(OFFLOAD, "not simulated yet with experts held by fewer ranks; leave it out, or use ep: 1")


def _groups(job: Job) -> Iterator[Fault]:
    """Groups of equal size that replicas divide into."""
    for option in strategies[job.sharding.strategy].options:
        size = option.of(job)
        if option.accepts == "group" and size and replicas(job) % size:
            yield Fault(f"sharding.{option.name}", f"{replicas(job)} replicas do not divide into groups of {size}")


def _offload(spec: ShardingSpec, job: Job) -> Iterator[Fault]:
    """Words about offload that contradict each other, that the strategy or the optimizer cannot do."""
    offload, name = job.sharding.offload, job.sharding.strategy
    yield from _without_use(spec.offload)
    if strategies[name].moves_together:
        yield from _together(spec.offload, name)
    if offload.parameters != "none" and not strategies[name].shares_parameters:
        able = [other for other in strategies if "parameters" in strategies[other].offloads]
        yield Fault(f"{OFFLOAD}.parameters", f"{name} keeps all parameters on every GPU; {', '.join(able)} shard them")
    if offload.optimizer != "none" and job.training.optimizer.name not in HOST_OPTIMIZERS:
        known = " and ".join(HOST_OPTIMIZERS)
        reason = f"there is no CPU kernel for it; {known} have one, or use offload.optimizer: none"
        yield Fault("training.optimizer", reason)
    if offload.optimizer != "none" and facts(job.pipeline.schedule).asynchronous:
        reason = f"not simulated yet with {job.pipeline.schedule}, which updates inside a step"
        yield Fault(f"{OFFLOAD}.optimizer", reason)
    yield from _delayed(job)


def _kept(job: Job) -> Iterator[Fault]:
    """States that the strategy keeps on the GPU, whoever shares them."""
    name, offload = job.sharding.strategy, job.sharding.offload
    for state in ("optimizer", "parameters"):
        if getattr(offload, state) != "none" and state not in strategies[name].offloads:
            able = [other for other, it in strategies.items() if state in it.offloads]
            near = [other for other in able if name in strategies[other].saves_more_than]
            reason = f"{strategies[name].title} offloads nothing; {', '.join(near or able)} would"
            yield Fault(f"{OFFLOAD}.{state}", reason)


def _together(offload: OffloadSpec, name: str) -> Iterator[Fault]:
    """Strategies that move all states or none."""
    for key in ("ratio", "delayed_update"):
        if getattr(offload, key) != type(offload).model_fields[key].default:
            yield Fault(f"{OFFLOAD}.{key}", f"PyTorch's {name} has no such option; leave it out, or use zero3")
    if {offload.optimizer, offload.parameters} not in ({"none"}, {"cpu"}):
        away = "optimizer" if offload.optimizer != "none" else "parameters"
        yield Fault(
            f"{OFFLOAD}.{away}",
            f"{name} moves parameters, gradients and optimizer together, to the CPU; "
            "write optimizer: cpu and parameters: cpu",
        )


def _delayed(job: Job) -> Iterator[Fault]:
    """The update that runs under the passes of the next step."""
    offload = job.sharding.offload
    if offload.delayed_update and "deepspeed" in job.framework.name:
        yield Fault(
            f"{OFFLOAD}.delayed_update",
            f"it is in the ZeRO-Offload paper (arXiv 2101.06840) but not in DeepSpeed, which {job.framework.name} "
            "models; leave it out, or choose another framework",
        )
    if offload.delayed_update and offload.optimizer == "nvme":
        yield Fault(f"{OFFLOAD}.delayed_update", "not simulated yet with optimizer: nvme; cpu would work")


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
            yield Fault(f"{OFFLOAD}.{key}", f"it has no effect with optimizer: {offload.optimizer}; leave it out")


def _require_storage(context: Context, job: Job) -> None:
    """Raise where the machine has no memory or drives for what is offloaded."""
    offload = job.sharding.offload
    for key, device in (("optimizer", offload.optimizer), ("parameters", offload.parameters)):
        with context.at(f"{OFFLOAD}.{key}"):
            for operation in {"cpu": ("host_step",), "nvme": ("host_step", "nvme_read")}.get(device, ()):
                job.cluster.storage(operation, np.arange(1))


def _foreign(context: Context, job: Job) -> None:
    """A note where the strategy is another software's than the profile."""
    ours, theirs = job.framework, load_framework(strategies[job.sharding.strategy].framework)
    if theirs.family not in ("any", ours.family) and ours.family != "any":
        reason = (
            f"{job.sharding.strategy} belongs to {theirs.name}; kernels, dtypes and buckets are those of {ours.name}"
        )
        context.derived("framework", ours.name, reason)


def _and(able: list[str]) -> str:
    return f"{', '.join(able)} {'supports' if len(able) == 1 else 'support'} it" if able else "leave it out"
