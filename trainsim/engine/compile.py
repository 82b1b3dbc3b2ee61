"""
From instructions to operations, class by class: neighbours that wait for nobody become one run.

Labels, phases and runs are shared between classes wherever they are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

import numpy as np

from trainsim.contracts.groups import Group, Messages, Peers
from trainsim.contracts.instructions import Columns, Instruction, Kernel, Meet, Send, Signal, Template, Wait
from trainsim.contracts.record import Label, Run
from trainsim.contracts.system import Bools
from trainsim.engine.actor import Actor, receivers
from trainsim.engine.chain import Chain, Compiled
from trainsim.engine.clock import Clock
from trainsim.engine.course import Course
from trainsim.engine.fluid import Phases, SharedResources
from trainsim.engine.joint import Body, Joint, Joints
from trainsim.engine.running_operations import Await, Meeting, Post, Sending, Set, Shared, Unshared
from trainsim.engine.work import Timed, Works
from trainsim.fold.quotient import Quotient


class Merges(Enum):
    """How an instruction goes with its neighbours, unless it is a collective that may be met jointly."""

    NEVER = 0
    ALWAYS = 1


class Compiler:
    """Compiles the tasks of all classes. ``runs`` become those of the trace; ``lanes`` keep the rows of messages,
    and ``messages`` what a lane of a name carries.

    With *merge* off every kernel and collective is an event of its own. What is the same on another clock, runs and
    what they take, is that of *known*.
    """

    def __init__(self, quotient: Quotient, actors: list[Actor], clock: Clock, shared: SharedResources, *, merge: bool,
                 known: Compiler | None = None):  # fmt: skip
        self.quotient, self.actors, self.clock, self.shared, self.merge = quotient, actors, clock, shared, merge
        self.runs: list[Run] = known.runs if known else []
        self.works: Works = known.works if known else Works(quotient, shared.uses)
        self._run_number: dict[Any, int] = known._run_number if known else {}
        self._labels: dict[tuple[int, ...], tuple[Label, ...]] = known._labels if known else {}
        self.lanes: list[Chain] = []
        self.messages: dict[str, Messages] = {}
        self.joints = Joints(clock, len(quotient.groups), self.runs)
        self.meetings: list[dict[int, Meeting]] = [{} for _ in quotient.groups]
        self._receivers = receivers(quotient)
        self._chains = sum(len(actor.program.chains) for actor in actors)
        self._lane_of: dict[tuple[int, Messages], Chain] = {}
        self._known: dict[tuple[int, Template, bool], tuple[Compiled, ...]] = {}
        self._bodies: dict[Any, Body] = {}
        self._multiple, self._mixed = _meeting_kinds(quotient, actors)

    def tasks(self, actor: Actor, columns: Columns, quiet: Bools) -> Course:
        """The compiled tasks of one chain; *quiet* says which of them are quiet."""
        wanted = 2 * columns.template + quiet
        distinct = np.flatnonzero(np.bincount(wanted))
        kinds = [self._operations(actor, columns.templates[k // 2], bool(k % 2)) for k in distinct.tolist()]
        return Course(kinds, np.searchsorted(distinct, wanted), columns.microbatch)

    def _operations(self, actor: Actor, template: Template, quiet: bool) -> tuple[Compiled, ...]:
        key = actor.number, template, quiet
        if key not in self._known:
            self._known[key] = tuple(self._compile(actor, template, quiet))
        return self._known[key]

    def _compile(self, actor: Actor, template: Template, quiet: bool) -> Iterator[Compiled]:
        run: list[Timed] = []
        joint: Group | Merges = Merges.ALWAYS
        first = 0
        for k, i in enumerate(template.instructions):
            kind = self._kind(actor, i, quiet)
            others = kind != joint and Merges.ALWAYS not in (kind, joint)
            if run and (kind is Merges.NEVER or not self.merge or others):
                yield self._run(actor, template, first, run, joint, quiet)
                run, joint = [], Merges.ALWAYS
            if kind is Merges.NEVER:
                yield self._alone(actor, template, k, i, quiet)
                continue
            assert isinstance(i, Kernel | Meet)
            first, joint = (first if run else k), (kind if joint is Merges.ALWAYS else joint)
            run.append(i)
        if run:
            yield self._run(actor, template, first, run, joint, quiet)

    def _kind(self, actor: Actor, i: Instruction, quiet: bool) -> Group | Merges:
        """How *i* merges with its neighbours, or the communicator whose collectives may be met jointly in one run.

        In quiet tasks this depends on the program only: all members of a group must cut runs at the same places.
        """
        if isinstance(i, Kernel):
            return Merges.ALWAYS
        if not isinstance(i, Meet):
            return Merges.NEVER
        key = actor.program_number, i.communicator
        if quiet and key in self._multiple:
            return Merges.NEVER if key in self._mixed else i.communicator
        alone = self.quotient.groups[actor.port(i.communicator)].posters == 1
        return Merges.ALWAYS if alone else Merges.NEVER

    def _run(
        self, actor: Actor, template: Template, first: int, run: list[Timed], joint: Group | Merges, quiet: bool
    ) -> Compiled:
        if not isinstance(joint, Merges) and self.quotient.groups[actor.port(joint)].posters > 1:
            return self._joint(actor, template, first, run, joint)
        phases = self.works.phases(actor, run, quiet)
        number = self._number(template, first, phases)
        if phases.resources:
            return Shared(self.shared, number, phases)
        return Unshared(self.clock, number, phases.total)

    def _alone(self, actor: Actor, template: Template, k: int, i: Instruction, quiet: bool) -> Compiled:
        if isinstance(i, Wait):
            return Await(self.clock, i.event, actor.event(i.event), i.microbatch)
        if isinstance(i, Signal):
            return Set(i.event, actor.event(i.event), i.microbatch)
        assert isinstance(i, Meet | Send)
        group = actor.port(i.communicator)
        phases = self.works.phases(actor, [i], quiet)
        number = self._number(template, k, phases)
        if isinstance(i, Send):
            flags = self.actors[self._receivers[group]].event(i.event)
            lane = self._lane(actor.number, i.communicator)
            return Sending(self.shared, number, phases, lane=lane, flags=flags, blocking=i.blocking)
        return Post(self.shared, number, phases, meet=i, group=group, posters=self.quotient.groups[group].posters,
                    turn=actor.turn(i.communicator), meetings=self.meetings[group])  # fmt: skip

    def _joint(self, actor: Actor, template: Template, first: int, run: list[Timed], communicator: Group) -> Compiled:
        meets = [k for k, i in enumerate(run) if isinstance(i, Meet) and i.communicator == communicator]
        head, group = meets[0], actor.port(communicator)
        seconds = self.works.phases(actor, run, True).volumes
        number, alone = -1, 0.0
        if head:
            phases = self.works.phases(actor, run[:head], True)
            number, alone = self._number(template, first, phases), phases.total
        gaps = tuple(tuple(seconds[a + 1 : b]) for a, b in zip(meets, [*meets[1:], len(run)], strict=True))
        labels = self._labels_of(template, first + head, len(run) - head)
        key = id(labels), group, gaps, (pace := tuple(seconds[k] for k in meets))
        body = self._bodies.setdefault(key, Body(labels, gaps, pace))
        meet = run[head]
        assert isinstance(meet, Meet)
        return Joint(self.joints, body, run=number, head=alone, meet=meet, group=group,
                     posters=self.quotient.groups[group].posters, turn=actor.turn(communicator))  # fmt: skip

    def _lane(self, rank_class: int, messages: Messages) -> Chain:
        """The rows of a class's messages of one communicator; numbered after all chains."""
        lane = self._lane_of.get((rank_class, messages))
        if lane is None:
            lane = Chain(self._chains + len(self.lanes), rank_class, messages.chain)
            self._lane_of[rank_class, messages], self.messages[lane.name] = lane, messages
            self.lanes.append(lane)
        return lane

    def _number(self, template: Template, first: int, phases: Phases) -> int:
        """The number of the trace's run for these phases, from the template's instruction *first* on."""
        labels = self._labels_of(template, first, len(phases.volumes))
        key = id(labels), id(phases)
        number = self._run_number.get(key)
        if number is None:
            number = self._run_number[key] = len(self.runs)
            starts = (0.0, *phases.ends[:-1])
            self.runs.append(Run(labels, starts, starts, phases.ends))
        return number

    def _labels_of(self, template: Template, first: int, size: int) -> tuple[Label, ...]:
        some = template.instructions[first : first + size]
        key = tuple(map(id, some))  # stages that are alike share instructions
        if key not in self._labels:
            self._labels[key] = tuple(Label(i.name, i.kind, i.stream, i.layer, i.payloads) for i in some)  # type: ignore[union-attr]
        return self._labels[key]


def _meeting_kinds(quotient: Quotient, actors: list[Actor]) -> tuple[set[tuple[int, Peers]], set[tuple[int, Peers]]]:
    """(Program, communicator) with groups of several classes, and those with groups of several programs."""
    multiple, mixed = set(), set()
    for actor in actors:
        for (communicator, label), group in actor.ports.items():
            if label == 0:
                key = actor.program_number, communicator
                if quotient.groups[group].posters > 1:
                    multiple.add(key)
                if not quotient.groups[group].one_program:
                    mixed.add(key)
    return multiple, mixed
