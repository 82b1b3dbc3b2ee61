"""What a rank holds over time, thinned for pictures: fewer moments, every peak kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from trainsim.analysis.lanes import Floats, Ints
from trainsim.analysis.memory import CATEGORIES, MemoryUse, StageMemory

LAST = ("gradients", "gathered", "activations", "logits", "kv_cache", "buffers", "temporary", "slack")
STACK = (*(category for category in reversed(CATEGORIES) if category not in LAST), *LAST)
"""Categories from the bottom of a picture to its top: what hardly changes lies below what comes and goes."""
MOST, ENDS = 16, 8
"""Stages that a picture has room for; of more, the first and the last ones."""


class Stairs(NamedTuple):
    """Levels that hold from each of ``times`` (s) on until the next, the last until ``end``; bytes, by category."""

    times: Floats
    levels: Mapping[str, Floats]
    end: float

    @property
    def top(self) -> Floats:
        """All categories together."""
        return np.sum([*self.levels.values()], axis=0) if self.levels else np.zeros(len(self.times))


class Edge(NamedTuple):
    """The upper edge of a category: its height ``level`` (bytes, with all that is below) from each of ``times`` on."""

    category: str
    times: Floats
    level: Floats


def edges(stairs: Stairs) -> Iterator[Edge]:
    """The upper edge of each category, the top one first: painted down to zero in this order, each covers the ones
    before it. Only moments at which an edge moves are in it."""
    height = stairs.top
    for category in reversed([*stairs.levels]):
        moves = np.append(True, height[1:] != height[:-1])
        yield Edge(category, stairs.times[moves], height[moves])
        height = height - stairs.levels[category]


def drawn(use: MemoryUse) -> tuple[StageMemory, ...]:
    """The stages that a picture shows."""
    some = use.per_stage
    return some if len(some) <= MOST else (*some[:ENDS], *some[-ENDS:])


def stairs(stage: StageMemory, window: tuple[float, float], most: int) -> Stairs:
    """The levels of *stage* in *window* (seconds) at no more than *most* moments.

    Where more happens, the window is cut into *most* columns, and of each the moment is kept at which most is held,
    with what it is made of: the picture is nowhere below the truth, and as high as it in every column.
    """
    names = [category for category in STACK if category in stage.levels]
    top = sum((stage.levels[name] for name in names), np.zeros(len(stage.times)))
    index, times = thinned(stage.times, top, window, most)
    return Stairs(times, {name: stage.levels[name][index] for name in names}, window[1])


def thinned(times: Floats, top: Floats, window: tuple[float, float], most: int) -> tuple[Ints, Floats]:
    """Which of the levels *top*, each held from its time on, to draw in *window* (seconds), and from when on.

    >>> thinned(np.array([0.0, 1.0, 2.0, 6.0, 7.0]), np.array([5.0, 8.0, 6.0, 9.0, 1.0]), (0.0, 10.0), 2)
    (array([1, 3]), array([0., 5.]))
    """
    start, end = window
    last = int(np.searchsorted(times, end, side="right"))
    first = int(_held(times, np.array([start]))[0])
    if last - first <= most:
        return np.arange(first, last), np.maximum(times[first:last], start)
    borders = np.array([start + (end - start) / most * k for k in range(most)])
    begins, ends = _held(times, borders), np.append(np.searchsorted(times, borders[1:]), last)
    index = np.array([a + int(top[a:b].argmax()) for a, b in zip(begins.tolist(), ends.tolist(), strict=True)])
    new = np.append(True, index[1:] != index[:-1])
    return index[new], borders[new]


def _held(times: Floats, at: Floats) -> Ints:
    """The level with which each of *at* begins: the first of those that begin then, else the one before."""
    before = np.maximum(np.searchsorted(times, at, side="right") - 1, 0)
    return np.where(times[before] == at, np.searchsorted(times, at), before)
