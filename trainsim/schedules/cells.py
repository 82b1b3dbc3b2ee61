"""
Orders as text: PyTorch's compute-only cells, ``[stage][F|B|I|W][microbatch]``, one row per rank.

Two cells that run at once are one cell of their own: ``(0F7;7B3)OVERLAP_F_B``. The format is that of
``torch.distributed.pipelining`` (schedule CSV files, ``_Action``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from trainsim.errors import InvalidPlan
from trainsim.schedules import Pair, Slot, Work, flat, schedules
from trainsim.schedules.placement import StagePlacement, stage_of

_WORKS = {work.value: work for work in Work}
_CELL = re.compile(r"(\d{1,5})([FBIW])(\d{1,5})", re.ASCII)
_PAIR = re.compile(r"\((\d{1,5}F\d{1,5});(\d{1,5}B\d{1,5})\)OVERLAP_F_B", re.ASCII)


class Cell(NamedTuple):
    """One pass of a microbatch over a stage; stages count along the whole pipeline."""

    stage: int
    work: Work
    microbatch: int

    def __str__(self) -> str:
        """
        >>> str(Cell(5, Work.F, 3))
        '5F3'
        """
        return f"{self.stage}{self.work}{self.microbatch}"


class CellRows(list[list[str]]):
    """Cells per rank that remember which schedule they are: a list in every other way.

    ``name`` is the schedule's, ``numbers`` are what it was called with.
    """

    def __init__(self, rows: Iterable[list[str]], name: str, numbers: Mapping[str, int | None]):
        super().__init__(rows)
        self.name, self.numbers = name, dict(numbers)
        self._made = tuple(map(tuple, self))

    def unchanged(self) -> bool:
        """Whether the cells are still those of the schedule."""
        return tuple(map(tuple, self)) == self._made


def schedule(
    name: str,
    stages: int,
    microbatches: int,
    chunks: int | None = None,
    *,
    group: int | None = None,
    costs: Sequence[float] | None = None,
) -> CellRows:
    """The order of the schedule called *name* on *stages* ranks: a list of PyTorch's cells per rank.

    Stages are numbered along the pipeline: with several *chunks* (None: as many as the schedule has, or one), chunk c
    of rank r is stage ``c * stages + r``, or further up where the schedule lays stages in a V. In a two-way pipeline
    stages from *stages* on are the replicas that go up. ``group``: see ``Schedule``. ``costs``: times of forward, input
    gradient, weight gradient and message, for schedules that plan with them (None: 1, 1, 1, 0.001). Raises UnknownName
    and InvalidPlan.

    >>> schedule("1f1b", stages=2, microbatches=2)
    [['0F0', '0F1', '0B0', '0B1'], ['1F0', '1B0', '1F1', '1B1']]
    >>> schedule("zb-v", stages=1, microbatches=1)
    [['0F0', '1F0', '1I0', '1W0', '0I0', '0W0']]
    """
    facts = schedules.traits(name)
    chunks = facts.chunks or 1 if chunks is None else chunks
    schedules.check(name, stages, microbatches=microbatches, chunks=chunks, group=group)
    numbers = {"microbatches": microbatches, "chunks": chunks, "group": group}
    if costs is not None and not facts.planned:
        raise InvalidPlan(f"{schedules.canonical(name)} is the same whatever passes take; it takes no costs")
    order: Callable[..., Iterable[Slot | Pair]] = schedules[name]
    if facts.planned:
        order = partial(order, costs=costs)
    rows = (order(rank, stages, microbatches=microbatches, chunks=chunks, group=group) for rank in range(stages))
    texts = ([_text(item, facts.placement, rank, stages) for item in row] for rank, row in enumerate(rows))
    return CellRows(texts, schedules.canonical(name), numbers)


def cell_of(slot: Slot, placement: StagePlacement, rank: int, ranks: int) -> Cell:
    """The cell of *slot* on *rank*."""
    return Cell(stage_of(placement, rank, slot.chunk, ranks), slot.work, slot.microbatch)


def _text(item: Slot | Pair, placement: StagePlacement, rank: int, ranks: int) -> str:
    return format_cell([cell_of(slot, placement, rank, ranks) for slot in flat((item,))])


def parse_cell(text: str) -> tuple[Cell, ...]:
    """The cell that *text* writes: one pass, or the forward and the backward that overlap.

    >>> parse_cell("3I12")
    (Cell(stage=3, work=<Work.I: 'I'>, microbatch=12),)
    >>> print(*parse_cell("(0F7;7B3)OVERLAP_F_B"))
    0F7 7B3
    """
    match = _CELL.fullmatch(text.strip())
    if match:
        stage, work, microbatch = match.groups()
        return (Cell(int(stage), _WORKS[work], int(microbatch)),)
    pair = _PAIR.fullmatch(text.strip())
    if pair:
        return parse_cell(pair[1]) + parse_cell(pair[2])
    raise InvalidPlan(
        f"{text!r} is not a cell of a schedule; cells look like 0F1, 2B3, 0I1, 0W1 or (0F7;7B3)OVERLAP_F_B"
    )


def format_cell(cells: Sequence[Cell]) -> str:
    """The inverse of ``parse_cell``."""
    text = ";".join(map(str, cells))
    return f"({text})OVERLAP_F_B" if len(cells) == 2 else text


def parse_order(order: Iterable[Iterable[str]]) -> list[list[tuple[Cell, ...]]]:
    """All rows of an order; empty cells (PyTorch writes them for idle ticks) are left out."""
    if isinstance(order, str) or not isinstance(order, Iterable):
        raise InvalidPlan(f"an order is a list of cells per rank, such as [['0F0', '0B0']], not {order!r}")
    return [[parse_cell(text) for text in _texts(row) if text.strip()] for row in order]


def _texts(row: Iterable[str]) -> list[str]:
    cells = list(row) if isinstance(row, Iterable) and not isinstance(row, str) else [row]
    if isinstance(row, str) or not all(isinstance(text, str) for text in cells):
        raise InvalidPlan(f"a rank's row is a list of cells, such as ['0F0', '0B0'], not {row!r}")
    return cells
