"""
Vocabulary parallelism: the logits, the loss and the head's weights spread over all ranks of a pipeline.

Once a microbatch's forward is over, the last stage gives its hidden states to all ranks of the replica. Each makes its
columns of the logits (pass S), all agree on the softmax, each makes its gradients (pass T), and the gradient of the
hidden states is summed on the last stage, which then goes backward. Passes S and T run on a chain of their own beside
the layers, with which they share the GPU. Two barriers stand between forward and backward, so every rank goes two
microbatches further ahead. Source: Yeung et al. 2024 (arXiv 2411.05288), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from trainsim.contracts.groups import STAGES, Ends, Queue
from trainsim.contracts.instructions import Instruction, Kernel, Meet, Signal, Task, Template, Wait
from trainsim.contracts.job import Job
from trainsim.models.layers import Shape, Style, head_operations
from trainsim.program.block_costs import Blocks
from trainsim.program.network import Network
from trainsim.program.pieces import Block, Overlapped, Piece
from trainsim.program.stages import Stage
from trainsim.schedules import Slot, Work
from trainsim.schedules.messages import Item
from trainsim.schedules.sequences import paired

HIDDEN = "hidden"
"""Set on the last stage: the hidden states of a microbatch can be given to all ranks."""
HIDDEN_GRADIENT = "hidden gradient"
"""Set on the last stage: the gradient of the hidden states is there."""
BARRIERS = 2
"""How often all ranks meet between a forward and its backward: so many microbatches more are in flight."""
STATISTICS = 8.0  # bytes per token: the maximum and the sum of exponentials, fp32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Vocabulary:
    """The part of the head that every pipeline rank runs: its columns of the logits, and the loss over them.

    ``hidden`` and ``statistics`` are the bytes that go around for one microbatch.
    """

    job: Job
    network: Network
    block: Block
    hidden: float
    statistics: float

    def parameters(self, stage: Stage) -> int:
        """Parameters of the head with a virtual stage: the last chunk of each rank has columns, the last stage the
        norm; columns of a tied head are no copy where the embedding is."""
        job = self.job
        columns = job.padded_vocab // (job.parallel.tp * job.parallel.pp)
        held = stage.chunk == job.pipeline.chunks - 1 and not (job.model.tied_embeddings and stage.rank == 0)
        return columns * job.model.hidden * held + job.model.final_norm_parameters * stage.head

    def tasks(self, *, last: bool) -> Iterator[Task]:
        """The chain of the head on one rank, in the order of microbatches; *last*: on the rank with the last stage."""
        template = Template("vocabulary", self.job.pipeline.chunks - 1, tuple(self._instructions(last)))
        for microbatch in range(self.job.steps * self.job.training.microbatches):
            yield Task(template, microbatch)

    def _instructions(self, last: bool) -> Iterator[Instruction]:
        if last:
            yield Wait(HIDDEN)
        broadcast, statistics, reduce = self._meets
        yield from (broadcast, *_beside(self.block.forward), statistics, *_beside(self.block.backward), reduce)
        if last:
            yield Signal(HIDDEN_GRADIENT)

    @property
    def _meets(self) -> tuple[Meet, Meet, Meet]:
        """A sum that only one rank needs moves what a broadcast from there moves, the other way."""
        around = STAGES.on(Queue.VOCABULARY)
        return (
            Meet("hidden states", "pp", around, "broadcast", self.hidden, stream="pp"),
            Meet("softmax statistics", "pp", around, "all_reduce", self.statistics, stream="pp"),
            Meet("hidden gradient", "pp", around, "broadcast", self.hidden, stream="pp"),
        )

    @property
    def latency(self) -> float:
        """Seconds of the collectives of one microbatch alone: the last stage waits for them before it drains."""
        return sum(self.network.seconds(m.communicator, m.operation, m.nbytes) for m in self._meets)

    @property
    def held(self) -> float:
        """Bytes on each rank for the microbatch at work: hidden states, their gradient, logits."""
        return self.block.saved + max(self.block.transient_forward, self.block.transient) + self.hidden

    def tied(self, rank: int) -> Iterator[Meet]:
        """A tied head's gradients are summed with the embedding's, pipeline rank by pipeline rank."""
        job, ranks = self.job, self.job.parallel.pp
        if not job.model.tied_embeddings or job.model.lora is not None:
            return
        nbytes = job.padded_vocab / (job.parallel.tp * ranks) * job.model.hidden * job.training.gradient_bytes
        for other in range(1, ranks) if rank == 0 else (rank,):
            yield Meet("tied embedding", "dp", STAGES.only(Ends(other)), "all_reduce", nbytes, stream="dp")


def spread(blocks: Blocks, shape: Shape, style: Style) -> Vocabulary:
    """The head of *blocks*' job over its pipeline ranks; the final norm stays with the last stage."""
    job = blocks.job
    columns = replace(shape, padded_vocab=shape.padded_vocab // job.parallel.pp)
    operations = head_operations(job.model, columns, style)[1:]
    forward = sum(len(o.forward) for o in operations)
    backward = sum(len(o.input_gradient) + len(o.weight_gradient) for o in operations)
    return Vocabulary(
        job=job,
        network=blocks.network,
        block=blocks.block(operations, recompute="none", forward=forward, backward=backward),
        hidden=shape.element * shape.norm_tokens * job.model.hidden,
        statistics=STATISTICS * shape.tokens,
    )


def deeper(slots: Sequence[Item]) -> tuple[Slot, ...]:
    """An order of forwards and backwards in turn, with ``BARRIERS`` more forwards ahead of the first backward.

    >>> from trainsim.schedules.lookup import slots_of
    >>> print(*deeper(tuple(slots_of("1f1b", 1, 2, microbatches=4, chunks=1))))
    F0 F1 F2 B0 F3 B1 B2 B3
    """
    ahead = [s for s in slots if isinstance(s, Slot) and s.work is Work.F]
    back = [s for s in slots if isinstance(s, Slot) and s.work is not Work.F]
    first = next(k for k, s in enumerate(slots) if s is back[0])
    return tuple(paired(ahead, back, warmup=min(first - 1 + BARRIERS, len(ahead))))


def _beside(pieces: Iterable[Piece]) -> Iterator[Kernel | Meet]:
    """*pieces* in a chain of their own, with a communicator of its own; nothing overlaps there."""
    for piece in pieces:
        if isinstance(piece, Overlapped):
            yield from _beside((piece.meet, *piece.kernels))
        elif isinstance(piece, Meet):
            yield replace(piece, communicator=piece.communicator.on(Queue.VOCABULARY))
        else:
            yield replace(piece, stream="other")
