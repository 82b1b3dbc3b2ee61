"""
The templates of a virtual stage: what one forward and one backward pass are, instruction by instruction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainsim.program.blocks import Block, Overlapped, Piece
from trainsim.program.detail import coarsen
from trainsim.program.instructions import Instruction, Kernel, Meet, Send, Signal, Template, Wait
from trainsim.program.parts import Parts
from trainsim.program.stages import Stage


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass as a template of the compute chain, and what the chain of overlapped tensor collectives does."""

    compute: Template
    beside: Template | None


Cuts = Mapping[int, Sequence[Instruction]]
"""Instructions between the parts of a pass: head, layers last to first, embedding are parts 0, 1, ..., layers + 1."""


def forward_pass(parts: Parts, stage: Stage, *, before: Cuts | None = None) -> Pass:
    """Forward through *stage*: receive, embedding, layers, head, send. *before* stands ahead of its parts."""
    before = before or {}
    main: list[Instruction] = [] if stage.index == 0 else _receive(parts, stage, "forward")
    for part, layer, block in _parts(parts, stage):
        main += before.get(part, ())
        main += _unfold(block.forward, layer)[0]
    if not stage.head:
        main += _send(parts, stage, stage.index + 1, "forward")
    return _pass(parts, "F", stage, main, [], allocates=_saved(parts, stage))


def backward_pass(parts: Parts, stage: Stage, *, after: Cuts | None = None) -> Pass:
    """Backward through *stage*: receive, head, layers last to first, embedding, send. *after* follows its parts."""
    after = after or {}
    main: list[Instruction] = [] if stage.head else _receive(parts, stage, "backward")
    side: list[Instruction] = []
    transient = 0.0
    for part, layer, block in reversed(_parts(parts, stage)):
        here, beside = _unfold(block.backward, layer)
        main += [*here, *after.get(part, ())]
        side += beside
        transient = max(transient, block.transient)
    if stage.index > 0:
        main += _send(parts, stage, stage.index - 1, "backward")
    return _pass(parts, "B", stage, main, side, frees=_saved(parts, stage), transient=transient)


def _parts(parts: Parts, stage: Stage) -> list[tuple[int, int, Block]]:
    """(part, layer, block) of the stage in forward order; the embedding counts as layer -1, the head as the last."""
    blocks = parts.layer_blocks(stage)
    last = stage.first + stage.layers - 1
    out = [(stage.layers + 1, -1, parts.embedding)] if stage.embedding else []
    out += [(stage.layers - k, stage.first + k, block) for k, block in enumerate(blocks)]
    return out + ([(0, last + 1, parts.head)] if stage.head else [])


def _saved(parts: Parts, stage: Stage) -> float:
    return sum(block.saved for _, _, block in _parts(parts, stage))


def _unfold(pieces: Iterable[Piece], layer: int) -> tuple[list[Instruction], list[Instruction]]:
    """Instructions for the compute chain and for the chain of overlapped collectives."""
    main: list[Instruction] = []
    side: list[Instruction] = []
    for k, piece in enumerate(pieces):
        if isinstance(piece, Overlapped):
            event = f"tp.{layer}.{k}"
            main += [Signal(event), *(_at(x, layer) for x in piece.kernels), Wait(f"{event}.done")]
            side += [Wait(event), _at(piece.meet, layer), Signal(f"{event}.done")]
        else:
            main.append(_at(piece, layer))
    return main, side


def _at(i: Kernel | Meet, layer: int) -> Kernel | Meet:
    """The same instruction for *layer*: written out, since ``dataclasses.replace`` is three times slower."""
    if isinstance(i, Kernel):
        return Kernel(i.name, i.kind, i.seconds, i.sm, i.hbm, layer, i.stream)
    return Meet(i.name, i.kind, i.communicator, i.operation, i.nbytes, layer, i.stream, i.exposed)


def _receive(parts: Parts, stage: Stage, direction: str) -> list[Instruction]:
    """Wait for the message; one that was cut over TP is put together again."""
    job, wait = parts.job, Wait(f"{direction}.{stage.index}")
    if job.parallel.pp == 1 or job.parallel.sequence_parallel or not (parts.cut_messages and parts.network.has("tp")):
        return [wait]
    whole = parts.message_bytes * job.parallel.tp
    return [wait, Meet(f"{direction} gather", "tp", "tp", "all_gather", whole, stream="tp")]


def _send(parts: Parts, stage: Stage, to: int, direction: str) -> list[Instruction]:
    """The message to virtual stage *to*: nothing but an event if it lives on the same rank."""
    framework, event = parts.job.framework, f"{direction}.{to}"
    if parts.job.parallel.pp == 1:
        return [Signal(event)]
    blocking = framework.p2p_blocking
    send = Send(f"{direction} to {to}", "pp", f"pp-{direction}", parts.message_bytes, event, blocking=blocking)
    wait = Kernel("p2p synchronisation", "pp", framework.p2p_overhead, 0.0, 0.0, stream="pp")
    return [send, wait] if blocking and framework.p2p_overhead > 0 else [send]


def _pass(
    parts: Parts,
    work: str,
    stage: Stage,
    main: list[Instruction],
    side: list[Instruction],
    **memory: float,
) -> Pass:
    if parts.job.detail != "op":
        main = coarsen(main, parts.job.detail, parts.network)
    compute = Template(work, stage.chunk, tuple(main), **memory)
    return Pass(compute, Template("tp", stage.chunk, tuple(side)) if side else None)
