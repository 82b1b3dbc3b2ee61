"""Operations of a measured job as a table: who did what in which step, when, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from trainsim.errors import InvalidData

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

FORWARD, BACKWARD, COLLECTOR, UPDATE = "forward-compute", "backward-compute", "gc", "optimizer"
FORWARD_SEND, FORWARD_RECEIVE = "forward-send", "forward-recv"
BACKWARD_SEND, BACKWARD_RECEIVE = "backward-send", "backward-recv"
GATHER, REDUCE = "params-all-gather", "grads-reduce-scatter"
NORMS, SEPARATE = "layernorm-grads-all-reduce", "separate-grads-all-reduce"
EMBEDDING, CLIP = "embedding-grads-all-reduce", "optimizer-clip-main-grad"

TYPES = (
    FORWARD, BACKWARD, COLLECTOR, UPDATE,
    FORWARD_SEND, FORWARD_RECEIVE, BACKWARD_SEND, BACKWARD_RECEIVE,
    GATHER, REDUCE, NORMS, SEPARATE, EMBEDDING, CLIP,
)  # fmt: skip
"""Types of operations, as tables name them; ``OperationTable.type`` numbers them."""
NUMBER = {name: k for k, name in enumerate(TYPES)}
COMPUTE_TYPES = frozenset((FORWARD, BACKWARD, COLLECTOR, UPDATE))
"""Types that a worker carries out alone: the time is its own."""
PASSES = frozenset((FORWARD, BACKWARD))
MESSAGE_TYPES = frozenset((FORWARD_SEND, FORWARD_RECEIVE, BACKWARD_SEND, BACKWARD_RECEIVE))
JOINT_NAMES = {
    FORWARD_SEND: "forward-pp-comm", FORWARD_RECEIVE: "forward-pp-comm",
    BACKWARD_SEND: "backward-pp-comm", BACKWARD_RECEIVE: "backward-pp-comm",
}  # fmt: skip
"""What a send and its receive are called together."""


def types_called(name: str) -> list[str]:
    """The types of operations that have *name*, alone or together.

    >>> types_called("forward-pp-comm"), types_called("optimizer")
    (['forward-send', 'forward-recv'], ['optimizer'])
    """
    return [kind for kind in TYPES if JOINT_NAMES.get(kind, kind) == name]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShape:
    """How a job is laid out: degrees of parallelism, and chunks per stage (``vpp``). ``dsp`` is a second data-parallel
    dimension; ``layers`` are those of the model, if they are known."""

    dp: int
    pp: int
    tp: int = 1
    dsp: int = 1
    vpp: int = 1
    layers: int | None = None

    @property
    def gpus(self) -> int:
        return self.dp * self.dsp * self.pp * self.tp

    @property
    def chunks(self) -> int:
        """Chunks of the model."""
        return self.pp * self.vpp


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OperationTable:
    """The operations of some steps of a job, as equally long columns; times in seconds.

    A worker is a (``dp_rank``, ``stage``), which stands for all its tensor-parallel GPUs; where several ranks of one
    stage have the same dp_rank, ``lane`` tells them apart. ``type`` indexes TYPES. ``start`` counts from the first
    start of the step. ``seq_id`` is the place among the operations of that type of that worker in that step;
    ``chunk`` (within the stage), ``model_chunk`` and ``microbatch`` are -1 where an operation belongs to none.
    """

    name: str
    shape: JobShape
    dp_rank: Ints
    lane: Ints
    stage: Ints
    step: Ints
    type: Ints
    start: Floats
    duration: Floats
    seq_id: Ints
    chunk: Ints
    model_chunk: Ints
    microbatch: Ints

    def __post_init__(self) -> None:
        sizes = {len(getattr(self, name)) for name in COLUMNS}
        if sizes == {0} or len(sizes) != 1:
            raise InvalidData(f"{self.name}: an operation table needs equally long columns with at least one row")

    def __len__(self) -> int:
        return len(self.step)

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """The numbers of the steps, ascending."""
        return tuple(np.unique(self.step).tolist())

    @cached_property
    def workers(self) -> tuple[tuple[int, int, int], ...]:
        """(dp_rank, lane, stage) of every worker, in that order."""
        return tuple(map(tuple, np.unique(self._places, axis=0).tolist()))

    @cached_property
    def worker(self) -> Ints:
        """The worker of every operation, as its place in ``workers``."""
        return np.unique(self._places, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)

    @property
    def _places(self) -> Ints:
        return np.stack([self.dp_rank, self.lane, self.stage], axis=1)

    @property
    def end(self) -> Floats:
        return self.start + self.duration

    def of(self, *types: str) -> Bools:
        """Which operations are of one of *types*."""
        return np.isin(self.type, [NUMBER[name] for name in types])

    def rows(self, which: Bools | Ints) -> OperationTable:
        """Some rows alone."""
        return replace(self, **{name: getattr(self, name)[which] for name in COLUMNS})

    def __repr__(self) -> str:
        sizes = f"{len(self)} operations, {len(self.workers)} workers, {len(self.steps)} steps"
        return f"<OperationTable {self.name}: {sizes}>"


COLUMNS = (
    "dp_rank", "lane", "stage", "step", "type", "start", "duration", "seq_id", "chunk", "model_chunk", "microbatch",
)  # fmt: skip


def operation_table(*, name: str, shape: JobShape, **columns: npt.ArrayLike) -> OperationTable:
    """The table of *columns* (those of ``OperationTable``; ``lane`` may be missing), checked and with times that count
    from the beginning of each step. Raises InvalidData.

    >>> table = operation_table(
    ...     name="two", shape=JobShape(dp=1, pp=1), dp_rank=[0, 0], stage=[0, 0], step=[7, 7], type=[0, 1],
    ...     start=[10.0, 11.0], duration=[1.0, 2.0], seq_id=[0, 0], chunk=[0, 0], model_chunk=[0, 0], microbatch=[0, 0])
    >>> table, table.end.tolist()
    (<OperationTable two: 2 operations, 1 workers, 1 steps>, [1.0, 3.0])
    """
    columns.setdefault("lane", np.zeros(len(np.asarray(columns["step"])), np.int64))
    kinds = {name: np.float64 if name in ("start", "duration") else np.int64 for name in COLUMNS}
    arrays: dict[str, Any] = {name: np.array(columns[name], kinds[name]) for name in COLUMNS}
    table = OperationTable(name=name, shape=shape, **arrays)
    _check(table)
    number = np.unique(table.step, return_inverse=True)[1].reshape(-1)
    first = np.full(int(number.max()) + 1, np.inf)
    np.minimum.at(first, number, table.start)
    return replace(table, start=table.start - first[number])


def _check(table: OperationTable) -> None:
    """Raise InvalidData for the first row that cannot be: what is wrong, and where."""
    shape = table.shape
    wrong = {
        "start": ~np.isfinite(table.start),
        "duration": ~np.isfinite(table.duration) | (table.duration < 0),
        "type": (table.type < 0) | (table.type >= len(TYPES)),
        "dp_rank": table.dp_rank < 0,
        "stage": (table.stage < 0) | (table.stage >= shape.pp),
        "model_chunk": (table.model_chunk < -1) | (table.model_chunk >= shape.chunks),
    }
    limits = {
        "start": "a start is a finite number of seconds", "duration": "a duration is 0 s or more, and finite",
        "type": f"types are 0 to {len(TYPES) - 1}", "dp_rank": "ranks are numbered from 0",
        "stage": f"a job with pp={shape.pp} has stages 0 to {shape.pp - 1}",
        "model_chunk": f"a model of {shape.chunks} chunks (pp x vpp) has chunks 0 to {shape.chunks - 1}",
    }  # fmt: skip
    for column, where in wrong.items():
        if where.any():
            row = int(np.flatnonzero(where)[0])
            value = getattr(table, column)[row].item()
            raise InvalidData(f"{table.name}: row {row}: {column} is {value}; {limits[column]}")
