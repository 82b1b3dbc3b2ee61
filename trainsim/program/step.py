"""
The program of one pipeline rank: its schedule, its reductions and the end of its step, as chains of tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from trainsim.contracts.instructions import Kernel, Memory, Program, Signal, Task, Template
from trainsim.contracts.job import Delay
from trainsim.program.beside import cuts as cuts_of
from trainsim.program.beside import tasks as flights_of
from trainsim.program.offload import chains as offload_chains
from trainsim.program.offload import with_offload
from trainsim.program.pairs import Turn, turns
from trainsim.program.parts import Parts
from trainsim.program.rank import Rank
from trainsim.program.rendezvous import Rendezvous
from trainsim.program.templates import PASSES, Cuts, Pass, template
from trainsim.program.update import gather_waits, reduce_signals, reductions, update, with_gradients
from trainsim.schedules import Pair, Slot, Work
from trainsim.schedules.messages import MessageBatch
from trainsim.sharding.flights import Role
from trainsim.sharding.flights import chains as chains_of


def rank_program(parts: Parts, rank: int) -> Program:
    """The program of pipeline rank *rank*; all replicas and tensor shards of the stage run it."""
    mine = Rank(parts=parts, rank=rank)
    passes, compute = _Passes(mine), list[Task]()
    for step in range(mine.turns):
        compute += passes.step(step)
        if not mine.schedule.asynchronous:
            compute.append(Task(update(mine, step), step))
    chains = {"compute": tuple(compute)} | {lane: tuple(tasks) for lane, tasks in passes.lanes.items()}
    chains |= {way: tuple(mail) for way, mail in passes.rendezvous.mail.items()}
    if parts.vocabulary is not None:
        chains["vocabulary"] = tuple(parts.vocabulary.tasks(last=any(s.head for s in mine.stages)))
    chains |= passes.beside()
    if mine.reduces:
        chains["dp"] = tuple(_reduced(mine))
    chains |= offload_chains(mine)
    return Program(chains=chains, stage=rank, parameters=mine.parameters, resident=mine.resident,
                   memory=_memory(mine))  # fmt: skip


def _reduced(mine: Rank) -> Iterator[Task]:
    """The chain of reductions, update after update; without a flush all of them are alike."""
    job = mine.parts.job
    if not mine.schedule.asynchronous:
        yield from (task for step in range(job.steps) for task in reductions(mine, step))
        return
    alike = list(reductions(mine, 0))
    for number in range(job.steps * job.training.microbatches // mine.per_update):
        yield from (Task(task.template, number) for task in alike)


def delayed(program: Program, delays: Iterable[Delay]) -> Program:
    """*program* with time lost once, before the first task of the phase that each delay names."""
    works = {"forward": ("F",), "backward": ("B", "I"), "optimizer": ("update",)}
    tasks = list(program.chains["compute"])
    for delay in delays:
        at = next(k for k, t in enumerate(tasks) if t.template.work in works[delay.at])
        template = tasks[at].template
        lost = Kernel("delay", "delay", delay.seconds, 0.0, 0.0)
        late = Template.of(template.work, template.chunk, (lost, *template.pieces))
        tasks[at] = Task(late, tasks[at].microbatch)
    return replace(program, chains={**program.chains, "compute": tuple(tasks)})


class _Passes:
    """The passes of one rank as tasks; a pass that looks like an earlier one shares its template."""

    def __init__(self, mine: Rank):
        self.mine = mine
        self.lanes: dict[str, list[Task]] = {}
        self._templates: dict[tuple[Work, int, int, Role | bool], tuple[Template, Mapping[str, Template]]] = {}
        self._pairs: dict[tuple[int, int], tuple[Turn, ...]] = {}
        self._updates: dict[bool, Template] = {}
        self._beside: dict[Role, Mapping[str, Template]] = {}
        self._flights: dict[str, list[Task]] = {chain: [] for chain in chains_of(mine.sharding.flights)}
        self.rendezvous = Rendezvous(mine.parts, mine.rank)

    def step(self, step: int) -> Iterator[Task]:
        """The tasks of the compute chain for one step, in order; those beside them are added to their chains.

        Without a flush it is one stream of all steps, with its updates.
        """
        mine, k = self.mine, 0
        shift = step * mine.parts.job.training.microbatches * mine.slices
        for item in mine.items:
            if isinstance(item, MessageBatch):
                yield from self.rendezvous.tasks(item, shift)
            elif isinstance(item, Pair):
                cuts = self._cuts(k, item.forward, step), self._cuts(k + 1, item.backward, step)
                yield from self._pair(item, cuts, shift)
                k += 2
            else:
                yield self._single(item, self._cuts(k, item, step), shift)
                self._fly(item, shift)
                k += 1
                if (closed := mine.closes(item)) is not None:
                    yield Task(self._update(closed), closed)

        for chain, flights in self._flights.items():
            flights.append(Task(Template("over", 0, (Signal(f"over.{chain}"),)), step))

    def beside(self) -> dict[str, tuple[Task, ...]]:
        """The chains of flights that run under the passes, of all steps so far."""
        return {chain: tuple(flights) for chain, flights in self._flights.items()}

    def _fly(self, slot: Slot, shift: int) -> None:
        """Add the flights of a pass to their chains."""
        if not self.mine.sharding.flights:
            return
        role = self.mine.role(slot)
        if role not in self._beside:
            plan = self.mine.sharding.flights[role]
            self._beside[role] = flights_of(plan, role, self.mine.parts.blocks)
        for chain, made in self._beside[role].items():
            self._flights[chain].append(Task(made, slot.microbatch + shift))

    def _update(self, number: int) -> Template:
        last = self.mine.ends_step(number)
        if last not in self._updates:
            self._updates[last] = update(self.mine, number)
        return self._updates[last]

    def _single(self, slot: Slot, cuts: Cuts, shift: int) -> Task:
        role = self.mine.role(slot) if self.mine.sharding.flights else None
        key = slot.work, slot.chunk, slot.microbatch % self.mine.slices, role or bool(cuts)
        made = self._templates.get(key)
        if made is None:
            one_pass = self._pass(slot, cuts)
            made = template(self.mine.parts, one_pass), one_pass.beside
            if not cuts or role or self.mine.schedule.eager_updates:
                self._templates[key] = made
        main, overlapped = made
        return self._task(main, overlapped, slot.microbatch + shift)

    def _pair(self, pair: Pair, cuts: tuple[Cuts, Cuts], shift: int) -> Iterator[Task]:
        key = pair.forward.chunk, pair.backward.chunk
        made = None if any(cuts) else self._pairs.get(key)
        if made is None:
            made = turns(self._pass(pair.forward, cuts[0]), self._pass(pair.backward, cuts[1]))
            if not any(cuts):
                self._pairs[key] = made
        for turn in made:
            yield self._task(turn.compute, turn.lanes, pair[turn.who].microbatch + shift)

    def _task(self, main: Template, overlapped: Mapping[str, Template], microbatch: int) -> Task:
        """A task of the compute chain, whose overlapped collectives go to their lanes."""
        for lane, collectives in overlapped.items():
            self.lanes.setdefault(lane, []).append(Task(collectives, microbatch))
        return Task(main, microbatch)

    def _pass(self, slot: Slot, cuts: Cuts) -> Pass:
        parts = self.mine.parts.slices[slot.microbatch % self.mine.slices]
        return PASSES[slot.work.value](parts, self.mine.stages[slot.chunk], cuts=cuts)

    def _cuts(self, k: int, slot: Slot, step: int) -> Cuts:
        cuts = self._exchanged(k, slot, step)
        first = self.mine.first_backs.get(slot.chunk) == k
        return with_gradients(self.mine, slot.chunk, cuts) if first and self.mine.fresh_gradients else cuts

    def _exchanged(self, k: int, slot: Slot, step: int) -> Cuts:
        """What sharding wants around the parts of a pass."""
        mine = self.mine
        if mine.sharding.flights:
            role = mine.role(slot)
            return cuts_of(mine.sharding.flights[role], role, mine.parts.blocks)
        if mine.schedule.asynchronous:
            closed = mine.closes(slot)
            number = None if mine.schedule.eager_updates else closed
            return {} if closed is None else reduce_signals(mine, slot.chunk, number)
        if mine.firsts.get(slot.chunk) == k:
            return gather_waits(mine, slot.chunk, step)
        if mine.lasts.get(slot.chunk) == k:
            return reduce_signals(mine, slot.chunk, step)
        return {}


def _memory(mine: Rank) -> Memory:
    """Model states; receive buffers for both directions of the pipeline.

    Where nothing is flushed, several versions of the weights are held.
    """
    held_versions = mine.schedule.versions
    copies = held_versions(mine.rank, mine.parts.job.parallel.pp) if held_versions else 1
    parts, held, vocabulary = mine.parts, mine.states(copies), mine.parts.vocabulary
    buffers = 2 * parts.message_bytes if parts.job.parallel.pp > 1 else 0.0
    extra = mine.sharding.extra
    framework, trained = parts.job.framework, parts.trained(mine.rank).total
    bucket = min(trained, framework.communication.bucket_parameters)
    buffers += framework.memory.bucket_copy_bytes * bucket + parts.resident(mine.rank)
    buffers += framework.memory.step_copy_bytes * mine.owned + extra.get("buffers", 0.0)
    memory = Memory(
        weights=held.weights + extra.get("weights", 0.0),
        gradients=held.gradients - mine.fresh_gradients + extra.get("gradients", 0.0),
        optimizer=held.optimizer,
        gathered=extra.get("gathered", 0.0),
        buffers=buffers + (0.0 if vocabulary is None else vocabulary.held),
        framework=framework.memory.fixed,
        slack=framework.memory.allocator_slack,
    )
    return with_offload(mine, memory)
