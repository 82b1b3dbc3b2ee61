"""
When a host launches kernels, as a trace shows it: right before they run, or while the one ahead of them still runs.

This is no simulated host. Where the model says that a GPU waits for its host, the launch comes after the kernel ahead;
everywhere else before that one ends, so that tools tell waiting for the host from waiting for others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trainsim.contracts.trace import Bools, Ints
from trainsim.report.trace_file import quoted
from trainsim.report.trace_spans import fill
from trainsim.report.trace_tracks import LAUNCHES, on_grid

APART = 16
"""Nanoseconds from the end of one launch to that of the next at the least: more than readers lose in a row."""


class OnStreams(NamedTuple):
    """What the streams of a GPU carry out, times in nanoseconds: ``host`` is when the host last kept its chain waiting,
    ``step`` the training step that it belongs to, ``copies`` what is a copy and no kernel."""

    begin: Ints
    end: Ints
    thread: Ints
    number: Ints
    host: Ints
    copies: Bools
    step: Ints


class LaunchTimes(NamedTuple):
    """When each of what streams carry out is launched, and for how long; nanoseconds."""

    begin: Ints
    length: Ints


def launches(some: OnStreams, longest: int) -> LaunchTimes:
    """LaunchTimes, none of which overlaps another or is over after its kernel begins; none is longer than *longest*.

    >>> kernels = OnStreams(*(np.array(column) for column in ([50, 90, 200], [90, 120, 300], [7, 7, 7], [0, 1, 2],
    ...                                                       [0, 0, 200], [False] * 3, [0] * 3)))
    >>> times = launches(kernels, 20)
    >>> times.begin.tolist(), times.length.tolist()
    ([30, 70, 180], [20, 20, 20])
    """
    order = np.lexsort((some.end, some.begin, some.thread))
    begin, end, thread, host, step = (of[order] for of in (some.begin, some.end, some.thread, some.host, some.step))
    follows = np.append(False, (thread[1:] == thread[:-1]) & (step[1:] == step[:-1]))[: len(thread)]
    ahead = np.append(0, end[:-1])[: len(end)]  # when the kernel before it on its stream is over
    until = np.where(follows, np.minimum(begin, np.maximum(ahead, host)), begin)
    turn = np.lexsort((begin, until))
    place = np.arange(len(turn)) * APART
    over = on_grid(np.minimum.accumulate((until[turn] - place)[::-1])[::-1] + place)
    first = np.maximum(over - longest, np.append(0, over[:-1])[: len(over)])
    after = np.where(follows & (host > ahead), ahead + 1, 0)[turn]  # what kept the GPU waiting did not begin before
    later = on_grid(np.maximum(first, after))
    first = np.where(later < over, later, first)
    out = np.empty((2, len(order)), np.int64)
    out[:, order[turn]] = first, over - first
    return LaunchTimes(*out)


def launch_events(some: OnStreams, times: LaunchTimes, pid: int) -> Iterator[str]:
    """The launches of a host's process, and where the arrows to what they launch begin."""
    begin, length = times.begin / 1e3, times.length / 1e3
    numbers = np.stack([begin, length, some.number, some.number, some.number, begin], axis=1)
    for copies, name in ((False, "cudaLaunchKernel"), (True, "cudaMemcpyAsync")):
        text = (
            f',\n{{"ph":"X","cat":"cuda_runtime","name":{quoted(name)},"pid":{pid},"tid":{LAUNCHES},"ts":%.3f,'
            f'"dur":%.3f,"args":{{"correlation":%d,"External id":%d}}}}'
            f',\n{{"ph":"s","id":%d,"cat":"ac2g","name":"ac2g","pid":{pid},"tid":{LAUNCHES},"ts":%.3f}}'
        )
        yield from fill(text, numbers[some.copies == copies])
