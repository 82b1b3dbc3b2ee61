"""
States that are not on the GPU: what is copied when, and what the host does with them, as DeepSpeed does it.

The gradients of a rank's partition go to host memory as they are reduced. At the step the host scales them, runs Adam
on fp32 states, makes parameters of the training precision and copies them back; nothing of that overlaps. From drives,
states come and go sub-group by sub-group, which may overlap with the host's work (ZeRO-Infinity, arXiv 2104.07857). A
delayed update runs under the passes of the next step (ZeRO-Offload, arXiv 2101.06840). Sources: deepspeedai/DeepSpeed
runtime/zero (stage_1_and_2.py, stage3.py), runtime/swap_tensor, csrc/adam.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainsim.contracts.groups import ALONE, Group, Queue
from trainsim.contracts.instructions import Instruction, Meet, Memory, Signal, Task, Template, Wait
from trainsim.program import paging, states
from trainsim.program.optimizer import optimizer_step as gpu_step
from trainsim.program.rank import RankPlan
from trainsim.sharding import strategies
from trainsim.sharding.gradient_copies import FP32, gradient_steps
from trainsim.sharding.parameter_groups import shared
from trainsim.sharding.plan import Bucket
from trainsim.sharding.strategy import Strategy
from trainsim.sharding.zero3 import sub_group

# Bytes per parameter, counted from the code. Of host memory:
ADAM = 28.0  # reads gradient, master, momentum and variance, writes the last three, fp32
SCALING = 8.0  # multiplies the gradient in place: unscaling and clipping, a pass of its own
# Kept off the GPU:
STATES = 12.0  # master, momentum, variance
SUB_GROUP = 1e9  # parameters that are updated together (sub_group_size), where neither scenario nor profile says
PARAMETER_BUFFER = 5 * 1e8  # parameters that a rank's pinned buffers hold for drives (buffer_count x buffer_size)


def strategy(rank_plan: RankPlan) -> Strategy:
    """The strategy of *rank_plan*'s job."""
    return strategies[rank_plan.parts.job.sharding.strategy]


def partition(rank_plan: RankPlan) -> float:
    """Parameters whose optimizer states this rank keeps off the GPU."""
    offload = rank_plan.parts.job.sharding.offload
    return offload.ratio * rank_plan.owned if offload.optimizer != "none" else 0.0


def on_gpu(rank_plan: RankPlan) -> float:
    """The part of the optimizer that runs on the GPU."""
    offload = rank_plan.parts.job.sharding.offload
    return 1.0 if offload.optimizer == "none" else 1.0 - offload.ratio


def gradient_copies(rank_plan: RankPlan, bucket: Bucket, group: Group) -> Iterator[Meet]:
    """Copies of this rank's part of *bucket* that follow its one reduction per step, in the same chain."""
    if rank_plan.parts.job.sharding.offload.optimizer == "none":
        return
    reduced = sum(b.nbytes for chunk in rank_plan.sharding.reductions for b in chunk if b.group == bucket.group)
    owned = states.owned(held for held in rank_plan.held if held.group.name == bucket.group) * bucket.nbytes / reduced
    for step in gradient_steps(rank_plan.parts.job, owned):
        yield _copy("gradients", group, step.operation, step.nbytes)


def optimizer_step(rank_plan: RankPlan, number: int) -> list[Instruction]:
    """The optimizer in the compute chain at the end of step *number*: the GPU's part, then the host's."""
    job = rank_plan.parts.job
    offload = job.sharding.offload
    out: list[Instruction] = [*_on_gpu(rank_plan)]
    if offload.optimizer == "none":
        update = [*out, *_stored(rank_plan, rank_plan.owned, ALONE)]
        return [*paging.copies(rank_plan, "host_in"), *update, *paging.copies(rank_plan, "host_out")]
    if offload.delayed_update:
        again = [Signal("offload.again", number + 1)] if number + 1 < job.steps else []
        return [*out, Wait("offload.updated"), *again]
    if offload.optimizer == "cpu":
        return [*out, *_on_host(rank_plan, partition(rank_plan), ALONE)]
    return [*out, *_from_drives(rank_plan)]


def chains(rank_plan: RankPlan) -> dict[str, tuple[Task, ...]]:
    """Chains beside compute: a delayed step of the host, reads of drives that run ahead, writes that run behind."""
    job = rank_plan.parts.job
    offload, steps = job.sharding.offload, range(job.steps)
    if offload.optimizer == "cpu" and offload.delayed_update:
        host = (*_on_host(rank_plan, partition(rank_plan), ALONE.on(Queue.STEP)), Signal("offload.updated"))
        first, later = Template("offload", 0, host), Template("offload", 0, (Wait("offload.again"), *host))
        return {"offload": tuple(Task(later if step else first, step) for step in steps)}
    out: dict[str, tuple[Task, ...]] = {}
    if offload.optimizer == "nvme" and offload.pipeline_read:
        reads = Template("offload", 0, tuple(_beside(rank_plan, Queue.READ, STATES + FP32)))
        out["offload-read"] = tuple(Task(reads, step) for step in steps)
    if offload.optimizer == "nvme" and offload.pipeline_write:
        writes = Template("offload", 0, tuple(_beside(rank_plan, Queue.WRITE, STATES)))
        out["offload-write"] = tuple(Task(writes, step) for step in steps)
    return out


def _on_gpu(rank_plan: RankPlan) -> Iterator[Instruction]:
    """The optimizer's kernels over what stays on the GPU."""
    if stays := on_gpu(rank_plan):
        yield from gpu_step(rank_plan.parts, rank_plan.rank, rank_plan.sharding, stays=stays)


def _on_host(rank_plan: RankPlan, parameters: float, group: Group) -> Iterator[Instruction]:
    """The host's step over some parameters, and the way of the new ones to where they are used next."""
    small = rank_plan.parts.job.training.number_bytes
    yield _copy("scale gradients", group, "host_step", parameters * SCALING)
    yield _copy("CPU Adam", group, "host_step", parameters * ADAM)
    if small < FP32 and not strategy(rank_plan).moves_together:
        yield _copy("cast parameters", group, "host_step", parameters * (FP32 + small))
    if rank_plan.parts.job.sharding.offload.parameters == "none":
        yield _copy("parameters", group, "host_in", parameters * small)
    elif rank_plan.parts.job.sharding.offload.parameters == "nvme":
        yield _copy("parameters", group, "nvme_write", parameters * small)


def _stored(rank_plan: RankPlan, parameters: float, group: Group) -> Iterator[Instruction]:
    """New parameters that the GPU made go to where offloaded parameters lie."""
    where, small = rank_plan.parts.job.sharding.offload.parameters, rank_plan.parts.job.training.number_bytes
    if where != "none":
        yield _copy("parameters", group, "host_out", parameters * small)
    if where == "nvme":
        yield _copy("parameters", group, "nvme_write", parameters * small)


def sub_groups(rank_plan: RankPlan) -> list[float]:
    """Parameters of each sub-group of this rank's partition.

    All but the last are full.
    """
    limit = _sub_group(rank_plan)
    whole, rest = divmod(partition(rank_plan), limit)
    return [limit] * int(whole) + [rest] * (rest > 0)


def _sub_group(rank_plan: RankPlan) -> float:
    return sub_group(rank_plan.parts.job) or SUB_GROUP


def _from_drives(rank_plan: RankPlan) -> Iterator[Instruction]:
    """The host's step sub-group by sub-group, in the compute chain; reads and writes too unless they have chains."""
    offload = rank_plan.parts.job.sharding.offload
    groups = sub_groups(rank_plan)
    if offload.pipeline_read:
        yield Signal("offload.read.0")
    for k, parameters in enumerate(groups):
        if offload.pipeline_read:  # the next one comes while this one is worked on
            yield Wait(f"offload.read.{k}.done")
            if k + 1 < len(groups):
                yield Signal(f"offload.read.{k + 1}")
        else:
            yield _copy(f"read states {k}", ALONE, "nvme_read", parameters * (STATES + FP32))
        yield from _on_host(rank_plan, parameters, ALONE)
        if not offload.pipeline_write:
            yield _copy(f"write states {k}", ALONE, "nvme_write", parameters * STATES)
            continue
        if k:
            yield Wait(f"offload.write.{k - 1}.done")
        yield Signal(f"offload.write.{k}")
    if offload.pipeline_write:
        yield Wait(f"offload.write.{len(groups) - 1}.done")


def _beside(rank_plan: RankPlan, what: Queue, size: float) -> Iterator[Instruction]:
    """A chain that reads or writes each sub-group when compute says so."""
    for k, parameters in enumerate(sub_groups(rank_plan)):
        yield Wait(f"offload.{what}.{k}")
        yield _copy(f"{what} states {k}", ALONE.on(what), f"nvme_{what}", parameters * size)
        yield Signal(f"offload.{what}.{k}.done")


def _copy(name: str, group: Group, operation: str, nbytes: float) -> Meet:
    return Meet(name, "offload", group, operation, nbytes, stream="offload")


def with_offload(rank_plan: RankPlan, memory: Memory) -> Memory:
    """*memory* of a rank of which some states are not on the GPU: with what it keeps on the host and on drives."""
    job = rank_plan.parts.job
    offload, small, moved = job.sharding.offload, job.training.number_bytes, partition(rank_plan)
    if not offload.any:
        return memory
    if strategy(rank_plan).moves_together:  # just what would be on the GPU
        return replace(
            memory, weights=0.0, gradients=0.0, optimizer=0.0, host=memory.host + rank_plan.states().resident
        )
    host, nvme = memory.host, 0.0
    if moved:
        stays, extra = 1 - offload.ratio, rank_plan.sharding.extra
        memory = replace(
            memory, optimizer=memory.optimizer * stays, buffers=memory.buffers + _largest(rank_plan) * small
        )
        if strategy(rank_plan).shares_gradients:
            held = memory.gradients - extra.get("gradients", 0.0)
            memory = replace(memory, gradients=memory.gradients - offload.ratio * held)
        if offload.optimizer == "cpu":
            host += moved * (STATES + FP32 * (2 if offload.delayed_update else 1))
        else:
            host += offload.buffer_count * min(moved, _sub_group(rank_plan)) * FP32
            nvme += moved * (STATES + FP32)
        host += moved * small * _small_copies(rank_plan)
    if offload.parameters != "none":
        memory = replace(memory, weights=rank_plan.sharding.extra.get("weights", 0.0))
        shard = shared((group.total, shards.weights) for group, shards in rank_plan.held) * small
        host += min(shard, PARAMETER_BUFFER * small) if offload.parameters == "nvme" else shard
        nvme += shard if offload.parameters == "nvme" else 0.0
    return replace(memory, host=host, nvme=nvme)


def _small_copies(rank_plan: RankPlan) -> int:
    """Copies of the partition on the host in the training precision: staged parameters (or sums of gradients, where
    parameters are sharded), and sums of gradients where the reductions of several microbatches add up there."""
    job = rank_plan.parts.job
    adds_up = job.training.microbatches > 1 and strategy(rank_plan).shares_gradients
    return 1 + (adds_up and all(shards.weights == 1 for _, shards in rank_plan.held))


def _largest(rank_plan: RankPlan) -> float:
    """Elements of the largest trained parameter of a rank: gradients pass through a buffer of its size."""
    held = rank_plan.parts.holdings.trained(rank_plan.rank)
    return float(max((m.rows * m.columns for m in (*held.matrices, *held.tables)), default=0))


def step_seconds(rank_plan: RankPlan) -> float:
    """The optimizer's step in closed form, seconds, when all ranks of a host do it at once."""
    offload, network = rank_plan.parts.job.sharding.offload, rank_plan.parts.network

    def seconds(operation: str, size: float, group: Group = ALONE) -> float:
        return network.crowded_seconds(group, operation, size)

    total = beside = 0.0
    for i in optimizer_step(rank_plan, 0):
        if isinstance(i, Meet):
            total += seconds(i.operation, i.nbytes, i.communicator.on(Queue.COMPUTE))
        else:
            total += getattr(i, "seconds", 0.0)
    moved, groups = partition(rank_plan), len(sub_groups(rank_plan)) or 1
    if offload.optimizer == "nvme":
        reads = seconds("nvme_read", moved * (STATES + FP32)) * offload.pipeline_read
        beside = reads + seconds("nvme_write", moved * STATES) * offload.pipeline_write
        host = [i for i in _on_host(rank_plan, moved, ALONE) if isinstance(i, Meet)]
        hidden = min(beside, sum(seconds(i.operation, i.nbytes) for i in host))
        beside -= hidden * (1 - 1 / groups)  # of one sub-group everything is in the open, and a drive is never two
    return total + beside


def copies_seconds(rank_plan: RankPlan, bucket: Bucket) -> float:
    """Seconds of the copies that follow the reduction of *bucket*, when all ranks of a host copy at once."""
    crowded = rank_plan.parts.network.crowded_seconds
    return sum(crowded(ALONE, i.operation, i.nbytes) for i in gradient_copies(rank_plan, bucket, ALONE))


def delayed_seconds(rank_plan: RankPlan) -> float:
    """Seconds of the host's step that runs beside the passes; 0 where none does."""
    offload = rank_plan.parts.job.sharding.offload
    if not (offload.optimizer == "cpu" and offload.delayed_update):
        return 0.0
    meets = [i for i in _on_host(rank_plan, partition(rank_plan), ALONE.on(Queue.STEP)) if isinstance(i, Meet)]
    return sum(rank_plan.parts.network.crowded_seconds(ALONE, i.operation, i.nbytes) for i in meets)
