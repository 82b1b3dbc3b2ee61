"""The rule of most schedules: groups of microbatches go through the chunks; forwards pair with backwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat

from trainsim.schedules import Pair, Slot, Work


def forwards(microbatches: int, chunks: int = 1, group: int | None = None) -> list[Slot]:
    """Forward slots in groups of *group* microbatches: each goes through every chunk before the next starts.

    >>> print(*forwards(4, chunks=2, group=2))
    F0 F1 F0.1 F1.1 F2 F3 F2.1 F3.1
    """
    size = group or microbatches
    return [
        slot
        for first in range(0, microbatches, size)
        for chunk in range(chunks)
        for slot in _slots(Work.F, range(first, min(first + size, microbatches)), repeat(chunk))
    ]


def backwards(forward: Sequence[Slot], chunks: int = 1) -> list[Slot]:
    """The backward slots that answer *forward*: the same groups, the chunks the other way round.

    >>> print(*backwards(forwards(2, chunks=2, group=2), chunks=2))
    B0.1 B1.1 B0 B1
    """
    _, microbatches, of = zip(*forward, strict=True) if forward else ((), (), ())
    return list(_slots(Work.B, microbatches, [chunks - 1 - chunk for chunk in of]))


def _slots(work: Work, microbatches: Iterable[int], chunks: Iterable[int]) -> Iterator[Slot]:
    """Slots from columns, which is several times faster than one by one."""
    return map(Slot._make, zip(repeat(work), microbatches, chunks))


def paired(forward: Sequence[Slot], backward: Sequence[Slot], warmup: int) -> Iterator[Slot]:
    """*warmup* forwards, then one forward and one backward in turn, then the backwards that are left.

    >>> ahead = forwards(3)
    >>> print(*paired(ahead, backwards(ahead), warmup=1))
    F0 F1 B0 F2 B1 B2
    """
    warmup = min(warmup, len(forward))
    yield from forward[:warmup]
    yield from chain.from_iterable(zip(forward[warmup:], backward, strict=False))
    yield from backward[len(forward) - warmup :]


def overlapping(forward: Sequence[Slot], backward: Sequence[Slot], warmup: int) -> Iterator[Slot | Pair]:
    """Like ``paired``, but the forward and the backward of the steady phase run at once.

    >>> ahead = forwards(3)
    >>> print(*overlapping(ahead, backwards(ahead), warmup=1))
    F0 F1&B0 F2&B1 B2
    """
    warmup = min(warmup, len(forward))
    yield from forward[:warmup]
    yield from map(Pair, forward[warmup:], backward)
    yield from backward[len(forward) - warmup :]


def split(slots: Iterable[Slot]) -> Iterator[Slot]:
    """Every backward as input gradient and weight gradient, one right after the other.

    >>> print(*split([Slot(Work.F, 0), Slot(Work.B, 0)]))
    F0 I0 W0
    """
    for slot in slots:
        if slot.work is Work.B:
            yield slot._replace(work=Work.I)
            yield slot._replace(work=Work.W)
        else:
            yield slot


def postponed(slots: Iterable[Slot], backwards: int) -> Iterator[Slot]:
    """Every backward split; the weight gradient comes *backwards* input gradients after its own.

    >>> ahead = forwards(3)
    >>> print(*postponed(paired(ahead, backwards(ahead), warmup=1), backwards=1))
    F0 F1 I0 F2 I1 W0 I2 W1 W2
    """
    waiting: list[Slot] = []
    for slot in slots:
        if slot.work is not Work.B:
            yield slot
            continue
        yield slot._replace(work=Work.I)
        waiting.append(slot._replace(work=Work.W))
        if len(waiting) > backwards:
            yield waiting.pop(0)
    yield from waiting
