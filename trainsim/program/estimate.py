"""
The closed form beside the simulation: what the step should take if nothing were shared and nobody were slow.

Every stage does its microbatches at its own pace and the slowest sets it; filling and draining adds one pass of all
other stages (divided by the chunks of an interleaved schedule or by the slices of a sequence, less two weight gradients
where they are put off); without a flush every minibatch may pay for its own reduction and update;
strict 1F1B pays the latency of messages again and again, the others once; what overlaps counts where it sticks out;
in pairs of passes, tokens on their way to experts count where they take longer than the kernels of both passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from trainsim.contracts.groups import EXPERTS, STAGES, Ends, Messages
from trainsim.contracts.job import Job, Skip
from trainsim.program import activation_offload, offload, paging
from trainsim.program.alone import excess
from trainsim.program.early_updates import early_update
from trainsim.program.optimizer import gradient_check
from trainsim.program.parts import Parts
from trainsim.program.pieces import Block
from trainsim.program.rank import RankPlan
from trainsim.program.stages import Stage
from trainsim.program.update import agreeing
from trainsim.schedules import Pair
from trainsim.schedules.lookup import facts
from trainsim.sharding.plan import Bucket, ShardingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Seconds of a step in closed form, and the parts that add up to them."""

    seconds: float
    parts: dict[str, float]

    def with_part(self, name: str, seconds: float) -> Estimate:
        """The same with one more part.

        >>> Estimate(seconds=1.0, parts={"steady": 1.0}).with_part("rollout", 2.0).seconds
        3.0
        """
        return Estimate(seconds=self.seconds + seconds, parts={**self.parts, name: seconds})


def estimate(parts: Parts) -> Estimate:
    """Expected seconds of a step of the job behind *parts*, by part: steady, fill and drain, messages, dp, update."""
    job = parts.job
    m, chunks = job.training.microbatches / parts.network.replicas, job.pipeline.chunks
    message, blocked = _message(parts)
    kinds = _kinds(parts)
    passes = [(len(ranks), *_rank_pass(parts, parts.of_rank(ranks[0]), blocked)) for ranks in kinds]
    hidden = [_hidden(parts, ranks[0]) for ranks in kinds]
    slowest, fills = max(
        (seconds - less, seconds - late) for (_, seconds, late), less in zip(passes, hidden, strict=True)
    )
    plans = [(ranks[0], parts.sharding(ranks[0])) for ranks in kinds]
    others = max(0.0, sum(n * (seconds - late) for n, seconds, late in passes) - fills)
    shape = facts(job.pipeline.schedule)
    updates = job.training.microbatches if shape.eager_updates else 1
    fills_per_step = 1 / job.steps if shape.asynchronous else 1
    out = {
        "steady": m * slowest,
        "fill and drain": others * fills_per_step / (chunks * len(parts.slices)),
        "messages": _message_latency(parts, message) + (parts.vocabulary.latency if parts.vocabulary else 0.0),
        "dp": updates * max(_exposed_dp(parts, rank, sharding) for rank, sharding in plans)
        + max(excess(parts, sharding.flights) for _, sharding in plans),
        "update": _update(parts, kinds, updates),
    }
    late = max(offload.delayed_seconds(RankPlan(parts=parts, rank=ranks[0])) for ranks in kinds)
    out["update"] += max(0.0, late - sum(out.values()) + _host(job) / job.steps)  # the first is not beside the host's
    return Estimate(seconds=sum(out.values()), parts=out)


def _kinds(parts: Parts) -> list[list[int]]:
    """Pipeline ranks by what they hold: those of one list do the same work (the first rank cuts its own buckets)."""
    out: dict[object, list[int]] = {}
    for r in range(parts.job.parallel.pp):
        held = tuple((s.layers, s.embedding, s.head) for s in parts.of_rank(r))
        out.setdefault((r == 0, held), []).append(r)
    return list(out.values())


def _rank_pass(parts: Parts, stages: Sequence[Stage], blocked: float) -> tuple[float, float]:
    """Forward and backward of one microbatch, all slices of it, through all chunks of a rank, with the messages it
    waits for; and how much of it a schedule that puts weight gradients off takes out of fill and drain: they leave it,
    and fill it."""
    total = late = 0.0
    for parts_of_slice, s in product(parts.slices, stages):
        blocks: list[Block] = [*parts_of_slice.layer_blocks(s)]
        blocks += [parts_of_slice.embedding] if s.embedding else []
        blocks += [parts_of_slice.head] if s.head else []
        total += sum(block.forward_seconds + block.backward_seconds for block in blocks)
        late += 2 * sum(block.weight_seconds for block in blocks)
        total += blocked * ((not s.head) + (not s.embedding)) + activation_offload.late_seconds(parts_of_slice, s)
    if parts.vocabulary is not None:
        total += parts.vocabulary.block.forward_seconds + parts.vocabulary.block.backward_seconds
    return total, late


def _hidden(parts: Parts, rank: int) -> float:
    """Seconds per microbatch in which tokens of *rank* are on their way to experts under the other pass of a pair."""
    if not (facts(parts.job.pipeline.schedule).paired and parts.network.has(EXPERTS)):
        return 0.0
    hidden = 0.0
    for block, times in Counter(block for s in parts.of_rank(rank) for block in parts.layer_blocks(s)).items():
        seconds = {True: 0.0, False: 0.0}
        for kind, alone in parts.blocks.parts((*block.forward, *block.backward)):
            seconds[kind == EXPERTS.axes[0]] += alone
        hidden += times * min(seconds.values())
    items = RankPlan(parts=parts, rank=rank).items
    pairs = sum(isinstance(item, Pair) for item in items)
    return hidden * pairs / (parts.job.training.microbatches * parts.job.pipeline.chunks / parts.network.replicas)


def _message(parts: Parts) -> tuple[float, float]:
    """Seconds of a message alone, and seconds for which its sender waits."""
    if parts.job.parallel.pp == 1:
        return 0.0, 0.0
    seconds = parts.network.crowded_seconds(Messages("forward", 1), "message", parts.message_bytes)
    sent = parts.job.framework.communication
    return seconds, (seconds + sent.p2p_announcement + sent.p2p_overhead if sent.p2p_blocking else 0.0)


def _message_latency(parts: Parts, message: float) -> float:
    """Latency on the critical path of asynchronous messages (exact for uniform stages: see docs/design.md)."""
    job = parts.job
    p, m, chunks = job.parallel.pp, job.training.microbatches, job.pipeline.chunks
    if parts.blocking:
        return message * (2 * m + 2 * p - 5) if p > 1 else 0.0
    if p == 1 or job.framework.communication.p2p_blocking:
        return 0.0
    if job.pipeline.schedule == "1f1b" and m >= 2 and parts.vocabulary is None:
        rounds, rest = divmod(m - 1, p)
        return message * (2 * (p - 1) * rounds + 2 * rest + 2 * (p - 2))
    return message * 2 * (p * chunks - 1)


def _exposed_dp(parts: Parts, rank: int, sharding: ShardingPlan) -> float:
    """Reductions and gathers of a rank that no computation hides, with the copies that follow reductions."""
    rank_plan = RankPlan(parts=parts, rank=rank)
    if not (rank_plan.replicated or rank_plan.offloads):
        return 0.0
    reductions, gathers = (_bucket_seconds(rank_plan, chunks) for chunks in (sharding.reductions, sharding.gathers))
    copies = [[offload.copies_seconds(rank_plan, b) for b in chunk] for chunk in sharding.reductions]
    reductions = [[a + b for a, b in zip(*chunk, strict=True)] for chunk in zip(reductions, copies, strict=True)]
    reduce, gather = sum(map(sum, reductions)), sum(map(sum, gathers))
    if sharding.overlapped and reduce:
        reduce = _late(reductions, _windows(parts, rank, "backward_seconds"))
    if sharding.gathers_overlapped and gather:
        gather = _late(gathers, _windows(parts, rank, "forward_seconds"))
    return reduce + gather * (1 - _skipped(parts))


def _skipped(parts: Parts) -> float:
    """The part of the steps whose update is left out."""
    return len({w.step for w in parts.job.what_if if isinstance(w, Skip)}) / parts.job.steps


def _bucket_seconds(rank_plan: RankPlan, chunks: Sequence[Sequence[Bucket]]) -> list[list[float]]:
    """Seconds of each data-parallel collective of each chunk, when all groups reduce at once."""
    crowded = rank_plan.parts.network.crowded_seconds
    return [[crowded(b.over, b.operation, b.nbytes) for b in buckets] for buckets in chunks]


def _windows(parts: Parts, rank: int, seconds: str) -> list[tuple[float, float]]:
    """Per chunk: (seconds from its last pass to the end of the step's, *seconds* of that pass through its layers).

    The passes of an interleaved schedule go through a chunk for as many microbatches as there are ranks.
    """
    stages = parts.of_rank(rank)
    repeats = min(parts.job.parallel.pp, parts.job.training.microbatches) if len(stages) > 1 else 1
    own = [_through(parts.layer_blocks(s), seconds) for s in stages]
    return [(repeats * sum(own[:c]), own[c]) for c in range(len(own))]


def _through(blocks: Sequence[Block], seconds: str) -> float:
    """*seconds* of all *blocks*, those that are alike taken together."""
    return sum(count * float(getattr(block, seconds)) for block, count in Counter(blocks).items())


def _late(chunks: Sequence[Sequence[float]], windows: Sequence[tuple[float, float]]) -> float:
    """How long after the last pass a queue of collectives is over, which go chunk by chunk, the last chunk first.

    The first bucket of several is ready early in its chunk's pass, the last one at its end. Gathers are the same
    thing backwards in time.
    """
    done = -float("inf")
    for buckets, (after, own) in reversed(list(zip(chunks, windows, strict=True))):
        if buckets:
            first = -after - (own * (1 - 1 / len(buckets)))
            done = max(max(done, first) + sum(buckets), buckets[-1] - after)
    return max(0.0, done)


def _update(parts: Parts, kinds: list[list[int]], updates: int) -> float:
    """Optimizer, norm and the step's fixed host time on the rank with most parameters."""
    job = parts.job
    done, skipped = 1 - _skipped(parts), _skipped(parts)
    if job.training.optimizer_in_backward:
        optimizer = early_seconds(parts) + _paging_seconds(parts)
    else:
        optimizer = done * max(offload.step_seconds(RankPlan(parts=parts, rank=ranks[0])) for ranks in kinds)
    optimizer += skipped * max(gradient_check(parts, ranks[0]).seconds for ranks in kinds)
    flushed = not facts(job.pipeline.schedule).asynchronous
    sharding = parts.sharding(0)
    group, norms = agreeing(parts, sharding), sharding.norms if flushed else ()
    norm = sum(parts.network.seconds(group, "all_reduce", nbytes) for nbytes in norms)
    embedding = 0.0
    if job.model.tied_embeddings and job.model.lora is None and parts.network.has(STAGES):
        size = job.padded_vocab / job.parallel.tp * job.model.hidden * job.training.gradient_bytes
        embedding = parts.network.seconds(STAGES.only(Ends()), "all_reduce", size)
        if parts.vocabulary is not None:  # the first stage sums the parts of the others, one after the other
            embedding *= 1 - 1 / job.parallel.pp
    return updates * (optimizer + embedding) + _host(job) + norm


def early_seconds(parts: Parts) -> float:
    """Seconds of updates on the compute chain of a backward; those beside it count where they stick out."""
    rank_plan = RankPlan(parts=parts, rank=0)
    if rank_plan.sharding.flights:
        return 0.0
    trained, (stage,) = [held for held in rank_plan.held if held.group.trained], rank_plan.stages
    shares = [n / rank_plan.trainable for n in parts.holdings.gradients(stage).parts if n]
    return sum(early_update(parts.blocks, trained, share).seconds for share in shares)


def _paging_seconds(parts: Parts) -> float:
    """Seconds of the copies of paged states beside such updates."""
    rank_plan, crowded = RankPlan(parts=parts, rank=0), parts.network.crowded_seconds
    ways = (meet for way in ("host_in", "host_out") for meet in paging.copies(rank_plan, way))
    return sum(crowded(meet.communicator, meet.operation, meet.nbytes) for meet in ways)


def _host(job: Job) -> float:
    """The step's fixed host time."""
    return 0.0 if job.framework.host.cuda_graph else job.framework.host.step_seconds
