"""Hosts that launch operations late: everything that an operation waits for is over, and it has not started."""

from __future__ import annotations

import numpy as np

from trainsim.diagnosis.causes import FoundCause, causes
from trainsim.diagnosis.evidence import Evidence
from trainsim.diagnosis.operations import COMPUTE_TYPES, TYPES
from trainsim.diagnosis.words import workers_named
from trainsim.units import format_time

KIND = "launch delays"


@causes.register(KIND)
def launch_delays(evidence: Evidence) -> FoundCause | None:
    """What is gained if every operation starts as soon as it can."""
    replay, delays = evidence.replay, evidence.delays
    measured = float(replay.measured_steps.mean())
    saved = measured - replay.step
    delays = {
        number: late for number, late in delays.items() if TYPES[number] in COMPUTE_TYPES
    }  # a receive may wait unseen
    total = sum(delays.values(), np.zeros(len(evidence.workers)))
    if saved <= 0 or not total.any():
        return None
    worst = int(total.argmax())
    kind = max(delays, key=lambda number: delays[number][worst])
    return FoundCause(
        kind=KIND, saved=saved,
        sentence=f"hosts launch operations late: {format_time(saved)} of a {format_time(measured)} step; most on "
        f"{workers_named(evidence.workers, [worst])}, {format_time(total[worst])} a step, before {TYPES[kind]}",
        suggestions=("check what the hosts do between operations: data loading, checkpoints, Python; CUDA graphs "
                     "and fewer, larger kernels make launches cheaper",),
    )  # fmt: skip
