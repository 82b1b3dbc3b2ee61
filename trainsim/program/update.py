"""
The end of a step, or of a minibatch: what is reduced between replicas and when, and the update of the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainsim.contracts.groups import ALONE, MODEL, REPLICAS, STAGES, WORLD, Ends, Group, Queue
from trainsim.contracts.instructions import EARLY, Hold, Instruction, Kernel, Meet, Piece, Signal, Task, Template, Wait
from trainsim.program import offload, paging
from trainsim.program.early_updates import early_update
from trainsim.program.optimizer import gradient_check
from trainsim.program.parts import Parts
from trainsim.program.rank import RankPlan
from trainsim.program.stages import Stage
from trainsim.program.templates import NOTHING, Cut, Cuts
from trainsim.sharding.flights import chains
from trainsim.sharding.plan import Bucket, ShardingPlan

SCALAR = 4.0  # bytes of a norm, a loss or a flag in fp32


def reduce_signals(rank_plan: RankPlan, chunk: int, step: int | None) -> Cuts:
    """Where in its last backward a chunk tells that a bucket is complete; *step* None: of the pass's own microbatch."""
    if not (rank_plan.reduces and rank_plan.sharding.overlapped):
        return {}
    stage, last = rank_plan.stages[chunk], _last_part(rank_plan.stages[chunk])
    ready: dict[int, tuple[Signal, ...]] = {}
    for k, b in enumerate(rank_plan.sharding.reductions[chunk]):
        at = min(b.after, last)
        ready[at] = (*ready.get(at, ()), Signal(f"ready.{stage.index}.{k}", step))
    return {at: Cut(after=signals) for at, signals in ready.items()}


def with_gradients(rank_plan: RankPlan, chunk: int, cuts: Cuts) -> Cuts:
    """*cuts* of a chunk's first backward in a step, which makes the gradients of each part."""
    each = rank_plan.fresh_gradients / rank_plan.trainable
    out = dict(cuts)
    for part, elements in enumerate(made_by_part(rank_plan, rank_plan.stages[chunk])):
        cut = out.get(part, NOTHING)
        out[part] = Cut(cut.before, (Hold("gradients", each * elements), *cut.after))
    return out


def with_updates_behind(rank_plan: RankPlan, chunk: int, cuts: Cuts) -> Cuts:
    """*cuts* of a backward that updates the parameters of each part behind it.

    The gradient of a table that is the head's and the embedding's waits for the second part of it.
    """
    stage, size = rank_plan.stages[chunk], float(rank_plan.parts.job.training.number_bytes)
    trained = [held for held in rank_plan.held if held.group.trained]
    ready, made = rank_plan.parts.holdings.gradients(stage).parts, made_by_part(rank_plan, stage)
    out = dict(cuts)
    for part, (elements, first) in enumerate(zip(ready, made, strict=True)):
        cut, pieces = out.get(part, NOTHING), list[Piece]([Hold("gradients", size * (first - elements))])
        if elements:
            pieces.append(early_update(rank_plan.parts.blocks, trained, elements / rank_plan.trainable))
        out[part] = Cut(cut.before, (*pieces, *cut.after))
    return out


def made_by_part(rank_plan: RankPlan, stage: Stage) -> list[int]:
    """Trained parameters whose gradients each part of a backward makes, in the order of the parts.

    The gradient of a table that is the head's and the embedding's is made with the head's.
    """
    parts, job = rank_plan.parts.holdings.gradients(stage), rank_plan.parts.job
    tied = job.model.tied_embeddings and job.model.lora is None and stage.head and stage.embedding
    table = job.padded_vocab // job.parallel.tp * job.model.embedding_width if tied else 0
    return [parts.head + table, *parts.layers, parts.embedding - table]


def gather_waits(rank_plan: RankPlan, chunk: int, step: int) -> Cuts:
    """Where in its first forward a chunk needs the parameters of a bucket.

    Buckets are gathered from the last to the first, so a part that needs several waits for the first.
    """
    if not rank_plan.gathers_ahead:
        return {}
    stage, last = rank_plan.stages[chunk], _last_part(rank_plan.stages[chunk])
    return {
        min(b.after, last): Cut(before=(Wait(f"gathered.{stage.index}.{k}", step),))
        for k, b in reversed(list(enumerate(rank_plan.sharding.gathers[chunk])))
    }


def _last_part(stage: Stage) -> int:
    return stage.layers + 1 if stage.embedding else stage.layers


def reductions(rank_plan: RankPlan, step: int) -> Iterator[Task]:
    """The chain of data-parallel collectives: gathers before the first use, reductions as they are ready."""
    sharding = rank_plan.sharding
    if rank_plan.gathers_ahead:
        if step:
            yield Task(Template("updated", 0, (Wait("updated"),)), step)
        for stage in sorted(rank_plan.stages, key=lambda stage: stage.first):  # mirrored ranks agree on this order
            buckets = reversed(list(enumerate(sharding.gathers[stage.chunk])))
            gathers = [(k, b, (), (Signal(f"gathered.{stage.index}.{k}"),)) for k, b in buckets]
            if step and rank_plan.skips(step - 1):  # nothing was updated
                yield Task(Template("gather", stage.chunk, tuple(s for *_, after in gathers for s in after)), step)
            else:
                yield Task(_collectives(rank_plan, "gather", stage, gathers), step)
    if not sharding.overlapped:
        return
    for chunk in sorted(rank_plan.lasts, key=lambda c: rank_plan.lasts[c]):
        stage = rank_plan.stages[chunk]
        ready = [
            (
                k,
                b,
                (Wait(f"ready.{stage.index}.{k}"),),
                tuple(offload.gradient_copies(rank_plan, b, ALONE.on(Queue.DATA))),
            )
            for k, b in enumerate(sharding.reductions[chunk])
        ]
        yield Task(_collectives(rank_plan, "reduce", stage, ready), step)
    yield Task(Template("reduced", 0, (Signal("reduced"),)), step)


def _collectives(
    rank_plan: RankPlan,
    work: str,
    stage: Stage,
    some: Sequence[tuple[int, Bucket, tuple[Instruction, ...], tuple[Instruction, ...]]],
) -> Template:
    instructions: list[Instruction] = []
    for k, bucket, before, after in some:
        instructions += [*before, *_collective(rank_plan, f"{work} {stage.index}.{k}", Queue.DATA, bucket), *after]
    return Template(work, stage.chunk, tuple(instructions))


def _collective(rank_plan: RankPlan, name: str, queue: Queue, bucket: Bucket) -> list[Meet]:
    """The collective of a bucket; nothing where there are no replicas."""
    if not rank_plan.parts.network.has(bucket.over):
        return []
    return [Meet(name, "dp", bucket.over.on(queue), bucket.operation, bucket.nbytes, stream="dp")]


def update(rank_plan: RankPlan, number: int) -> Template:
    """After a last backward: reductions that are left, tied embeddings, norm, optimizer, gathers, loss.

    Without a flush there is no norm of all gradients; of several updates per step the last one ends it. A step that is
    skipped ends once all ranks know that gradients have overflowed.
    """
    sharding, has_replicas = rank_plan.sharding, rank_plan.replicated
    out: list[Piece] = [*_reduced(rank_plan), *_agreed(rank_plan, number)]
    if rank_plan.parts.job.training.optimizer_in_backward:
        for way in ("host_in", "host_out"):  # its parameters are new already
            out += paging.copies(rank_plan, way)
    elif rank_plan.skips(number):
        out.append(gradient_check(rank_plan.parts, rank_plan.rank))
    else:
        temporary = rank_plan.states().step_transient * offload.on_gpu(rank_plan)
        step = offload.optimizer_step(rank_plan, number)
        out += [Hold("temporary", temporary), *step, Hold("temporary", -temporary)]
        if has_replicas and sharding.gathers and not sharding.gathers_overlapped:
            out += _exposed(rank_plan, "gather")
    out.append(Hold("gradients", -rank_plan.fresh_gradients))
    if not rank_plan.ends_step(number):
        return Template.of(EARLY, 0, out)
    return Template.of("update", 0, [*out, *_end(rank_plan, number)])


def _reduced(rank_plan: RankPlan) -> Iterator[Instruction]:
    """What is left of the reductions, and the sum of both ends of a tied embedding."""
    job = rank_plan.parts.job
    yield from (Wait(f"over.{chain}") for chain in chains(rank_plan.sharding.flights))
    if rank_plan.replicated or rank_plan.offloads:
        yield from _exposed(rank_plan, "reduce") if not rank_plan.sharding.overlapped else [Wait("reduced")]
    if rank_plan.parts.vocabulary is not None:
        yield from rank_plan.parts.vocabulary.tied(rank_plan.rank)
    elif _shares_embedding(rank_plan):
        nbytes = job.padded_vocab / job.parallel.tp * job.model.hidden * job.training.gradient_bytes
        yield Meet("tied embedding", "dp", STAGES.only(Ends()), "all_reduce", nbytes, stream="dp")


def _agreed(rank_plan: RankPlan, number: int) -> Iterator[Meet]:
    """The numbers that all ranks have to agree on before they update."""
    job = rank_plan.parts.job
    group, skips, framework = agreeing(rank_plan.parts, rank_plan.sharding), rank_plan.skips(number), job.framework
    if not rank_plan.parts.network.has(group) or job.pipeline.post_validation or rank_plan.schedule.asynchronous:
        return
    if job.training.loss_scaling or skips or job.sharding.strategy in framework.communication.overflow_checked:
        yield Meet(
            "overflow check", "other", group, "all_reduce", float(framework.communication.overflow_bytes), stream="dp"
        )
    if not skips:
        for nbytes in rank_plan.sharding.norms:
            yield Meet("gradient norm", "other", group, "all_reduce", nbytes, stream="dp")


def agreeing(parts: Parts, sharding: ShardingPlan) -> Group:
    """Who adds up the norm of the gradients: a replica that has all of them needs no other one."""
    alone = not sharding.shares_updates or parts.job.framework.communication.norm_over == "model"
    return MODEL if alone else WORLD


def _end(rank_plan: RankPlan, number: int) -> Iterator[Instruction]:
    """What follows the last update of a step."""
    job, framework = rank_plan.parts.job, rank_plan.parts.job.framework
    if rank_plan.parts.network.has(REPLICAS) and any(s.head for s in rank_plan.stages):
        yield Meet("loss", "other", REPLICAS, "all_reduce", SCALAR, stream="dp")
    if framework.host.step_seconds > 0 and not framework.host.cuda_graph:
        yield Kernel("data, logging", "host", framework.host.step_seconds, 0.0, 0.0)
    if rank_plan.gathers_ahead and number + 1 < job.steps:
        yield Signal("updated", number + 1)


def _exposed(rank_plan: RankPlan, work: str) -> list[Instruction]:
    """Collectives that the compute chain waits for, and the copies that follow them."""
    chunks = rank_plan.sharding.reductions if work == "reduce" else rank_plan.sharding.gathers
    out: list[Instruction] = []
    for c in sorted(range(len(chunks)), key=lambda c: rank_plan.stages[c].first):
        for k, bucket in enumerate(chunks[c]):
            out += _collective(rank_plan, f"{work} {rank_plan.stages[c].index}.{k}", Queue.COMPUTE, bucket)
            out += offload.gradient_copies(rank_plan, bucket, ALONE) if work == "reduce" else ()
    return out


def _shares_embedding(rank_plan: RankPlan) -> bool:
    stages = rank_plan.parts.stages
    return (
        rank_plan.parts.job.model.tied_embeddings
        and rank_plan.parts.job.model.lora is None
        and stages[0].rank != stages[-1].rank
        and rank_plan.rank in (stages[0].rank, stages[-1].rank)
    )
