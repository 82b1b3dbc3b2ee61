"""Garbage collection of Python that operations wait for, where the table has it."""

from __future__ import annotations

import numpy as np

from trainsim.diagnosis.causes import FoundCause, causes
from trainsim.diagnosis.evidence import Evidence
from trainsim.diagnosis.job_replay import types
from trainsim.diagnosis.operations import COLLECTOR
from trainsim.diagnosis.words import workers_named
from trainsim.units import format_time

KIND = "garbage collection"


@causes.register(KIND)
def garbage_collection(evidence: Evidence) -> FoundCause | None:
    """What is gained if no garbage is collected."""
    replay, collected = evidence.replay, types(COLLECTOR)
    without = tuple(
        np.where(collected(part.structure)[:, None], 0.0, own)
        for part, own in zip(replay.parts, replay.own, strict=True)
    )
    saved = replay.step - replay.mean(without)
    if saved <= 0:
        return None
    taken = np.zeros(len(evidence.workers))
    for part, own in zip(replay.parts, replay.own, strict=True):
        which = collected(part.structure)
        np.add.at(taken, part.structure.worker[which], own[which].sum(axis=1) / len(replay.steps))
    worst = int(taken.argmax())
    return FoundCause(
        kind=KIND, saved=saved,
        sentence="Python's garbage collector runs on different workers at different times: "
        f"{format_time(float(taken.mean()))} per step on average, {format_time(taken[worst])} on "
        f"{workers_named(evidence.workers, [worst])}, and the others wait for it",
        suggestions=("collect at the same step on all ranks: gc.disable(), then gc.collect() every few hundred steps",),
    )  # fmt: skip
