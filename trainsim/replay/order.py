"""
An order to replay, checked: every stage on one rank, every pass once, nothing before what it needs on its own rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from trainsim.errors import InvalidPlan, NotBuilt
from trainsim.schedules import Work
from trainsim.schedules.cells import Cell, format_cell, parse_order

Cells = tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Cells of each rank, and the rank of each stage; a cell is one pass or an overlapped pair of two."""

    rows: tuple[tuple[Cells, ...], ...]
    rank_of: tuple[int, ...]
    microbatches: int

    @property
    def ranks(self) -> int:
        return len(self.rows)

    @property
    def stages(self) -> int:
        return len(self.rank_of)

    @property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The order as PyTorch's cells."""
        return tuple(tuple(map(format_cell, row)) for row in self.rows)


def read_order(order: Iterable[Iterable[str]]) -> Order:
    """The order that the *cells* of each rank write.

    Raises InvalidPlan, naming the cell, where it is not a complete order of forward and backward passes of one chain
    of stages; NotBuilt where stages are replicas of each other (bidirectional pipelines).
    """
    rows = tuple(tuple(row) for row in parse_order(order))
    if not any(rows):
        raise InvalidPlan("an order needs a cell on one rank at least, such as [['0F0', '0B0']]")
    rank_of = _placement(rows)
    microbatches = 1 + max(cell.microbatch for row in rows for cells in row for cell in cells)
    checked = Order(rows=rows, rank_of=rank_of, microbatches=microbatches)
    _complete(checked)
    _in_turn(checked)
    return checked


def _each(rows: tuple[tuple[Cells, ...], ...]) -> Iterator[tuple[int, Cell]]:
    return ((rank, cell) for rank, row in enumerate(rows) for cells in row for cell in cells)


def _placement(rows: tuple[tuple[Cells, ...], ...]) -> tuple[int, ...]:
    rank_of: dict[int, int] = {}
    for rank, cell in _each(rows):
        if rank_of.setdefault(cell.stage, rank) != rank:
            raise InvalidPlan(
                f"cell {cell} is on rank {rank}, but stage {cell.stage} is on rank {rank_of[cell.stage]}; "
                "a stage has one rank"
            )
    missing = sorted(set(range(max(rank_of) + 1)) - set(rank_of))
    if missing:
        raise InvalidPlan(f"no rank has stage {missing[0]}; stages count from 0 to {max(rank_of)} without a gap")
    return tuple(rank_of[stage] for stage in range(len(rank_of)))


def _complete(order: Order) -> None:
    """Every stage does every microbatch: once forward, once back in one piece or in two."""
    cells = [cell for _, cell in _each(order.rows)]
    seen = set(cells)
    if len(seen) < len(cells):
        twice = next(cell for cell, times in Counter(cells).items() if times > 1)
        raise InvalidPlan(f"cell {twice} is twice in the order; a pass is made once")
    passes = Counter(cell.work for cell in cells)
    back = {(cell.stage, cell.microbatch) for cell in cells if cell.work in (Work.B, Work.I)}
    whole = order.stages * order.microbatches
    if passes[Work.F] < whole:
        _refuse_forward(order, seen)
    if len(back) < whole or passes[Work.B] + passes[Work.I] > whole or passes[Work.I] != passes[Work.W]:
        _refuse_backward(order, seen)


def _refuse_forward(order: Order, seen: set[Cell]) -> NoReturn:
    if _two_ways(order, seen):
        raise NotBuilt(
            "this order sends microbatches through replicas of the stages in both directions; "
            "replay follows one chain of stages"
        )
    passes = (Cell(s, Work.F, b) for s in range(order.stages) for b in range(order.microbatches))
    missing = next(cell for cell in passes if cell not in seen)
    raise InvalidPlan(
        f"cell {missing} is missing; every stage does every microbatch from 0 to {order.microbatches - 1}"
    )


def _two_ways(order: Order, seen: set[Cell]) -> bool:
    """Each microbatch goes through the first or the second half of the stages, which mirror each other's ranks."""
    half, odd = divmod(order.stages, 2)
    if odd or order.rank_of[:half] != order.rank_of[: half - 1 : -1]:
        return False
    return all((Cell(0, Work.F, b) in seen) != (Cell(half, Work.F, b) in seen) for b in range(order.microbatches))


def _refuse_backward(order: Order, seen: set[Cell]) -> None:
    for stage in range(order.stages):
        for microbatch in range(order.microbatches):
            have = [work for work in Work if work is not Work.F and Cell(stage, work, microbatch) in seen]
            if have not in ([Work.B], [Work.I, Work.W]):
                raise InvalidPlan(
                    f"stage {stage} goes back through microbatch {microbatch} with {' and '.join(have) or 'nothing'}; "
                    f"it needs {stage}B{microbatch}, or {stage}I{microbatch} and {stage}W{microbatch}"
                )


def _in_turn(order: Order) -> None:
    """On its own rank a backward comes after its forward, a weight gradient after its input gradient."""
    needs = {Work.B: Work.F, Work.I: Work.F, Work.W: Work.I}
    done: set[Cell] = set()
    for row in order.rows:
        for cells in row:
            for cell in cells:
                before = needs.get(cell.work)
                if before and Cell(cell.stage, before, cell.microbatch) not in done:
                    raise InvalidPlan(f"cell {cell} comes before {cell.stage}{before}{cell.microbatch} on its rank")
            done.update(cells)
