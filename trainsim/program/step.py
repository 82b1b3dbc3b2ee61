"""
The program of one pipeline rank: its schedule, its reductions and the end of its step, as chains of tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

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
from trainsim.program.pairs import Turn, tasks, turns
from trainsim.program.parts import Parts
from trainsim.program.rendezvous import Rendezvous
from trainsim.program.stages import Stage
from trainsim.program.templates import PASSES, Cuts, Pass, template
from trainsim.program.vocabulary import deeper
from trainsim.schedules import Pair, Slot, Work, flat
from trainsim.schedules.lookup import items_of, slots_of
from trainsim.schedules.messages import Exchange, Item
from trainsim.sharding import Bucket
from trainsim.sharding import Exchange as DataExchange

SCALAR = 4.0  # bytes of a norm, a loss or a flag in fp32


@dataclass(frozen=True, kw_only=True, eq=False)
class _Rank:
    """What the chains of one pipeline rank are made from."""

    parts: Parts
    rank: int
    stages: tuple[Stage, ...]
    items: tuple[Item, ...]
    exchange: DataExchange

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """The order with pairs taken apart: the forward first."""
        return tuple(flat(item for item in self.items if not isinstance(item, Exchange)))

    @cached_property
    def firsts(self) -> dict[int, int]:
        """Chunk -> number of its first forward: before it, parameters have to be there."""
        return {s.chunk: k for k, s in reversed(list(enumerate(self.slots))) if s.work is Work.F}

    @cached_property
    def lasts(self) -> dict[int, int]:
        """Chunk -> number of the slot after which its gradients are complete."""
        return {s.chunk: k for k, s in enumerate(self.slots) if s.work in (Work.B, Work.W)}

    @property
    def reduces(self) -> bool:
        """Whether a chain of its own carries reductions or gathers."""
        return self.parts.network.has("dp") and (self.exchange.overlapped or self.exchange.gathers_overlapped)


def rank_program(parts: Parts, rank: int) -> Program:
    """The program of pipeline rank *rank*; all replicas and tensor shards of the stage run it."""
    job = parts.job
    mine = _Rank(
        parts=parts, rank=rank, stages=parts.of_rank(rank), items=_items(parts, rank), exchange=parts.exchange(rank)
    )
    passes, compute, beside = _Passes(mine), [], []
    for step in range(job.steps):
        for task, side in passes.step(step):
            compute.append(task)
            beside += [side] if side else []
        compute.append(Task(_update(mine, step), step))
    chains = {"compute": tuple(compute)}
    if beside:
        chains["tp"] = tuple(beside)
    chains |= {way: tuple(mail) for way, mail in passes.rendezvous.mail.items()}
    if parts.vocabulary is not None:
        chains["vocabulary"] = tuple(parts.vocabulary.tasks(last=any(s.head for s in mine.stages)))
    if mine.reduces:
        chains["dp"] = tuple(task for step in range(job.steps) for task in _reductions(mine, step))
    return Program(chains=chains, stage=rank, parameters=_parameters(mine), memory=_memory(mine))


def _items(parts: Parts, rank: int) -> tuple[Item, ...]:
    """The schedule's order; with the exchanges of blocking messages, if they block."""
    job, pipeline = parts.job, parts.job.pipeline
    find = items_of if parts.blocking else slots_of
    microbatches = job.training.microbatches
    found = tuple(find(pipeline.schedule, rank, job.parallel.pp, microbatches=microbatches, chunks=pipeline.chunks))
    return found if parts.vocabulary is None else deeper(found)


def delayed(program: Program, delays: Iterable[Delay]) -> Program:
    """*program* with time lost once, before the first task of the phase that each delay names."""
    works = {"forward": ("F",), "backward": ("B", "I"), "optimizer": ("update",)}
    tasks = list(program.chains["compute"])
    for delay in delays:
        at = next(k for k, t in enumerate(tasks) if t.template.work in works[delay.at])
        template = tasks[at].template
        lost = Kernel("delay", "delay", delay.seconds, 0.0, 0.0)
        tasks[at] = Task(replace(template, instructions=(lost, *template.instructions)), tasks[at].microbatch)
    return replace(program, chains={**program.chains, "compute": tuple(tasks)})


class _Passes:
    """The passes of one rank as tasks; a pass that looks like an earlier one shares its template."""

    def __init__(self, mine: _Rank):
        self.mine = mine
        self._tasks: dict[tuple[Work, int], tuple[Template, Template | None]] = {}
        self._pairs: dict[tuple[int, int], tuple[Turn, ...]] = {}
        self.rendezvous = Rendezvous(mine.parts, mine.rank)

    def step(self, step: int) -> Iterator[tuple[Task, Task | None]]:
        """(Task of the compute chain, task of the chain beside it) for all of one step, in order."""
        shift, k = step * self.mine.parts.job.training.microbatches, 0
        for item in self.mine.items:
            if isinstance(item, Exchange):
                yield from ((task, None) for task in self.rendezvous.tasks(item, shift))
            elif isinstance(item, Pair):
                cuts = self._cuts(k, item.forward, step), self._cuts(k + 1, item.backward, step)
                yield from self._pair(item, cuts, shift)
                k += 2
            else:
                yield self._one(item, self._cuts(k, item, step), shift)
                k += 1

    def _one(self, slot: Slot, cuts: Cuts, shift: int) -> tuple[Task, Task | None]:
        key = slot.work, slot.chunk
        made = None if cuts else self._tasks.get(key)
        if made is None:
            one = self._pass(slot, cuts)
            made = template(self.mine.parts, one), Template("tp", slot.chunk, one.side) if one.side else None
            if not cuts:
                self._tasks[key] = made
        microbatch = slot.microbatch + shift
        return Task(made[0], microbatch), Task(made[1], microbatch) if made[1] else None

    def _pair(self, pair: Pair, cuts: tuple[Cuts, Cuts], shift: int) -> Iterator[tuple[Task, Task | None]]:
        key = pair.forward.chunk, pair.backward.chunk
        made = None if any(cuts) else self._pairs.get(key)
        if made is None:
            made = turns(self._pass(pair.forward, cuts[0]), self._pass(pair.backward, cuts[1]))
            if not any(cuts):
                self._pairs[key] = made
        yield from tasks(made, pair.forward.microbatch + shift, pair.backward.microbatch + shift)

    def _pass(self, slot: Slot, cuts: Cuts) -> Pass:
        return PASSES[slot.work.value](self.mine.parts, self.mine.stages[slot.chunk], cuts=cuts)

    def _cuts(self, k: int, slot: Slot, step: int) -> Cuts:
        if self.mine.firsts.get(slot.chunk) == k:
            return _gather_waits(self.mine, slot.chunk, step)
        if self.mine.lasts.get(slot.chunk) == k:
            return _reduce_signals(self.mine, slot.chunk, step)
        return {}


def _reduce_signals(mine: _Rank, chunk: int, step: int) -> Cuts:
    if not (mine.reduces and mine.exchange.overlapped):
        return {}
    stage, last = mine.stages[chunk], _last_part(mine.stages[chunk])
    return {
        min(b.after, last): [Signal(f"ready.{stage.index}.{k}", step)]
        for k, b in enumerate(mine.exchange.reductions[chunk])
    }


def _gather_waits(mine: _Rank, chunk: int, step: int) -> Cuts:
    if not (mine.reduces and mine.exchange.gathers_overlapped):
        return {}
    stage, last = mine.stages[chunk], _last_part(mine.stages[chunk])
    return {
        min(b.after, last): [Wait(f"gathered.{stage.index}.{k}", step)]
        for k, b in enumerate(mine.exchange.gathers[chunk])
    }


def _last_part(stage: Stage) -> int:
    return stage.layers + 1 if stage.embedding else stage.layers


def _reductions(mine: _Rank, step: int) -> Iterator[Task]:
    """The chain of data-parallel collectives: gathers before the first use, reductions as they are ready."""
    exchange = mine.exchange
    if exchange.gathers_overlapped:
        if step:
            yield Task(Template("updated", 0, (Wait("updated"),)), step)
        for stage in mine.stages:
            buckets = reversed(list(enumerate(exchange.gathers[stage.chunk])))
            gathers = [(k, b, (), (Signal(f"gathered.{stage.index}.{k}"),)) for k, b in buckets]
            yield Task(_collectives("gather", stage, gathers), step)
    if not exchange.overlapped:
        return
    for chunk in sorted(mine.lasts, key=lambda c: mine.lasts[c]):
        stage = mine.stages[chunk]
        ready = [(k, b, (Wait(f"ready.{stage.index}.{k}"),), ()) for k, b in enumerate(exchange.reductions[chunk])]
        yield Task(_collectives("reduce", stage, ready), step)
    yield Task(Template("reduced", 0, (Signal("reduced"),)), step)


def _collectives(
    work: str, stage: Stage, some: Sequence[tuple[int, Bucket, tuple[Instruction, ...], tuple[Instruction, ...]]]
) -> Template:
    instructions: list[Instruction] = []
    for k, bucket, before, after in some:
        instructions += [*before, _collective(f"{work} {stage.index}.{k}", "dp", bucket, "dp"), *after]
    return Template(work, stage.chunk, tuple(instructions))


def _collective(name: str, communicator: str, bucket: Bucket, stream: str) -> Meet:
    return Meet(name, "dp", communicator, bucket.operation, bucket.nbytes, stream=stream)


def _update(mine: _Rank, step: int) -> Template:
    """After the last backward: reductions that are left, tied embeddings, norm, optimizer, gathers, loss."""
    parts, exchange, network = mine.parts, mine.exchange, mine.parts.network
    job, framework = parts.job, parts.job.framework
    out: list[Instruction] = []
    if network.has("dp"):
        out += _exposed(mine, "reduce") if not exchange.overlapped else [Wait("reduced")]
    if parts.vocabulary is not None:
        out += parts.vocabulary.tied(mine.rank)
    elif _shares_embedding(mine):
        nbytes = job.padded_vocab / job.parallel.tp * job.model.hidden * job.training.gradient_bytes
        out.append(Meet("tied embedding", "dp", "embedding", "all_reduce", nbytes, stream="dp"))
    if network.has("world") and not job.pipeline.post_validation:
        names = ["overflow check", "gradient norm"] if job.training.loss_scaling else ["gradient norm"]
        out += [Meet(name, "other", "world", "all_reduce", SCALAR, stream="dp") for name in names]
    held, shard = _parameters(mine), exchange.shard
    nbytes = framework.optimizer_bytes_per_parameter * held / shard + framework.gradient_copy_bytes_per_parameter * held
    out.append(parts.blocks.traffic("optimizer", nbytes, "optimizer"))
    if network.has("dp") and exchange.gathers and not exchange.gathers_overlapped:
        out += _exposed(mine, "gather")
    if network.has("dp") and any(s.head for s in mine.stages):
        out.append(Meet("loss", "other", "dp-update", "all_reduce", SCALAR, stream="dp"))
    if framework.step_seconds > 0 and not framework.cuda_graph:
        out.append(Kernel("data, logging", "host", framework.step_seconds, 0.0, 0.0))
    if mine.reduces and exchange.gathers_overlapped and step + 1 < job.steps:
        out.append(Signal("updated", step + 1))
    return Template("update", 0, tuple(out))


def _exposed(mine: _Rank, work: str) -> list[Instruction]:
    """Collectives that the compute chain waits for."""
    chunks = mine.exchange.reductions if work == "reduce" else mine.exchange.gathers
    return [
        _collective(f"{work} {mine.stages[c].index}.{k}", "dp-update", bucket, "dp")
        for c in sorted(range(len(chunks)), key=lambda c: mine.stages[c].first)
        for k, bucket in enumerate(chunks[c])
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
    framework, held, vocabulary = mine.parts.job.framework, _parameters(mine), mine.parts.vocabulary
    buffers = 2 * mine.parts.message_bytes if mine.parts.job.parallel.pp > 1 else 0.0
    return Memory(
        weights=framework.weight_memory_bytes * held,
        gradients=framework.gradient_memory_bytes * held,
        optimizer=framework.optimizer_memory_bytes * held / mine.exchange.shard,
        buffers=buffers + (0.0 if vocabulary is None else vocabulary.held),
        framework=framework.framework_memory,
    )
