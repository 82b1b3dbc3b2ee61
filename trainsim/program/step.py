"""
The program of one pipeline rank: its schedule, its reductions and the end of its step, as chains of tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from trainsim.job import Delay
from trainsim.program.instructions import (
    Instruction,
    Kernel,
    Meet,
    Memory,
    Program,
    Signal,
    Task,
    Template,
    Wait,
)
from trainsim.program.parts import Parts
from trainsim.program.stages import Stage
from trainsim.program.templates import Cuts, Pass, backward_pass, forward_pass
from trainsim.schedules import Slot, Work, schedules
from trainsim.sharding import Bucket, Exchange

SCALAR = 4.0  # bytes of a norm, a loss or a flag in fp32


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """What the chains of one pipeline rank are made from."""

    parts: Parts
    rank: int
    stages: tuple[Stage, ...]
    slots: tuple[Slot, ...]
    exchange: Exchange

    @property
    def reduces(self) -> bool:
        """Whether a chain of its own carries reductions or gathers."""
        return self.parts.network.has("dp") and (self.exchange.overlapped or self.exchange.gathers_overlapped)


def rank_program(parts: Parts, rank: int) -> Program:
    """The program of pipeline rank *rank*; all replicas and tensor shards of the stage run it."""
    job = parts.job
    mine = _Rank(
        parts=parts,
        rank=rank,
        stages=parts.of_rank(rank),
        slots=tuple(
            schedules[job.pipeline.schedule](
                rank, job.parallel.pp, microbatches=job.training.microbatches, chunks=job.pipeline.chunks
            )
        ),
        exchange=parts.exchange(rank),
    )
    compute, beside = _passes(mine)
    chains = {"compute": (*compute, Task(_update(mine), 0))}
    if beside:
        chains["tp"] = tuple(beside)
    if mine.reduces:
        chains["dp"] = tuple(_reductions(mine))
    return Program(chains=chains, stage=rank, parameters=_parameters(mine), memory=_memory(mine))


def delayed(program: Program, delays: Iterable[Delay]) -> Program:
    """*program* with time lost once, before the first task of the phase that each delay names."""
    work = {"forward": "F", "backward": "B", "optimizer": "update"}
    tasks = list(program.chains["compute"])
    for delay in delays:
        at = next(k for k, t in enumerate(tasks) if t.template.work == work[delay.at])
        template = tasks[at].template
        lost = Kernel("delay", "delay", delay.seconds, 0.0, 0.0)
        tasks[at] = Task(replace(template, instructions=(lost, *template.instructions)), tasks[at].microbatch)
    return replace(program, chains={**program.chains, "compute": tuple(tasks)})


def _passes(mine: _Rank) -> tuple[list[Task], list[Task]]:
    """Tasks of the compute chain, and of the chain of overlapped tensor collectives."""
    usual: dict[tuple[Work, int], Pass] = {}
    seen: dict[tuple[Work, int], int] = {}
    compute: list[Task] = []
    beside: list[Task] = []
    total = mine.parts.job.training.microbatches
    for slot in mine.slots:
        key = slot.work, slot.chunk
        turn = seen[key] = seen.get(key, 0) + 1
        stage = mine.stages[slot.chunk]
        if slot.work == Work.F and turn == 1 and (cuts := _gather_waits(mine, slot.chunk)):
            one = forward_pass(mine.parts, stage, before=cuts)
        elif slot.work == Work.B and turn == total and (cuts := _reduce_signals(mine, slot.chunk)):
            one = backward_pass(mine.parts, stage, after=cuts)
        else:
            if key not in usual:
                usual[key] = (forward_pass if slot.work == Work.F else backward_pass)(mine.parts, stage)
            one = usual[key]
        compute.append(Task(one.compute, slot.microbatch))
        if one.beside:
            beside.append(Task(one.beside, slot.microbatch))
    return compute, beside


def _reduce_signals(mine: _Rank, chunk: int) -> Cuts:
    if not (mine.reduces and mine.exchange.overlapped):
        return {}
    stage, last = mine.stages[chunk], _last_part(mine.stages[chunk])
    return {
        min(b.after, last): [Signal(f"ready.{stage.index}.{k}", 0)]
        for k, b in enumerate(mine.exchange.reductions[chunk])
    }


def _gather_waits(mine: _Rank, chunk: int) -> Cuts:
    if not (mine.reduces and mine.exchange.gathers_overlapped):
        return {}
    stage, last = mine.stages[chunk], _last_part(mine.stages[chunk])
    return {
        min(b.after, last): [Wait(f"gathered.{stage.index}.{k}", 0)] for k, b in enumerate(mine.exchange.gathers[chunk])
    }


def _last_part(stage: Stage) -> int:
    return stage.layers + 1 if stage.embedding else stage.layers


def _reductions(mine: _Rank) -> Iterator[Task]:
    """The chain of data-parallel collectives: gathers before the first use, reductions as they are ready."""
    exchange = mine.exchange
    if exchange.gathers_overlapped:
        for stage in mine.stages:
            buckets = list(enumerate(exchange.gathers[stage.chunk]))
            yield _task(
                "gather",
                stage,
                [(k, b, (), (Signal(f"gathered.{stage.index}.{k}", 0),)) for k, b in reversed(buckets)],
            )
    if not exchange.overlapped:
        return
    order = list(dict.fromkeys(s.chunk for s in reversed(mine.slots) if s.work == Work.B))[::-1]
    for chunk in order:
        stage = mine.stages[chunk]
        ready = [(k, b, (Wait(f"ready.{stage.index}.{k}", 0),), ()) for k, b in enumerate(exchange.reductions[chunk])]
        yield _task("reduce", stage, ready)
    yield Task(Template("reduced", 0, (Signal("reduced", 0),)), 0)


def _task(
    work: str, stage: Stage, steps: Sequence[tuple[int, Bucket, tuple[Instruction, ...], tuple[Instruction, ...]]]
) -> Task:
    instructions: list[Instruction] = []
    for k, bucket, before, after in steps:
        instructions += [*before, _collective(f"{work} {stage.index}.{k}", "dp", bucket, "dp"), *after]
    return Task(Template(work, stage.chunk, tuple(instructions)), 0)


def _collective(name: str, communicator: str, bucket: Bucket, stream: str) -> Meet:
    return Meet(name, "dp", communicator, bucket.operation, bucket.nbytes, stream=stream)


def _update(mine: _Rank) -> Template:
    """After the last backward: reductions that are left, tied embeddings, norm, optimizer, gathers, loss."""
    parts, exchange, network = mine.parts, mine.exchange, mine.parts.network
    job, framework = parts.job, parts.job.framework
    out: list[Instruction] = []
    if network.has("dp"):
        out += _exposed(mine, "reduce") if not exchange.overlapped else [Wait("reduced", 0)]
    if _shares_embedding(mine):
        nbytes = job.padded_vocab / job.parallel.tp * job.model.hidden * job.training.gradient_bytes
        out.append(Meet("tied embedding", "dp", "embedding", "all_reduce", nbytes, stream="dp"))
    if network.has("world") and job.training.loss_scaling:
        out.append(Meet("overflow check", "other", "world", "all_reduce", SCALAR, stream="dp"))
    if network.has("world"):
        out.append(Meet("gradient norm", "other", "world", "all_reduce", SCALAR, stream="dp"))
    held, shard = _parameters(mine), exchange.shard
    nbytes = framework.optimizer_bytes_per_parameter * held / shard + framework.gradient_copy_bytes_per_parameter * held
    out.append(parts.blocks.traffic("optimizer", nbytes, "optimizer"))
    if network.has("dp") and exchange.gathers and not exchange.gathers_overlapped:
        out += _exposed(mine, "gather")
    if network.has("dp") and mine.stages[-1].head:
        out.append(Meet("loss", "other", "dp-update", "all_reduce", SCALAR, stream="dp"))
    if framework.step_seconds > 0 and not framework.cuda_graph:
        out.append(Kernel("data, logging", "host", framework.step_seconds, 0.0, 0.0))
    return Template("update", 0, tuple(out))


def _exposed(mine: _Rank, work: str) -> list[Instruction]:
    """Collectives that the compute chain waits for."""
    chunks = mine.exchange.reductions if work == "reduce" else mine.exchange.gathers
    return [
        _collective(f"{work} {mine.stages[c].index}.{k}", "dp-update", bucket, "dp")
        for c, some in enumerate(chunks)
        for k, bucket in enumerate(some)
    ]


def _shares_embedding(mine: _Rank) -> bool:
    stages = mine.parts.stages
    return (
        mine.parts.job.model.tied_embeddings
        and stages[0].rank != stages[-1].rank
        and mine.rank in (stages[0].rank, stages[-1].rank)
    )


def _parameters(mine: _Rank) -> int:
    return sum(mine.parts.gradients(s).total for s in mine.stages)


def _memory(mine: _Rank) -> Memory:
    """Model states by the framework's bytes per parameter; receive buffers for both directions of the pipeline."""
    framework, held = mine.parts.job.framework, _parameters(mine)
    return Memory(
        weights=framework.weight_memory_bytes * held,
        gradients=framework.gradient_memory_bytes * held,
        optimizer=framework.optimizer_memory_bytes * held / mine.exchange.shard,
        buffers=2 * mine.parts.message_bytes if mine.parts.job.parallel.pp > 1 else 0.0,
        framework=framework.framework_memory,
    )
