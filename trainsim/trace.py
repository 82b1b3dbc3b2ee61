"""
Contract 2: what happened, folded. One row per run of spans and class of ranks; spans are expanded on demand.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trainsim.program.instructions import Task

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Label(NamedTuple):
    """What a span is, whatever the microbatch."""

    name: str
    kind: str
    stream: str
    layer: int


class Run(NamedTuple):
    """What a row stands for: spans at fixed offsets (seconds) from the row's start."""

    labels: tuple[Label, ...]
    posted: tuple[float, ...]
    starts: tuple[float, ...]
    ends: tuple[float, ...]


@dataclass(slots=True)
class Rows:
    """One chain of one class. The table holds 4 numbers per row: run, microbatch, posted, start.

    ``marks`` are the true ends of the spans of rows that had to share a resource. ``causes`` say which row, of
    which chain, let a row start, where it was not the row before. ``tasks[k]`` is the number of rows in the table
    when task k of the program ended.
    """

    table: array[float] = field(default_factory=lambda: array("d"))
    marks: dict[int, list[float]] = field(default_factory=dict)
    causes: dict[int, tuple[int, int]] = field(default_factory=dict)
    tasks: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.table) // 4


class Spans(NamedTuple):
    """Spans as equally long columns, in the order of the chain. ``label`` indexes ``Trace.labels``."""

    label: Ints
    microbatch: Ints
    posted: Floats
    start: Floats
    end: Floats


class Tasks(NamedTuple):
    """Tasks of a chain as columns: when its first span was posted, when it started, when the last one ended."""

    microbatch: Ints
    posted: Floats
    start: Floats
    end: Floats


@dataclass(kw_only=True)
class Trace:
    """The step of every rank: ``rank_class`` says whose rows are a rank's.

    ``chains`` numbers the pairs (class, chain name); ``rows[k]`` belong to ``chains[k]``, and so do the
    ``tasks[k]`` of the program. Messages have rows of their own under the chain name ``send:<communicator>``,
    without tasks, in the order in which they ended.
    """

    rank_class: Ints
    representative: Ints
    runs: list[Run]
    chains: tuple[tuple[int, str], ...]
    rows: tuple[Rows, ...]
    tasks: tuple[tuple[Task, ...], ...]
    events: int = 0

    @cached_property
    def number(self) -> dict[tuple[int, str], int]:
        return {chain: k for k, chain in enumerate(self.chains)}

    @property
    def classes(self) -> int:
        return len(self.representative)
