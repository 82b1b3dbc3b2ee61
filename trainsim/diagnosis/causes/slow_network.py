"""Communication that takes longer than is usual for its type: a slow link, or traffic of others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainsim.diagnosis.causes import FoundCause, causes
from trainsim.diagnosis.evidence import Evidence
from trainsim.diagnosis.job_replay import Selection, types
from trainsim.diagnosis.operations import COMPUTE_TYPES, MESSAGE_TYPES, TYPES, types_called
from trainsim.diagnosis.structure import StepStructure
from trainsim.diagnosis.thresholds import threshold
from trainsim.diagnosis.words import slower, workers_named
from trainsim.units import format_time

KIND = "slow network"


Route = tuple[int, ...]
"""The workers between which communication takes place, ascending."""


@causes.register(KIND)
def slow_network(evidence: Evidence) -> FoundCause | None:
    """What is gained if all communication takes its usual time, and where most of that is lost."""
    replay = evidence.replay
    communications = types(*(name for name in TYPES if name not in COMPUTE_TYPES))
    saved = replay.step - replay.without(communications)
    if saved <= 0:
        return None
    alone = {name: slowdown for name, slowdown in replay.by_operation.items() if name not in COMPUTE_TYPES}
    worst = max(alone, key=lambda name: alone[name])
    found = _worst_route(evidence, worst)
    if found is None or found[1] < threshold("slower_link"):
        others = found is not None and len(found[0]) > 1
        where = "but between no particular pair of workers" if others else "and the other ends are not in the table"
        return FoundCause(
            kind=KIND, saved=saved, sentence=f"communication is slow at times, mostly {worst}, {where}",
            suggestions=("look for other traffic on the network at those times, and for links with errors",),
        )  # fmt: skip
    route, ratio, seconds, usual = found
    where = ("between " if len(route) > 1 else "of ") + workers_named(evidence.workers, route)
    return FoundCause(
        kind=KIND, saved=saved,
        sentence=f"the network is slow: {worst} {where} takes {format_time(seconds)}, {slower(ratio)} "
        f"the usual {format_time(usual)}",
        suggestions=(f"test the links {where}: a NIC at a reduced rate, a cable with errors, a busy switch",),
    )  # fmt: skip


def _worst_route(evidence: Evidence, name: str) -> tuple[Route, float, float, float] | None:
    """Of communications called *name* the route that loses most: it, its mean over the usual time, both in seconds.
    None if no message has its other end in the table."""
    total, kinds = dict[Route, tuple[float, int]](), types_called(name)
    for part, own in zip(evidence.replay.parts, evidence.replay.own, strict=True):
        for route, operations in _routes(part.structure, types(*kinds)):
            seconds, count = total.get(route, (0.0, 0))
            total[route] = seconds + float(own[operations].sum()), count + own[operations].size
    if not total:
        return None
    usual = float(np.mean([evidence.replay.usual[kind] for kind in kinds if kind in evidence.replay.usual]))
    route = max(total, key=lambda some: total[some][0] - usual * total[some][1])
    mean = total[route][0] / total[route][1]
    return route, mean / usual if usual else np.inf, mean, usual


def _routes(structure: StepStructure, meant: Selection) -> Iterator[tuple[Route, list[int]]]:
    """The operations of each meeting, by the workers that take part."""
    by_meeting: dict[int, list[int]] = {}
    for k in np.flatnonzero(meant(structure)).tolist():
        by_meeting.setdefault(int(structure.meeting[k]), []).append(k)
    for operations in by_meeting.values():
        if len(operations) > 1 or TYPES[structure.type[operations[0]]] not in MESSAGE_TYPES:
            yield tuple(sorted(structure.worker[operations].tolist())), operations
