"""The compiled tasks of a chain, each kind once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from trainsim.contracts.system import Ints

if TYPE_CHECKING:
    from trainsim.engine.chain import Compiled

Operations = tuple["Compiled", ...]


class Course:
    """``kinds`` are the different tasks; ``kind`` and ``microbatch`` say which each task is, and for which microbatch.

    >>> course = Course.of([((), 0), ((), 1)])
    >>> len(course), course[1], course.kind.tolist()
    (2, ((), 1), [0, 0])
    """

    __slots__ = ("_kind", "_microbatch", "kind", "kinds", "microbatch")

    def __init__(self, kinds: Sequence[Operations], kind: Ints, microbatch: Ints):
        self.kinds, self.kind, self.microbatch = list(kinds), kind, microbatch
        self._kind: list[int] = kind.tolist()
        self._microbatch: list[int] = microbatch.tolist()

    @classmethod
    def of(cls, tasks: Sequence[tuple[Operations, int]]) -> Course:
        """The course of *tasks*: pairs of operations and microbatch."""
        number: dict[int, int] = {}
        kind = [number.setdefault(id(operations), len(number)) for operations, _ in tasks]
        kinds = list({id(operations): operations for operations, _ in tasks}.values())
        return cls(kinds, np.array(kind, np.int64), np.array([microbatch for _, microbatch in tasks], np.int64))

    def __len__(self) -> int:
        return len(self._kind)

    def __getitem__(self, task: int) -> tuple[Operations, int]:
        return self.kinds[self._kind[task]], self._microbatch[task]

    def part(self, first: int, count: int) -> list[tuple[Operations, int]]:
        """So many tasks from *first* on."""
        return [self[task] for task in range(first, first + count)]

    def put(self, operations: Operations, at: Ints) -> None:
        """Let the tasks *at* these places be of a kind of their own."""
        self.kind[at] = len(self.kinds)
        for task in at.tolist():
            self._kind[task] = len(self.kinds)
        self.kinds.append(operations)
