"""A whole run as an image: a row per rank, each pixel the mean colour of what it does meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trainsim.analysis.kinds import COLUMN
from trainsim.analysis.lanes import Floats
from trainsim.report.compute_lane import MAIN
from trainsim.report.drawn_ranks import DrawnRank
from trainsim.report.intervals import Intervals, joined, without
from trainsim.report.style import LOOKS

COLUMNS, ROWS = 2200, 8
"""Pixels of the image: in all, and per rank, so that resampling does not mix ranks."""
Pixels = npt.NDArray[np.uint8]


class Weighted(NamedTuple):
    """Intervals and how much of each is spent in some way."""

    spans: Intervals
    share: Floats

    def until(self, at: Floats) -> Floats:
        """Seconds spent so before each moment."""
        if not len(self.share):
            return np.zeros(len(at))
        seconds = np.concatenate([[0.0], np.cumsum(self.spans.seconds * self.share)])
        edges = np.stack(self.spans, axis=1).ravel()
        until: Floats = np.interp(at, edges, np.stack([seconds[:-1], seconds[1:]], axis=1).ravel())
        return until


def strip(stages: Sequence[DrawnRank], end: float, *, start: float = 0.0) -> Pixels:
    """Red, green and blue of [ranks * ROWS, COLUMNS] pixels from *start* to *end* (seconds); idle time is white."""
    image = np.empty((len(stages), COLUMNS, 3), np.uint8)
    edges = start + np.arange(COLUMNS + 1) / COLUMNS * (end - start)
    for k, actor in enumerate(stages):
        image[k] = _row(actor, edges)
    return image.repeat(ROWS, axis=0)


def strip_looks(actor: DrawnRank) -> dict[str, Weighted]:
    """What a strip shows of a rank: passes, exposed communication, and what is done outside the passes.

    Communication that the compute chain itself carries out inside a pass is exposed too; rows of the trace are taken
    as even.
    """
    lane, passes = actor.lane, actor.passes
    groups = actor.groups
    waits = joined(Intervals(actor.idle.start, actor.idle.end))[0]
    pieces, group = without(groups.spans, waits)
    forward, other = groups.forward[group], groups.other[group]
    length = np.maximum(lane.end - lane.start, 1e-300)
    rows = np.flatnonzero(lane.in_pass & (lane.seconds[:, COLUMN["dp"]] > 0))
    inside = Weighted(Intervals(lane.start[rows], lane.end[rows]), lane.seconds[rows, COLUMN["dp"]] / length[rows])
    rest = 1.0 - (inside.until(pieces.end) - inside.until(pieces.start)) / np.maximum(pieces.seconds, 1e-300)
    looks = {"exposed": Weighted(actor.exposed, np.ones(len(actor.exposed.start))), "dp": inside}
    done = np.array([*passes.work, ""])
    for number, works in ((forward, "F"), (other, "BIW")):
        for work in works:
            of = np.flatnonzero(done[number] == work)
            both = (forward[of] >= 0) & (other[of] >= 0)
            looks[MAIN[work]] = Weighted(pieces.where(of), rest[of] * np.where(both, 0.5, 1.0))
    for kind in dict.fromkeys(piece.kind for piece in actor.update):
        some = [piece for piece in actor.update if piece.kind == kind]
        spans = Intervals(np.array([piece.start for piece in some]), np.array([piece.end for piece in some]))
        looks[f"update {kind}"] = Weighted(spans, np.ones(len(some)))
    return looks


def painted(stages: Sequence[DrawnRank]) -> set[str]:
    """The kinds that a strip shows; idle time is white."""
    return {
        look.removeprefix("update ")
        for actor in stages
        for look, spent in strip_looks(actor).items()
        if float((spent.spans.seconds * spent.share).sum()) > actor.lanes.duration / COLUMNS
    }


def _row(actor: DrawnRank, edges: Floats) -> Pixels:
    from matplotlib.colors import to_rgb

    colour, free = np.zeros((COLUMNS, 3)), np.ones(COLUMNS)
    for look, spent in strip_looks(actor).items():
        share = np.diff(spent.until(edges)) / (edges[1] - edges[0])
        colour += share[:, None] * np.array(to_rgb(LOOKS[look.removeprefix("update ")].fill))
        free -= share
    pixels: Pixels = np.rint((colour + free.clip(0.0)[:, None]).clip(0.0, 1.0) * 255).astype(np.uint8)
    return pixels
