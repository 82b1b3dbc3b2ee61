"""
The compute chain of one pipeline rank: its passes as tasks, and the chains that run under them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from trainsim.contracts.groups import Queue
from trainsim.contracts.instructions import Signal, Task, Template
from trainsim.program import activation_offload
from trainsim.program.alike import block_template
from trainsim.program.beside import cuts as cuts_of
from trainsim.program.beside import tasks as flights_of
from trainsim.program.pairs import Turn, turns
from trainsim.program.rank import Kind, RankPlan
from trainsim.program.rendezvous import Rendezvous
from trainsim.program.templates import PASSES, Cuts, MadeOf, Pass, coarse_blocks, joined, template, whole_blocks
from trainsim.program.update import gather_waits, reduce_signals, update, with_gradients, with_updates_behind
from trainsim.schedules import Pair, Slot
from trainsim.schedules.messages import MessageBatch
from trainsim.sharding.flights import chains as chains_of


class _Made(NamedTuple):
    """The templates of a pass: on the compute chain, on the lanes of overlapped collectives, and of its flights."""

    main: Template
    lanes: Mapping[str, Template]
    flights: Mapping[str, Template]


class ComputeChain:
    """The passes of one rank as tasks; a pass that looks like an earlier one shares its template."""

    def __init__(self, rank_plan: RankPlan):
        self.rank_plan = rank_plan
        self.lanes: dict[str, list[Task]] = {}
        self.rendezvous = Rendezvous(rank_plan.parts, rank_plan.rank)
        self._made: dict[tuple[Kind, bool], _Made] = {}
        self._pairs: dict[tuple[Kind, Kind], tuple[Turn, ...]] = {}
        self._updates: dict[bool, Template] = {}
        own = (activation_offload.CHAIN,) if activation_offload.moves(rank_plan.parts) else ()
        self._flights: dict[str, list[Task]] = {chain: [] for chain in (*self._shared, *own)}

    def step(self, step: int) -> list[Task]:
        """The tasks of the compute chain for one step, in order; those beside them are added to their chains.

        Without a flush it is one stream of all steps, with its updates.
        """
        tasks = self._passes(step) if self.rank_plan.one_by_one else list(self._items(step))
        for chain in self._shared:
            self._flights[chain].append(Task(Template("over", 0, (Signal(f"over.{chain}"),)), step))
        return tasks

    @property
    def _shared(self) -> tuple[Queue, ...]:
        """The chains of what the sharding strategy exchanges under the passes."""
        return chains_of(self.rank_plan.sharding.flights)

    def beside(self) -> dict[str, tuple[Task, ...]]:
        """The chains of flights that run under the passes, of all steps so far."""
        return {chain: tuple(flights) for chain, flights in self._flights.items()}

    def _passes(self, step: int) -> list[Task]:
        """A step of nothing but passes, column by column: at turning points there may be something around them, and
        all others of a kind are alike."""
        slots, shift, kinds = self.rank_plan.slots, self._shift(step), self.rank_plan.kinds
        turning = {k: self._cuts(k, slots[k], step) for k in self.rank_plan.turning_points}
        special = {k: self._single(kinds[k], cuts) for k, cuts in turning.items() if cuts}
        usual = Counter(kinds)
        usual.subtract(kinds[k] for k in special)
        made = {kind: self._single(kind, {}) for kind, times in usual.items() if times}
        column = [made.get(kind) for kind in kinds]
        for k, carried in special.items():
            column[k] = carried
        return self._tasks(
            [carried for carried in column if carried is not None], [slot.microbatch + shift for slot in slots]
        )

    def _tasks(self, passes: list[_Made], microbatches: list[int]) -> list[Task]:
        """The tasks of *passes* on the compute chain; those beside them are added to their chains."""
        distinct = {id(carried): carried for carried in passes}.values()
        for name in dict.fromkeys(lane for carried in distinct for lane in carried.lanes):
            some = (
                (carried.lanes[name], b)
                for carried, b in zip(passes, microbatches, strict=True)
                if name in carried.lanes
            )
            self.lanes.setdefault(name, []).extend(map(Task._make, some))
        for name in dict.fromkeys(chain for carried in distinct for chain in carried.flights):
            some = (
                (carried.flights[name], b)
                for carried, b in zip(passes, microbatches, strict=True)
                if name in carried.flights
            )
            self._flights[name].extend(map(Task._make, some))
        return list(map(Task._make, zip([carried.main for carried in passes], microbatches, strict=True)))

    def _items(self, step: int) -> Iterator[Task]:
        """A step in which pairs, exchanges of messages or updates are among the passes."""
        rank_plan, k, shift = self.rank_plan, 0, self._shift(step)
        for item in rank_plan.items:
            if isinstance(item, MessageBatch):
                yield from self.rendezvous.tasks(item, shift)
            elif isinstance(item, Pair):
                yield from self._pair(k, item, step)
                k += 2
            else:
                made = self._single(self.rank_plan.kinds[k], self._cuts(k, item, step))
                yield from self._tasks([made], [item.microbatch + shift])
                k += 1
                if (closed := rank_plan.closes(item)) is not None:
                    yield Task(self._update(closed), closed)

    def _shift(self, step: int) -> int:
        """The microbatch numbers of a step go on from those of the step before."""
        return step * self.rank_plan.parts.job.training.microbatches * self.rank_plan.slices

    def _update(self, number: int) -> Template:
        last = self.rank_plan.ends_step(number)
        if last not in self._updates:
            self._updates[last] = update(self.rank_plan, number)
        return self._updates[last]

    def _single(self, kind: Kind, cuts: Cuts) -> _Made:
        """The templates of a pass of some *kind*, with *cuts* around its parts, or with the flights of its kind."""
        made = self._made.get((kind, bool(cuts)))
        if made is None:
            made = self._with_flights(kind, cuts)
            if not cuts or self.rank_plan.schedule.eager_updates:
                self._made[kind, bool(cuts)] = made
        return made

    def _with_flights(self, kind: Kind, cuts: Cuts) -> _Made:
        """The templates of a pass with *cuts* around its parts and with what its flights want there."""
        parts, stage = self.rank_plan.parts, self.rank_plan.stages[kind.chunk]
        flights = [activation_offload.beside(parts.slices[kind.piece], stage, kind.work.value)]
        if self.rank_plan.sharding.flights:
            flights.insert(0, self.rank_plan.sharding.flights[kind.role])
        beside: dict[str, Template] = {}
        for around in flights:
            cuts = joined(cuts, cuts_of(around, kind.role, parts.blocks))
            beside |= flights_of(around, kind.role, parts.blocks)
        if parts.job.detail == "block":
            return _Made(block_template(parts.slices[kind.piece], stage, kind.work.value, cuts), {}, beside)
        one_pass = self._pass(kind, cuts, whole_blocks if parts.job.detail == "op" else coarse_blocks)
        return _Made(template(parts, one_pass), one_pass.beside, beside)

    def _pair(self, k: int, pair: Pair, step: int) -> Iterator[Task]:
        """The tasks of the slots *k* and the one behind it, which run at once."""
        first, second = self.rank_plan.kinds[k : k + 2]
        cuts = self._cuts(k, pair.forward, step), self._cuts(k + 1, pair.backward, step)
        made = None if any(cuts) else self._pairs.get((first, second))
        if made is None:
            made = turns(self._pass(first, cuts[0]), self._pass(second, cuts[1]))
            if not any(cuts):
                self._pairs[first, second] = made
        microbatches = [slot.microbatch + self._shift(step) for slot in pair]
        for turn in made:
            for name, beside in turn.lanes.items():
                self.lanes.setdefault(name, []).append(Task(beside, microbatches[turn.who]))
            yield Task(turn.compute, microbatches[turn.who])

    def _pass(self, kind: Kind, cuts: Cuts, made_of: MadeOf = whole_blocks) -> Pass:
        parts = self.rank_plan.parts.slices[kind.piece]
        return PASSES[kind.work.value](parts, self.rank_plan.stages[kind.chunk], cuts=cuts, made_of=made_of)

    def _cuts(self, k: int, slot: Slot, step: int) -> Cuts:
        """What stands around the parts of slot *k*, flights aside."""
        rank_plan = self.rank_plan
        if rank_plan.sharding.flights:
            return {}
        if rank_plan.schedule.asynchronous:
            closed = rank_plan.closes(slot)
            number = None if rank_plan.schedule.eager_updates else closed
            return {} if closed is None else reduce_signals(rank_plan, slot.chunk, number)
        cuts: Cuts = {}
        if rank_plan.firsts.get(slot.chunk) == k:
            cuts = gather_waits(rank_plan, slot.chunk, step)
        elif rank_plan.lasts.get(slot.chunk) == k:
            cuts = reduce_signals(rank_plan, slot.chunk, step)
            if rank_plan.parts.job.training.optimizer_in_backward:
                return with_updates_behind(rank_plan, slot.chunk, cuts)
        fresh = rank_plan.fresh_gradients and rank_plan.first_backs.get(slot.chunk) == k
        return with_gradients(rank_plan, slot.chunk, cuts) if fresh else cuts
