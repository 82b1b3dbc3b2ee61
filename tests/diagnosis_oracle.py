"""A job replayed in the slow and obvious way: plain dictionaries, one operation after the other, by the definitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from statistics import mean, median
from typing import Any

from trainsim.diagnosis.operations import TYPES, OperationTable

Row = dict[str, Any]
COMPUTE = ("forward-compute", "backward-compute", "gc", "optimizer")
ENDING = ("layernorm-grads-all-reduce", "separate-grads-all-reduce", "embedding-grads-all-reduce")


def rows_of(table: OperationTable) -> list[Row]:
    """The rows of a table as dictionaries."""
    names = ("dp_rank", "lane", "stage", "step", "start", "duration", "seq_id", "chunk", "model_chunk", "microbatch")
    columns = [getattr(table, name).tolist() for name in names]
    return [dict(zip(names, row[:-1], strict=True), type=TYPES[row[-1]])
            for row in zip(*columns, table.type.tolist(), strict=True)]  # fmt: skip


class SlowReplay:
    """What waits for what, and what is each operation's own time."""

    def __init__(self, rows: list[Row], *, pp: int, vpp: int = 1, overlapped: bool = False):
        self.rows, self.chunks, self.overlapped = rows, pp * vpp, overlapped
        self.waits: dict[int, list[int]] = {k: [] for k in range(len(rows))}
        self.group: dict[int, Any] = {k: ("alone", k) for k in range(len(rows))}
        workers: dict[Any, list[int]] = defaultdict(list)
        for k, row in enumerate(rows):
            workers[row["step"], row["dp_rank"], row["lane"], row["stage"]].append(k)
        for some in workers.values():
            self._worker(sorted(some, key=lambda k: (rows[k]["start"], rows[k]["duration"], rows[k]["seq_id"])))
        self.members: dict[Any, list[int]] = defaultdict(list)
        for k, group in self.group.items():
            self.members[group].append(k)
        self.own = [self._own(k) for k in range(len(rows))]

    def _worker(self, some: list[int]) -> None:
        of = lambda *names: [k for k in some if self.rows[k]["type"] in names]  # noqa: E731
        passes = of("forward-compute", "backward-compute", "gc")
        self._chain(passes)
        for name in ("forward-send", "forward-recv", "backward-send", "backward-recv"):
            self._chain(of(name))
        self._chain(of("params-all-gather", "grads-reduce-scatter"))
        for direction, way in (("forward", 1), ("backward", -1)):
            self._messages(of, direction, way)
        for gather in of("params-all-gather"):
            chunk = self.rows[gather]["chunk"]
            fed = next(k for k in of("forward-compute") if chunk < 0 or self.rows[k]["chunk"] == chunk)
            self.waits[fed] += [gather]
        end = passes[-1:]
        for name in ENDING:
            end += of(name)
        reductions = of("grads-reduce-scatter")
        if self.overlapped:
            for chunk in {self.rows[k]["chunk"] for k in reductions}:
                first = next(k for k in reductions if self.rows[k]["chunk"] == chunk)
                its = [k for k in of("backward-compute") if chunk < 0 or self.rows[k]["chunk"] == chunk]
                self.waits[first] += its[-1:]
        else:
            end += reductions
        last = of("optimizer-clip-main-grad") + of("optimizer")
        self._chain(end + last)
        if self.overlapped and reductions:
            self.waits[last[0]] += reductions[-1:]
        self._collectives(of)

    def _chain(self, some: list[int]) -> None:
        for before, after in pairwise(some):
            self.waits[after] += [before]

    def _messages(self, of: Callable[..., list[int]], direction: str, way: int) -> None:
        passes = of(f"{direction}-compute")
        chunk = lambda k: self.rows[k]["model_chunk"]  # noqa: E731
        for kind, to in (("send", way), ("recv", -way)):
            messages = of(f"{direction}-{kind}")
            real = [k for k in passes if 0 <= chunk(k) + to < self.chunks]
            for message, its in zip(messages, passes if len(messages) == len(passes) else real, strict=True):
                row = self.rows[its]
                if kind == "send":
                    self.waits[message] += [its]
                else:
                    self.waits[its] += [message]
                    place = passes.index(its)
                    warm = of("forward-compute", "backward-compute")
                    warm = warm[: warm.index(passes[0])] if passes else []
                    if place:
                        self.waits[message] += [passes[place - 1]]
                    elif direction == "backward" and len(warm) > 1:
                        self.waits[message] += [warm[-2]]
                source = chunk(its) if kind == "send" else chunk(its) - way
                if 0 <= source < self.chunks and 0 <= source + way < self.chunks:
                    key = direction, row["step"], row["dp_rank"], row["lane"], source, row["microbatch"]
                    self.group[message] = key

    def _collectives(self, of: Callable[..., list[int]]) -> None:
        for name in TYPES:
            for turn, k in enumerate(of(name)):
                row = self.rows[k]
                if name in ("params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"):
                    self.group[k] = name, row["step"], row["stage"], turn
                elif name == "embedding-grads-all-reduce":
                    self.group[k] = name, row["step"], row["dp_rank"], row["lane"], turn
                elif name == "optimizer-clip-main-grad":
                    self.group[k] = name, row["step"], turn

    def _own(self, k: int) -> float:
        row = self.rows[k]
        if row["type"] in COMPUTE:
            return float(row["duration"])
        last = max(self.rows[other]["start"] for other in self.members[self.group[k]])
        return max(0.0, float(row["start"] + row["duration"] - last))

    @property
    def ideal(self) -> list[float]:
        """What is usual for the type of each operation."""
        by_type: dict[str, list[float]] = defaultdict(list)
        for row, own in zip(self.rows, self.own, strict=True):
            by_type[row["type"]].append(own)
        usual = {name: mean(some) if name in COMPUTE else median(some) for name, some in by_type.items()}
        return [usual[row["type"]] for row in self.rows]

    def play(self, took: list[float], late: list[float] | None = None) -> tuple[list[float], list[float]]:
        """(Posted, ended) of every operation; *late*: by how much it is posted late."""
        late = late or [0.0] * len(self.rows)
        posted: dict[int, float] = {}
        ended: dict[int, float] = {}

        def post(k: int) -> float:
            if k not in posted:
                posted[k] = max((end(w) for w in self.waits[k]), default=0.0) + late[k]
            return posted[k]

        def end(k: int) -> float:
            if k not in ended:
                ended[k] = max(post(other) for other in self.members[self.group[k]]) + took[k]
            return ended[k]

        for k in sorted(range(len(self.rows)), key=lambda k: self.rows[k]["start"]):
            end(k)
        return [post(k) for k in range(len(self.rows))], [ended[k] for k in range(len(self.rows))]

    def mean_step(self, took: list[float]) -> float:
        """Seconds of the mean step: until its last update."""
        ends: dict[int, float] = defaultdict(float)
        for row, end in zip(self.rows, self.play(took)[1], strict=True):
            if row["type"] == "optimizer":
                ends[row["step"]] = max(ends[row["step"]], end)
        return mean(ends.values())

    def only(self, own: Callable[[Row], bool]) -> float:
        """The slowdown by some operations alone."""
        ideal = self.ideal
        some = [mine if own(row) else usual for row, mine, usual in zip(self.rows, self.own, ideal, strict=True)]
        return self.mean_step(some) / self.mean_step(ideal)
