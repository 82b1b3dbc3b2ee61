"""Which pass each send or receive of a worker belongs to: tables name passes by microbatch, messages by their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trainsim.diagnosis.operations import Floats


class OperationTimes(NamedTuple):
    """When each operation of a step started and ended, in one of the steps that are alike."""

    start: Floats
    end: Floats

    @property
    def slack(self) -> float:
        """How far neighbours may overlap by rounding."""
        return 4.0 * float(np.spacing(np.float32(self.end.max(initial=0.0))))


def matched(
    messages: Sequence[int], passes: Sequence[int], real: Sequence[int], *, times: OperationTimes, received: bool
) -> list[tuple[int, int]] | None:
    """Pairs of *messages* and *passes*: in order, where there is one for each pass, or for each of those alone that
    have a neighbour to talk to (*real*). Where more are recorded, by time: a send belongs to the last pass that was
    over before it, a receive to the first that starts after it. None if passes that are real have none, or if there
    are no passes at all.
    """
    if len(messages) in (len(passes), len(real)):
        return list(zip(messages, passes if len(messages) == len(passes) else real, strict=True))
    if len(messages) < len(real) or (messages and not passes):
        return None
    out, free = [], list(passes)
    for message in messages:
        if received:
            near = [k for k in free if times.start[k] >= times.end[message] - times.slack][:1]
        else:
            near = [k for k in free if times.end[k] <= times.start[message] + times.slack][-1:]
        for k in near:
            free.remove(k)
            out.append((message, k))
    return None if set(real) & set(free) else out
