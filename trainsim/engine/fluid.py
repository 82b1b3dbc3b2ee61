"""
Activities that share resources, in simulated time.

An activity is a run of *phases* (kernels, collectives) that waits for nobody. Alone on its resources it is one
scheduled event and its marks are offsets; when another activity shows up on one of its resources it goes on phase by
phase at max-min rates, and returns to one event when it is alone again. Rates are found once per instant, only for
what was touched, and remembered by the set of uses.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from trainsim.contracts.exact import TICK, ticks
from trainsim.engine.clock import LATE, Clock, Event, owner_of
from trainsim.engine.fairshare import Use, max_min
from trainsim.engine.relative import Facts, Move, View


class Phases:
    """A compiled run: seconds at full speed and number of the use of each phase. Shared by all tasks of a template.

    ``rates`` are those that it has alone: below 1 where its own class fills a resource. Alone, phases end at ``ends``.
    """

    __slots__ = ("ends", "rates", "resources", "total", "uses", "volumes")

    def __init__(self, volumes: Sequence[float], uses: Sequence[int], resources: tuple[int, ...],
                 rates: Sequence[float], tick: float):  # fmt: skip
        self.volumes, self.uses, self.resources, self.rates = volumes, uses, resources, rates
        alone = [v if rate == 1.0 else ticks(v / rate, tick) for v, rate in zip(volumes, rates, strict=True)]
        self.ends = tuple(accumulate(alone))
        self.total = self.ends[-1]


class Activity:
    """A run under way. ``marks``: the true ends of its phases, once it has ever shared; complete when it is done."""

    __slots__ = ("done", "index", "left", "marks", "phases", "rate", "shared", "since", "timer")

    def __init__(self, shared: SharedResources, phases: Phases, done: Event):
        self.shared, self.phases, self.done, self.since = shared, phases, done, shared.clock.now
        self.index, self.left, self.rate = 0, phases.volumes[0], 0.0
        self.timer: Event | None = None  # of the current phase; None: alone, `done` is on the agenda
        self.marks: list[float] | None = None

    def close(self, _: Event) -> None:
        """The first thing that happens at the end."""
        self.shared.finish(self)

    def phase_over(self, timer: Event) -> None:
        """A phase ends, unless the activity was given another rate since."""
        if self.timer is timer:
            self.shared.next_phase(self)

    def expects(self, event: Event) -> bool:
        """Whether *event* still means something to it."""
        return self.timer is event or self.done is event

    @property
    def rank_class(self) -> int:
        """A class for which it runs."""
        owners = map(owner_of, self.done.callbacks)
        return next(int(owner.rank_class) for owner in owners if owner is not self)

    def relative(self, view: View) -> Facts:
        """How far it is, and who is on its resources, in their order."""
        marks = None if self.marks is None else tuple(map(view.time, self.marks))
        users = tuple(tuple(map(view.number, self.shared.users[r])) for r in self.phases.resources)
        return (self.phases, self.index, self.left, self.rate, view.time(self.since), self.timer is None, marks, users,
                view.event(self.done))  # fmt: skip

    def moved(self, by: Move) -> None:
        self.since += by.seconds
        if self.marks is not None:
            self.marks = [mark + by.seconds for mark in self.marks]


class Uses:
    """What activities may take, each different use once, and the rates that they have together."""

    def __init__(self, tick: float = TICK):
        self.tick = tick
        self.all: list[Use] = []
        self._alone: list[float] = []
        self._known: dict[Use, int] = {}
        self._rates: dict[tuple[int, ...], list[float]] = {}

    def number(self, use: Use) -> int:
        """Equal uses get one number, so that a set of running phases is a key."""
        known = self._known.get(use)
        if known is None:
            known = self._known[use] = len(self.all)
            self.all.append(use)
            self._alone += max_min([use])
        return known

    def phases(self, volumes: Sequence[float], uses: Sequence[int]) -> Phases:
        """Compile a run of phases."""
        distinct = dict.fromkeys(uses)
        resources = dict.fromkeys(r for k in distinct for part in self.all[k] for r, _ in part)
        return Phases(volumes, uses, tuple(resources), [self._alone[k] for k in uses], self.tick)

    def fair(self, uses: tuple[int, ...]) -> list[float]:
        """The rates of activities with these uses, by number, that share resources with each other alone."""
        rates = self._rates.get(uses)
        if rates is None:
            rates = self._rates[uses] = max_min([self.all[k] for k in uses])
        return rates


class SharedResources:
    """All resources and what runs on them."""

    def __init__(self, clock: Clock, resources: int, uses: Uses):
        self.clock, self.uses, self.tick = clock, uses, uses.tick
        self.users: list[dict[Activity, None]] = [{} for _ in range(resources)]
        self._seeds: list[Activity] = []

    def start(self, phases: Phases, done: Event) -> Activity:
        """Start now; *done* happens at the end, and what waits for it finds the marks complete."""
        activity = Activity(self, phases, done)
        done.callbacks.insert(0, activity.close)
        alone = True
        for r in phases.resources:
            users = self.users[r]
            if users:
                alone = False
            users[activity] = None
        if alone:
            self.clock.fire(done, phases.total)
        else:
            activity.timer, activity.marks = done, []
            self._touch(activity)
        return activity

    def finish(self, activity: Activity) -> None:
        if activity.marks is not None and activity.timer is None:  # it ended alone
            ends, k = activity.phases.ends, activity.index
            first = activity.since + self._rest(activity)
            activity.marks += [first + (end - ends[k]) for end in ends[k:]]
        for r in activity.phases.resources:
            users = self.users[r]
            del users[activity]
            for other in users:
                self._touch(other)

    # -- below: only when something is shared --

    def _touch(self, activity: Activity) -> None:
        if not self._seeds:
            self.clock.call(self._solve, 0.0, LATE)
        self._seeds.append(activity)

    def _solve(self, _: Event) -> None:
        """Once per instant: the components that were touched, and only those."""
        seeds, self._seeds = self._seeds, []
        seen: dict[Activity, None] = {}
        for seed in seeds:
            resources = seed.phases.resources
            if seed not in seen and (not resources or seed in self.users[resources[0]]):
                component = self._component(seed)
                seen |= component
                self._share(component)

    def _component(self, seed: Activity) -> dict[Activity, None]:
        component, stack = {seed: None}, [seed]
        while stack:
            for r in stack.pop().phases.resources:
                for other in self.users[r]:
                    if other not in component:
                        component[other] = None
                        stack.append(other)
        return component

    def _share(self, component: dict[Activity, None]) -> None:
        now = self.clock.now
        if len(component) == 1:
            (activity,) = component
            if activity.timer is not None and activity.index < len(activity.phases.volumes):
                self._alone(activity, now)
            return
        live = []
        for activity in component:
            if activity.timer is None:
                self._wake_up(activity, now)
            if activity.index < len(activity.phases.volumes):
                live.append(activity)
        live.sort(key=_use)
        for activity, rate in zip(live, self.uses.fair(tuple(map(_use, live))), strict=True):
            if rate != activity.rate:  # whose rate stays is not touched: no rounding that depends on others
                self._advance(activity, now)
                activity.rate = rate
                activity.timer = self._ends(activity)
            elif activity.timer is None:  # it was alone, and is not slowed
                activity.timer = self.clock.call(activity.phase_over, activity.since + self._rest(activity) - now)

    def _ends(self, activity: Activity) -> Event:
        """The end of the phase of an activity at its rate; nothing that happens where nothing gets through."""
        if not activity.rate:
            return Event(self.clock)
        return self.clock.call(activity.phase_over, ticks(activity.left / activity.rate, self.tick))

    def _rest(self, activity: Activity) -> float:
        """Seconds that the phase of an activity takes from ``since`` on, alone."""
        rate = activity.phases.rates[activity.index]
        return activity.left if rate == 1.0 else ticks(activity.left / rate, self.tick)

    def _wake_up(self, activity: Activity, now: float) -> None:
        """From one event to phase by phase: where is it now?"""
        ends, first = activity.phases.ends, activity.index
        over = activity.since + self._rest(activity)  # of that phase: phase k is ends[k] - ends[first] later
        k = min(bisect_right(ends, now - over + ends[first], first), len(ends) - 1)
        if activity.marks is None:
            activity.marks = []
        activity.marks += [over + (end - ends[first]) for end in ends[first:k]]
        if k > first:
            activity.left, activity.since = activity.phases.volumes[k], over + (ends[k - 1] - ends[first])
        activity.index, activity.rate = k, activity.phases.rates[k]
        activity.done = self.clock.postpone(activity.done)

    def _alone(self, activity: Activity, now: float) -> None:
        """From phase by phase to one event."""
        phases, k = activity.phases, activity.index
        if activity.rate != phases.rates[k]:
            self._advance(activity, now)
        activity.rate, activity.timer = 0.0, None
        over = activity.since + self._rest(activity)
        self.clock.fire(activity.done, over - now + (phases.total - phases.ends[k]))

    def _advance(self, activity: Activity, now: float) -> None:
        """What is left is whole ticks whenever a rate changes: it must not matter whether it was known to be alone."""
        if activity.rate:
            left = activity.left - activity.rate * (now - activity.since)
            activity.left = max(0.0, ticks(left, self.tick))
        activity.since = now

    def next_phase(self, activity: Activity) -> None:
        assert activity.marks is not None
        activity.marks.append(self.clock.now)
        activity.index += 1
        activity.rate = 0.0
        if activity.index == len(activity.phases.volumes):
            self.clock.fire(activity.done)
        else:
            activity.left = activity.phases.volumes[activity.index]
            self._touch(activity)


def _use(activity: Activity) -> int:
    return activity.phases.uses[activity.index]
