"""What crosses the links: of each kind of link the busiest one, how full it is when, and whose bytes they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trainsim.analysis.kinds import COMMUNICATION
from trainsim.analysis.lanes import Lanes
from trainsim.analysis.link_level import LinkLevel, level, too_short
from trainsim.contracts.groups import Group, Peers
from trainsim.contracts.instructions import Payload
from trainsim.hardware.link_kinds import NETWORK, link_kinds
from trainsim.program.link_use import link_load
from trainsim.program.network import Network

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NEARLY_FULL = 0.9
"""Of what a link carries: from here on it is nearly full."""
DIGITS = 10
"""To which sums are compared: links with equal traffic are one row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """The busiest link of a kind, one direction of it, in one step.

    ``equal`` of the ``links`` of this kind have the same traffic; ``link`` is the first of them, and ``name`` its name.
    ``mean`` and ``peak`` are parts of what transfers reach on it, ``nearly_full_s`` the seconds in which it is above
    NEARLY_FULL, ``bytes`` what crosses it, ``by_kind`` the part of the mean that each kind of communication has.
    """

    kind: str
    name: str
    link: int
    equal: int
    links: int
    mean: float
    peak: float
    nearly_full_s: float
    bytes: float
    by_kind: Mapping[str, float]

    @property
    def is_network(self) -> bool:
        """Whether it is between nodes."""
        return self.kind in NETWORK


class _LinkLoads(NamedTuple):
    """What classes of ranks put on links, as columns: class, number of the operation, link, and per byte of the buffer
    seconds of the whole link and bytes."""

    owner: Ints
    operation: Ints
    link: Ints
    seconds: Floats
    crossing: Floats


class _PostedBytes(NamedTuple):
    """Operations of one class over time, as columns: kind of communication, operation, bytes, start, end, and the start
    of what its chain did before."""

    kind: Ints
    operation: Ints
    nbytes: Floats
    start: Floats
    end: Floats
    before: Floats

    def on(self, per_byte: Floats) -> tuple[Ints, Floats, Floats, Floats]:
        """(Kind, start, end, seconds of the whole link) of what is on a link that has so many seconds per byte of each
        operation. What takes longer than it is seen ran under what was before it."""
        seconds = per_byte[self.operation] * self.nbytes
        start = np.where(too_short(self.start, self.end, seconds), self.before, self.start)
        some = seconds > 0
        return self.kind[some], start[some], self.end[some], seconds[some]


class LinkTraffic:
    """The traffic on all links of a run; levels over time are worked out for the links that somebody asks for."""

    def __init__(self, lanes: Lanes, network: Network):
        self._lanes, self._network = lanes, network
        self._posted: dict[int, _PostedBytes] = {}
        self._levels: dict[int, LinkLevel] = {}

    @cached_property
    def rows(self) -> tuple[LinkUse, ...]:
        """The busiest link of each kind that carries anything, the fullest first."""
        names, kinds = link_kinds(self._network.job.cluster)
        number = np.bincount(kinds, minlength=len(names))
        ways = self._seconds.any(axis=0)
        used = np.flatnonzero(self._seconds[:, ways].any(axis=1))
        seconds, crossing = (_rounded(of[:, ways][used]) for of in (self._seconds, self._crossing))
        out = []
        for k in np.unique(kinds[used]).tolist():
            here = np.flatnonzero(kinds[used] == k)
            first = here[int(np.argmax(_rounded(seconds[here].sum(axis=1))))]
            same = (seconds[here] == seconds[first]).all(axis=1) & (crossing[here] == crossing[first]).all(axis=1)
            out.append(self._row(names[k], int(used[first]), int(same.sum()), int(number[k])))
        return tuple(sorted(out, key=lambda row: (-round(row.mean, DIGITS), row.kind)))

    def level(self, link: int) -> LinkLevel:
        """How full a link is over the whole run, by kind of communication (in the order of COMMUNICATION)."""
        if link not in self._levels:
            self._levels[link] = self._level(link)
        return self._levels[link]

    def _level(self, link: int) -> LinkLevel:
        loads, parts = self._loads, []
        on = np.flatnonzero(loads.link == link)
        for owner in np.unique(loads.owner[on]).tolist():
            here = on[loads.owner[on] == owner]
            per_byte = np.zeros(len(self._operations))
            per_byte[loads.operation[here]] = loads.seconds[here]
            parts.append(self._posted_by(owner).on(per_byte))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else [np.zeros(0)] * 4
        return level(columns[0].astype(np.int64), *columns[1:])

    def _row(self, kind: str, link: int, equal: int, links: int) -> LinkUse:
        lanes, over_time = self._lanes, self.level(link)
        duration, seconds = lanes.duration or 1.0, self._seconds[link]
        by_kind = dict(zip(COMMUNICATION, (seconds / duration).tolist(), strict=True))
        return LinkUse(
            kind=kind,
            name=self._network.job.cluster.link_name(link),
            link=link,
            equal=equal,
            links=links,
            mean=float(seconds.sum()) / duration,
            peak=over_time.peak,
            nearly_full_s=over_time.above(NEARLY_FULL) / lanes.steps,
            bytes=float(self._crossing[link].sum()) / lanes.steps,
            by_kind={name: part for name, part in by_kind.items() if part > 0},
        )

    @cached_property
    def _operations(self) -> dict[tuple[Peers, str], int]:
        """The operations that move bytes between devices, numbered."""
        out: dict[tuple[Peers, str], int] = {}
        for label in self._lanes.trace.labels:
            for payload in label.payloads if label.kind in COMMUNICATION else ():
                if self._moves(payload):
                    out.setdefault(_operation(payload), len(out))
        return out

    def _moves(self, payload: Payload) -> bool:
        peers = payload.communicator
        return self._network.has(peers) or (isinstance(peers, Group) and peers.alone)

    @cached_property
    def _loads(self) -> _LinkLoads:
        parts, links = [], self._network.job.cluster.links
        for (peers, operation), number in self._operations.items():
            load = link_load(self._network, peers, operation)
            keys = self._lanes.trace.rank_class[load.rank] * links + load.link
            keys, where = np.unique(keys, return_inverse=True)
            sums = [np.bincount(where, column, len(keys)) for column in (load.seconds, load.crossing)]
            parts.append((keys // links, np.full(len(keys), number), keys % links, *sums))
        if not parts:
            none = np.zeros(0, np.int64)
            return _LinkLoads(none, none, none, np.zeros(0), np.zeros(0))
        return _LinkLoads(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    @cached_property
    def _sent(self) -> Floats:
        """Bytes of the buffers of all operations [kind of communication, class, operation]."""
        trace, flat = self._lanes.trace, self._lanes.trace.run_spans
        out = np.zeros((len(COMMUNICATION), trace.classes, max(len(self._operations), 1)))
        moving = [(k, *part) for k, parts in enumerate(self._parts) for part in parts]
        rows = np.zeros((trace.classes, len(trace.runs)))
        for lane in self._lanes.all:
            rows[lane.owner] += np.bincount(lane.run, minlength=len(trace.runs))
        for owner, times in enumerate(rows):
            labels = np.bincount(flat.label, np.repeat(times, flat.size), len(trace.labels))
            for label, kind, operation, nbytes in moving:
                out[kind, owner, operation] += labels[label] * nbytes
        return out

    @cached_property
    def _parts(self) -> tuple[tuple[tuple[int, int, float], ...], ...]:
        """Of each label what it moves: kind of communication, operation, bytes of the buffer."""
        return tuple(
            tuple(
                (COMMUNICATION.index(label.kind), self._operations[_operation(payload)], payload.nbytes)
                for payload in (label.payloads if label.kind in COMMUNICATION else ())
                if self._moves(payload)
            )
            for label in self._lanes.trace.labels
        )

    @cached_property
    def _seconds(self) -> Floats:
        """Of each link and kind of communication the seconds for which it takes the whole link."""
        return self._per_link(self._loads.seconds)

    @cached_property
    def _crossing(self) -> Floats:
        """Of each link and kind of communication the bytes that cross it."""
        return self._per_link(self._loads.crossing)

    def _per_link(self, per_byte: Floats) -> Floats:
        loads, links = self._loads, self._network.job.cluster.links
        out = np.zeros((len(self._sent), links))
        for of_kind, sent in zip(out, self._sent, strict=True):
            if sent.any():  # links are many, and a job communicates in few ways
                of_kind += np.bincount(loads.link, per_byte * sent[loads.owner, loads.operation], links)
        return out.T

    def _posted_by(self, owner: int) -> _PostedBytes:
        """What the ranks of a class post over time."""
        if owner not in self._posted:
            trace = self._lanes.trace
            found = [trace.spans_of(number) for number, (of, _) in enumerate(trace.chains) if of == owner]
            label = np.concatenate([spans.label for spans in found])
            before = np.concatenate([np.append(spans.start[:1], spans.start[:-1]) for spans in found])
            start, end = (np.concatenate([getattr(spans, name) for spans in found]) for name in ("start", "end"))
            size = np.array([len(parts) for parts in self._parts], np.int64)
            kind, operation, nbytes = zip(*(part for parts in self._parts for part in parts), strict=True)
            span, part = expand(size, label)
            self._posted[owner] = _PostedBytes(
                np.array(kind)[part],
                np.array(operation)[part],
                np.array(nbytes)[part],
                start[span],
                end[span],
                before[span],
            )
        return self._posted[owner]


def expand(size: Ints, which: Ints) -> tuple[Ints, Ints]:
    """(Place in *which*, place among all parts) of every part of *which*, of things of *size* parts each."""
    times = size[which]
    inside = np.arange(int(times.sum())) - np.repeat(np.cumsum(times) - times, times)
    return np.repeat(np.arange(len(which)), times), np.repeat((np.cumsum(size) - size)[which], times) + inside


def _operation(payload: Payload) -> tuple[Peers, str]:
    return payload.communicator.anywhere, payload.operation


def _rounded(numbers: Floats) -> Floats:
    """*numbers* to DIGITS digits."""
    mantissa, exponent = np.frexp(numbers)
    return np.asarray(np.ldexp(np.round(mantissa * 10.0**DIGITS) / 10.0**DIGITS, exponent), np.float64)
