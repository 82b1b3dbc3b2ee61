"""
The templates of a virtual stage: what a pass over it is, instruction by instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from trainsim.contracts.groups import TENSOR
from trainsim.contracts.instructions import Hold, Instruction, Kernel, Meet, Piece, Send, Signal, Template, Wait
from trainsim.program.detail import coarsen
from trainsim.program.kept_results import kept_anyway, kept_keys, kept_logits
from trainsim.program.layer_work import mask_bytes_made
from trainsim.program.parts import Parts
from trainsim.program.pieces import Block, Overlapped, lane
from trainsim.program.pieces import Piece as Work
from trainsim.program.stages import Stage
from trainsim.program.vocabulary import HIDDEN, HIDDEN_GRADIENT

Lanes = Mapping[str, tuple[Instruction, ...]]
"""Chain of overlapped collectives (``tp``, ``cp``, ...) -> its instructions."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass: its instructions and what it holds, and what the chain of each lane of overlapped collectives does
    meanwhile."""

    work: str
    stage: Stage
    main: tuple[Piece, ...]
    lanes: Lanes = field(default_factory=dict)

    @property
    def beside(self) -> dict[str, Template]:
        """The template of each lane."""
        return {lane: Template(lane, self.stage.chunk, instructions) for lane, instructions in self.lanes.items()}


@dataclass(frozen=True, slots=True)
class Cut:
    """Instructions and holds around one part of a pass."""

    before: tuple[Piece, ...] = ()
    after: tuple[Piece, ...] = ()


NOTHING = Cut()
Cuts = Mapping[int, Cut]
"""What stands around the parts of a pass: head, layers last to first, embedding are parts 0, 1, ..., layers + 1."""
MadeOf = Callable[[Parts, Stage, Cuts], list[tuple[int, int, Block]]]
"""(Part, layer, block) of what a pass over a stage is made of, in forward order."""


class PassMaker(Protocol):
    """Makes a pass over *stage* with *cuts* around its parts, from what *made_of* says that its parts are."""

    def __call__(self, parts: Parts, stage: Stage, *, cuts: Cuts | None = None, made_of: MadeOf) -> Pass: ...


def joined(some: Cuts, more: Cuts) -> Cuts:
    """What stands around the parts of a pass in both: *some* first."""
    if not (some and more):
        return some or more
    both = {part: (some.get(part, NOTHING), more.get(part, NOTHING)) for part in {*some, *more}}
    return {part: Cut(a.before + b.before, a.after + b.after) for part, (a, b) in both.items()}


def forward_pass(parts: Parts, stage: Stage, *, cuts: Cuts | None = None, made_of: MadeOf) -> Pass:
    """Forward through *stage*: receive, embedding, layers, head, send."""
    cuts, lanes = cuts or {}, NO_LANES
    main: list[Piece] = [] if stage.before is None else _receive(parts, stage, "forward")
    made = mask_bytes_made(parts.job)  # before the first part
    for part, layer, block in made_of(parts, stage, cuts):
        cut, needed = cuts.get(part, NOTHING), max(block.transient_forward, made)
        made = 0.0
        main += [*cut.before, Hold(block.category, block.saved), Hold("temporary", needed)]
        here, overlapped = _unfold(block.forward, layer, "forward")
        lanes = _appended(lanes, overlapped)
        main += [*here, Hold("temporary", -needed), *cut.after]
    if parts.vocabulary is not None:
        main += [Signal(HIDDEN)] if stage.head else _both(cuts.get(0))  # the head's part is on every rank
    main += [Hold("logits", kept_logits(parts, stage) - kept_anyway(parts, stage))]
    main += [Hold("activations", kept_keys(parts, stage))]
    if stage.after is not None:
        main += [Hold("activations", parts.kept_output(stage)), *_send(parts, stage, stage.after, "forward")]
    return Pass("F", stage, tuple(main), lanes)


def backward_pass(parts: Parts, stage: Stage, *, cuts: Cuts | None = None, made_of: MadeOf) -> Pass:
    """Backward through *stage*: receive, head, layers last to first, embedding, send."""
    main, lanes = _back(parts, stage, "backward", cuts=cuts or {}, made_of=made_of)
    received = _gradient(parts, stage, cuts)
    if parts.vocabulary is not None:
        received = [Wait(HIDDEN_GRADIENT)] if stage.head else [*received, *_both((cuts or {}).get(0))]
    sent = [] if stage.before is None else _send(parts, stage, stage.before, "backward")
    return Pass("B", stage, (*received, *main, *_let_go(parts, stage), *sent), lanes)


def _gradient(parts: Parts, stage: Stage, cuts: Cuts | None) -> list[Piece]:
    """The gradient that a backward begins with; what is fetched for its first layer is on its way meanwhile."""
    received = [] if stage.after is None else _receive(parts, stage, "backward")
    return received if stage.head or parts.vocabulary is not None else [*_both((cuts or {}).get(0)), *received]


def input_pass(parts: Parts, stage: Stage, *, cuts: Cuts | None = None, made_of: MadeOf) -> Pass:
    """The half of a backward that others wait for: gradients of the activations."""
    main, lanes = _back(parts, stage, "input_gradient", cuts=cuts or {}, made_of=made_of)
    received = _gradient(parts, stage, cuts)
    sent = [] if stage.before is None else _send(parts, stage, stage.before, "backward")
    return Pass("I", stage, (*received, *main, *_let_go(parts, stage), *sent), lanes)


def weight_pass(parts: Parts, stage: Stage, *, cuts: Cuts | None = None, made_of: MadeOf) -> Pass:
    """The half of a backward that nobody waits for: gradients of the weights."""
    main, lanes = _back(parts, stage, "weight_gradient", cuts=cuts or {}, made_of=made_of)
    return Pass("W", stage, tuple(main), lanes)


PASSES: Mapping[str, PassMaker] = {"F": forward_pass, "B": backward_pass, "I": input_pass, "W": weight_pass}


def template(parts: Parts, one_pass: Pass) -> Template:
    """The template of the compute chain for one pass."""
    main: Iterable[Piece] = one_pass.main
    if parts.job.detail != "op":
        main = coarsen(main, parts.job.detail, parts.network)
    return Template.of(one_pass.work, one_pass.stage.chunk, main)


def _back(parts: Parts, stage: Stage, half: str, *, cuts: Cuts, made_of: MadeOf) -> tuple[list[Piece], Lanes]:
    main: list[Piece] = []
    lanes = NO_LANES
    for part, layer, block in reversed(made_of(parts, stage, cuts)):
        here, overlapped = _unfold(getattr(block, half), layer, half)
        cut, first = cuts.get(part, NOTHING), half != "weight_gradient" or not block.input_gradient
        needed = block.transient if here and first else 0.0
        main += [*cut.before, Hold("temporary", needed), *here, Hold("temporary", -needed), *_given_back(block, half)]
        if half != "weight_gradient" and part == 0:  # the head
            main.append(Hold("logits", kept_anyway(parts, stage)))
        main += cut.after
        lanes = _appended(lanes, overlapped)
    return main, lanes


def _let_go(parts: Parts, stage: Stage) -> Iterator[Hold]:
    """Results of a stage that nobody keeps any longer once its backward is over."""
    yield Hold("activations", -parts.kept_output(stage) - kept_keys(parts, stage))
    yield Hold("logits", -kept_logits(parts, stage))


def _given_back(block: Block, half: str) -> Iterator[Hold]:
    """What is no longer needed after a backward, or after the one half of it that is *half*."""
    if half != "weight_gradient":
        yield Hold(block.category, -block.saved)
    if half == "input_gradient":
        yield Hold(block.category, block.kept)
    if half == "weight_gradient":
        yield Hold(block.category, -block.kept)


def _both(cut: Cut | None) -> tuple[Piece, ...]:
    return (*cut.before, *cut.after) if cut else ()


def whole_blocks(parts: Parts, stage: Stage, cuts: Cuts) -> list[tuple[int, int, Block]]:
    """The blocks of *stage*; the embedding counts as layer -1, the head as the last."""
    last = stage.first + stage.layers - 1
    out = [(stage.layers + 1, -1, parts.embedding)] if stage.embedding else []
    out += [(stage.layers - k, stage.first + k, block) for k, block in enumerate(parts.layer_blocks(stage))]
    return [*out, (0, last + 1, parts.head)] if stage.head else out


def coarse_blocks(parts: Parts, stage: Stage, cuts: Cuts) -> list[tuple[int, int, Block]]:
    """The blocks of *stage* with their kernels merged by kind."""
    by_layer = parts.job.detail == "layer"  # else nobody asks which layer an interval is of
    blocks = whole_blocks(parts, stage, cuts)
    return [(part, layer if by_layer else -1, parts.coarse(block)) for part, layer, block in blocks]


NO_LANES: Lanes = MappingProxyType({})


def _unfold(pieces: Iterable[Work], layer: int, half: str) -> tuple[list[Instruction], Lanes]:
    """Instructions for the compute chain and for the lanes of overlapped collectives.

    An overlapped collective is three instructions on its lane: it starts when the compute chain reaches its kernels
    (event ``tp.HALF.LAYER.PLACE``), and the compute chain waits for its end behind them (the same with ``.done``). A
    pass has events of its own: what its forward has set stays set for the microbatch.
    """
    main: list[Instruction] = []
    lanes: dict[str, tuple[Instruction, ...]] = {}
    for place, piece in enumerate(pieces):
        if isinstance(piece, Overlapped):
            chain = lane(piece.meet)
            event = f"{chain}.{half}.{layer}.{place}"
            main += [Signal(event), *(_at(x, layer) for x in piece.kernels), Wait(f"{event}.done")]
            lanes[chain] = (*lanes.get(chain, ()), Wait(event), _at(piece.meet, layer), Signal(f"{event}.done"))
        else:
            main.append(_at(piece, layer))
    return main, lanes


def _appended(lanes: Lanes, more: Lanes) -> Lanes:
    """What the lanes do, and then more."""
    if not more:
        return lanes
    return {chain: (*lanes.get(chain, ()), *more.get(chain, ())) for chain in {**lanes, **more}}


def _at(i: Kernel | Meet, layer: int) -> Kernel | Meet:
    """The same instruction for *layer*: written out, since ``dataclasses.replace`` is three times slower."""
    if i.layer == layer:
        return i
    if isinstance(i, Kernel):
        return Kernel(i.name, i.kind, i.seconds, i.sm, i.hbm, layer, i.stream, i.payloads)
    return Meet(i.name, i.kind, i.communicator, i.operation, i.nbytes, layer, i.stream, i.exposed)


def _receive(parts: Parts, stage: Stage, direction: str) -> list[Piece]:
    """Wait for the message, unless an exchange did; one that was cut over TP is put together again."""
    job, wait = parts.job, Wait(f"{direction}.{stage.index}")
    source = stage.before if direction == "forward" else stage.after
    assert source is not None
    if parts.stages[source].rank == stage.rank:
        return [wait]
    out: list[Piece] = [] if parts.blocking else [wait]
    if parts.cut_messages and parts.network.has(TENSOR) and not job.parallel.sequence_parallel:
        whole = parts.message_bytes * job.parallel.tp
        out.append(Meet(f"{direction} gather", "tp", TENSOR, "all_gather", whole, stream="tp"))
    return out


def _send(parts: Parts, stage: Stage, to: int, direction: str) -> list[Piece]:
    """The message to virtual stage *to*: an event if it lives on the same rank, nothing if an exchange sends it."""
    framework, event, there = parts.job.framework, f"{direction}.{to}", parts.stages[to].rank
    if there == stage.rank:
        return [Signal(event)]
    if parts.blocking:
        return []
    name, blocking = parts.message_way(stage.rank, there, direction), framework.communication.p2p_blocking
    send = Send(f"{direction} to {to}", "pp", name, parts.message_bytes, event, blocking=blocking)
    if not blocking:
        return [send]
    announced, synchronised = framework.communication.p2p_announcement, framework.communication.p2p_overhead
    before = [Kernel("p2p announcement", "host", announced, 0.0, 0.0)] if announced > 0 else []
    after = [Kernel("p2p synchronisation", "pp", synchronised, 0.0, 0.0, stream="pp")] if synchronised > 0 else []
    return [*before, send, *after]
