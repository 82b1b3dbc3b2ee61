"""What a GPU does, whatever waits for what: kernels, communication and copies as unions of intervals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trainsim.analysis.kinds import COLUMN, COMMUNICATION
from trainsim.analysis.lanes import Floats, Ints, Lanes

WORK = ("forward", "backward", "recompute", "optimizer", "other", "prefill", "decode", "scoring")
COPIES = ("copy", "offload")


class GpuUse(NamedTuple):
    """Seconds of one GPU in all steps together. It computes for ``computing_s``, is in collectives and messages
    (waiting for late peers included, as a kernel of NCCL does) for ``communicating_s``, of which ``hidden_s`` while it
    computes, copies for ``copying_s``, and does nothing of all this for ``idle_s``. ``kernels_s`` is the sum of all
    kernels that compute, those at one time counted each."""

    computing_s: float
    communicating_s: float
    hidden_s: float
    copying_s: float
    idle_s: float
    kernels_s: float

    @property
    def exposed_s(self) -> float:
        """Seconds of communication while nothing computes."""
        return self.communicating_s - self.hidden_s


def gpu_use(lanes: Lanes, c: int) -> GpuUse:
    """What the GPU of class *c* is at."""
    found = [lanes.trace.spans_of(lane.number) for lane in lanes.all if lane.owner == c and len(lane)]
    kind = np.concatenate([lanes.label_kind[spans.label] for spans in found])
    begin = np.concatenate([spans.posted for spans in found])
    start = np.concatenate([spans.start for spans in found])
    end = np.concatenate([spans.end for spans in found])
    work, talk, copy = (_of(kind, names) for names in (WORK, COMMUNICATION, COPIES))
    computing = covered(start[work], end[work])
    communicating = covered(begin[talk], end[talk])
    together = covered(np.append(start[work], begin[talk]), np.append(end[work], end[talk]))
    everything = np.concatenate([np.flatnonzero(of) for of in (work, talk, copy)])
    busy = covered(np.where(talk, begin, start)[everything], end[everything])
    return GpuUse(
        computing_s=computing,
        communicating_s=communicating,
        hidden_s=computing + communicating - together,
        copying_s=covered(start[copy], end[copy]),
        idle_s=lanes.duration - busy,
        kernels_s=float((end - start)[work].sum()),
    )


def _of(kind: Ints, names: tuple[str, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return np.isin(kind, [COLUMN[name] for name in names])


def covered(start: Floats, end: Floats) -> float:
    """Seconds in which at least one of some intervals is under way.

    >>> covered(np.array([0.0, 1.0, 5.0]), np.array([2.0, 3.0, 6.0]))
    4.0
    """
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    before = np.append(-np.inf, end[:-1])[: len(end)]
    return float(np.maximum(0.0, end - np.maximum(start, before)).sum())
