"""
Lengths of documents that follow a distribution, drawn with a seed, and what becomes of them in sequences.

A distribution is a function in the registry ``distributions``; lengths are whole numbers of tokens, at least one.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log, sqrt
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from trainsim.errors import InvalidPlan
from trainsim.registry import Registry

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Draw: TypeAlias = "Callable[[np.random.Generator, float, float, int], Floats]"
"""Text, since importing numpy.random takes time that most scenarios need not spend."""
distributions: Registry[Draw] = Registry("distribution of lengths")

MOST_DRAWN = 1 << 20
"""Documents of a step that are drawn at most; a longer step has the same ones again."""
LONGEST = 1 << 32
"""Tokens of a document at most, so that sums of all of them are exact."""


@distributions.register("lognormal")
def lognormal(random: np.random.Generator, mean: float, deviation: float, count: int) -> Floats:
    """Lengths whose logarithms are normal: many short ones, few very long ones."""
    squared = log(1 + (deviation / mean) ** 2)
    return random.lognormal(log(mean) - squared / 2, sqrt(squared), count)


@distributions.register("normal")
def normal(random: np.random.Generator, mean: float, deviation: float, count: int) -> Floats:
    """Lengths on both sides of the mean alike. Raises InvalidPlan where many would be below zero."""
    if deviation > mean / 2:
        raise InvalidPlan(
            f"a normal distribution with a deviation of {deviation:g} around {mean:g} has lengths below 0; a deviation "
            f"of {mean // 2:g} or less would work, or distribution: lognormal"
        )
    return random.normal(mean, deviation, count)


@distributions.register("uniform")
def uniform(random: np.random.Generator, mean: float, deviation: float, count: int) -> Floats:
    """All lengths between two bounds alike. Raises InvalidPlan where the lower one would be below zero."""
    reach = deviation * sqrt(3)
    if reach > mean:
        raise InvalidPlan(
            f"a uniform distribution with a deviation of {deviation:g} around {mean:g} has lengths below 0; a "
            f"deviation of {mean // sqrt(3):g} or less would work, or distribution: lognormal"
        )
    return random.uniform(mean - reach, mean + reach, count)


def draw(distribution: str, *, mean: float, deviation: float, seed: int, count: int) -> Ints:
    """So many lengths, the same ones for the same seed. Raises UnknownName and InvalidPlan.

    >>> draw("uniform", mean=100, deviation=0, seed=0, count=3).tolist()
    [100, 100, 100]
    """
    lengths = distributions[distribution](np.random.default_rng(seed), mean, deviation, min(count, MOST_DRAWN))
    return np.clip(np.rint(lengths), 1, LONGEST).astype(np.int64)


class Packed(NamedTuple):
    """Documents in sequences: what a token's document has on average in all of them, in the sequence where it is most,
    and the documents of the step."""

    mean: float
    most: float
    documents: int


def packed(lengths: Ints, *, sequence_length: int, sequences: int) -> Packed:
    """*lengths* one after the other in *sequences*, cut where a sequence ends, and again from the first if they end.

    A document that is cut is two, each of which attends to itself.

    >>> packed(np.array([600, 600, 800]), sequence_length=1000, sequences=2)
    Packed(mean=600.0, most=680.0, documents=3)
    """
    ends = np.cumsum(lengths)
    total = sequence_length * sequences
    times = -(-total // int(ends[-1]))
    if times > 1:
        ends = (ends + ends[-1] * np.arange(min(times, MOST_DRAWN // len(ends) + 1))[:, None]).ravel()
        sequences = max(1, min(sequences, int(ends[-1]) // sequence_length))
        total = sequence_length * sequences
    documents = int(np.searchsorted(ends, total)) + 1
    cuts = np.sort(np.concatenate([[0], ends[ends < total], np.arange(1, sequences + 1) * sequence_length]))
    squares = np.bincount(cuts[:-1] // sequence_length, np.diff(cuts).astype(np.float64) ** 2, sequences)
    each = squares / sequence_length
    return Packed(float(each.mean()), float(each.max()), documents)


class Padded(NamedTuple):
    """Micro-batches of documents that are as long as the longest of each: their mean and greatest length, and the part
    of all positions that padding takes."""

    mean: float
    most: int
    padding: float


def padded(lengths: Ints, *, micro_batch: int, sequence_length: int, whole: bool = False) -> Padded:
    """*lengths* as sequences of their own, none longer than *sequence_length*; *whole*: all as long as that.

    >>> padded(np.array([100, 300, 300, 200]), micro_batch=2, sequence_length=400)
    Padded(mean=300.0, most=300, padding=0.25)
    """
    lengths = np.minimum(lengths, sequence_length)
    longest = lengths.reshape(-1, micro_batch).max(axis=1)
    if whole:
        longest = np.full_like(longest, sequence_length)
    used = float(lengths.sum()) / (micro_batch * float(longest.sum()))
    return Padded(float(longest.mean()), int(longest.max()), 1 - used)
