"""
The end of a step, or of a minibatch: what is reduced between replicas and when, and the update of the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainsim.contracts.groups import ALONE, MODEL, REPLICAS, STAGES, WORLD, Ends, Group, Queue
from trainsim.contracts.instructions import EARLY, Hold, Instruction, Kernel, Meet, Piece, Signal, Task, Template, Wait
from trainsim.program import offload
from trainsim.program.optimizer import gradient_check
from trainsim.program.parts import Parts
from trainsim.program.rank import Rank
from trainsim.program.stages import Stage
from trainsim.program.templates import NOTHING, Cut, Cuts
from trainsim.sharding.flights import chains
from trainsim.sharding.plan import Bucket, ShardingPlan

SCALAR = 4.0  # bytes of a norm, a loss or a flag in fp32


def reduce_signals(mine: Rank, chunk: int, step: int | None) -> Cuts:
    """Where in its last backward a chunk tells that a bucket is complete; *step* None: of the pass's own microbatch."""
    if not (mine.reduces and mine.sharding.overlapped):
        return {}
    stage, last = mine.stages[chunk], _last_part(mine.stages[chunk])
    ready: dict[int, tuple[Signal, ...]] = {}
    for k, b in enumerate(mine.sharding.reductions[chunk]):
        at = min(b.after, last)
        ready[at] = (*ready.get(at, ()), Signal(f"ready.{stage.index}.{k}", step))
    return {at: Cut(after=signals) for at, signals in ready.items()}


def with_gradients(mine: Rank, chunk: int, cuts: Cuts) -> Cuts:
    """*cuts* of a chunk's first backward in a step, which makes the gradients of each part."""
    parts = mine.parts.gradients(mine.stages[chunk])
    each = mine.fresh_gradients / mine.trainable
    out = dict(cuts)
    for part, elements in enumerate([parts.head, *parts.layers, parts.embedding]):
        cut = out.get(part, NOTHING)
        out[part] = Cut(cut.before, (Hold("gradients", each * elements), *cut.after))
    return out


def gather_waits(mine: Rank, chunk: int, step: int) -> Cuts:
    """Where in its first forward a chunk needs the parameters of a bucket."""
    if not mine.gathers_ahead:
        return {}
    stage, last = mine.stages[chunk], _last_part(mine.stages[chunk])
    return {
        min(b.after, last): Cut(before=(Wait(f"gathered.{stage.index}.{k}", step),))
        for k, b in enumerate(mine.sharding.gathers[chunk])
    }


def _last_part(stage: Stage) -> int:
    return stage.layers + 1 if stage.embedding else stage.layers


def reductions(mine: Rank, step: int) -> Iterator[Task]:
    """The chain of data-parallel collectives: gathers before the first use, reductions as they are ready."""
    sharding = mine.sharding
    if mine.gathers_ahead:
        if step:
            yield Task(Template("updated", 0, (Wait("updated"),)), step)
        for stage in mine.stages:
            buckets = reversed(list(enumerate(sharding.gathers[stage.chunk])))
            gathers = [(k, b, (), (Signal(f"gathered.{stage.index}.{k}"),)) for k, b in buckets]
            if step and mine.skips(step - 1):  # nothing was updated
                yield Task(Template("gather", stage.chunk, tuple(s for *_, after in gathers for s in after)), step)
            else:
                yield Task(_collectives(mine, "gather", stage, gathers), step)
    if not sharding.overlapped:
        return
    for chunk in sorted(mine.lasts, key=lambda c: mine.lasts[c]):
        stage = mine.stages[chunk]
        ready = [
            (k, b, (Wait(f"ready.{stage.index}.{k}"),), tuple(offload.gradient_copies(mine, b, ALONE.on(Queue.DATA))))
            for k, b in enumerate(sharding.reductions[chunk])
        ]
        yield Task(_collectives(mine, "reduce", stage, ready), step)
    yield Task(Template("reduced", 0, (Signal("reduced"),)), step)


def _collectives(
    mine: Rank,
    work: str,
    stage: Stage,
    some: Sequence[tuple[int, Bucket, tuple[Instruction, ...], tuple[Instruction, ...]]],
) -> Template:
    instructions: list[Instruction] = []
    for k, bucket, before, after in some:
        instructions += [*before, *_collective(mine, f"{work} {stage.index}.{k}", Queue.DATA, bucket), *after]
    return Template(work, stage.chunk, tuple(instructions))


def _collective(mine: Rank, name: str, queue: Queue, bucket: Bucket) -> list[Meet]:
    """The collective of a bucket; nothing where there are no replicas."""
    if not mine.parts.network.has(REPLICAS):
        return []
    return [Meet(name, "dp", bucket.over.on(queue), bucket.operation, bucket.nbytes, stream="dp")]


def update(mine: Rank, number: int) -> Template:
    """After a last backward: reductions that are left, tied embeddings, norm, optimizer, gathers, loss.

    Without a flush there is no norm of all gradients; of several updates per step the last one ends it. A step that is
    skipped ends once all ranks know that gradients have overflowed.
    """
    sharding, has_replicas = mine.sharding, mine.parts.network.has(REPLICAS)
    out: list[Piece] = [*_reduced(mine), *_agreed(mine, number)]
    if mine.skips(number):
        out.append(gradient_check(mine.parts, mine.rank))
    else:
        temporary = mine.states().step_transient * offload.on_gpu(mine)
        step = offload.optimizer_step(mine, number)
        out += [Hold("temporary", temporary), *step, Hold("temporary", -temporary)]
        if has_replicas and sharding.gathers and not sharding.gathers_overlapped:
            out += _exposed(mine, "gather")
    out.append(Hold("gradients", -mine.fresh_gradients))
    if not mine.ends_step(number):
        return Template.of(EARLY, 0, out)
    return Template.of("update", 0, [*out, *_end(mine, number)])


def _reduced(mine: Rank) -> Iterator[Instruction]:
    """What is left of the reductions, and the sum of both ends of a tied embedding."""
    job = mine.parts.job
    yield from (Wait(f"over.{chain}") for chain in chains(mine.sharding.flights))
    if mine.parts.network.has(REPLICAS) or mine.offloads:
        yield from _exposed(mine, "reduce") if not mine.sharding.overlapped else [Wait("reduced")]
    if mine.parts.vocabulary is not None:
        yield from mine.parts.vocabulary.tied(mine.rank)
    elif _shares_embedding(mine):
        nbytes = job.padded_vocab / job.parallel.tp * job.model.hidden * job.training.gradient_bytes
        yield Meet("tied embedding", "dp", STAGES.only(Ends()), "all_reduce", nbytes, stream="dp")


def _agreed(mine: Rank, number: int) -> Iterator[Meet]:
    """The numbers that all ranks have to agree on before they update."""
    job = mine.parts.job
    group, skips, framework = agreeing(mine.parts, mine.sharding), mine.skips(number), job.framework
    if not mine.parts.network.has(group) or job.pipeline.post_validation or mine.schedule.asynchronous:
        return
    if job.training.loss_scaling or skips or job.sharding.strategy in framework.communication.overflow_checked:
        yield Meet(
            "overflow check", "other", group, "all_reduce", float(framework.communication.overflow_bytes), stream="dp"
        )
    if not skips:
        for nbytes in mine.sharding.norms:
            yield Meet("gradient norm", "other", group, "all_reduce", nbytes, stream="dp")


def agreeing(parts: Parts, sharding: ShardingPlan) -> Group:
    """Who adds up the norm of the gradients: a replica that has all of them needs no other one."""
    alone = not sharding.shares_updates or parts.job.framework.communication.norm_over == "model"
    return MODEL if alone else WORLD


def _end(mine: Rank, number: int) -> Iterator[Instruction]:
    """What follows the last update of a step."""
    job, framework = mine.parts.job, mine.parts.job.framework
    if mine.parts.network.has(REPLICAS) and any(s.head for s in mine.stages):
        yield Meet("loss", "other", REPLICAS, "all_reduce", SCALAR, stream="dp")
    if framework.host.step_seconds > 0 and not framework.host.cuda_graph:
        yield Kernel("data, logging", "host", framework.host.step_seconds, 0.0, 0.0)
    if mine.gathers_ahead and number + 1 < job.steps:
        yield Signal("updated", number + 1)


def _exposed(mine: Rank, work: str) -> list[Instruction]:
    """Collectives that the compute chain waits for, and the copies that follow them."""
    chunks = mine.sharding.reductions if work == "reduce" else mine.sharding.gathers
    out: list[Instruction] = []
    for c in sorted(range(len(chunks)), key=lambda c: mine.stages[c].first):
        for k, bucket in enumerate(chunks[c]):
            out += _collective(mine, f"{work} {mine.stages[c].index}.{k}", Queue.COMPUTE, bucket)
            out += offload.gradient_copies(mine, bucket, ALONE) if work == "reduce" else ()
    return out


def _shares_embedding(mine: Rank) -> bool:
    stages = mine.parts.stages
    return (
        mine.parts.job.model.tied_embeddings
        and mine.parts.job.model.lora is None
        and stages[0].rank != stages[-1].rank
        and mine.rank in (stages[0].rank, stages[-1].rank)
    )
