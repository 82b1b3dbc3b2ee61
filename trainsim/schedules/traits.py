"""What a schedule is like, beside its order: where stages live, whether backwards are split, what it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainsim.schedules.placement import StagePlacement


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Facts about one schedule, named where it is registered.

    ``chunks`` is the only number of chunks per rank that works (None: the user's). ``split``: backwards are I and W.
    ``replicas``: copies of the parameters in the pipeline. ``paired``: some forwards and backwards run at once.
    ``sliced``: a microbatch is cut along the sequence, and slots count slices (microbatch * slices + slice).
    ``asynchronous``: weights are updated without a flush: after every backward if ``eager_updates``, or once per
    step; meanwhile ``versions`` (rank, ranks) of them are held. ``grouped``: the order depends on ``group``.
    ``planned``: it depends on times, which it takes as ``costs``.
    ``needs`` says in words what the numbers must fulfil, ``source`` where the order comes from.
    """

    placement: StagePlacement = StagePlacement.LOOP
    chunks: int | None = 1
    split: bool = False
    replicas: int = 1
    paired: bool = False
    sliced: bool = False
    asynchronous: bool = False
    eager_updates: bool = False
    versions: Callable[[int, int], int] | None = None
    grouped: bool = False
    planned: bool = False
    needs: str = ""
    source: str = ""
