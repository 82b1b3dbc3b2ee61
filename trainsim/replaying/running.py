"""Carry out an order: the engine's spans of every cell, in the unit of the times given."""

from __future__ import annotations

from collections.abc import Sequence
from math import frexp, inf

import numpy as np

from trainsim.contracts.exact import LONGEST
from trainsim.contracts.system import Floats
from trainsim.contracts.trace import Trace
from trainsim.engine import run
from trainsim.errors import Deadlock, InvalidPlan
from trainsim.fold import unfolded
from trainsim.replaying.lowering import CHAIN, lower
from trainsim.replaying.mail import Step
from trainsim.replaying.times import Times
from trainsim.schedules.messages import MessageBatch
from trainsim.schedules.orders import Order

Rows = Sequence[Sequence[Step]]


def spans(
    order: Order, times: Times, rows: Rows | None = None, iterations: int = 1
) -> tuple[tuple[Floats, ...], tuple[Floats, ...]]:
    """(Starts, ends) of the cells of every rank, over *iterations* back to back; *rows*: see ``lower``.

    The clock is exact: a power of two makes the most of its range.
    """
    scale = _scale(order, times, iterations)
    try:
        trace = run(unfolded(lower(order, times.scaled(scale), rows, iterations)))
    except Deadlock as stuck:  # whose message has a time in the clock's unit
        raise Deadlock("the order waits for itself:", stuck.waiting) from None
    spans_of_rank = [_kernels(trace, rank, scale) for rank in range(order.ranks)]
    if rows is not None:
        for rank, row in enumerate(rows):
            cells = np.array([not isinstance(step, MessageBatch) for step in row] * iterations, bool)
            spans_of_rank[rank] = spans_of_rank[rank][0][cells], spans_of_rank[rank][1][cells]
    return tuple(s for s, _ in spans_of_rank), tuple(e for _, e in spans_of_rank)


def _scale(order: Order, times: Times, iterations: int) -> float:
    """The largest power of two that keeps any way of carrying out the order within the clock."""
    passes = (times.forward, times.input_gradient, times.weight_gradient)
    slowest = sum(map(max, passes)) + 8.0 * times.p2p
    cells = sum(map(len, order.rows))
    longest = iterations * cells * (slowest + (times.overlapped or 0.0))
    if longest == 0.0:
        return 1.0
    if longest == inf:
        raise InvalidPlan("these times add up to more than a number can hold; use a larger unit")
    return float(2.0 ** -frexp(longest / LONGEST)[1])


def _kernels(trace: Trace, rank: int, scale: float) -> tuple[Floats, Floats]:
    """(Start, end) of every kernel of a rank, in order."""
    kernels = trace.spans(rank, CHAIN)
    return kernels.start / scale, kernels.end / scale
