"""Which GPUs of a cluster a job has: its ranks are numbers of its own, and each runs on one GPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainsim.errors import InvalidPlan

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Allocation:
    """Rank r runs on GPU ``gpus[r]`` of the cluster; None: on GPU r, as the only job of a whole cluster.

    >>> half = Allocation.of_nodes([2, 3], gpus_per_node=4)
    >>> half.gpu_of(np.arange(8)).tolist(), half.rank_of(np.arange(6, 10)).tolist()
    ([8, 9, 10, 11, 12, 13, 14, 15], [-1, -1, 0, 1])
    """

    gpus: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.gpus is not None and len(set(self.gpus)) < len(self.gpus):
            twice = next(gpu for k, gpu in enumerate(self.gpus) if gpu in self.gpus[:k])
            raise InvalidPlan(f"GPU {twice} is twice in the allocation; a GPU runs one rank")

    @classmethod
    def of_nodes(cls, nodes: Iterable[int], gpus_per_node: int) -> Allocation:
        """All GPUs of some *nodes*, node by node in the order given."""
        return cls(tuple(node * gpus_per_node + gpu for node in nodes for gpu in range(gpus_per_node)))

    def has_whole_nodes(self, gpus_per_node: int) -> bool:
        """Whether it is all GPUs of some nodes, those of each in their order: groups inside a node are alike then.

        >>> Allocation((4, 5, 0, 1)).has_whole_nodes(2), Allocation((1, 2)).has_whole_nodes(2)
        (True, False)
        """
        if self.gpus is None:
            return True
        nodes = np.array(self.gpus[::gpus_per_node], np.int64)
        whole = nodes[:, None] + np.arange(gpus_per_node)
        return bool((nodes % gpus_per_node == 0).all()) and whole.ravel().tolist() == list(self.gpus)

    def ranks(self, gpus: int) -> int:
        """Ranks of the job, of a cluster of *gpus*."""
        return gpus if self.gpus is None else len(self.gpus)

    def gpu_of(self, ranks: Ints) -> Ints:
        """The GPU of each of *ranks*, an array of any shape."""
        return ranks if self.gpus is None else np.array(self.gpus, np.int64)[ranks]

    def rank_of(self, gpus: Ints) -> Ints:
        """The rank on each of *gpus*; -1 on those of others, and for -1."""
        if self.gpus is None:
            return gpus
        rank = np.full(max(*self.gpus, int(gpus.max(initial=0))) + 2, -1, np.int64)  # the last one is for -1
        rank[list(self.gpus)] = np.arange(len(self.gpus))
        return np.asarray(rank[gpus], np.int64)
