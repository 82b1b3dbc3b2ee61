"""
Who talks to whom, as values: groups of ranks that meet in collectives, and pairs of ranks between which messages go.

A communicator is named by such a value. The same ranks have as many communicators as there are queues that post to
them: what a framework issues on two streams never waits for each other's turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

ALL_AXES = ("tp", "cp", "dp", "pp")
DATA_AXES = ("cp", "dp")
"""Axes along which the parameters are the same: ranks that differ along them alone are replicas."""
EXPERT_AXES = ("etp", "ep", "edp")
"""Axes along which experts are laid out, over the ranks that ``tp``, ``cp`` and ``dp`` lay out for all else."""


class Queue(StrEnum):
    """The chains of a rank that post collectives, copies and host work, each to communicators of its own."""

    COMPUTE = "compute"
    OVERLAP = "overlap"  # collectives of a pass under kernels that do not need them
    COPIES = "copies"  # the same as copies between neighbours, which hold no SMs
    DATA = "dp"  # parameters and gradients beside the passes
    REPLICAS = "replicas"  # averages over groups of replicas that shard among themselves
    GATHER = "gather"  # gathers of a second copy of the parameters
    VOCABULARY = "vocabulary"
    ACTIVATIONS = "activations"  # on their way to the host and back
    STEP = "step"  # a delayed update on the host
    READ = "read"  # drives, ahead of what needs them
    WRITE = "write"  # drives, behind what made it

    __hash__ = str.__hash__  # groups are keys everywhere, and an enum's own hash is slow


@dataclass(frozen=True, slots=True)
class Within:
    """A part of a group: *size* neighbours.

    >>> Within(2).cut(np.arange(4)[None]).tolist()
    [[0, 1], [2, 3]]
    """

    size: int

    def cut(self, groups: Ints) -> Ints:
        """Members of the parts of *groups* [groups, ranks]."""
        return groups.reshape(-1, self.size)

    def of(self, ranks: int) -> int:
        """Ranks of a part of a group of *ranks*."""
        return self.size

    def __str__(self) -> str:
        return f"within-{self.size}"


@dataclass(frozen=True, slots=True)
class Across:
    """A part of a group: the ranks that have the same place among their *size* neighbours.

    >>> Across(2).cut(np.arange(4)[None]).tolist()
    [[0, 2], [1, 3]]
    """

    size: int

    def cut(self, groups: Ints) -> Ints:
        """Members of the parts of *groups* [groups, ranks]."""
        blocks = groups.reshape(len(groups), -1, self.size)
        return np.swapaxes(blocks, 1, 2).reshape(-1, blocks.shape[1])

    def of(self, ranks: int) -> int:
        """Ranks of a part of a group of *ranks*."""
        return ranks // self.size

    def __str__(self) -> str:
        return f"across-{self.size}"


@dataclass(frozen=True, slots=True)
class Ends:
    """A part of a group: its first rank and the one at place ``other``.

    >>> Ends().cut(np.arange(4)[None]).tolist(), Ends(2).cut(np.arange(4)[None]).tolist()
    ([[0, 3]], [[0, 2]])
    """

    other: int = -1

    def cut(self, groups: Ints) -> Ints:
        """Members of the parts of *groups* [groups, ranks]."""
        return groups[:, [0, self.other]]

    def of(self, ranks: int) -> int:
        """Ranks of a part of a group of *ranks*."""
        return min(2, ranks)

    def __str__(self) -> str:
        return "ends" if self.other == -1 else f"first-and-{self.other}"


Part = Within | Across | Ends


@dataclass(frozen=True, slots=True)
class Group:
    """A communicator of collectives: the ranks that differ along ``axes`` only, or a ``part`` of these.

    Without axes every rank is alone: what it posts are copies and work of its own host. ``latency_only``: it carries so
    few bytes (a norm, a loss, a flag) that these take no time.

    >>> print(TENSOR, TENSOR.on(Queue.OVERLAP), REPLICAS, REPLICAS.on(Queue.DATA).only(Within(8)), ALONE.on(Queue.READ))
    tp tp-overlap dp-compute dp-within-8 offload-read
    >>> REPLICAS.only(Within(8)).replicates, TENSOR.beside, TENSOR.on(Queue.OVERLAP).beside
    (True, False, True)
    """

    axes: tuple[str, ...]
    queue: Queue = Queue.COMPUTE
    part: Part | None = None
    latency_only: bool = False

    def on(self, queue: Queue) -> Group:
        """The communicator of the same ranks that *queue* posts to."""
        return self if queue is self.queue else Group(self.axes, queue, self.part, self.latency_only)

    def only(self, part: Part | None) -> Group:
        """The communicator of a part of these ranks; None: of all of them."""
        return replace(self, part=part)

    @property
    def anywhere(self) -> Group:
        """The same ranks, whichever queue posts to them."""
        return self.on(Queue.COMPUTE)

    @property
    def whole(self) -> Group:
        """The group that this one is a part of."""
        return self.only(None)

    @property
    def alone(self) -> bool:
        """Whether every rank is by itself, and meets nobody."""
        return not self.axes

    @property
    def replicates(self) -> bool:
        """Whether its members hold the same parameters: all of them, or the same experts."""
        return set(self.axes) in (set(DATA_AXES), {"edp"})

    @property
    def beside(self) -> bool:
        """Whether its collectives run beside the kernels of the compute chain, from whose GPU they take a part."""
        return not self.alone and self.queue is not Queue.COMPUTE

    def __str__(self) -> str:
        ranks = _WORDS.get(self.axes) or "+".join(self.axes)
        usual = Queue.DATA if self.axes == DATA_AXES else Queue.COMPUTE
        queue = None if self.queue is usual else self.queue
        return "-".join(str(word) for word in (ranks, queue, self.part) if word is not None)


_WORDS = {(): "offload", DATA_AXES: "dp", ("dp",): "dp-without-cp", ALL_AXES: "world", ("tp", "pp"): "model"}

TENSOR = Group(("tp",))
CONTEXT = Group(("cp",))
EXPERTS = Group(("ep",))
"""Ranks that hold different experts of a layer, and send each other tokens."""
REPLICAS = Group(DATA_AXES)
EXPERT_REPLICAS = Group(("edp",))
"""Ranks that hold the same experts."""
WORLD = Group(ALL_AXES, latency_only=True)
MODEL = Group(("tp", "pp"), latency_only=True)
"""All ranks of a replica."""
STAGES = Group(("pp",))
ALONE = Group(())


@dataclass(frozen=True, slots=True)
class Messages:
    """A communicator of messages: every rank sends to the one that is ``distance`` further in its pipeline.

    ``carries`` is ``forward`` (activations), ``backward`` (gradients), ``control`` (handshakes, which take no time and
    no link), or anything. ``engine`` is (tp, pp) of inference engines that lie behind each other: then the
    pipelines are theirs, and rings.

    >>> print(Messages("forward", 1), Messages("backward", -1), Messages("forward", -1), Messages("control", -1))
    pp-forward pp-backward pp-forward-reverse control-previous
    """

    carries: str
    distance: int
    engine: tuple[int, int] | None = None

    @property
    def chain(self) -> str:
        """The name in a trace of the chain that has the rows of these messages."""
        return f"send:{self}"

    @property
    def anywhere(self) -> Messages:
        """The same messages: their chains send to one communicator."""
        return self

    def __str__(self) -> str:
        if self.carries == "control":
            return "control-next" if self.distance > 0 else "control-previous"
        if self.carries in USUAL:
            return f"pp-{self.carries}" + ("" if self.distance == USUAL[self.carries] else "-reverse")
        return f"{self.carries}{self.distance:+d}"


USUAL = {"forward": 1, "backward": -1}
"""Which way activations and gradients go unless stages lie the other way round."""

Peers = Group | Messages
"""Whatever names a communicator."""
