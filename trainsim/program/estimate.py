"""
The closed form beside the simulation: what the step should take if nothing were shared and nobody were slow.

Every stage does its microbatches at its own pace and the slowest sets it; filling and draining adds one pass of all
other stages (divided by the chunks of an interleaved schedule); strict 1F1B pays the latency of messages again and
again, the others once; what overlaps counts where it sticks out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainsim.model.operations import MemoryBound
from trainsim.program.blocks import Block
from trainsim.program.parts import Parts
from trainsim.program.stages import Stage
from trainsim.sharding import Bucket, Exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Seconds of a step in closed form, and the parts that add up to them."""

    seconds: float
    parts: dict[str, float]


def estimate(parts: Parts) -> Estimate:
    """Expected seconds of a step of the job behind *parts*, by part: steady, fill and drain, messages, dp, update."""
    job = parts.job
    m, chunks = job.training.microbatches, job.pipeline.chunks
    message, blocked = _message(parts)
    kinds = _kinds(parts)
    passes = [(len(ranks), _rank_pass(parts, parts.of_rank(ranks[0]), blocked)) for ranks in kinds]
    slowest = max(seconds for _, seconds in passes)
    exchanges = [(ranks[0], parts.exchange(ranks[0])) for ranks in kinds]
    out = {
        "steady": m * slowest,
        "fill and drain": (sum(count * seconds for count, seconds in passes) - slowest) / chunks,
        "messages": _message_latency(parts, message),
        "dp": max(_exposed_dp(parts, rank, exchange) for rank, exchange in exchanges),
        "update": _update(parts, kinds),
    }
    return Estimate(seconds=sum(out.values()), parts=out)


def _kinds(parts: Parts) -> list[list[int]]:
    """Pipeline ranks by what they hold: those of one list do the same work (the first rank cuts its own buckets)."""
    out: dict[object, list[int]] = {}
    for r in range(parts.job.parallel.pp):
        held = tuple((s.layers, s.embedding, s.head) for s in parts.of_rank(r))
        out.setdefault((r == 0, held), []).append(r)
    return list(out.values())


def _rank_pass(parts: Parts, stages: Sequence[Stage], blocked: float) -> float:
    """Forward and backward of one microbatch through all chunks of a rank, with the messages it waits for."""
    total = 0.0
    for s in stages:
        blocks: list[Block] = [*parts.layer_blocks(s)]
        blocks += [parts.embedding] if s.embedding else []
        blocks += [parts.head] if s.head else []
        total += sum(block.forward_seconds + block.backward_seconds for block in blocks)
        total += blocked * ((not s.head) + (not s.embedding))
    return total


def _message(parts: Parts) -> tuple[float, float]:
    """Seconds of a message alone, and seconds for which its sender waits."""
    if parts.job.parallel.pp == 1:
        return 0.0, 0.0
    seconds = parts.network.seconds("pp-forward", "message", parts.message_bytes)
    framework = parts.job.framework
    return seconds, (seconds + framework.p2p_overhead if framework.p2p_blocking else 0.0)


def _message_latency(parts: Parts, message: float) -> float:
    """Latency on the critical path of asynchronous messages (exact for uniform stages: see docs/design.md)."""
    job = parts.job
    p, m, chunks = job.parallel.pp, job.training.microbatches, job.pipeline.chunks
    if p == 1 or job.framework.p2p_blocking:
        return 0.0
    if job.pipeline.schedule == "1f1b" and m >= 2:
        rounds, rest = divmod(m - 1, p)
        return message * (2 * (p - 1) * rounds + 2 * rest + 2 * (p - 2))
    return message * 2 * (p * chunks - 1)


def _exposed_dp(parts: Parts, rank: int, exchange: Exchange) -> float:
    """Reductions and gathers of a rank that no computation hides."""
    if not parts.network.has("dp"):
        return 0.0
    reduce = _hidden(network_seconds(parts, exchange.reductions), parts, rank, "backward", exchange.overlapped)
    gather = _hidden(network_seconds(parts, exchange.gathers), parts, rank, "forward", exchange.gathers_overlapped)
    return reduce + gather


def network_seconds(parts: Parts, chunks: Sequence[Sequence[Bucket]]) -> list[float]:
    """Seconds of each data-parallel collective alone."""
    return [parts.network.seconds("dp", b.operation, b.nbytes) for buckets in chunks for b in buckets]


def _hidden(seconds: list[float], parts: Parts, rank: int, direction: str, overlapped: bool) -> float:
    """What sticks out of the pass of one microbatch: all of it, or the last bucket and what does not fit under it."""
    if not seconds or not overlapped:
        return sum(seconds)
    layer = parts.layer.backward_seconds if direction == "backward" else parts.layer.forward_seconds
    window = sum(s.layers for s in parts.of_rank(rank)) * layer * (1 - 1 / len(seconds))
    return max(sum(seconds) - window, seconds[-1])


def _update(parts: Parts, kinds: list[list[int]]) -> float:
    """Optimizer, norm and the step's fixed host time on the rank with most parameters."""
    job, framework = parts.job, parts.job.framework
    held = max(sum(parts.gradients(s).total for s in parts.of_rank(ranks[0])) for ranks in kinds)
    shard = parts.exchange(0).shard
    nbytes = framework.optimizer_bytes_per_parameter * held / shard + framework.gradient_copy_bytes_per_parameter * held
    kernel = parts.blocks.kernel(MemoryBound("optimizer", "elementwise", nbytes), "optimizer")
    fixed = 0.0 if framework.cuda_graph else framework.step_seconds
    norm = parts.network.seconds("world", "all_reduce", 4.0)
    embedding = 0.0
    if job.model.tied_embeddings and parts.network.has("embedding"):
        size = job.padded_vocab / job.parallel.tp * job.model.hidden * job.training.gradient_bytes
        embedding = parts.network.seconds("embedding", "all_reduce", size)
    return kernel.seconds + fixed + norm + embedding
