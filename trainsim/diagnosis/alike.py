"""Steps of a job by structure: those in which the same operations wait for the same are replayed together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainsim.diagnosis.matching import OperationTimes
from trainsim.diagnosis.operations import (
    BACKWARD,
    CLIP,
    EMBEDDING,
    NORMS,
    NUMBER,
    REDUCE,
    SEPARATE,
    TYPES,
    Floats,
    Ints,
    OperationTable,
)
from trainsim.diagnosis.solver import StepSolver
from trainsim.diagnosis.structure import ENDING, STREAMS, Rules, StepColumns, StepStructure, structure_of
from trainsim.errors import InvalidData

_STREAM_NUMBER = {stream: k for k, stream in enumerate(dict.fromkeys(STREAMS.values()))}


@dataclass(frozen=True, kw_only=True, eq=False)
class AlikeSteps:
    """Steps of one structure. ``rows[k]`` are the rows of operation k in the table, one per step."""

    structure: StepStructure
    solver: StepSolver
    steps: tuple[int, ...]
    rows: Ints


def alike_steps(table: OperationTable) -> tuple[tuple[AlikeSteps, ...], tuple[str, ...]]:
    """All steps by structure, and a remark on each that cannot be replayed. Raises InvalidData if none can."""
    rules = _rules(table)
    order, first = _in_order(table, rules)
    by_columns: dict[bytes, list[int]] = {}
    ends = [*first[1:], len(order)]
    for k, (begin, end) in enumerate(zip(first, ends, strict=True)):
        by_columns.setdefault(_columns(table, order[begin:end]).tobytes(), []).append(k)
    out, remarks = list[AlikeSteps](), list[str]()
    for some in by_columns.values():
        rows = np.stack([order[first[k] : ends[k]] for k in some], axis=1)
        steps = tuple(int(step) for step in table.step[rows[0]])
        try:
            times = OperationTimes(table.start[rows[:, 0]], table.end[rows[:, 0]])
            columns = StepColumns(*_columns(table, rows[:, 0]))
            structure = structure_of(columns, table.workers, shape=table.shape, rules=rules, times=times)
            out.append(AlikeSteps(structure=structure, solver=StepSolver.of(structure), steps=steps, rows=rows))
        except InvalidData as fault:
            remarks.append(f"{_named(steps)} left out: {fault}")
    if not out:
        raise InvalidData(f"{table.name}: no step can be replayed; {remarks[0]}")
    return tuple(out), tuple(remarks)


def _columns(table: OperationTable, rows: Ints) -> Ints:
    chunk = np.where(table.chunk[rows] < 0, np.where(_passes(table, rows), 0, -1), table.chunk[rows])
    model_chunk = table.model_chunk[rows]
    missing = _passes(table, rows) & (model_chunk < 0)
    model_chunk = np.where(missing, chunk * table.shape.pp + table.stage[rows], model_chunk)
    return np.stack([table.worker[rows], table.type[rows], chunk, model_chunk, table.microbatch[rows]])


def _passes(table: OperationTable, rows: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return table.type[rows] <= NUMBER[BACKWARD]


def _named(steps: tuple[int, ...]) -> str:
    few = ", ".join(map(str, steps[:5])) + (f" and {len(steps) - 5} more" if len(steps) > 5 else "")
    return f"step {few} is" if len(steps) == 1 else f"steps {few} are"


def _in_order(table: OperationTable, rules: Rules) -> tuple[Ints, list[int]]:
    """Rows by step, worker and stream, in the order of each, and where each step begins."""
    stream = np.array([_STREAM_NUMBER[STREAMS[name]] for name in TYPES])[table.type]
    late = np.array([1 + rules.ending.index(name) if name in rules.ending else 0 for name in TYPES])[table.type]
    keys = (table.seq_id, table.duration, table.start, late, stream, table.worker, table.step)
    order = np.lexsort(keys).astype(np.int64)
    step = table.step[order]
    return order, [0, *(np.flatnonzero(step[1:] != step[:-1]) + 1).tolist()]


def _rules(table: OperationTable) -> Rules:
    """What most steps of most workers show: whether reductions begin before the gradients that come after the last
    backward are done, and before which of these the separate ones are."""
    key = np.unique(table.step, return_inverse=True)[1].reshape(-1) * len(table.workers) + table.worker

    def extreme(name: str, values: Floats, end: bool) -> Floats:
        out = np.full(int(key.max()) + 1, -np.inf if end else np.inf)
        which = table.of(name)
        (np.maximum if end else np.minimum).at(out, key[which], values[which])
        return out

    reduced = extreme(REDUCE, table.start, False)
    ended = np.maximum(extreme(BACKWARD, table.end, True), extreme(NORMS, table.end, True))
    ended = np.maximum(ended, extreme(EMBEDDING, table.end, True))
    known = np.isfinite(reduced) & np.isfinite(ended)
    slack = np.spacing(np.float32(table.end.max(initial=0.0)))  # start and end of neighbours, as tables round them
    overlapped = bool(known.any() and np.median(ended[known] - reduced[known]) > 2 * slack)
    separate = extreme(SEPARATE, table.start, False)
    ending = [name for name in ENDING if name != SEPARATE]
    place = 1
    for k, name in enumerate((NORMS, EMBEDDING, CLIP)):
        other = extreme(name, table.start, False)
        both = np.isfinite(separate) & np.isfinite(other)
        if both.any() and np.median(separate[both] - other[both]) > 0:
            place = k + 1
    return Rules(overlapped, (*ending[:place], SEPARATE, *ending[place:]))
