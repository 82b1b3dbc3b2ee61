"""Who disturbs whom: when two jobs are on one link at one time, with what, and when more is asked of it than it has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

import numpy as np

from trainsim.contracts.groups import Peers
from trainsim.contracts.instructions import SEND, Meet, Program, Send
from trainsim.contracts.record import Label
from trainsim.contracts.system import Bools, Communicator, Pattern
from trainsim.contracts.trace import Trace
from trainsim.hardware.cluster import Cluster
from trainsim.jobs.outcome import Disturbance, SharedLink
from trainsim.jobs.overlaps import Loading, covered, overlap, too_much
from trainsim.program.merging import used_links
from trainsim.report.intervals import Intervals
from trainsim.simulate import Simulation, Together

FULL = 1.0 + 1e-6
"""Of a link: when more than this is asked of it, somebody is slowed."""
Loadings = dict[tuple[int, str], list[Loading]]
"""(Link, kind of communication) -> what a job loads it with."""
Users = dict[tuple[int, Peers, str], list[tuple[int, float, Pattern, int]]]
"""(Class of who posts, communicator, operation) -> link, part of it that is taken, pattern and group of that."""


def disturbances(names: Sequence[str], together: Together, until: float) -> tuple[Disturbance, ...]:
    """Every pair of jobs that were on one link at one time before *until* (seconds), those that were longest first."""
    runs = together.simulations
    cluster = runs[0].job.cluster
    shared = np.sum([used_links(run.plan.system, cluster.links) for run in runs], axis=0) > 1
    if not shared.any():
        return ()
    every = [_loadings(run, shared, start, until) for run, start in zip(runs, together.starts, strict=True)]
    by_link: dict[int, list[Loading]] = defaultdict(list)
    for link, parts in ((link, parts) for of in every for (link, _), parts in of.items()):
        by_link[link] += parts
    full = {link: too_much(parts, FULL) for link, parts in by_link.items()}
    pairs = ((names[a], names[b], every[a], every[b]) for a, b in combinations(range(len(runs)), 2))
    out = [_disturbance(cluster, (first, second), (a, b), full) for first, second, a, b in pairs]
    return tuple(sorted((one for one in out if one.shared_s > 0), key=lambda one: -one.shared_s))


def _disturbance(
    cluster: Cluster, names: tuple[str, str], jobs: tuple[Loadings, Loadings], full: Mapping[int, Intervals]
) -> Disturbance:
    links: list[SharedLink] = []
    by_kinds: dict[tuple[str, str], list[Intervals]] = defaultdict(list)
    when: dict[str, list[Intervals]] = defaultdict(list)
    crowded: dict[tuple[str, str], list[Intervals]] = defaultdict(list)
    for link in sorted(full):
        own = [{kind: _covered(parts) for (k, kind), parts in of.items() if k == link} for of in jobs]
        here = []
        for a, b in product(*own):
            both = overlap(own[0][a], own[1][b])
            by_kinds[a, b].append(both)
            crowded[a, b].append(overlap(both, full[link]))
            here.append(both)
        at_once = covered(here)
        at_once_full = overlap(at_once, full[link])
        when["shared"].append(at_once)
        when["full"].append(at_once_full)
        if at_once.total > 0:
            links.append(SharedLink(name=cluster.link_name(link), shared=at_once, full=at_once_full))
    traffic = [(*kinds, covered(some).total, covered(crowded[kinds]).total) for kinds, some in by_kinds.items()]
    return Disturbance(
        first=names[0],
        second=names[1],
        shared_s=covered(when["shared"]).total,
        full_s=covered(when["full"]).total,
        traffic=tuple(sorted((row for row in traffic if row[2] > 0), key=lambda row: -row[2])),
        links=tuple(sorted(links, key=lambda one: (-one.full_s, -one.shared_s))),
    )


def _covered(parts: Sequence[Loading]) -> Intervals:
    return covered([(part.start, part.end) for part in parts])


def _loadings(run: Simulation, shared: Bools, start: float, until: float) -> Loadings:
    """What a job that begins at *start* has on the *shared* links before *until*, by link and kind."""
    trace, out = run.trace, Loadings()
    real = {label for program in run.programs for label in _sent(program)}
    users = _users(run, shared)
    posting = {owner for owner, _, _ in users}
    for number, (owner, _) in enumerate(trace.chains):
        if owner not in posting:
            continue
        spans = trace.spans_of(number)
        for k in np.unique(spans.label).tolist():
            label = trace.labels[k]
            if label not in real:
                continue
            (payload,) = label.payloads
            operation = "message" if payload.operation == SEND else payload.operation
            which = (spans.label == k) & (spans.start + start < until)
            begin, end = spans.start[which] + start, np.minimum(spans.end[which] + start, until)
            for link, amount, pattern, group in users.get((owner, payload.communicator, operation), ()):
                load = amount * pattern.seconds(group, payload.nbytes)[1]
                if load > 0 and len(begin):
                    out.setdefault((link, label.kind), []).append(Loading(begin, end, np.full(len(begin), load)))
    return out


def _sent(program: Program) -> Iterator[Label]:
    """The labels of all collectives and messages that carry bytes; kernels may stand for such that are on no link."""
    for columns in program.columns.values():
        for template in columns.templates:
            posts: list[Meet | Send] = [*template.posted.meets, *template.posted.sends]
            for i in posts:
                if i.payloads:
                    yield Label(i.name, i.kind, i.stream, i.layer, i.payloads)


def _users(run: Simulation, shared: Bools) -> Users:
    """What each class of ranks takes of the *shared* links when its ranks post: all groups that do so in step."""
    out: Users = defaultdict(list)
    for peers, communicator in run.plan.system.communicators.items():
        owner = _posters(communicator, run.trace)
        for operation, pattern in communicator.patterns.items():
            on = pattern.use_resource < len(shared)
            on[on] = shared[pattern.use_resource[on]]
            columns = [owner[pattern.use_group[on]], pattern.use_resource[on]]
            keys, first, where = np.unique(np.stack(columns), axis=1, return_index=True, return_inverse=True)
            amount = np.bincount(where.ravel(), pattern.use_amount[on], keys.shape[1])
            groups = pattern.use_group[on][first].tolist()
            for (c, link), part, group in zip(keys.T.tolist(), amount.tolist(), groups, strict=True):
                out[c, peers, operation].append((link, part, pattern, group))
    return out


def _posters(communicator: Communicator, trace: Trace) -> np.typing.NDArray[np.int64]:
    """The class of the first rank that posts to each group."""
    posts = communicator.group_of[0]
    rank = np.flatnonzero(posts >= 0)[::-1]
    first = np.zeros(communicator.groups, np.int64)
    first[posts[rank]] = rank
    return trace.rank_class[first]
