"""What a trace is made of: labels, runs and facts of tasks, each kept once, and what the engine writes of a chain."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trainsim.contracts.instructions import Kernel, Meet, Payload, Template, Wait

Ints = npt.NDArray[np.int64]

COMPUTE = "compute"
"""The chain that does a rank's work."""


class Label(NamedTuple):
    """What a span is, whatever the microbatch; ``payloads`` if it moves bytes between ranks."""

    name: str
    kind: str
    stream: str
    layer: int
    payloads: tuple[Payload, ...] = ()


class Run(NamedTuple):
    """What a row stands for: spans at fixed offsets (seconds) from the row's start."""

    labels: tuple[Label, ...]
    posted: tuple[float, ...]
    starts: tuple[float, ...]
    ends: tuple[float, ...]


class Holding(NamedTuple):
    """Memory (bytes) that a task takes, or gives back (< 0), after *span* of its spans; ``waited``: after a wait that
    follows these."""

    span: int
    category: str
    nbytes: float
    waited: bool


class TaskFacts(NamedTuple):
    """What a task is, whatever the microbatch: ``work`` is a pass of the schedule or the name of a phase."""

    work: str
    chunk: int
    spans: int = 0
    holdings: tuple[Holding, ...] = ()

    @classmethod
    def of(cls, template: Template) -> TaskFacts:
        """The facts of a task that carries out *template*.

        >>> from trainsim.contracts.instructions import Hold
        >>> template = Template.of("F", 0, [Kernel("k", "forward", 1.0), Hold("activations", 8.0)])
        >>> TaskFacts.of(template).holdings
        (Holding(span=1, category='activations', nbytes=8.0, waited=False),)
        """
        timed = [0, *_counted(isinstance(i, Kernel | Meet) for i in template.instructions)]
        waits = [0, *_counted(isinstance(i, Wait) for i in template.instructions)]
        behind = {spans: at for at, spans in reversed(list(enumerate(timed)))}  # just behind the last of so many spans
        net: dict[tuple[int, str, bool], float] = {}  # what is taken and given back between two spans was never there
        for at, hold in template.holds:
            key = timed[at], hold.category, waits[at] > waits[behind[timed[at]]]
            net[key] = net.get(key, 0.0) + hold.nbytes
        holdings = [Holding(span, name, nbytes, waited) for (span, name, waited), nbytes in net.items() if nbytes]
        return cls(template.work, template.chunk, timed[-1], tuple(holdings))


def _counted(flags: Iterable[bool]) -> Iterator[int]:
    return accumulate(map(int, flags))


class Tasks(NamedTuple):
    """The tasks of a chain in order, as columns; ``facts`` indexes ``Trace.facts``."""

    facts: Ints
    microbatch: Ints


@dataclass(slots=True)
class Record:
    """One chain of one class, as the engine writes it. The table holds 4 numbers per row: run, microbatch, posted,
    start.

    ``scales`` has the factor of each row's run where it is not 1 throughout. ``marks[row]`` are the true ends of the
    spans of a literal row, one that had to share a resource: each but the first starts where the one before ends.
    ``causes[row]`` is the (chain, row) whose end let a row start, where that was not the end of the row before.
    ``tasks[k]`` is the number of rows in the table when task k was over.
    """

    table: array[float] = field(default_factory=lambda: array("d"))
    scales: array[float] = field(default_factory=lambda: array("d"))
    marks: dict[int, list[float]] = field(default_factory=dict)
    causes: dict[int, tuple[int, int]] = field(default_factory=dict)
    tasks: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.table) // 4
