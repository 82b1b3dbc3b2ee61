"""
Contract 1: what one rank does, as chains of tasks that share templates.

A *chain* is a thread of control: it carries out its tasks in order. A stream is only the label of a span: a
tensor-parallel collective that compute awaits at once sits in the compute chain under the stream ``tp`` and needs
no event. Tasks that differ only in the microbatch point to the same template, so a program is small however long
the step is. Events are named only where another chain or another rank waits; they belong to (name, microbatch) of
the rank that waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trainsim.contracts.groups import Group, Messages, Peers

Ints = npt.NDArray[np.int64]

KINDS = (
    "forward",
    "backward",
    "recompute",
    "optimizer",
    "host",
    "copy",
    "delay",
    "tp",
    "cp",
    "ep",
    "pp",
    "dp",
    "offload",
    "other",
    "prefill",
    "decode",
    "scoring",
)
"""What a span is for: the lanes' colours and the rows of the breakdown."""


class Payload(NamedTuple):
    """What a collective or message carries: bytes of the full buffer. ``operation`` is SEND for a message."""

    communicator: Peers
    operation: str
    nbytes: float


SEND = "send"
"""The operation of a message."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of the compute stream: seconds alone, and the shares of the GPU it takes meanwhile.

    ``sm`` and ``hbm`` are fractions of the GPU's SMs and of its memory bandwidth at full speed.
    A host that cannot keep up is a kernel of kind ``host`` that takes neither. ``payloads`` are those of collectives
    that it stands for where the detail is coarse.
    """

    name: str
    kind: str
    seconds: float
    sm: float = 1.0
    hbm: float = 0.0
    layer: int = -1
    stream: str = "compute"
    payloads: tuple[Payload, ...] = ()


@dataclass(frozen=True, slots=True)
class Meet:
    """A collective: it starts when every member of the rank's group has posted it; the chain waits for its end.

    ``nbytes`` is the full buffer (NCCL's size, before dividing by the group). ``exposed`` is the part of its time
    that a framework's kernel-level pipelining leaves visible.
    """

    name: str
    kind: str
    communicator: Group
    operation: str
    nbytes: float
    layer: int = -1
    stream: str = "compute"
    exposed: float = 1.0

    @property
    def payloads(self) -> tuple[Payload, ...]:
        """What it carries."""
        return (Payload(self.communicator, self.operation, self.nbytes),)


@dataclass(frozen=True, slots=True)
class Send:
    """A message to the peer of this rank's group: it starts at once, and at its end sets ``event`` there.

    The receiver is passive: it waits for the event (of the same microbatch), it posts nothing. The sender goes on
    at once, unless ``blocking``: then its chain waits for the end of the message.
    """

    name: str
    kind: str
    communicator: Messages
    nbytes: float
    event: str
    layer: int = -1
    stream: str = "pp"
    blocking: bool = False

    @property
    def payloads(self) -> tuple[Payload, ...]:
        """What it carries; a message without bytes only keeps an order."""
        return (Payload(self.communicator, SEND, self.nbytes),) if self.nbytes > 0 else ()


@dataclass(frozen=True, slots=True)
class Wait:
    """Go on when *event* of this microbatch (or of the microbatch that is named) has been set on this rank."""

    event: str
    microbatch: int | None = None


@dataclass(frozen=True, slots=True)
class Signal:
    """Set *event* of this microbatch (or of the microbatch that is named) on this rank."""

    event: str
    microbatch: int | None = None


Instruction = Kernel | Meet | Send | Wait | Signal


@dataclass(frozen=True, slots=True)
class Hold:
    """Memory that a chain takes (bytes > 0, once its next instruction is posted) or gives back (< 0, once the one
    before has ended). It takes no time."""

    category: str
    nbytes: float


Piece = Instruction | Hold


EARLY = "early update"
"""``work`` of a template that updates the weights before the step is over, as asynchronous schedules do."""


class Posted(NamedTuple):
    """What one template posts, sends, waits for and sets."""

    meets: tuple[Meet, ...]
    sends: tuple[Send, ...]
    waits: tuple[Wait, ...]
    signals: tuple[Signal, ...]


@dataclass(frozen=True, eq=False)
class Template:
    """The instructions of one pass over one chunk, and what it does to the memory of the rank.

    ``holds`` are pairs (number of the instruction before which it happens, what is taken or given back). ``work`` is
    ``F``, ``B``, ... of the schedule, or the name of a phase.
    """

    work: str
    chunk: int
    instructions: tuple[Instruction, ...]
    holds: tuple[tuple[int, Hold], ...] = ()

    @classmethod
    def of(cls, work: str, chunk: int, pieces: Iterable[Piece]) -> Template:
        """A template of instructions with holds among them.

        >>> t = Template.of("F", 0, [Hold("activations", 8.0), Wait("x"), Hold("activations", -2.0)])
        >>> [at for at, _ in t.holds], t.balance
        ([0, 1], 6.0)
        """
        instructions: list[Instruction] = []
        holds: list[tuple[int, Hold]] = []
        for piece in pieces:
            if isinstance(piece, Hold):
                if piece.nbytes:
                    holds.append((len(instructions), piece))
            else:
                instructions.append(piece)
        return cls(work, chunk, tuple(instructions), tuple(holds))

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Instructions and holds in their order, as ``of`` takes them."""
        out: list[Piece] = []
        done = 0
        for at, hold in self.holds:
            out += [*self.instructions[done:at], hold]
            done = at
        return (*out, *self.instructions[done:])

    @cached_property
    def posted(self) -> Posted:
        """Its instructions by kind, kernels aside."""
        by_kind: dict[type, list[Any]] = {Meet: [], Send: [], Wait: [], Signal: [], Kernel: []}
        for i in self.instructions:
            by_kind[type(i)].append(i)
        return Posted(*(tuple(by_kind[kind]) for kind in (Meet, Send, Wait, Signal)))

    @property
    def balance(self) -> float:
        """Bytes that it leaves behind; negative: that it gives back more than it takes."""
        return sum(hold.nbytes for _, hold in self.holds)


class Task(NamedTuple):
    """A template carried out for one microbatch."""

    template: Template
    microbatch: int


class Columns(NamedTuple):
    """The tasks of a chain as columns: ``templates`` has each template once, in the order in which they first come, and
    ``template`` numbers them task by task."""

    templates: tuple[Template, ...]
    template: Ints
    microbatch: Ints

    @classmethod
    def of(cls, tasks: Sequence[Task]) -> Columns:
        """The columns of *tasks*.

        >>> f, b = (Template(work, 0, ()) for work in "FB")
        >>> columns = Columns.of([Task(f, 0), Task(f, 1), Task(b, 0)])
        >>> columns.templates == (f, b), columns.template.tolist(), columns.microbatch.tolist()
        (True, [0, 0, 1], [0, 1, 0])
        """
        templates, microbatches = zip(*tasks, strict=True) if tasks else ((), ())
        number = {template: k for k, template in enumerate(dict.fromkeys(templates))}
        return cls(
            tuple(number),
            np.fromiter(map(number.__getitem__, templates), np.int64, len(tasks)),
            np.array(microbatches, np.int64),
        )

    def part(self, begin: int, end: int) -> Columns:
        """Tasks *begin* to *end* alone."""
        return self._replace(template=self.template[begin:end], microbatch=self.microbatch[begin:end])

    def places(self) -> list[Ints]:
        """The tasks of each template."""
        order = np.argsort(self.template, kind="stable")
        return np.split(order, np.cumsum(self.times)[:-1]) if len(self.templates) else []

    @property
    def times(self) -> list[int]:
        """How many tasks each template has."""
        return [int(times) for times in np.bincount(self.template, minlength=len(self.templates))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a rank holds for the whole step, in bytes. ``slack`` is what the allocator keeps beyond what it gave out, as
    a part of that, of which it gives ``returned`` back before it fails; ``host`` and ``nvme`` are not on the GPU:
    memory of its host, and files."""

    weights: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    gathered: float = 0.0
    buffers: float = 0.0
    framework: float = 0.0
    kv_cache: float = 0.0
    slack: float = 0.0
    returned: float = 1.0
    host: float = 0.0
    nvme: float = 0.0

    @property
    def total(self) -> float:
        states = self.weights + self.gradients + self.optimizer
        return states + self.gathered + self.buffers + self.framework + self.kv_cache


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """All chains of one rank. ``stage`` is its place in the pipeline; ``parameters`` are those it computes with, of
    which it holds ``resident`` between passes."""

    chains: dict[str, tuple[Task, ...]]
    stage: int = 0
    parameters: int = 0
    resident: float = 0.0
    memory: Memory = field(default_factory=Memory)

    @cached_property
    def columns(self) -> dict[str, Columns]:
        """The tasks of every chain as columns: what is true of a template need not be found out task by task."""
        return {chain: Columns.of(tasks) for chain, tasks in self.chains.items()}

    @property
    def operations(self) -> int:
        """Kernels, collectives and messages carried out, as opposed to the few objects stored."""
        return sum(
            count * sum(isinstance(i, Kernel | Meet | Send) for i in template.instructions)
            for columns in self.columns.values()
            for template, count in zip(columns.templates, columns.times, strict=True)
        )
