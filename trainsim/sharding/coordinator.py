"""
When ZeRO-3 gathers parameters and when it lets them go: DeepSpeed's coordinator as a function, without a clock.

The coordinator knows the calls of a whole forward and backward pass from the first one. At each call it gathers what
the module needs and has not got, in one collective; then it gathers ahead, in the order of the calls, until
*prefetch_bucket* elements are on their way or *max_live* are there. After a call it releases the module's parameters,
but not those that are persistent (small), that gathering ahead has counted on for a later call, or that are used again
within *max_reuse_distance* elements of calls. Source: deepspeedai/DeepSpeed 0.19,
deepspeed/runtime/zero/partitioned_param_coordinator.py; checked against runs of it on CPUs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from trainsim.errors import InvalidPlan
from trainsim.models.calls import Call


class Gather(NamedTuple):
    """One all-gather: its parameters, their elements, the call that issues it and the first call that needs it."""

    parameters: tuple[int, ...]
    elements: int
    issued: int
    needed: int


class Release(NamedTuple):
    """Parameters that are given back when the call *after* is over."""

    parameters: tuple[int, ...]
    elements: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordination:
    """Gathers and releases of one forward and backward pass, in order; indices count calls.

    ``peak_forward`` and ``peak_backward`` are the most elements that are gathered at once, beside the ``persistent``
    ones; ``backward`` is the first call of the backward pass.
    """

    gathers: tuple[Gather, ...]
    releases: tuple[Release, ...]
    backward: int
    peak_forward: int
    peak_backward: int
    persistent: int

    @property
    def forward_gathers(self) -> tuple[Gather, ...]:
        """Those issued in the forward pass."""
        return tuple(g for g in self.gathers if g.issued < self.backward)

    def levels(self, calls: int) -> tuple[list[int], list[int]]:
        """Elements that are gathered during each of the *calls* and after it, beside the persistent ones."""
        there, most, after = 0, [0] * calls, [0] * calls
        taken, given = [0] * calls, [0] * calls
        for gather in self.gathers:
            taken[gather.issued] += gather.elements
        for release in self.releases:
            given[release.after] += release.elements
        for call in range(calls):
            most[call] = there + taken[call]
            there = after[call] = most[call] - given[call]
        return most, after

    @property
    def backward_gathers(self) -> tuple[Gather, ...]:
        """Those issued in the backward pass."""
        return tuple(g for g in self.gathers if g.issued >= self.backward)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """DeepSpeed's ``stage3_*`` options, in elements; the defaults are its own (``zero/config.py``).

    Raises InvalidPlan if one is negative.
    """

    prefetch_bucket: int = 50_000_000
    max_live: int = 1_000_000_000
    max_reuse_distance: int = 1_000_000_000
    persistence_threshold: int = 100_000

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if getattr(self, name) < 0:
                raise InvalidPlan(f"ZeRO-3: {name} is {getattr(self, name)}; it must be a number of elements >= 0")


def coordinate(
    calls: Sequence[Call], sizes: Sequence[int], *, limits: Limits, available: Collection[int] | None = None
) -> Coordination:
    """A pass whose calls are known from the first one; *available* at its start are by default the persistent ones.

    Modules that own parameters call no others. What nobody has released is given back after the last call.

    >>> from trainsim.models.calls import Module, calls
    >>> trace = calls(Module("root", (), (Module("fc1", (0,)), Module("fc2", (1,)))))
    >>> ahead = coordinate(trace, (8, 8), limits=Limits(persistence_threshold=0))
    >>> [(g.parameters, g.issued, g.needed) for g in ahead.gathers], ahead.peak_forward
    ([((0, 1), 0, 1)], 16)
    """
    persistent = frozenset(p for p, size in enumerate(sizes) if size <= limits.persistence_threshold)
    state = _CoordinatorState(calls, sizes, limits, persistent, set(persistent if available is None else available))
    for step, call in enumerate(calls):
        state.gather(step, [p for p in call.parameters if p not in state.there])
        state.look_ahead(step)
        state.measure(step)
        state.release([p for p in call.parameters if not state.kept(p, step + 1)], step)
    state.release([p for p in sorted(state.there) if p not in persistent], len(calls) - 1)
    return state.result()


class _CoordinatorState:
    """What the coordinator remembers during a pass."""

    def __init__(
        self, calls: Sequence[Call], sizes: Sequence[int], limits: Limits, persistent: frozenset[int], there: set[int]
    ):
        self.sizes, self.limits, self.persistent, self.there = sizes, limits, persistent, there
        self.backward = next((k for k, call in enumerate(calls) if not call.forward), len(calls))
        self.queue = deque((p, step) for step, call in enumerate(calls) for p in sorted(call.parameters))
        self.passed = [-1] * len(sizes)  # the last use that gathering ahead has counted on
        self.uses: list[list[int]] = [[] for _ in sizes]
        for p, step in self.queue:
            self.uses[p].append(step)
        own = (sum(sizes[p] for p in call.parameters) for call in calls)
        self.traversed = list(accumulate(own, initial=0))  # elements of the calls before each
        self.calls, self.live, self.peaks = calls, 0, [0, 0]
        self.gathers: list[Gather] = []
        self.releases: list[Release] = []

    def gather(self, step: int, parameters: Sequence[int]) -> None:
        """One all-gather, if there is anything to gather."""
        if not parameters:
            return
        elements = sum(self.sizes[p] for p in parameters)
        needed = min(self.uses[p][bisect_left(self.uses[p], step)] for p in parameters)
        self.gathers.append(Gather(tuple(parameters), elements, step, needed))
        self.there.update(parameters)
        self.live += elements

    def look_ahead(self, step: int) -> None:
        """Strike this call's uses from the queue, then gather what comes next, over the limit by the last one only."""
        waiting = {p for p in self.calls[step].parameters if self.passed[p] < step}
        while waiting:
            p, use = self.queue.popleft()
            self.passed[p] = use
            waiting.discard(p)
        room = min(self.limits.max_live - self.live, self.limits.prefetch_bucket)
        ahead: dict[int, None] = {}
        elements = 0
        while self.queue and elements < room:
            p, use = self.queue.popleft()
            self.passed[p] = max(self.passed[p], use)
            if p not in self.there and p not in ahead:
                ahead[p] = None
                elements += self.sizes[p]
        self.gather(step, tuple(ahead))

    def kept(self, parameter: int, step: int) -> bool:
        """Whether a parameter stays when the call before *step* is over."""
        if parameter in self.persistent or self.passed[parameter] > step:
            return True
        uses = self.uses[parameter]
        again = bisect_left(uses, step)
        distance = self.limits.max_reuse_distance
        return again < len(uses) and self.traversed[uses[again]] - self.traversed[step] < distance

    def release(self, parameters: Sequence[int], step: int) -> None:
        """Give parameters back."""
        if parameters:
            elements = sum(self.sizes[p] for p in parameters)
            self.releases.append(Release(tuple(parameters), elements, step))
            self.there.difference_update(parameters)
            self.live -= elements

    def measure(self, step: int) -> None:
        """Remember the most that is there."""
        k = int(step >= self.backward)
        self.peaks[k] = max(self.peaks[k], self.live)

    def result(self) -> Coordination:
        """The pass as a value."""
        return Coordination(
            gathers=tuple(self.gathers),
            releases=tuple(self.releases),
            backward=self.backward,
            peak_forward=self.peaks[0],
            peak_backward=self.peaks[1],
            persistent=sum(self.sizes[p] for p in self.persistent),
        )
