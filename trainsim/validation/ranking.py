"""Whether layouts come out in order: pairs of runs of a model on as many GPUs, and what a wrong best costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from statistics import mean
from typing import NamedTuple

from trainsim.validation.scores import RunScore

SAME = 0.02
"""Layouts whose published times per sequence differ by less are alike: repeated runs differ by as much."""
WHAT = ("source", "model_name", "layers", "gpu", "num_gpus", "seq_len", "precision", "framework")
"""Columns that have to be equal for two rows to differ in their layout only; ``source`` names the release too."""

LAYOUT = (
    "tp", "pp", "dp", "cp", "ep", "vpp", "micro_batch", "global_batch", "zero_stage", "zero_note", "recompute",
    "sequence_parallel",
)  # fmt: skip
"""Columns in which they then differ."""


class Ranking(NamedTuple):
    """Of some scores: the number of pairs, the part of them in the right order, the number of groups, and by how much
    longer the layout predicted to be best takes than the best (mean and largest over groups)."""

    pairs: int
    in_order: float
    groups: int
    regret: float
    largest_regret: float


def ranking(scores: Iterable[RunScore]) -> Ranking | None:
    """The ranking of all groups that have two different layouts; None where there is none."""
    groups = [group for group in _groups(scores) if len(group) > 1]
    pairs = [right for group in groups for right in _pairs(group)]
    if not pairs:
        return None
    regrets = [_regret(group) for group in groups]
    return Ranking(len(pairs), sum(pairs) / len(pairs), len(groups), mean(regrets), max(regrets))


def _groups(scores: Iterable[RunScore]) -> list[list[tuple[float, float]]]:
    """(published, predicted) seconds per sequence of the layouts of each group; repeated layouts by their mean."""
    found: dict[tuple[str, ...], dict[tuple[str, ...], list[tuple[float, float]]]] = {}
    for score in scores:
        if score.predicted and score.published:
            run, batch = score.run, score.run.wanted("global_batch")
            key = tuple(run.text(column) for column in WHAT)
            layout = tuple(run.text(column) for column in LAYOUT)
            found.setdefault(key, {}).setdefault(layout, []).append((score.published / batch, score.predicted / batch))
    return [[_mean(times) for times in layouts.values()] for layouts in found.values()]


def _mean(times: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return mean(published for published, _ in times), mean(predicted for _, predicted in times)


def _pairs(group: Sequence[tuple[float, float]]) -> Iterable[bool]:
    """For each pair that was published as different: whether it is predicted in that order."""
    for (a, predicted_a), (b, predicted_b) in combinations(group, 2):
        if abs(a / b - 1.0) > SAME:
            yield (a < b) == (predicted_a < predicted_b)


def _regret(group: Sequence[tuple[float, float]]) -> float:
    """How much longer the layout predicted to be best takes than the one that is.

    >>> _regret([(1.0, 2.0), (1.1, 1.9)]) > 0.09
    True
    """
    chosen, _ = min(group, key=lambda times: times[1])
    return chosen / min(published for published, _ in group) - 1.0
