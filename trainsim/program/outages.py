"""When links of a job have less than their bandwidth for a while, as outages of resources that do not overlap."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from operator import mul

from trainsim.contracts.exact import grains
from trainsim.contracts.job import Flap, Job
from trainsim.contracts.system import Outage


def outages(job: Job) -> tuple[Outage, ...]:
    """The outages of the links that flap in *job*; where two overlap on a link, it keeps the product of their factors.

    >>> from trainsim.scenario.scenario import Scenario
    >>> flaps = [{"nic": "node0.nic0", "from": 1.0, "until": 3.0}, {"link": "node0", "from": 2.0, "until": 4.0}]
    >>> some = Scenario.load("quickstart").replace({"what_if": [{"flap": {**f, "factor": 0.5}} for f in flaps]})
    >>> every = outages(some.resolve())
    >>> [(o.since, o.until, o.lost) for o in every if o.resource == every[0].resource]
    [(2.0, 4.0, 0.5)]
    >>> max(o.lost for o in every)
    0.75
    """
    flaps = [flap for flap in job.what_if if isinstance(flap, Flap)]
    of: dict[int, list[Flap]] = {}
    for flap in flaps:
        for name in flap.links:
            for link in job.cluster.find_links(name).tolist():
                of.setdefault(link, []).append(flap)
    return tuple(outage for link in sorted(of) for outage in _pieces(link, of[link]))


def _pieces(link: int, flaps: list[Flap]) -> list[Outage]:
    times = sorted({time for flap in flaps for time in (flap.since, flap.until)})
    out = []
    for since, until in pairwise(times):
        kept = reduce(mul, (flap.factor for flap in flaps if flap.since <= since and until <= flap.until), 1.0)
        if (lost := grains(1.0 - kept)) > 0.0:
            out.append(Outage(link, since, until, lost))
    return out
