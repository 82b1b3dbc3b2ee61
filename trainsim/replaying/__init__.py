"""
Replay an order of passes with given times: how long it takes and how much of that is bubble. No model, no machine.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainsim.errors import Deadlock, InvalidPlan
from trainsim.replaying.mail import deadlock, with_exchanges
from trainsim.replaying.replay import Replay, ReplayBubble, Span, WeightWindow
from trainsim.replaying.running import spans
from trainsim.replaying.times import Given, Times, one_time, per_stage
from trainsim.schedules import schedules
from trainsim.schedules.cells import CellRows, schedule
from trainsim.schedules.messages import mails
from trainsim.schedules.orders import read_order
from trainsim.schedules.slices import SLICES

__all__ = ["Replay", "ReplayBubble", "Span", "WeightWindow", "replay", "schedule"]


def replay(
    order: Iterable[Iterable[str]],
    *,
    forward: Given = 1.0,
    input_gradient: Given = 1.0,
    weight_gradient: Given = 1.0,
    p2p: float = 0.1,
    p2p_mode: str = "async",
    overlapped: float | None = None,
    slices: int | None = None,
) -> Replay:
    """Replay *order* (PyTorch's cells, a row per rank), each cell as soon as its rank and its inputs are ready.

    Times are per chunk, in any one unit; a sequence has the time of each stage. ``B`` takes *input_gradient* and
    *weight_gradient* together, an overlapped pair *overlapped* (None: as long as one after the other). A message
    between two ranks takes *p2p* and holds up nobody; with ``p2p_mode="blocking"`` both sides are held up until it has
    arrived, in the order in which the framework posts messages that the schedule is from (Megatron-LM's where nothing
    else is known; the name of a schedule, as ``"deepspeed"``, asks for its own). *slices* are those that a microbatch
    of the order is cut into (None: as many as ``schedule`` made). Stages of the second of two mirrored chains are
    replicas. Raises InvalidPlan for an order that is not one, Deadlock, with who waits for whom, for one that cannot be
    carried out.

    >>> step = replay(schedule("1f1b", stages=4, microbatches=8), p2p=0)
    >>> step.makespan, step.in_flight, round(step.bubble.fraction, 6) == round(3 / 11, 6)
    (33.0, (4, 3, 2, 1), True)
    >>> replay(schedule("1f1b", stages=4, microbatches=8), p2p=0.5, p2p_mode="blocking").makespan
    42.5
    """
    if p2p_mode not in ("async", "blocking") and p2p_mode not in mails:
        raise InvalidPlan(f'p2p_mode is "async" or "blocking", not {p2p_mode!r}')
    checked = read_order(order, _slices(order) if slices is None else slices)
    times = Times(
        forward=per_stage("forward", forward, checked),
        input_gradient=per_stage("input_gradient", input_gradient, checked),
        weight_gradient=per_stage("weight_gradient", weight_gradient, checked),
        p2p=one_time("p2p", p2p),
        overlapped=None if overlapped is None else one_time("overlapped", overlapped),
    )
    rows = None if p2p_mode == "async" else with_exchanges(checked, order, p2p_mode)
    if rows and (stuck := deadlock(rows, checked)):
        raise Deadlock(stuck)
    starts, ends = spans(checked, times, rows)
    return Replay(order=checked, times=times, rows=rows, starts=starts, ends=ends)


def _slices(order: Iterable[Iterable[str]]) -> int:
    if isinstance(order, CellRows) and schedules.traits(order.name).sliced:
        return order.numbers["group"] or SLICES
    return 1
