"""Which texts of a chart have room, and in what size; numbers of microbatches are all there, or evenly spaced."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median, median_low
from typing import TYPE_CHECKING, NamedTuple

from trainsim.report import lettering
from trainsim.report.canvas import Note
from trainsim.report.style import LOOKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMALLEST = 4.3
"""Points of a number that would not fit otherwise."""
SMALL = 5.2
"""Points of a text that has shorter forms."""
LARGEST, SECOND = 9.5, 7.5
"""Points of the texts in boxes, and of those in gaps and above boxes."""
UPRIGHT, LEAST_UPRIGHT = 7.0, 4.8
"""The same, the most and the least, of texts that stand upright."""
MARGIN = 1.5
"""Points that stay free beside a text."""
MOST = 0.9
"""Part of the numbers of one lane and kind that must have room for those that have it to be written."""
WHOLE = 0.6
"""Part of the usual length that a pass has at least if it is not cut off."""
STRIDES = (2, 5, 10, 20, 50, 100, 200, 500)


class Fitted(NamedTuple):
    """A text that has room, in a size (points)."""

    note: Note
    text: str
    points: float
    upright: bool = False


def write_notes(axes: Axes, notes: Iterable[Note], points_per_second: float, scale: float) -> None:
    """All texts that have room; *scale* is inches per lane height."""
    groups: defaultdict[tuple[str, float, str], list[lettering.Text]] = defaultdict(list)
    for note, text, points, upright in fitted(notes, points_per_second, scale):
        ink, halo = _ink(note.kind)
        if upright:
            lettering.write_upright(axes, ((note.left + note.right) / 2, note.middle, text), points=points, colour=ink)
        else:
            groups[ink, points, halo].append(((note.left + note.right) / 2, note.middle, text))
    for (ink, points, halo), texts in groups.items():
        lettering.write(axes, texts, points=points, colour=ink, halo=halo, points_per_x=points_per_second)


def fitted(notes: Iterable[Note], points_per_second: float, scale: float) -> Iterator[Fitted]:
    """The texts that have room.

    Numbers of passes of one kind are written if most of them have room; if not, then every second, fifth, ... of those
    that follow each other at once, over their neighbours as on an axis, or none: single digits alone would mislead.
    """
    lanes: defaultdict[tuple[int, str], list[Note]] = defaultdict(list)
    for note in notes:
        if note.number >= 0:
            lanes[note.lane, note.kind].append(note)
        elif (words := fit(note, points_per_second, scale)).text:
            yield words
    for numbers in lanes.values():
        single: list[Note] = []
        for run in _runs(sorted(numbers)):
            if len(run) < 3:
                single += run
            else:
                yield from _all(run, points_per_second, scale) or _spaced(run, points_per_second, scale)
        yield from _all(single, points_per_second, scale)


def _all(notes: Sequence[Note], points_per_second: float, scale: float) -> list[Fitted]:
    """*notes*, in one size where it fits, if most of them have room, or nothing; passes that the window cuts off do not
    count."""
    every = [fit(note, points_per_second, scale) for note in notes]
    least = WHOLE * median(note.right - note.left for note in notes) if notes else 0.0
    whole = [bool(words.text) for words in every if words.note.right - words.note.left >= least]
    if sum(whole) < MOST * len(whole):
        return []
    written = [words for words in every if words.text]
    size = median_low([words.points for words in written]) if written else 0.0
    return [words._replace(points=min(size, words.points)) for words in written]


def fit(note: Note, points_per_second: float, scale: float) -> Fitted:
    """The longest form of a text that has room, or nothing."""
    room = (note.right - note.left) * points_per_second - MARGIN
    points = _most(note, scale)
    small = max(min(6.0, points), points * 0.72)
    if note.kind == "bubble":
        forms = [(note.text, points), (note.text.removeprefix("waits for ").replace("stage ", "< "), small)]
    elif note.number >= 0:
        texts = dict.fromkeys((note.text, note.text.partition(".")[0]))
        forms = [(text, size) for text in texts for size in (points, small, min(small, SMALLEST))]
    else:
        sizes = (points, small, min(small, SMALL)) if note.shorter else (points, small)
        forms = [(text, size) for text in (note.text, *note.shorter) for size in sizes]
    if room >= 3.0 and points >= SMALLEST:
        for text, size in forms:
            if lettering.width(text, size) <= room:
                return Fitted(note, text, size)
    return _upright(note, room, scale) or Fitted(note, "", points)


def _upright(note: Note, room: float, scale: float) -> Fitted | None:
    """The text from the bottom to the top of a box that is narrow and tall, if it may stand so and has *room*."""
    high = note.tall * scale * 72 * 0.85 - 2 * MARGIN  # the axes have some space above the lanes
    for text in (note.text, *note.shorter) if note.upright else ():
        size = round(min(UPRIGHT, room, UPRIGHT * high / max(lettering.width(text, UPRIGHT), 1e-9)), 1)
        if size >= LEAST_UPRIGHT:
            return Fitted(note, text, size, upright=True)
    return None


def _most(note: Note, scale: float) -> float:
    """Points that a text may have in a box so high."""
    return round(min(SECOND if note.kind in ("bubble", "pass") else LARGEST, note.tall * scale * 72 * 0.82), 1)


def _spaced(run: Sequence[Note], points_per_second: float, scale: float) -> Iterator[Fitted]:
    """Evenly spaced numbers of passes that follow each other at once."""
    points = max(SMALLEST, min(6.0, _most(run[0], scale)))
    half = max(lettering.width(note.text, points) for note in run) / 2 + MARGIN
    pitch = (run[-1].right - run[0].left) / len(run) * points_per_second
    stride = next((stride for stride in STRIDES if stride * pitch >= 2 * half), 0)
    free, end = run[0].left, run[-1].right
    for note in run:
        room = half / points_per_second
        middle = (note.left + note.right) / 2
        if stride and note.number % stride == 0 and free <= middle - room and middle + room <= end:
            yield Fitted(note, note.text, points)
            free = middle + room


def _runs(numbers: Sequence[Note]) -> Iterator[list[Note]]:
    """Passes of one kind and lane, by start, cut where something is between them."""
    run: list[Note] = []
    for note in numbers:
        if run and note.left - run[-1].right > 0.1 * (note.right - note.left):
            yield run
            run = []
        run.append(note)
    yield run


def _ink(kind: str) -> tuple[str, str]:
    """Colour of a text and of the halo that keeps it readable on a hatch."""
    own = {"bubble": ("#6f6f6f", ""), "pass": ("#333333", ""), "update": ("#111111", "#ffffff")}
    look = LOOKS.get(kind, LOOKS["other"])
    return own.get(kind) or (("#111111", "#ffffff") if look.hatch else (look.ink, ""))
