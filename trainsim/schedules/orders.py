"""
An order to replay, checked: every stage on one rank, every pass once, nothing before what it needs on its own rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import NoReturn

from trainsim.errors import InvalidPlan
from trainsim.schedules import Pair, Slot, Work
from trainsim.schedules.cells import Cell, format_cell, parse_order
from trainsim.schedules.placement import StagePlacement, place_of

Cells = tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Cells of each rank, and the rank of each stage; a cell is one pass or an overlapped pair of two.

    Stages are one chain, or ``two_way``: two chains of equal length, one microbatch going through one of them.
    """

    rows: tuple[tuple[Cells, ...], ...]
    rank_of: tuple[int, ...]
    microbatches: int
    two_way: bool = False

    @property
    def ranks(self) -> int:
        return len(self.rows)

    @property
    def stages(self) -> int:
        return len(self.rank_of)

    @property
    def chain(self) -> int:
        """Stages that a microbatch goes through."""
        return self.stages // 2 if self.two_way else self.stages

    @property
    def chunks(self) -> int:
        """Stages on a rank, where all ranks have as many."""
        return -(-self.stages // self.ranks)

    @property
    def placement(self) -> StagePlacement | None:
        """How stages are laid over the ranks; None where it is none of the usual ways."""
        usual = (
            (StagePlacement.TWO_WAY,) if self.two_way else (StagePlacement.LOOP, StagePlacement.V, StagePlacement.WAVE)
        )
        ranks = self.ranks
        for placement in usual:
            if all(place_of(placement, stage, ranks)[0] == rank for stage, rank in enumerate(self.rank_of)):
                return placement
        return None

    @property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The order as PyTorch's cells."""
        return tuple(tuple(map(format_cell, row)) for row in self.rows)

    def slots(self, rank: int) -> list[Slot | Pair]:
        """What *rank* does, as slots: its stages, in order along the pipeline, are its chunks."""
        own = [stage for stage, place in enumerate(self.rank_of) if place == rank]
        chunk_of = {stage: chunk for chunk, stage in enumerate(own)}
        rows = ([Slot(cell.work, cell.microbatch, chunk_of[cell.stage]) for cell in row] for row in self.rows[rank])
        return [Pair(*row) if len(row) == 2 else row[0] for row in rows]

    def follows(self, stage: int) -> int | None:
        """The stage that the activation of *stage* goes to."""
        return stage + 1 if (stage + 1) % self.chain else None

    def precedes(self, stage: int) -> int | None:
        """The stage that the gradient of *stage* goes to."""
        return stage - 1 if stage % self.chain else None


def read_order(order: Iterable[Iterable[str]], slices: int = 1) -> Order:
    """The order that the *cells* of each rank write; microbatches are cut into *slices* each.

    Raises InvalidPlan, naming the cell, where it is not a complete order of forward and backward passes through one
    chain of stages, or through one of two chains that mirror each other.
    """
    rows = tuple(tuple(row) for row in parse_order(order))
    if not any(rows):
        raise InvalidPlan("an order needs a cell on one rank at least, such as [['0F0', '0B0']]")
    rank_of = _placement(rows)
    microbatches = 1 + max(cell.microbatch for row in rows for cells in row for cell in cells)
    seen = {cell for _, cell in _each(rows)}
    two_way = _two_way(rank_of, seen, microbatches)
    checked = Order(rows=rows, rank_of=rank_of, microbatches=microbatches, two_way=two_way)
    _complete(checked, seen)
    _in_turn(checked)
    if slices != 1:
        _slices_in_turn(checked, slices)
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


def _two_way(rank_of: tuple[int, ...], seen: Set[Cell], microbatches: int) -> bool:
    """Each microbatch goes through the first or the second half of the stages, which mirror each other's ranks."""
    half, odd = divmod(len(rank_of), 2)
    if odd or rank_of[:half] != rank_of[: half - 1 : -1]:
        return False
    return all((Cell(0, Work.F, b) in seen) != (Cell(half, Work.F, b) in seen) for b in range(microbatches))


def _complete(order: Order, seen: Set[Cell]) -> None:
    """Every stage does its microbatches: once forward, once back in one piece or in two."""
    cells = [cell for _, cell in _each(order.rows)]
    if len(seen) < len(cells):
        twice = next(cell for cell, times in Counter(cells).items() if times > 1)
        raise InvalidPlan(f"cell {twice} is twice in the order; a pass is made once")
    passes = Counter(cell.work for cell in cells)
    back = {(cell.stage, cell.microbatch) for cell in cells if cell.work in (Work.B, Work.I)}
    forward = {(cell.stage, cell.microbatch) for cell in cells if cell.work is Work.F}
    whole = _passes(order, seen)
    if forward != whole:
        _refuse_forward(order, forward, whole)
    if back != whole or passes[Work.B] + passes[Work.I] > len(whole) or passes[Work.I] != passes[Work.W]:
        _refuse_backward(seen, whole)


def _passes(order: Order, seen: Set[Cell]) -> set[tuple[int, int]]:
    """(Stage, microbatch) of every forward that there has to be."""
    half = order.chain
    begins = {b: half if Cell(half, Work.F, b) in seen and order.two_way else 0 for b in range(order.microbatches)}
    return {(first + s, b) for b, first in begins.items() for s in range(half)}


def _refuse_forward(order: Order, forward: set[tuple[int, int]], whole: set[tuple[int, int]]) -> NoReturn:
    missing = whole - forward
    if missing:
        stage, microbatch = min(missing)
        through = "its chain" if order.two_way else "every stage"
        raise InvalidPlan(
            f"cell {stage}F{microbatch} is missing; every microbatch from 0 to {order.microbatches - 1} goes through "
            f"{through}"
        )
    stage, microbatch = min(forward - whole)
    raise InvalidPlan(f"cell {stage}F{microbatch} is in the other direction than its microbatch")


def _refuse_backward(seen: Set[Cell], whole: set[tuple[int, int]]) -> None:
    backs = {(cell.stage, cell.microbatch) for cell in seen}
    for stage, microbatch in sorted(whole | backs):
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


def _slices_in_turn(order: Order, slices: int) -> None:
    """On every stage a slice goes forward after the earlier ones of its microbatch, and back after the later ones."""
    if order.microbatches % slices:
        raise InvalidPlan(f"{order.microbatches} slices are not a whole number of microbatches of {slices} slices each")
    done: set[Cell] = set()
    for _, cell in _each(order.rows):
        place = cell.microbatch % slices
        backward = cell.work in (Work.B, Work.I)
        if (cell.work is Work.F and place > 0) or (backward and place < slices - 1):
            other = cell._replace(microbatch=cell.microbatch + (1 if backward else -1))
            if other not in done:
                raise InvalidPlan(
                    f"cell {cell} comes before {other} on its rank; with causal attention a slice needs the "
                    f"{'later ones to have gone back' if backward else 'earlier ones to have gone forward'}"
                )
        done.add(cell)
