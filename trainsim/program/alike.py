"""
Passes at detail ``block``, where those of stages that are alike differ in the names of what they wait for and tell.
"""

from __future__ import annotations

from typing import Any

from trainsim.contracts.instructions import Hold, Kernel, Meet, Piece, Template
from trainsim.program.parts import Parts
from trainsim.program.pieces import IN_LAYERS, Block
from trainsim.program.stages import Stage
from trainsim.program.templates import PASSES, Cuts, coarse_blocks, template, whole_blocks

EMPTY = Block(forward=(), backward=(), forward_seconds=0.0, backward_seconds=0.0, saved=0.0, transient=0.0)


def block_template(parts: Parts, stage: Stage, work: str, cuts: Cuts) -> Template:
    """The template of the pass *work* through *stage*, with *cuts* around its parts.

    One that is alike is taken over, with the instructions of this one in the places of those that are not merged.
    """
    outline = PASSES[work](parts, stage, cuts=cuts, made_of=_parts_with_cuts).main
    blocks = tuple(map(id, parts.layer_blocks(stage)))
    ends = stage.chunk, stage.embedding, stage.head
    key = work, ends, blocks, tuple(cuts), tuple(map(_shape, outline))
    alike = parts.alike.get(key)
    if alike is None:
        one_pass = PASSES[work](parts, stage, cuts=cuts, made_of=coarse_blocks)
        alike = parts.alike[key] = template(parts, one_pass)
        return alike
    own = iter([piece for piece in outline if not _merges(piece)])
    instructions = tuple(i if _merges(i) else next(own) for i in alike.instructions)
    return Template(work, stage.chunk, instructions, alike.holds)  # type: ignore[arg-type]


def _parts_with_cuts(parts: Parts, stage: Stage, cuts: Cuts) -> list[tuple[int, int, Block]]:
    return [(part, -1, EMPTY) for part, *_ in whole_blocks(parts, stage, cuts) if part in cuts] if cuts else []


def _merges(piece: Piece) -> bool:
    """Whether it becomes part of an interval; all others stay where they are."""
    return isinstance(piece, Kernel | Hold) or (isinstance(piece, Meet) and piece.kind in IN_LAYERS)


def _shape(piece: Piece) -> Any:
    """What of a piece makes a difference to others."""
    return piece if _merges(piece) else type(piece)
