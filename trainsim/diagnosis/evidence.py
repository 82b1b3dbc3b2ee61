"""What causes are judged by: what each worker usually takes, and how far single passes are off that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainsim.diagnosis.alike import AlikeSteps
from trainsim.diagnosis.job_replay import Durations, JobReplay
from trainsim.diagnosis.operations import BACKWARD, FORWARD, NUMBER, Floats, Ints
from trainsim.diagnosis.thresholds import threshold

DIRECTIONS = (NUMBER[FORWARD], NUMBER[BACKWARD])
"""The types of passes: rows 0 and 1 of everything that is kept by direction."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is derived from the replay of a job, each thing once."""

    replay: JobReplay

    @property
    def workers(self) -> tuple[tuple[int, int, int], ...]:
        """(dp_rank, lane, stage) of each worker."""
        return self.replay.table.workers

    @cached_property
    def stage(self) -> Ints:
        """The stage of each worker."""
        return np.array(self.workers, np.int64)[:, 2]

    @cached_property
    def worker_passes(self) -> Floats:
        """Mean seconds of a forward (row 0) and backward of each worker; NaN where it has none."""
        total, count = np.zeros((2, 2, len(self.workers)))
        for part, own in zip(self.replay.parts, self.replay.own, strict=True):
            for row, number in enumerate(DIRECTIONS):
                which = part.structure.type == number
                np.add.at(total[row], part.structure.worker[which], own[which].sum(axis=1))
                np.add.at(count[row], part.structure.worker[which], float(own.shape[1]))
        with np.errstate(invalid="ignore", divide="ignore"):
            mean: Floats = total / count
        return mean

    @cached_property
    def uncertainty(self) -> Floats:
        """Standard error of what a pass of each worker takes, as a part of it: passes that scatter tell less."""
        out = np.zeros(len(self.workers))
        for worker in range(len(self.workers)):
            off = [
                (own[which] / self.worker_passes[row, worker]).ravel()
                for part, own in zip(self.replay.parts, self.replay.own, strict=True)
                for row, number in enumerate(DIRECTIONS)
                if (which := (part.structure.worker == worker) & (part.structure.type == number)).any()
                and self.worker_passes[row, worker] > 0
            ]
            every = np.concatenate(off) if off else np.ones(1)
            out[worker] = every.std() / (len(every) / 2) ** 0.5
        return out

    @cached_property
    def stage_passes(self) -> Floats:
        """The same of each stage: the median of its workers, of two the faster, so that one slow worker does not
        matter."""
        out = np.full((2, self.replay.table.shape.pp), np.nan)
        for stage in np.unique(self.stage).tolist():
            out[:, stage] = _median(self.worker_passes[:, self.stage == stage])
        return out

    def scaled(self, factor: Floats) -> Durations:
        """Own durations with the passes of each worker multiplied: *factor* has a row per direction."""
        return self._passes(lambda own, row, workers: own * factor[row, workers][:, None])

    @cached_property
    def steady(self) -> Durations:
        """Own durations with every pass as long as is usual for its worker: microbatches and steps are alike."""
        usual = self._usual_passes
        return self._passes(lambda own, row, workers: np.broadcast_to(usual[row, workers][:, None], own.shape))

    @property
    def _usual_passes(self) -> Floats:
        """The mean pass of each worker; that of its whole stage where it differs no more than by chance."""
        usual = self.worker_passes.copy()
        for stage in np.unique(self.stage).tolist():
            its = np.flatnonzero(self.stage == stage)
            its = its[~np.isnan(usual[:, its]).any(axis=0)]
            mean = self.worker_passes[:, its].mean(axis=1, keepdims=True)
            if not mean.sum() > 0:
                continue
            ratio = self.worker_passes[:, its].sum(axis=0) / mean.sum()
            alike = its[np.abs(ratio - 1.0) <= threshold("certain") * self.uncertainty[its]]
            usual[:, alike] = mean
        return usual

    def _passes(self, change: Callable[[Floats, int, Ints], Floats]) -> Durations:
        """Own durations with those of passes put through *change*."""
        out = []
        for part, own in zip(self.replay.parts, self.replay.own, strict=True):
            changed = own.copy()
            for row, number in enumerate(DIRECTIONS):
                which = part.structure.type == number
                changed[which] = change(own[which], row, part.structure.worker[which])
            out.append(changed)
        return tuple(out)

    @cached_property
    def off(self) -> Floats:
        """Rows forward, backward, and number of the input (replica, microbatch, step) of every pass that has both: how
        many times as long as usual for its worker and chunk they took."""
        columns = [_off(part, own) for part, own in zip(self.replay.parts, self.replay.own, strict=True)]
        first = 0.0
        for some in columns:
            some[2] += first
            first = some[2].max(initial=first - 1) + 1
        return np.concatenate(columns, axis=1)

    @cached_property
    def directions_together(self) -> float:
        """Correlation of forward and backward of the same pass."""
        return correlation(self.off[0], self.off[1])

    @cached_property
    def stages_together(self) -> float:
        """Correlation of a pass with those of the same input on the other stages; NaN where there is one stage."""
        both = self.off[:2].mean(axis=0)
        inputs = self.off[2].astype(np.int64)
        total = np.bincount(inputs, both)
        count = np.bincount(inputs)
        many = count[inputs] > 1
        if not many.any():
            return float("nan")
        others = (total[inputs] - both)[many] / (count[inputs] - 1)[many]
        return correlation(both[many], others)

    @cached_property
    def delays(self) -> Mapping[int, Floats]:
        """Mean launch delay of each worker in a step, seconds, by type of operation."""
        table, out = self.replay.table, dict[int, Floats]()
        for part in self.replay.parts:
            started, ended = table.start[part.rows], table.end[part.rows]
            late = np.maximum(started - part.solver.ready(ended), 0.0).sum(axis=1) / len(self.replay.steps)
            for number in np.unique(part.structure.type).tolist():
                which = part.structure.type == number
                of_type = out.setdefault(number, np.zeros(len(self.workers)))
                np.add.at(of_type, part.structure.worker[which], late[which])
        return out


def correlation(a: Floats, b: Floats) -> float:
    """Pearson's; 0 where one of them does not vary.

    >>> correlation(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0])), correlation(np.ones(3), np.ones(3))
    (1.0, 0.0)
    """
    if len(a) < 2 or a.std() == 0 or b.std() == 0:
        return 0.0
    return round(float(np.corrcoef(a, b)[0, 1]), 12)


def _median(values: Floats) -> Floats:
    known = values[:, ~np.isnan(values).any(axis=0)]
    middle: Floats = np.quantile(known, 0.5, axis=1, method="lower") if known.size else np.full(len(values), np.nan)
    return middle


def _off(part: AlikeSteps, own: Floats) -> Floats:
    """The rows of ``Evidence.off`` for steps of one structure."""
    structure = part.structure
    columns = zip(structure.worker.tolist(), structure.type.tolist(), structure.model_chunk.tolist(),
                  structure.microbatch.tolist(), strict=True)  # fmt: skip
    at = {key: k for k, key in enumerate(columns)}
    pairs = [(k, at[other], *key) for key, k in at.items()
             if key[1] == DIRECTIONS[0] and (other := (key[0], DIRECTIONS[1], *key[2:])) in at]  # fmt: skip
    if not pairs:
        return np.zeros((3, 0))
    forward, backward, worker, _, chunk, microbatch = np.array(pairs, np.int64).T
    usual = np.unique(np.stack([worker, chunk]), axis=1, return_inverse=True)[1].reshape(-1)
    places = np.array(structure.workers, np.int64)[worker]
    replica = np.unique(np.stack([places[:, 0], places[:, 1], microbatch]), axis=1, return_inverse=True)[1].reshape(-1)
    steps = own.shape[1]
    number = replica[:, None] * steps + np.arange(steps)
    rows = [_over_mean(own[some], usual) for some in (forward, backward)]
    return np.stack([row.ravel() for row in (*rows, number.astype(np.float64))])


def _over_mean(own: Floats, kind: Ints) -> Floats:
    """Each duration over the mean of its kind."""
    mean = np.bincount(kind, own.mean(axis=1)) / np.bincount(kind)
    over: Floats = own / np.where(mean > 0, mean, 1.0)[kind][:, None]
    return over
