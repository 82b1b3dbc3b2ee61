"""
Schedules as files: the CSV format of ``torch.distributed.pipelining``, a line per rank and a cell per action.

Compute-only files have ``[stage][F|B|I|W][microbatch]`` and ``(0F7;7B3)OVERLAP_F_B``. Files with communication have
SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, RESHARD and REDUCE_GRAD besides, which follow from the order and are left out.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path

from trainsim.documents.document import text_of
from trainsim.errors import InvalidPlan
from trainsim.schedules import Work
from trainsim.schedules.cells import Cell, format_cell, parse_cell
from trainsim.schedules.orders import Cells, Order, read_order

_COMMUNICATION = re.compile(r"\d+(?:(?:SEND|RECV)_[FB]\d+|UNSHARD|RESHARD|REDUCE_GRAD)(?:\d*)", re.ASCII)
_NAMED = re.compile(r"\d+[FBIW]\d+", re.ASCII)


def read_schedule(path: str | Path) -> Order:
    """The order that the file writes; its ``texts`` are what ``replay`` takes, its ``slots`` what a program is made of.

    ``B`` is a whole backward, but the input gradient alone where the file has a weight gradient of the same stage and
    microbatch and no input gradient (as PyTorch wrote it before 2.6). Empty cells are idle ticks. Raises InvalidPlan
    with the line and the cell.
    """
    return parse_schedule(schedule_text(path), str(path))


def schedule_text(path: str | Path) -> str:
    """The text of a schedule's file. Raises InvalidPlan for what is no file of text."""
    return text_of(Path(path), str(path), InvalidPlan).removeprefix("\ufeff")


def parse_schedule(text: str, file: str) -> Order:
    """The order that *text* writes, called *file* in messages; as `read_schedule`."""
    rows = [_read_line(file, number, line) for number, line in enumerate(_lines(text, file), 1)]
    rows = _whole_or_input(rows)
    try:
        return read_order([list(map(format_cell, row)) for row in rows])
    except InvalidPlan as fault:
        raise InvalidPlan(f"{file}{_place(rows, str(fault))}: {fault}") from None


def write_schedule(order: Order | Iterable[Iterable[str]], path: str | Path, *, torch: bool = True) -> None:
    """Write *order* (cells per rank, as ``schedule`` gives them) as a compute-only file.

    Raises InvalidPlan for an order that is not one and, if *torch*, for a two-way pipeline: PyTorch has one rank per
    stage and cannot load replicas; ``torch=False`` writes them as stages that count on.
    """
    checked = order if isinstance(order, Order) else read_order(order)
    if torch and checked.two_way:
        raise InvalidPlan(
            "PyTorch cannot load a two-way pipeline, whose stages have replicas; dualpipev is the same order without "
            "them, and torch=False writes the file all the same"
        )
    with Path(path).open("w", newline="", encoding="ascii") as file:
        csv.writer(file, lineterminator="\n").writerows(checked.texts)


def _lines(text: str, file: str) -> list[list[str]]:
    try:
        lines = list(csv.reader(io.StringIO(text, newline="")))
    except csv.Error as fault:
        raise InvalidPlan(f"{file} cannot be read as a schedule: {fault}") from None
    while lines and not any(cell.strip() for cell in lines[-1]):
        lines.pop()
    if not lines:
        raise InvalidPlan(f"{file} is empty; a schedule has a line per rank with cells such as 0F0,0F1,0B0,0B1")
    return lines


def _read_line(file: str, number: int, line: list[str]) -> list[Cells]:
    cells = []
    for place, text in enumerate(line, 1):
        if not text.strip() or _COMMUNICATION.fullmatch(text.strip()):
            continue
        try:
            cells.append(parse_cell(text))
        except InvalidPlan as fault:
            raise InvalidPlan(f"{file}, line {number}, cell {place}: {fault}") from None
    return cells


def _whole_or_input(rows: list[list[Cells]]) -> list[list[Cells]]:
    """The rows with I for B where a weight gradient is on its own."""
    flat = [cell for row in rows for cells in row for cell in cells]
    weights = {(cell.stage, cell.microbatch) for cell in flat if cell.work is Work.W}
    inputs = {(cell.stage, cell.microbatch) for cell in flat if cell.work is Work.I}
    alone = weights - inputs

    def meant(cell: Cell) -> Cell:
        own = cell.work is Work.B and (cell.stage, cell.microbatch) in alone
        return cell._replace(work=Work.I) if own else cell

    return [[tuple(map(meant, cells)) for cells in row] for row in rows]


def _place(rows: list[list[Cells]], message: str) -> str:
    """Line and cell of the first pass that *message* names, if the file has it."""
    for name in _NAMED.findall(message):
        for line, row in enumerate(rows, 1):
            for place, cells in enumerate(row, 1):
                if name in map(str, cells):
                    return f", line {line}, cell {place}"
    return ""
