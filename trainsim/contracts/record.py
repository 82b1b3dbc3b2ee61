"""What a trace is made of: labels, runs and facts of tasks, each kept once, and what the engine writes of a chain."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trainsim.contracts.instructions import Kernel, Meet, Payload, Signal, Template, Wait

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

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
    """What a row stands for: spans at fixed offsets (seconds) from the row's start.

    ``alone`` is what each span takes where nobody shares its resources, if here somebody always does.
    """

    labels: tuple[Label, ...]
    posted: tuple[float, ...]
    starts: tuple[float, ...]
    ends: tuple[float, ...]
    alone: tuple[float, ...] = ()


class Passage(NamedTuple):
    """Rows of one chain that always follow each other in the same way: columns, one place per row.

    ``microbatch``, ``posted`` and ``start`` (seconds) count from those of the passage. Several chains go through
    passages at one time: ``cause`` is the row that let a row start, counted from the first that its chain has in there,
    and ``source`` the place of that chain among those who take part; -1 where the row before it did.
    """

    run: Ints
    microbatch: Ints
    posted: Floats
    start: Floats
    source: Ints
    cause: Ints

    @property
    def size(self) -> int:
        return len(self.run)


class Holding(NamedTuple):
    """Memory (bytes) that a task takes, or gives back (< 0), after *span* of its spans; ``waited``: after a wait that
    follows these; ``told``: before a signal that follows these, upon which another chain may give it back."""

    span: int
    category: str
    nbytes: float
    waited: bool
    told: bool


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
        (Holding(span=1, category='activations', nbytes=8.0, waited=False, told=False),)
        """
        timed, waits, signals = [0], [0], [0]
        for i in template.instructions:
            kind = type(i)
            timed.append(timed[-1] + (kind is Kernel or kind is Meet))
            waits.append(waits[-1] + (kind is Wait))
            signals.append(signals[-1] + (kind is Signal))
        if not template.holds:
            return cls(template.work, template.chunk, timed[-1])
        behind = {spans: at for at, spans in reversed(list(enumerate(timed)))}  # just behind the last of so many spans
        ahead = {spans: at for at, spans in enumerate(timed)}  # just ahead of the next
        net: dict[tuple[int, str, bool, bool], float] = {}  # what comes and goes between two spans was never there
        for at, hold in template.holds:
            waited, told = waits[at] > waits[behind[timed[at]]], signals[ahead[timed[at]]] > signals[at]
            key = timed[at], hold.category, waited, told
            net[key] = net.get(key, 0.0) + hold.nbytes
        holdings = [Holding(*key[:2], nbytes, *key[2:]) for key, nbytes in net.items() if nbytes]
        return cls(template.work, template.chunk, timed[-1], tuple(holdings))


class Tasks(NamedTuple):
    """The tasks of a chain in order, as columns; ``facts`` indexes ``Trace.facts``."""

    facts: Ints
    microbatch: Ints


class Extent(NamedTuple):
    """How long the columns of a record are at some moment."""

    table: int
    causes: int
    marked: int
    marks: int
    tasks: int
    bases: int
    hidden: int

    @property
    def rows(self) -> int:
        return self.table // 4 + self.hidden


class Period(NamedTuple):
    """What one period of a repeated stretch adds: seconds, microbatches, and rows by number of chain."""

    seconds: float
    microbatches: int
    rows: Ints


@dataclass(slots=True)
class Record:
    """One chain of one class, as the engine writes it. The table holds 4 numbers per entry: run, microbatch, posted,
    start.

    Most entries are a row. Where the run is negative, -1 - k, it is all rows of passage k: posted says when it begins,
    and start is where in ``bases`` those who take part begin: for each, in their order, the chain and how many rows it
    had until then. ``hidden`` counts the rows of passages that have no entry of their own.
    ``scales`` has the factor of each row's run where it is not 1 throughout. A literal row, one that had to share a
    resource, has the true ends of its spans in ``marks``: each but the first starts where the one before ends.
    ``marked`` says whose they are: row, number of marks. ``causes`` has row, chain and row there of whose end let a row
    start, where that was not the end of the row before. ``tasks[k]`` is the number of rows when task k was over.
    """

    table: array[float] = field(default_factory=lambda: array("d"))
    scales: array[float] = field(default_factory=lambda: array("d"))
    marked: array[int] = field(default_factory=lambda: array("q"))
    marks: array[float] = field(default_factory=lambda: array("d"))
    causes: array[int] = field(default_factory=lambda: array("q"))
    tasks: array[int] = field(default_factory=lambda: array("q"))
    bases: array[int] = field(default_factory=lambda: array("q"))
    hidden: int = 0

    def __len__(self) -> int:
        return len(self.table) // 4 + self.hidden

    def mark(self, row: int, ends: Sequence[float]) -> None:
        """Row *row* is literal; its spans end at *ends*."""
        self.marked.extend((row, len(ends)))
        self.marks.extend(ends)

    @property
    def extent(self) -> Extent:
        return Extent(len(self.table), len(self.causes), len(self.marked), len(self.marks), len(self.tasks),
                      len(self.bases), self.hidden)  # fmt: skip

    def repeat(self, since: Extent, number: int, times: int, period: Period) -> None:
        """Write all that was written *since* again, *times* times, each a period later. It is chain *number*."""
        rows, hidden = period.rows, self.hidden - since.hidden
        table, causes = _since(self.table, since.table, 4), _since(self.causes, since.causes, 3)
        marked, bases = _since(self.marked, since.marked, 2), _since(self.bases, since.bases, 2)
        start = np.where(table[:, 0] < 0, len(self.bases) - since.bases, period.seconds)
        _repeat(self.table, table, times, (0, period.microbatches, period.seconds, start))
        _repeat(self.causes, causes, times, (rows[number], 0, rows[causes[:, 1]]))
        _repeat(self.marked, marked, times, (rows[number], 0))
        _repeat(self.bases, bases, times, (0, rows[bases[:, 0]]))
        _repeat(self.marks, _since(self.marks, since.marks, 1), times, (period.seconds,))
        _repeat(self.tasks, _since(self.tasks, since.tasks, 1), times, (rows[number],))
        self.hidden += times * hidden


def _since(column: array[Any], since: int, width: int) -> npt.NDArray[Any]:
    """What *column* holds from *since* on, as a table so wide."""
    return np.array(column[since:], column.typecode).reshape(-1, width)


def _repeat(column: array[Any], last: npt.NDArray[Any], times: int, steps: Sequence[Any]) -> None:
    """Add the table *last* to *column*, *times* times, each time larger by *steps*: one for each of its columns."""
    step = np.zeros_like(last)
    for k, size in enumerate(steps):
        step[:, k] = size
    if len(last):
        more = np.arange(1, times + 1)[:, None, None] * step
        more += last
        column.frombytes(memoryview(more).cast("B"))
