"""
The program of one pipeline rank: its schedule, its reductions and the end of its step, as chains of tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from trainsim.contracts.instructions import Kernel, Memory, Program, Task, Template
from trainsim.contracts.job import Delay
from trainsim.program.activation_offload import host_bytes
from trainsim.program.communication_memory import communicators, gathered_buffers
from trainsim.program.compute_chain import ComputeChain
from trainsim.program.layer_work import mask_bytes
from trainsim.program.offload import chains as offload_chains
from trainsim.program.offload import with_offload
from trainsim.program.paging import paged_out
from trainsim.program.parts import Parts
from trainsim.program.rank import RankPlan
from trainsim.program.update import reductions, update


def rank_program(parts: Parts, rank: int) -> Program:
    """The program of pipeline rank *rank*; all replicas and tensor shards of the stage run it."""
    rank_plan = RankPlan(parts=parts, rank=rank)
    passes, compute = ComputeChain(rank_plan), list[Task]()
    for step in range(rank_plan.turns):
        compute += passes.step(step)
        if not rank_plan.schedule.asynchronous:
            compute.append(Task(update(rank_plan, step), step))
    chains = {"compute": tuple(compute)} | {lane: tuple(tasks) for lane, tasks in passes.lanes.items()}
    chains |= {way: tuple(mail) for way, mail in passes.rendezvous.mail.items()}
    if parts.vocabulary is not None:
        chains["vocabulary"] = tuple(parts.vocabulary.tasks(last=any(s.head for s in rank_plan.stages)))
    chains |= passes.beside()
    if rank_plan.reduces:
        chains["dp"] = tuple(_reduced(rank_plan))
    chains |= offload_chains(rank_plan)
    return Program(chains=chains, stage=rank, parameters=rank_plan.parameters, resident=rank_plan.resident,
                   memory=rank_memory(rank_plan))  # fmt: skip


def _reduced(rank_plan: RankPlan) -> Iterator[Task]:
    """The chain of reductions, update after update; without a flush all of them are alike."""
    job = rank_plan.parts.job
    if not rank_plan.schedule.asynchronous:
        yield from (task for step in range(job.steps) for task in reductions(rank_plan, step))
        return
    alike = list(reductions(rank_plan, 0))
    for number in range(job.steps * job.training.microbatches // rank_plan.per_update):
        yield from (Task(task.template, number) for task in alike)


def delayed(program: Program, delays: Iterable[Delay]) -> Program:
    """*program* with time lost once, before the first task of the phase that each delay names."""
    works = {"forward": ("F",), "backward": ("B", "I"), "optimizer": ("update",)}
    tasks = list(program.chains["compute"])
    for delay in delays:
        at = next(k for k, t in enumerate(tasks) if t.template.work in works[delay.at])
        template = tasks[at].template
        lost = Kernel("delay", "delay", delay.seconds, 0.0, 0.0)
        late = Template.of(template.work, template.chunk, (lost, *template.pieces))
        tasks[at] = Task(late, tasks[at].microbatch)
    return replace(program, chains={**program.chains, "compute": tuple(tasks)})


def rank_memory(rank_plan: RankPlan) -> Memory:
    """What a pipeline rank holds all the time: model states; receive buffers for both directions of the pipeline.

    Where nothing is flushed, several versions of the weights are held.
    """
    held_versions = rank_plan.schedule.versions
    copies = held_versions(rank_plan.rank, rank_plan.parts.job.parallel.pp) if held_versions else 1
    parts, held, vocabulary = rank_plan.parts, rank_plan.states(copies), rank_plan.parts.vocabulary
    buffers = 2 * parts.message_bytes if parts.job.parallel.pp > 1 else 0.0
    extra = rank_plan.sharding.extra
    framework, trained = parts.job.framework, parts.holdings.trained(rank_plan.rank).total
    bucket = min(trained, framework.communication.bucket_parameters)
    buffers += framework.memory.bucket_copy_bytes * bucket + parts.resident(rank_plan.rank)
    buffers += gathered_buffers(parts, rank_plan.rank)
    buffers += framework.memory.step_copy_bytes * rank_plan.owned + extra.get("buffers", 0.0) + mask_bytes(parts.job)
    memory = Memory(
        weights=held.weights + extra.get("weights", 0.0),
        gradients=held.gradients - rank_plan.fresh_gradients + extra.get("gradients", 0.0),
        optimizer=held.optimizer - paged_out(rank_plan),
        host=host_bytes(rank_plan) + paged_out(rank_plan),
        gathered=extra.get("gathered", 0.0),
        buffers=buffers + (0.0 if vocabulary is None else vocabulary.held),
        framework=framework.memory.fixed + framework.memory.communicator * communicators(parts.job),
        slack=framework.memory.allocator_slack,
        returned=framework.memory.slack_returned,
    )
    return with_offload(rank_plan, memory)
