"""Which exchanges an order needs where messages block, and that they bring every input before it is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trainsim.errors import InvalidPlan
from trainsim.schedules import Pair, Slot
from trainsim.schedules.blocking import posted, with_messages
from trainsim.schedules.cells import CellRows, cell_of, format_cell, schedule
from trainsim.schedules.messages import Item, Links, MessageBatch, PipelineMessage, mails
from trainsim.schedules.orders import Cells, Order
from trainsim.schedules.placement import StagePlacement

Step = Cells | MessageBatch
KNOWN = {StagePlacement.TWO_WAY: "dualpipe", StagePlacement.V: "dualpipev"}
"""Schedules with overlapped pairs whose order of messages is known, by placement."""


def with_exchanges(order: Order, given: Iterable[Iterable[str]], rule: str) -> tuple[tuple[Step, ...], ...]:
    """Cells and exchanges of every rank, as the framework posts them that the order is from.

    *given* may be ``CellRows`` that remember their schedule; otherwise an order of DualPipe or DualPipeV is recognised,
    and any other has its messages as Megatron-LM posts them. *rule* is "blocking", or the name of a schedule with an
    order of messages of its own. Raises InvalidPlan where stages are not laid out in a usual way.
    """
    placement = order.placement
    if placement is None:
        raise InvalidPlan("blocking messages need stages laid over the ranks in a loop, a V, a wave or both ways")
    name = _schedule_of(order, given, rule, placement)
    numbers: Mapping[str, int | None] = {"microbatches": order.microbatches, "chunks": order.chunks}
    if isinstance(given, CellRows) and given.name == name:
        numbers = given.numbers
    rows = []
    for rank in range(order.ranks):
        links = Links(rank=rank, ranks=order.ranks, chunks=order.chunks, placement=placement)
        if name:
            items = posted(name, rank, order.ranks, **numbers)  # type: ignore[arg-type]
        else:
            items = with_messages([_slots(cells, order.ranks) for cells in order.rows[rank]], links)
        rows.append(tuple(_step(item, placement, links) for item in items))
        _received_in_time(rows[-1], links)
    return tuple(rows)


def _schedule_of(order: Order, given: Iterable[Iterable[str]], rule: str, placement: StagePlacement) -> str | None:
    """The schedule whose own order of messages holds; None: the usual one."""
    texts = [list(row) for row in order.texts]
    if rule != "blocking":
        if texts != schedule(rule, order.ranks, order.microbatches, order.chunks):
            raise InvalidPlan(f'p2p_mode={rule!r} is for the order of {rule}; this is another, use "blocking"')
        return rule
    if isinstance(given, CellRows) and given.name in mails and given.unchanged():
        return given.name
    known = KNOWN.get(placement)
    if known and any(len(cells) == 2 for row in order.rows for cells in row):
        try:
            return known if texts == schedule(known, order.ranks, order.microbatches) else None
        except InvalidPlan:
            return None
    return None


def _slots(cells: Cells, ranks: int) -> Slot | Pair:
    slots = [Slot(cell.work, cell.microbatch, cell.stage // ranks) for cell in cells]
    return Pair(*slots) if len(slots) == 2 else slots[0]


def _step(item: Item, placement: StagePlacement, links: Links) -> Step:
    if isinstance(item, MessageBatch):
        return item
    slots = item if isinstance(item, Pair) else (item,)
    return tuple(cell_of(slot, placement, links.rank, links.ranks) for slot in slots)


def _received_in_time(row: Iterable[Step], links: Links) -> None:
    arrived: set[PipelineMessage] = set()
    for step in row:
        if isinstance(step, MessageBatch):
            arrived.update(step.receives)
            continue
        for cell in step:
            for message in links.receives(Slot(cell.work, cell.microbatch, cell.stage // links.ranks)):
                if message not in arrived:
                    raise InvalidPlan(
                        f"no rule for blocking messages brings the {message} to rank {links.rank} before {cell} "
                        'needs it; p2p_mode="async" carries out any order'
                    )


def deadlock(rows: Sequence[Sequence[Step]], order: Order) -> str | None:
    """Who waits for whom if the exchanges can never all be carried out; None if they can."""
    at = [0] * order.ranks
    posted_by: dict[PipelineMessage, set[str]] = {}
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            while at[rank] < len(row):
                step = row[at[rank]]
                if isinstance(step, MessageBatch):
                    _post(step, posted_by)
                    if _awaited(step, posted_by):
                        break
                at[rank] += 1
                moved = True
    stuck = [rank for rank, row in enumerate(rows) if at[rank] < len(row)]
    lines = [f"  {_waits(rank, rows[rank], at[rank], posted_by, order)}" for rank in stuck]
    return "\n".join(["blocking messages wait for each other:", *lines]) if stuck else None


def _post(exchange: MessageBatch, posted_by: dict[PipelineMessage, set[str]]) -> None:
    for message in exchange.sends:
        posted_by.setdefault(message, set()).add("send")
    for message in exchange.receives:
        posted_by.setdefault(message, set()).add("receive")


def _awaited(
    exchange: MessageBatch, posted_by: Mapping[PipelineMessage, set[str]]
) -> list[tuple[str, PipelineMessage]]:
    """What the other sides have not posted yet."""
    sides = [("receive", m) for m in exchange.sends] + [("send", m) for m in exchange.receives]
    return [(side, message) for side, message in sides if side not in posted_by.get(message, ())]


def _waits(rank: int, row: Sequence[Step], at: int, posted_by: Mapping[PipelineMessage, set[str]], order: Order) -> str:
    exchange = row[at]
    assert isinstance(exchange, MessageBatch)
    before = [format_cell(step) for step in row[:at] if not isinstance(step, MessageBatch)]
    waits = [
        f"rank {order.rank_of[message.stage if side == 'send' else message.target]} to {side} the {message}"
        for side, message in _awaited(exchange, posted_by)
    ]
    return f"rank {rank} {'after ' + before[-1] if before else 'at the start'} waits for {' and '.join(waits)}"
