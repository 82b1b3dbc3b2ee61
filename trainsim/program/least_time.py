"""
The least time that a step of a job takes, without running it: a bound that follows from dependencies alone.

A chain does one thing after the other, nothing is ever faster than alone on the machine, and a microbatch goes through
the stages in order. So a rank begins when a first microbatch has come through the stages before it, does all its work,
and after the last backward of its first stage the stages before it still have theirs; then reductions, update and
gathers follow. What waits for a shared link, a late peer or an order of passes comes on top in the simulation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

from trainsim.contracts.groups import Messages, Queue
from trainsim.contracts.instructions import Kernel
from trainsim.contracts.job import Skip, Slow
from trainsim.program.least_memory import plan_of
from trainsim.program.least_pairs import PairTimes, block_seconds, paired_seconds
from trainsim.program.offload import optimizer_step
from trainsim.program.parts import Parts
from trainsim.program.pieces import Block
from trainsim.program.rank import RankPlan
from trainsim.program.stages import Stage
from trainsim.program.update import agreeing
from trainsim.schedules.lookup import facts
from trainsim.sharding.flights import KERNELS, Flight, Role
from trainsim.sharding.plan import Bucket


def least_seconds(parts: Parts) -> float:
    """Seconds that a step of the job takes at the least; 0 where its ranks lie on GPUs in no order, since a group of
    ranks then says nothing of the others."""
    job, shape = parts.job, facts(parts.job.pipeline.schedule)
    if not job.allocation.has_whole_nodes(job.cluster.gpus_per_node):
        return 0.0
    faster = min([1.0, *(what.factor for what in job.what_if if isinstance(what, Slow) and what.ranks)])
    passes = _passes(parts)
    times = job.training.microbatches / shape.replicas
    whole = job.steps == 1 and not shape.asynchronous and not job.pipeline.post_validation
    if not whole:  # one step runs into the next
        return faster * times * max(_work(parts, rank, passes) for rank in range(job.parallel.pp))
    return faster * max(_ends(parts, passes, times))


class _PassTimes(NamedTuple):
    """Seconds of the passes of one microbatch through a virtual stage, messages that they wait for included, and of the
    first slice of it without these."""

    forward: float
    to_inputs: float
    to_weights: float
    first_forward: float
    first_to_inputs: float

    @property
    def all(self) -> float:
        return self.forward + self.to_inputs + self.to_weights


def _passes(parts: Parts) -> list[_PassTimes]:
    """The passes of every virtual stage; those of stages that run the same blocks are worked out once."""
    known: dict[object, _PassTimes] = {}
    out = []
    for stage in parts.stages:
        sends = _sends(parts, stage, stage.after), _sends(parts, stage, stage.before)
        key = tuple(map(id, parts.layer_blocks(stage))), stage.embedding, stage.head, sends
        if key not in known or parts.later:
            known[key] = _pass_of(parts, stage, *sends)
        out.append(known[key])
    return out


def _pass_of(parts: Parts, stage: Stage, ahead: float, back: float) -> _PassTimes:
    """With the seconds that it waits for its messages *ahead* and *back*. Where a backward is not split, all of it
    counts as the half that others wait for."""
    shape = facts(parts.job.pipeline.schedule)
    rows = []
    for piece in parts.slices:
        blocks = [*([piece.embedding] if stage.embedding else []), *piece.layer_blocks(stage)]
        blocks += [piece.head] if stage.head else []
        seconds = partial(_seconds, piece, blocks, paired=shape.paired)
        if shape.split:
            rows.append((seconds("forward"), seconds("input_gradient"), seconds("weight_gradient")))
        else:
            rows.append((seconds("forward"), seconds("backward"), 0.0))
    forward, to_inputs, to_weights = (sum(column) for column in zip(*rows, strict=True))
    waits = len(rows) * ahead, len(rows) * back
    return _PassTimes(forward + waits[0], to_inputs + waits[1], to_weights, *rows[0][:2])


def _sends(parts: Parts, stage: Stage, to: int | None) -> float:
    """Seconds for which a pass waits until its result has been sent to another rank."""
    sent = parts.job.framework.communication
    if to is None or parts.stages[to].rank == stage.rank or parts.blocking or not sent.p2p_blocking:
        return 0.0
    return _message(parts) + sent.p2p_overhead


def _message(parts: Parts) -> float:
    """Seconds from the end of a pass until its result is on the next rank."""
    seconds = parts.network.seconds(Messages("forward", 1), "message", parts.message_bytes)
    sent = parts.job.framework.communication
    return seconds + sent.p2p_announcement if sent.p2p_blocking and not parts.blocking else seconds


def _seconds(parts: Parts, blocks: Sequence[Block], half: str, *, paired: bool) -> float:
    """Seconds of a pass through *blocks*; in a pair without the exchanges that the other pass may hide."""
    if paired:
        return sum(block_seconds(parts, block, half).main for block in blocks)
    if parts.job.detail == "op":
        name = {"input_gradient": "input_seconds", "weight_gradient": "weight_seconds"}.get(half, f"{half}_seconds")
        return float(sum(getattr(block, name) for block in blocks))
    return float(sum(sum(kernel.seconds for kernel in getattr(parts.coarse(block), half)) for block in blocks))


def _work(parts: Parts, rank: int, passes: Sequence[_PassTimes]) -> float:
    """Seconds that a pipeline rank works for one microbatch."""
    return sum(passes[stage.index].all for stage in parts.of_rank(rank))


# -- the end of a step -----------------------------------------------------------------------------------------------


def _ends(parts: Parts, passes: Sequence[_PassTimes], times: float) -> Iterable[float]:
    """When each pipeline rank is through with its step at the least: all ranks that differ in anything but place."""
    way = _ways(parts, passes)
    paired = facts(parts.job.pipeline.schedule).paired
    done, last, pairs = {}, 0.0, PairTimes(parts)
    for rank in range(parts.job.parallel.pp):
        stages = parts.of_rank(rank)
        head, tail = way[min(stage.index for stage in stages)]
        needed = sum(passes[s.index].forward + passes[s.index].to_inputs for s in stages)
        alone = times * sum(passes[s.index].all for s in stages)
        done[rank] = head + (max(alone, paired_seconds(pairs, rank)) if paired else alone)
        last = max(last, head + times * needed + tail)
    slowest = max(done, key=lambda rank: done[rank])
    plans = [plan_of(parts, rank) for rank in dict.fromkeys((slowest, 0))]
    closing = [_Closing.of(rank_plan) for rank_plan in plans]
    ends = [
        _end(rank_plan, closes, done[rank_plan.rank], passes, times)
        for rank_plan, closes in zip(plans, closing, strict=True)
        if not paired
    ]
    first = min(closing, key=lambda c: c.total) if parts.network.replicas > 1 else closing[-1]
    if _together(parts):  # all wait for each other before they update
        yield max(last, *done.values()) + max(c.update for c in closing)
    yield last + first.total if parts.network.replicas == 1 else last
    yield max(done.values())
    yield from ends


def _ways(parts: Parts, passes: Sequence[_PassTimes]) -> dict[int, tuple[float, float]]:
    """Virtual stage -> seconds in which a microbatch comes to it, and in which its gradient goes back from it."""
    message = _message(parts)
    out, head, tail = {}, 0.0, 0.0
    for stage in parts.stages:
        if stage.before is None or parts.network.replicas > 1:  # the other way round the pipeline is the shorter one
            head = tail = 0.0
        else:
            before = parts.stages[stage.before]
            sent = message if before.rank != stage.rank else 0.0
            head += passes[before.index].first_forward + sent
            tail += passes[before.index].first_to_inputs + sent
        out[stage.index] = head, tail
    return out


def _together(parts: Parts) -> bool:
    """Whether all pipeline ranks agree on a norm before they update."""
    sharding = parts.sharding(0)
    agree = bool(sharding.norms) and not any(isinstance(what, Skip) for what in parts.job.what_if)
    return agree and not parts.job.training.optimizer_in_backward and parts.network.has(agreeing(parts, sharding))


class _Closing(NamedTuple):
    """Seconds of what a rank does when its passes are over: reductions that nothing hides, and then its update, gathers
    in the open and the host's part."""

    reductions: float
    update: float

    @property
    def total(self) -> float:
        return self.reductions + self.update

    @classmethod
    def of(cls, rank_plan: RankPlan) -> _Closing:
        sharding, job = rank_plan.sharding, rank_plan.parts.job
        host = 0.0 if job.framework.host.cuda_graph else job.framework.host.step_seconds
        reductions = 0.0 if sharding.overlapped else _sum(rank_plan, sharding.reductions)
        if any(isinstance(what, Skip) for what in job.what_if) or job.training.optimizer_in_backward:
            return cls(reductions, host)
        gathers = 0.0 if sharding.gathers_overlapped else _sum(rank_plan, sharding.gathers)
        return cls(reductions, _optimizer(rank_plan) + gathers + host)


def _optimizer(rank_plan: RankPlan) -> float:
    """Seconds of the optimizer's kernels; of what the host does, and of copies, only what is certain: nothing."""
    if rank_plan.parts.job.sharding.offload.any:
        return 0.0
    return sum(i.seconds for i in optimizer_step(rank_plan, 0) if isinstance(i, Kernel))


def _sum(rank_plan: RankPlan, chunks: Sequence[Sequence[Bucket]]) -> float:
    return sum(_bucket(rank_plan, bucket) for buckets in chunks for bucket in buckets)


def _bucket(rank_plan: RankPlan, bucket: Bucket) -> float:
    """Seconds of a collective when all groups do it at once, which all replicas must have done by the end."""
    return rank_plan.parts.network.crowded_seconds(bucket.over, bucket.operation, bucket.nbytes)


def _end(rank_plan: RankPlan, closing: _Closing, done: float, passes: Sequence[_PassTimes], times: float) -> float:
    """When a rank is through, whose passes are over after *done* seconds."""
    sharding, stages = rank_plan.sharding, rank_plan.stages
    end = done + closing.total
    if sharding.flights:
        beside = max(_flights(rank_plan, times).values(), default=0.0)
        return max(end, beside + closing.update)
    if not sharding.overlapped or not any(sharding.reductions):
        return end
    highest = max(stages, key=lambda stage: stage.index)
    begins = done - times * sum(passes[s.index].to_inputs + passes[s.index].to_weights for s in stages)
    begins += (times - 1) * passes[highest.index].to_inputs
    return max(end, begins + _sum(rank_plan, sharding.reductions) + closing.update)


def _flights(rank_plan: RankPlan, times: float) -> dict[Queue, float]:
    """Chain beside the passes -> seconds of what it carries out in a step, where a rank has one stage."""
    out: dict[Queue, float] = {}
    if len(rank_plan.stages) > 1:
        return out
    ends = {(True, True): 1.0} if times == 1 else {(True, False): 1.0, (False, False): times - 2, (False, True): 1.0}
    for work, ((first, last), many) in product(("F", "B"), ends.items()):
        for flight in rank_plan.sharding.flights[Role(work, first, last)].flights:
            if flight.beside:
                out[flight.chain] = out.get(flight.chain, 0.0) + many * _flight(rank_plan, flight)
    return out


def _flight(rank_plan: RankPlan, flight: Flight) -> float:
    """Seconds of the collectives of a flight, alone."""
    seconds = rank_plan.parts.network.seconds
    return sum(seconds(s.over, s.operation, s.nbytes) for s in flight.steps if s.operation not in KERNELS)
