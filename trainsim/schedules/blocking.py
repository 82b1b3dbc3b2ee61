"""In which order ranks post blocking messages: the rules of Megatron-LM, and how to find a schedule's own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from trainsim.schedules import Pair, Slot, Work, flat, schedules
from trainsim.schedules.messages import Item, Links, MessageBatch, PipelineMessage, mails
from trainsim.schedules.placement import StagePlacement, place_of


def posted(
    schedule: str,
    rank: int,
    ranks: int,
    *,
    microbatches: int,
    chunks: int = 1,
    group: int | None = None,
    costs: Sequence[float] | None = None,
) -> list[Item]:
    """Slots and exchanges of *rank* in the schedule called *schedule*, as its framework posts them.

    A schedule whose framework has no rule of its own for blocking messages uses Megatron-LM's for its kind; for some
    orders that deadlocks.

    >>> [item if isinstance(item, MessageBatch) else str(item) for item in posted("1f1b", 1, 2, microbatches=1)][:2]
    [MessageBatch(sends=(), receives=(PipelineMessage(work=<Work.F: 'F'>, stage=0, microbatch=0),)), 'F0']
    """
    times = {} if costs is None else {"costs": costs}
    order = list(schedules[schedule](rank, ranks, microbatches=microbatches, chunks=chunks, group=group, **times))
    name = schedules.canonical(schedule)
    if name in mails:
        return list(mails[name](rank, ranks, microbatches=microbatches, chunks=chunks, group=group))
    links = Links(rank=rank, ranks=ranks, chunks=chunks, placement=schedules.traits(name).placement)
    return with_messages(order, links)


def with_messages(order: Sequence[Slot | Pair], links: Links) -> list[Item]:
    """*order* with its messages as Megatron-LM posts them, with or without interleaving; empty exchanges left out."""
    interleaved = links.chunks > 1 and links.placement is StagePlacement.LOOP
    items = step_by_step(order, links) if interleaved else turn_by_turn(order, links)
    return [item for item in items if not isinstance(item, MessageBatch) or item.sends or item.receives]


def turn_by_turn(order: Sequence[Slot | Pair], links: Links) -> Iterator[Item]:
    """Send, then receive; both at once between a forward and a backward (Megatron-LM without interleaving)."""
    before: list[Slot] = []
    for item in order:
        now = list(flat((item,)))
        sends = tuple(m for slot in before for m in links.sends(slot))
        receives = tuple(m for slot in now for m in links.receives(slot))
        if {slot.work is Work.F for slot in before} == {slot.work is Work.F for slot in now}:
            yield MessageBatch(sends=sends)
            yield MessageBatch(receives=receives)
        else:
            yield MessageBatch(sends, receives)
        yield item
        before = now
    yield MessageBatch(sends=tuple(m for slot in before for m in links.sends(slot)))


def step_by_step(order: Sequence[Slot | Pair], links: Links) -> Iterator[Item]:
    """One exchange after each forward, each backward, or both in the steady phase (Megatron-LM, interleaved).

    It sends what was just computed and receives what the other rank sends at that time: mostly the next input; what
    comes round from the other end of the pipeline may be for later. Source: Megatron-LM
    megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_with_interleaving without overlap.
    """
    ahead = _all_ahead(order, links)
    steps = _steps(order, paired=not ahead)
    arriving = _arrivals(steps, links)
    yield MessageBatch(receives=tuple(arriving[-1]))
    for k, step in enumerate(steps):
        yield from step
        sends = tuple(m for slot in flat(step) for m in links.sends(slot))
        turns = ahead and k + 1 < len(steps) and _is_forward(step[0]) and not _is_forward(steps[k + 1][0])
        if turns:  # the first gradient is asked for on its own
            yield MessageBatch(sends=sends)
            yield MessageBatch(receives=tuple(arriving[k]))
        else:
            yield MessageBatch(sends, tuple(arriving[k]))


def _is_forward(item: Slot | Pair) -> bool:
    return all(slot.work is Work.F for slot in flat((item,)))


def _all_ahead(order: Sequence[Slot | Pair], links: Links) -> bool:
    """Whether all forwards are warm-up: no backward is paired with the last of them."""
    slots = list(flat(order))
    total = sum(slot.work is Work.F for slot in slots)
    group = next((k for k, slot in enumerate(slots) if slot.work is not Work.F or slot.chunk > 0), total)
    return 2 * (links.ranks - 1 - links.rank) + (links.chunks - 1) * group >= total


def _steps(order: Sequence[Slot | Pair], paired: bool) -> list[list[Slot | Pair]]:
    """Warm-up forwards one by one, then (*paired*) forwards with the backward after them, then backwards one by one."""
    steps: list[list[Slot | Pair]] = []
    for item in order:
        weight = isinstance(item, Slot) and item.work is Work.W
        back = all(slot.work is not Work.F for slot in flat((item,)))
        if steps and (weight or (paired and back and all(map(_is_forward, steps[-1])))):
            steps[-1].append(item)
        else:
            steps.append([item])
    return steps


def _arrivals(steps: Sequence[Sequence[Slot | Pair]], links: Links) -> dict[int, list[PipelineMessage]]:
    """Messages to receive by the step after which the rank posts them; -1: before the first."""
    due: dict[int, list[PipelineMessage]] = defaultdict(list)
    numbered = [(k, slot) for k, step in enumerate(steps) for slot in flat(step) if slot.work is not Work.W]
    for direction in (True, False):
        own = [k for k, slot in numbered if (slot.work is Work.F) == direction]
        done = [slot for _, slot in numbered if (slot.work is Work.F) == direction]
        place = {(slot.microbatch, slot.chunk): k for k, slot in enumerate(done)}
        for k, slot in enumerate(done):
            for message in links.receives(slot):
                after = k - 1
                source, chunk = place_of(links.placement, message.stage, links.ranks)
                if abs(source - links.rank) > 1 or (links.ranks == 2 and chunk != slot.chunk):
                    after = min(after, place[message.microbatch, chunk] + links.ranks - 1)
                due[own[after] if after >= 0 else min(own[0] - 1, own[k] - 1)].append(message)
    return due
