"""What each rank holds over time, and whether it fits."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from trainsim.analysis.lanes import Floats, Ints, Lane, Lanes

CATEGORIES = ("weights", "gradients", "optimizer", "activations", "buffers", "temporary", "framework")

NOT_COUNTED = (
    "fragmentation and rounding of the allocator",
    "workspaces of libraries beyond the framework's constant (cuBLAS, NCCL channels)",
    "memory of other processes on the GPU",
)
"""What a prediction leaves out; the measured peak is above the predicted one by that much."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageMemory:
    """The fullest rank of one pipeline stage, at the moment at which it holds most; bytes.

    ``times`` (s) and ``held`` (bytes) are the level of everything that is resident: it changes where a pass
    starts or ends. ``top`` adds what a pass needs for itself while it runs.
    """

    stage: int
    rank: int
    weights: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float
    temporary: float
    framework: float
    peak: float
    peak_at_s: float
    times: Floats = field(repr=False)
    held: Floats = field(repr=False)
    top: Floats = field(repr=False)

    @property
    def largest(self) -> str:
        """The category that takes most at the peak."""
        return max(CATEGORIES, key=self.part)

    @property
    def most_activations(self) -> float:
        """The most that is kept from forward to backward passes, at whatever moment; bytes."""
        return float(self.held.max() - self.held[0])

    def part(self, category: str) -> float:
        """Bytes of one of CATEGORIES at the peak."""
        return float(getattr(self, category))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MemoryUse:
    """Memory of the whole job: the fullest rank is what must fit. Bytes."""

    peak: float
    capacity: float
    peak_rank: int
    per_stage: tuple[StageMemory, ...]
    not_counted: tuple[str, ...] = NOT_COUNTED

    @property
    def fits(self) -> bool:
        return self.peak <= self.capacity

    @property
    def fullest(self) -> StageMemory:
        """The stage that holds most."""
        return max(self.per_stage, key=lambda stage: stage.peak)


def memory(lanes: Lanes, capacity: float) -> MemoryUse:
    """The level of every class over the step; of each stage the fullest class is kept."""
    fullest: dict[int, StageMemory] = {}
    for c, lane in enumerate(lanes.compute):
        one = _class(lanes, c, lane)
        if one.stage not in fullest or one.peak > fullest[one.stage].peak:
            fullest[one.stage] = one
    per_stage = tuple(fullest[s] for s in sorted(fullest))
    top = max(per_stage, key=lambda stage: stage.peak)
    return MemoryUse(peak=top.peak, capacity=capacity, peak_rank=top.rank, per_stage=per_stage)


def _class(lanes: Lanes, c: int, lane: Lane) -> StageMemory:
    static = lanes.program[c].memory
    tasks = lanes.trace.tasks[lane.number]
    templates = {id(t.template): t.template for t in tasks}
    change = {key: (t.allocates, t.frees, t.transient) for key, t in templates.items()}
    of = np.array([change[id(t.template)] for t in tasks] or np.zeros((0, 3)), np.float64)
    start, end = task_bounds(lane, lanes.trace.rows[lane.number].tasks)
    before = np.cumsum(of[:, 0]) - np.concatenate([[0.0], np.cumsum(of[:, 1])[:-1]])[: len(of)]  # while task k runs
    after = before - of[:, 1]
    times = np.concatenate([[0.0], np.stack([start, end], 1).ravel(), [lanes.duration]])
    held = static.total + np.concatenate(
        [[0.0], np.stack([before, after], 1).ravel(), after[-1:] if len(after) else [0.0]]
    )
    top = held.copy()
    top[1:-1:2] += of[:, 2]
    at = int(top.argmax())
    temporary = float(top[at] - held[at])
    return StageMemory(
        stage=int(lanes.stage[c]), rank=int(lanes.trace.representative[c]),
        weights=static.weights, gradients=static.gradients, optimizer=static.optimizer, buffers=static.buffers,
        framework=static.framework, activations=float(held[at] - static.total), temporary=temporary,
        peak=float(top[at]), peak_at_s=float(times[at]), times=times, held=held, top=top,
    )  # fmt: skip


def task_bounds(lane: Lane, ended: object) -> tuple[Floats, Floats]:
    """When each task of a chain posted its first span and when its last one ended; a task without spans has
    no length."""
    stop: Ints = np.array(ended, np.int64)
    first = np.concatenate([[0], stop[:-1]]).astype(np.int64)[: len(stop)]
    ends = np.concatenate([[0.0], lane.end])
    end = ends[stop]
    start = np.where(stop > first, np.concatenate([lane.posted, [0.0]])[np.minimum(first, len(lane))], ends[first])
    return start, end
