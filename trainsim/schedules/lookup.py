"""Schedules by name or by file: the order and the facts of whatever a scenario names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from trainsim.errors import InvalidPlan
from trainsim.schedules import Pair, Slot, Work, flat, schedules
from trainsim.schedules.blocking import posted, with_messages
from trainsim.schedules.csv_files import parse_schedule, schedule_text
from trainsim.schedules.messages import Item, Links
from trainsim.schedules.orders import Order
from trainsim.schedules.slices import SLICES
from trainsim.schedules.traits import Traits

SUFFIX = ".csv"


def is_file(schedule: str) -> bool:
    """Whether *schedule* names a file in PyTorch's format rather than a registered schedule."""
    return schedule.endswith(SUFFIX)


def order_in(path: str) -> Order:
    """The order in a file as it is now. Raises InvalidPlan with the line and the cell."""
    return _order(path, schedule_text(path))


@lru_cache(maxsize=16)
def _order(path: str, text: str) -> Order:
    return parse_schedule(text, path)


def facts(schedule: str) -> Traits:
    """Traits of a schedule, or those that its file shows. Raises UnknownName and InvalidPlan."""
    if not is_file(schedule):
        return schedules.traits(schedule)
    order = order_in(schedule)
    if order.placement is None:
        raise InvalidPlan(f"{schedule} lays its stages over the ranks in no usual way: loop, V, wave or two-way are")
    slots = [slot for rank in range(order.ranks) for slot in order.slots(rank)]
    return Traits(
        placement=order.placement,
        chunks=order.chunks,
        split=any(slot.work in (Work.I, Work.W) for slot in flat(slots)),
        replicas=2 if order.two_way else 1,
        paired=any(isinstance(slot, Pair) for slot in slots),
        source=schedule,
    )


def slices_of(schedule: str, group: int | None) -> int:
    """Slices of a sequence: 1 unless the schedule cuts it.

    >>> slices_of("seq1f1b", None), slices_of("terapipe", 8), slices_of("1f1b", None)
    (4, 8, 1)
    """
    return (group or SLICES) if facts(schedule).sliced else 1


def check_numbers(schedule: str, ranks: int, *, microbatches: int, chunks: int, group: int | None = None) -> None:
    """Return when a schedule or a file can run on these numbers; raises InvalidPlan that says which would work."""
    if not is_file(schedule):
        schedules.check(schedule, ranks, microbatches=microbatches, chunks=chunks, group=group)
        return
    if group is not None:
        raise InvalidPlan(f"{schedule} is an order from a file, which no group changes; leave group out")
    order = order_in(schedule)
    asked, written = (ranks, chunks, microbatches), (order.ranks, order.chunks, order.microbatches)
    for what, asked_for, its in zip(("pp", "chunks", "microbatches"), asked, written, strict=True):
        if asked_for != its:
            raise InvalidPlan(f"{schedule} is an order for {what} = {its}, not {asked_for}")


def slots_of(
    schedule: str,
    rank: int,
    ranks: int,
    *,
    microbatches: int,
    chunks: int,
    group: int | None = None,
    costs: Sequence[float] | None = None,
) -> Sequence[Slot | Pair]:
    """What *rank* does, in order, in a schedule that plans by times for these *costs*."""
    if is_file(schedule):
        return order_in(schedule).slots(rank)
    times = {} if costs is None else {"costs": costs}
    return list(schedules[schedule](rank, ranks, microbatches=microbatches, chunks=chunks, group=group, **times))


def items_of(
    schedule: str,
    rank: int,
    ranks: int,
    *,
    microbatches: int,
    chunks: int,
    group: int | None = None,
    costs: Sequence[float] | None = None,
) -> Sequence[Item]:
    """The same with the exchanges of blocking messages; those of a file are posted as Megatron-LM posts its own."""
    if not is_file(schedule):
        numbers = {"microbatches": microbatches, "chunks": chunks}
        return posted(schedule, rank, ranks, **numbers, group=group, costs=costs)
    links = Links(rank=rank, ranks=ranks, chunks=chunks, placement=facts(schedule).placement)
    return with_messages(order_in(schedule).slots(rank), links)
