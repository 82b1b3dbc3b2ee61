"""The rollout of a step: how long its parts take, how many sequences run at once, and what their cache holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainsim.analysis.lanes import Floats, Lane, Lanes
from trainsim.contracts.rollout import DECODE, PREFILL, SCORING, WEIGHTS
from trainsim.program.rollout import RolloutPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutUse:
    """Seconds of the mean rank in one step, tokens, and bytes on each GPU of an engine.

    ``weights_s`` is the way of the weights to the engines; ``generation_s`` is prefill and decode, and what
    stages of an engine wait for each other counts as decode. ``training_s`` is what follows until the last rank is
    done: passes, reductions and update. ``generated_tokens_per_s`` counts tokens of the responses over
    ``generation_s``. ``cache_unused`` is the part of the blocks in use that holds no token, in the mean.
    """

    weights_s: float
    prefill_s: float
    decode_s: float
    scoring_s: float
    generation_s: float
    training_s: float
    generated_tokens: int
    generated_tokens_per_s: float
    engines: int
    samples_per_engine: int
    running_sequences: int
    iterations: int
    waves: int
    preemptions: int
    weights_bytes: float
    workspace_bytes: float
    cache_bytes_per_token: float
    cache_bytes: float
    cache_peak_bytes: float
    cache_unused: float


def rollout_use(lanes: Lanes, plan: RolloutPlan) -> RolloutUse:
    """What the rollout of a simulated step comes to."""
    weights, prefill, scoring = (_mean(lanes, work, whole=False) for work in (WEIGHTS, PREFILL, SCORING))
    generation = _mean(lanes, PREFILL, DECODE, whole=not plan.rollout.separate)
    tokens = plan.rollout.samples * plan.rollout.response_length
    return RolloutUse(
        weights_s=weights,
        prefill_s=prefill,
        decode_s=generation - prefill,
        scoring_s=scoring,
        generation_s=generation,
        training_s=_training(lanes),
        generated_tokens=tokens,
        generated_tokens_per_s=tokens / generation if generation > 0 else 0.0,
        engines=plan.engines,
        samples_per_engine=plan.samples,
        running_sequences=plan.batching.running,
        iterations=plan.batching.iterations,
        waves=plan.batching.waves,
        preemptions=plan.batching.preemptions,
        weights_bytes=plan.fullest.weights,
        workspace_bytes=plan.fullest.workspace,
        cache_bytes_per_token=plan.fullest.token,
        cache_bytes=plan.fullest.room,
        cache_peak_bytes=plan.cache_peak,
        cache_unused=plan.unused,
    )


def _mean(lanes: Lanes, *works: str, whole: bool) -> float:
    """Seconds of tasks of some *works* on whatever chain, of the mean rank in one step; *whole*: with what is between
    two that follow each other."""
    total = sum(_seconds(lanes, lane, works, whole=whole) * int(lanes.count[lane.owner]) for lane in lanes.all)
    return float(total) / lanes.ranks / lanes.steps


def _seconds(lanes: Lanes, lane: Lane, works: tuple[str, ...], *, whole: bool) -> float:
    if lane.is_messages:
        return 0.0
    of = np.isin(np.array(lanes.works(lane), str), works)
    start, end = lanes.trace.task_times(lane.number)
    if not whole:
        return float((end - start)[of].sum())
    edges = np.diff(of.astype(np.int64), prepend=0, append=0)
    return float(end[np.flatnonzero(edges < 0) - 1].sum() - start[edges[:-1] > 0].sum())


def _training(lanes: Lanes) -> float:
    """Seconds from the end of a rollout until the last rank has done the update behind it, in the mean step."""
    begins, ends = list[Floats](), list[Floats]()
    for lane, updates in zip(lanes.compute, lanes.updates, strict=True):
        ends.append(lanes.trace.task_times(lane.number)[1][updates])
        begins.append(lane.end[lane.generates & ~np.append(lane.generates[1:], False)])  # rows that passes follow
    return float((np.max(ends, axis=0) - np.max(begins, axis=0)).sum()) / lanes.steps
