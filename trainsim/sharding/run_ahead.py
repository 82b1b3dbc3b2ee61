"""
How far the host is ahead of the GPU where nothing holds it back, as memory sees it.

Memory is taken when the host asks for it. What other streams have used is free again only once the GPU has come by
(``record_stream`` of PyTorch's caching allocator), and by then the host has launched as many kernels more as a stream
can queue. So a moment of the pass is where the host is, and what it gives back is held for so many kernels longer.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import NamedTuple

from trainsim.contracts.job import Job
from trainsim.models.layer_kind import counted
from trainsim.models.layers import style_of
from trainsim.sharding.flights import PassMoment
from trainsim.sharding.launches import launches_of, shape_of


class HostMoment(NamedTuple):
    """A moment of the forward (F) or the backward (B) of one microbatch."""

    work: str
    moment: PassMoment


class RunAhead:
    """The launches of a forward and a backward, part by part, of which ``queue`` can wait for the GPU.

    >>> ahead = RunAhead(forward={2: 1, 1: 10, 0: 2}, backward={0: 4, 1: 20, 2: 1}, queue=5)
    >>> ahead.given_back("F", 1), ahead.issued(0)
    (HostMoment(work='B', moment=PassMoment(part=0, after=True)), PassMoment(part=0, after=False))
    """

    def __init__(self, forward: dict[int, int], backward: dict[int, int], queue: int):
        self.parts = [("F", part) for part in forward] + [("B", part) for part in backward]
        self.ends = list(accumulate([*forward.values(), *backward.values()]))
        self.starts = [0, *self.ends[:-1]]
        self.queue, self.first = queue, len(forward)

    @property
    def layers(self) -> float:
        """Layers of a forward that the host may be ahead."""
        return self.queue / (self.ends[1] - self.ends[0])

    def given_back(self, work: str, part: int) -> HostMoment:
        """Where the host is once the GPU is through with *part* of a pass; at the latest at the end of the backward."""
        at = bisect_left(self.ends, self.ends[self.parts.index((work, part))] + self.queue)
        found, part = self.parts[min(at, len(self.parts) - 1)]
        return HostMoment(found, PassMoment(part, after=True))

    def issued(self, part: int) -> PassMoment:
        """Where the GPU is when the host gathers for *part* of a forward: not before its begin."""
        at = bisect_left(self.starts, self.starts[self.parts.index(("F", part))] - self.queue)
        return PassMoment(self.parts[at][1])


def run_ahead(job: Job) -> RunAhead:
    """That of *job*; the head launches as many as a layer."""
    host, shape, style = job.framework.host, shape_of(job), style_of(job.framework, job.training.attention)
    of_kind = {kind: launches_of(job, kind, shape, style) for kind in counted(job.model.kinds)}
    top, again = job.model.layers + 1, job.training.recompute == "full"
    by_part = {top - 1 - k: of_kind[kind] for k, kind in enumerate(job.model.kinds)}
    layer = of_kind[job.model.kinds[-1]]
    back = {part: each["backward"] + each["forward"] * again for part, each in reversed(by_part.items())}
    return RunAhead(
        {top: 1, **{part: each["forward"] for part, each in by_part.items()}, 0: layer["forward"]},
        {0: layer["backward"], **back, top: 1},
        0 if host.blocking or host.cuda_graph else host.launch_queue,
    )
