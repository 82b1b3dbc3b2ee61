"""The compute lane of a Gantt chart from afar: boxes whose area is the time that a rank spends so.

A pass is a box in which bands, as high as their share, say what it is made of besides its own kernels. Communication
and waiting inside a pass are cut out where they happen if that can be seen, and else they are bands too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from trainsim.analysis.lanes import Floats, Ints
from trainsim.analysis.passes import Passes
from trainsim.report.canvas import TALL, Canvas, Note
from trainsim.report.drawn_ranks import DrawnRank, Looks, PassGroups, name
from trainsim.report.intervals import NONE, Intervals, seconds_until, union, without

BANDS = ("recompute", "tp", "cp", "ep", "host", "copy", "other", "optimizer", "pp", "gather", "dp", "offload", "delay")
"""Bands of a pass, from its bottom; its own kernels are above them, and above those the time in which it waits."""
WAITS = ("exposed", "bubble")
CUT_OUT = ("pp", "gather", "dp", "offload", "optimizer", "delay", *WAITS)
"""What is drawn at its own place, in the whole height of the lane, ..."""
SEEN = 2.0
"""... if it is that many pixels wide."""
LEAST = 0.004
"""The thinnest band, as a part of the lane."""
BAR = 0.22
"""Height of the bar that marks the last chunk; of chunks in between it is a part."""
MAIN = {"F": "forward", "B": "backward", "I": "input", "W": "weight"}
"""How each pass of the schedule looks."""


class Stack(NamedTuple):
    """Pieces of passes: when, which group each is of, and from the bottom up between which levels (0 to 1) each look
    is."""

    spans: Intervals
    group: Ints
    levels: tuple[tuple[str, Floats, Floats], ...]

    def between(self, look: str) -> tuple[Floats, Floats]:
        """The levels of one look."""
        return next((low, high) for name, low, high in self.levels if name == look)


def draw_compute(canvas: Canvas, actor: DrawnRank, top: float) -> None:
    """All that the compute chain of *actor* does in the window, in the lane under *top*."""
    looks = actor.doing(canvas.window)
    least = SEEN * canvas.pixel
    cut = {look: looks[look].where(looks[look].seconds >= least) for look in CUT_OUT if look in looks}
    groups, holes = actor.groups.clipped(canvas.window), union(cut.values())
    stack = _stack(looks, actor.passes, groups, holes)
    for look, low, high in stack.levels:
        of = high - low > 1e-9
        canvas.add(look, stack.spans.where(of), top + (low[of] - 1) * TALL, top + (high[of] - 1) * TALL)
    for look, spans in looks.items():  # what is in no pass, such as the update
        canvas.add(look, without(spans, union([stack.spans, holes]))[0], top - TALL, top)
    for look, spans in cut.items():
        canvas.add(look, spans, top - TALL, top)
    _mark_chunks(canvas, actor.passes, groups, stack, top)
    _number(canvas, actor, groups, stack, top)
    say_why(canvas, actor, top)


def _stack(looks: Looks, passes: Passes, groups: PassGroups, holes: Intervals) -> Stack:
    """What the pieces of passes between *holes* are made of."""
    pieces, group = without(groups.spans, holes)
    length = np.maximum(pieces.seconds, 1e-300)

    def share(look: str) -> Floats:
        spans = looks.get(look, NONE)
        return (seconds_until(spans, pieces.end) - seconds_until(spans, pieces.start)) / length

    forward, other = groups.forward[group], groups.other[group]
    first = share("forward")
    both = first + share("backward")
    first = np.where(other < 0, both, np.where(forward < 0, 0.0, first))
    bands = [np.where(height > LEAST, height, 0.0) for height in map(share, (*BANDS, *WAITS))]
    own = 1.0 - np.sum(bands, axis=0)  # what is too thin to be seen counts as the pass's own kernels
    first = own * first / np.maximum(both, 1e-300)
    look_of_other = np.array([*map(MAIN.get, passes.work), ""], object)[other]
    kinds = ("backward", "input", "weight")
    heights = [*zip(BANDS, bands, strict=False)]
    heights += [(kind, np.where(look_of_other == kind, own - first, 0.0)) for kind in kinds]
    heights += [("forward", first), *zip(WAITS, bands[len(BANDS) :], strict=True)]
    level, levels = np.zeros(len(length)), []
    for look, height in heights:
        levels.append((look, level, level + height))
        level = level + height
    return Stack(pieces, group, tuple(levels))


def _mark_chunks(canvas: Canvas, passes: Passes, groups: PassGroups, stack: Stack, top: float) -> None:
    """A bar along the top of passes over later chunks; the taller, the later."""
    if not len(passes.work) or not passes.chunk.max():
        return
    for number, looks in ((groups.forward, ("forward",)), (groups.other, ("backward", "input", "weight"))):
        which = number[stack.group]
        chunk = np.where(which >= 0, passes.chunk[which], 0)
        for look in looks:
            low, high = stack.between(look)
            of = np.flatnonzero((chunk > 0) & (high - low > 1e-9))
            tall = BAR * TALL * chunk[of] / passes.chunk.max() * np.minimum(1.0, 1.2 * (high - low)[of])
            edge = top + (high[of] - 1) * TALL
            canvas.add("chunk", stack.spans.where(of), edge - tall, edge)


def _number(canvas: Canvas, actor: DrawnRank, groups: PassGroups, stack: Stack, top: float) -> None:
    """The microbatch of each pass, above the bands of the piece next to its middle that is about as long as any."""
    passes, length = actor.passes, stack.spans.seconds
    longest = np.zeros(len(groups.forward))
    np.maximum.at(longest, stack.group, length)
    middle = (groups.spans.start + groups.spans.end)[stack.group] / 2
    off = np.abs((stack.spans.start + stack.spans.end) / 2 - middle)
    order = np.lexsort((off, length < 0.6 * longest[stack.group], stack.group))
    heads = order[np.flatnonzero(np.diff(stack.group[order], prepend=-1))]
    for piece in heads.tolist():
        group = int(stack.group[piece])
        for k in (int(groups.forward[group]), int(groups.other[group])):
            if k >= 0:
                look = MAIN[passes.work[k]]
                low, high = (float(edge[piece]) for edge in stack.between(look))
                canvas.note(
                    Note(
                        float(stack.spans.start[piece]), float(stack.spans.end[piece]),
                        top + ((low + high) / 2 - 1) * TALL, name(passes, k), look, max(high - low, 0.4) * TALL,
                        number=int(passes.microbatch[k]), lane=actor.rank,
                    )
                )  # fmt: skip


def say_why(
    canvas: Canvas,
    actor: DrawnRank,
    top: float,
    *,
    update: bool = True,
    awaited: Callable[[str, float], str] | None = None,
) -> None:
    """What each wait is for, and what is done outside the passes. *awaited* says more of what the rank waits for on one
    of its own chains, up to which moment."""
    rest, middle = actor.idle, top - TALL / 2
    first, last = canvas.window
    wide = np.minimum(rest.end, last) - np.maximum(rest.start, first) > 2 * canvas.pixel
    for k in np.flatnonzero(wide & (rest.source >= 0)).tolist():
        source, what, start, end = int(rest.source[k]), rest.what[k], float(rest.start[k]), float(rest.end[k])
        if awaited is not None and source == actor.stage:
            what = awaited(what, end)
        upright = awaited is not None
        canvas.note(Note(start, end, middle, reason(actor.stage, source, what), "bubble", TALL, upright=upright))
    for piece in actor.update if update else ():
        canvas.note(Note(piece.start, piece.end, middle, piece.name, "update", 0.7 * TALL))


def reason(stage: int, source: int, what: str) -> str:
    """
    >>> reason(3, 2, "pp-forward"), reason(3, 3, "dp"), reason(3, 3, "peers")
    ('waits for stage 2', 'waits for dp', 'waits for late peers')
    """
    return f"waits for stage {source}" if source != stage else f"waits for {'late ' * (what == 'peers')}{what}"
