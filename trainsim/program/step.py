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
from trainsim.program.rank import RankPlan
from trainsim.program.rendezvous import Rendezvous
from trainsim.program.templates import PASSES, Cuts, Pass, template
from trainsim.program.update import gather_waits, reduce_signals, reductions, update, with_gradients
from trainsim.schedules import Pair, Slot, Work
from trainsim.schedules.messages import MessageBatch
from trainsim.sharding.flights import Role
from trainsim.sharding.flights import chains as chains_of


def rank_program(parts: Parts, rank: int) -> Program:
    """The program of pipeline rank *rank*; all replicas and tensor shards of the stage run it."""
    rank_plan = RankPlan(parts=parts, rank=rank)
    passes, compute = _ComputeChain(rank_plan), list[Task]()
    for step in range(rank_plan.turns):
        compute += passes.step(step)
        if not rank_plan.schedule.asynchronous:
            compute.append(Task(update(rank_plan, step), step))
    chains = {"compute": tuple(compute)} | {lane: tuple(tasks) for lane, tasks in passes.lanes.items()}
    chains |= {way: tuple(mail) for way, mail in passes.rendezvous.mail.items()}
    if parts.vocabulary is not None:
        chains["vocabulary"] = tuple(parts.vocabulary.tasks(last=any(s.head for s in rank_plan.stages)))
    chains |= passes.beside()
    if rank_plan.reduces:
        chains["dp"] = tuple(_reduced(rank_plan))
    chains |= offload_chains(rank_plan)
    return Program(chains=chains, stage=rank, parameters=rank_plan.parameters, resident=rank_plan.resident,
                   memory=_memory(rank_plan))  # fmt: skip


def _reduced(rank_plan: RankPlan) -> Iterator[Task]:
    """The chain of reductions, update after update; without a flush all of them are alike."""
    job = rank_plan.parts.job
    if not rank_plan.schedule.asynchronous:
        yield from (task for step in range(job.steps) for task in reductions(rank_plan, step))
        return
    alike = list(reductions(rank_plan, 0))
    for number in range(job.steps * job.training.microbatches // rank_plan.per_update):
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


class _ComputeChain:
    """The passes of one rank as tasks; a pass that looks like an earlier one shares its template."""

    def __init__(self, rank_plan: RankPlan):
        self.rank_plan = rank_plan
        self.lanes: dict[str, list[Task]] = {}
        self._templates: dict[tuple[Work, int, int, Role | bool], tuple[Template, Mapping[str, Template]]] = {}
        self._pairs: dict[tuple[int, int], tuple[Turn, ...]] = {}
        self._updates: dict[bool, Template] = {}
        self._beside: dict[Role, Mapping[str, Template]] = {}
        self._flights: dict[str, list[Task]] = {chain: [] for chain in chains_of(rank_plan.sharding.flights)}
        self.rendezvous = Rendezvous(rank_plan.parts, rank_plan.rank)

    def step(self, step: int) -> Iterator[Task]:
        """The tasks of the compute chain for one step, in order; those beside them are added to their chains.

        Without a flush it is one stream of all steps, with its updates.
        """
        rank_plan, k = self.rank_plan, 0
        shift = step * rank_plan.parts.job.training.microbatches * rank_plan.slices
        for item in rank_plan.items:
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
                if (closed := rank_plan.closes(item)) is not None:
                    yield Task(self._update(closed), closed)

        for chain, flights in self._flights.items():
            flights.append(Task(Template("over", 0, (Signal(f"over.{chain}"),)), step))

    def beside(self) -> dict[str, tuple[Task, ...]]:
        """The chains of flights that run under the passes, of all steps so far."""
        return {chain: tuple(flights) for chain, flights in self._flights.items()}

    def _fly(self, slot: Slot, shift: int) -> None:
        """Add the flights of a pass to their chains."""
        if not self.rank_plan.sharding.flights:
            return
        role = self.rank_plan.role(slot)
        if role not in self._beside:
            plan = self.rank_plan.sharding.flights[role]
            self._beside[role] = flights_of(plan, role, self.rank_plan.parts.blocks)
        for chain, made in self._beside[role].items():
            self._flights[chain].append(Task(made, slot.microbatch + shift))

    def _update(self, number: int) -> Template:
        last = self.rank_plan.ends_step(number)
        if last not in self._updates:
            self._updates[last] = update(self.rank_plan, number)
        return self._updates[last]

    def _single(self, slot: Slot, cuts: Cuts, shift: int) -> Task:
        role = self.rank_plan.role(slot) if self.rank_plan.sharding.flights else None
        key = slot.work, slot.chunk, slot.microbatch % self.rank_plan.slices, role or bool(cuts)
        made = self._templates.get(key)
        if made is None:
            one_pass = self._pass(slot, cuts)
            made = template(self.rank_plan.parts, one_pass), one_pass.beside
            if not cuts or role or self.rank_plan.schedule.eager_updates:
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
        parts = self.rank_plan.parts.slices[slot.microbatch % self.rank_plan.slices]
        return PASSES[slot.work.value](parts, self.rank_plan.stages[slot.chunk], cuts=cuts)

    def _cuts(self, k: int, slot: Slot, step: int) -> Cuts:
        cuts = self._exchanged(k, slot, step)
        first = self.rank_plan.first_backs.get(slot.chunk) == k
        return with_gradients(self.rank_plan, slot.chunk, cuts) if first and self.rank_plan.fresh_gradients else cuts

    def _exchanged(self, k: int, slot: Slot, step: int) -> Cuts:
        """What sharding wants around the parts of a pass."""
        rank_plan = self.rank_plan
        if rank_plan.sharding.flights:
            role = rank_plan.role(slot)
            return cuts_of(rank_plan.sharding.flights[role], role, rank_plan.parts.blocks)
        if rank_plan.schedule.asynchronous:
            closed = rank_plan.closes(slot)
            number = None if rank_plan.schedule.eager_updates else closed
            return {} if closed is None else reduce_signals(rank_plan, slot.chunk, number)
        if rank_plan.firsts.get(slot.chunk) == k:
            return gather_waits(rank_plan, slot.chunk, step)
        if rank_plan.lasts.get(slot.chunk) == k:
            return reduce_signals(rank_plan, slot.chunk, step)
        return {}


def _memory(rank_plan: RankPlan) -> Memory:
    """Model states; receive buffers for both directions of the pipeline.

    Where nothing is flushed, several versions of the weights are held.
    """
    held_versions = rank_plan.schedule.versions
    copies = held_versions(rank_plan.rank, rank_plan.parts.job.parallel.pp) if held_versions else 1
    parts, held, vocabulary = rank_plan.parts, rank_plan.states(copies), rank_plan.parts.vocabulary
    buffers = 2 * parts.message_bytes if parts.job.parallel.pp > 1 else 0.0
    extra = rank_plan.sharding.extra
    framework, trained = parts.job.framework, parts.trained(rank_plan.rank).total
    bucket = min(trained, framework.communication.bucket_parameters)
    buffers += framework.memory.bucket_copy_bytes * bucket + parts.resident(rank_plan.rank)
    buffers += framework.memory.step_copy_bytes * rank_plan.owned + extra.get("buffers", 0.0)
    memory = Memory(
        weights=held.weights + extra.get("weights", 0.0),
        gradients=held.gradients - rank_plan.fresh_gradients + extra.get("gradients", 0.0),
        optimizer=held.optimizer,
        gathered=extra.get("gathered", 0.0),
        buffers=buffers + (0.0 if vocabulary is None else vocabulary.held),
        framework=framework.memory.fixed,
        slack=framework.memory.allocator_slack,
    )
    return with_offload(rank_plan, memory)
