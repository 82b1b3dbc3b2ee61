"""
One pipeline rank: its stages, the order of its passes, and which of them updates of the weights follow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import NamedTuple, cast

from trainsim.contracts.job import Skip
from trainsim.program.parts import Parts
from trainsim.program.stages import Stage
from trainsim.program.states import States, owned, states
from trainsim.program.vocabulary import deeper
from trainsim.schedules import Slot, Work, flat
from trainsim.schedules.lookup import facts, items_of, slots_of
from trainsim.schedules.messages import Item, MessageBatch
from trainsim.schedules.traits import Traits
from trainsim.sharding.flights import Role
from trainsim.sharding.parameter_groups import Held, shared
from trainsim.sharding.plan import ShardingPlan

MAKES_GRADIENTS = (Work.B, Work.W)
"""The passes that make gradients of the weights."""


class Kind(NamedTuple):
    """What tells the template of a pass; under flights the first and the last microbatch of a step differ."""

    work: Work
    chunk: int
    piece: int  # which slice of a sequence
    first: bool = False
    last: bool = False

    @property
    def role(self) -> Role:
        """Which pass it is, for the flights that run under it."""
        return Role(self.work.value, self.first, self.last)


class _KindOf(dict[tuple[Work, int, int, bool, bool], Kind]):
    """One kind for all rows that are equal: an order has very many slots and few kinds."""

    def __missing__(self, row: tuple[Work, int, int, bool, bool]) -> Kind:
        self[row] = kind = Kind(*row)
        return kind


def _by_chunk(choose: Callable[[int, int], int], slots: Mapping[Kind, int], works: Collection[Work]) -> dict[int, int]:
    """Chunk -> the one of its *slots* of these *works* that is to be chosen."""
    out: dict[int, int] = {}
    for kind, k in slots.items():
        if kind.work in works:
            out[kind.chunk] = choose(k, out.get(kind.chunk, k))
    return out


@dataclass(frozen=True, kw_only=True, eq=False)
class RankPlan:
    """What the chains of one pipeline rank are made from."""

    parts: Parts
    rank: int

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Its chunks, first to last."""
        return self.parts.of_rank(self.rank)

    @cached_property
    def sharding(self) -> ShardingPlan:
        """What it sends for data parallelism."""
        return self.parts.sharding(self.rank)

    @cached_property
    def held(self) -> tuple[Held, ...]:
        """Its parameters in groups, with how each is shared."""
        return self.sharding.held(self.parts.holdings.groups(self.rank))

    @cached_property
    def schedule(self) -> Traits:
        """What its schedule is like."""
        return facts(self.parts.job.pipeline.schedule)

    @property
    def turns(self) -> int:
        """How often it goes through ``items``: once per step, or once for all of them where nothing is flushed."""
        return 1 if self.schedule.asynchronous else self.parts.job.steps

    @cached_property
    def slices(self) -> int:
        """Slots of one kind per microbatch."""
        return len(self.parts.slices)

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """The schedule's order; with the exchanges of blocking messages, if they block."""
        job, pipeline = self.parts.job, self.parts.job.pipeline
        find = items_of if self.parts.blocking else slots_of
        microbatches = job.training.microbatches * (job.steps // self.turns)
        name, pp, chunks, group = pipeline.schedule, job.parallel.pp, pipeline.chunks, pipeline.group
        costs = self.parts.planned_for
        items = tuple(find(name, self.rank, pp, microbatches=microbatches, chunks=chunks, group=group, costs=costs))
        return items if self.parts.vocabulary is None else deeper(items)

    @cached_property
    def one_by_one(self) -> bool:
        """Whether its order is passes alone: none in pairs, no exchanges of messages, no updates among them."""
        return set(map(type, self.items)) <= {Slot} and not self.schedule.asynchronous

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """The order with pairs taken apart: the forward first."""
        if set(map(type, self.items)) <= {Slot}:
            return cast("tuple[Slot, ...]", self.items)
        return tuple(flat(item for item in self.items if not isinstance(item, MessageBatch)))

    @cached_property
    def kinds(self) -> list[Kind]:
        """The kind of every slot: those of one kind are alike, but for what stands around them at turning points."""
        works, microbatches, chunks = zip(*self.slots, strict=True)
        rows: Iterable[tuple[Work, int, int, bool, bool]] = zip(works, chunks, repeat(0), repeat(False), repeat(False))
        if self.slices > 1 or self.sharding.flights:
            pieces = [b % self.slices for b in microbatches]
            last = self.parts.job.training.microbatches - 1
            ends = [[bool(self.sharding.flights) and b == end for b in microbatches] for end in (0, last)]
            rows = zip(works, chunks, pieces, *ends, strict=True)
        return list(map(_KindOf().__getitem__, rows))

    @cached_property
    def firsts(self) -> dict[int, int]:
        """Chunk -> number of its first forward: before it, parameters have to be there."""
        return _by_chunk(min, self._first, (Work.F,))

    @cached_property
    def lasts(self) -> dict[int, int]:
        """Chunk -> number of the slot after which its gradients are complete."""
        return _by_chunk(max, dict(zip(self.kinds, range(len(self.kinds)), strict=True)), MAKES_GRADIENTS)

    @cached_property
    def first_backs(self) -> dict[int, int]:
        """Chunk -> number of the first slot that makes gradients of its weights."""
        return _by_chunk(min, self._first, MAKES_GRADIENTS)

    @cached_property
    def turning_points(self) -> frozenset[int]:
        """The slots that are the first or the last of their chunk in some way."""
        return frozenset({*self.firsts.values(), *self.lasts.values(), *self.first_backs.values()})

    @cached_property
    def _first(self) -> dict[Kind, int]:
        """The number of the first slot of each kind."""
        return dict(zip(reversed(self.kinds), reversed(range(len(self.kinds))), strict=True))

    @cached_property
    def replicated(self) -> bool:
        """Whether other ranks hold some of its parameters too."""
        return any(self.parts.network.has(group.over) for group, _ in self.held)

    @property
    def reduces(self) -> bool:
        """Whether a chain of its own carries reductions, gathers or copies of gradients."""
        return self.gathers_ahead or (self.sharding.overlapped and (self.replicated or self.offloads))

    @property
    def gathers_ahead(self) -> bool:
        """Whether that chain gathers parameters before they are used."""
        return self.replicated and self.sharding.gathers_overlapped

    @property
    def offloads(self) -> bool:
        """Whether the optimizer is not on the GPU, or not all of it."""
        return self.parts.job.sharding.offload.optimizer != "none"

    @cached_property
    def per_update(self) -> int:
        """Microbatches whose gradients go into one update."""
        return 1 if self.schedule.eager_updates else self.parts.job.training.microbatches

    @cached_property
    def parameters(self) -> int:
        """Parameters that it holds, of all chunks: frozen ones and adapters too."""
        return sum(group.total for group, _ in self.held)

    @property
    def resident(self) -> float:
        """Parameters of which it keeps the weights between passes: its share of those that replicas share."""
        return shared((group.total, shards.weights) for group, shards in self.held)

    @cached_property
    def trainable(self) -> int:
        """Parameters that it trains, of all chunks."""
        return sum(group.total for group, _ in self.held if group.trained)

    @property
    def owned(self) -> float:
        """Parameters whose updates are its own to make."""
        return owned(self.held)

    @cached_property
    def fresh_gradients(self) -> float:
        """Bytes of gradients that are there from the first backward of a step to its update only."""
        if self.sharding.fresh:
            return self.sharding.fresh
        layout, vocabulary = self.parts.job.framework.memory.states, self.parts.vocabulary
        shares = any(shards.gradients > 1 for _, shards in self.held)
        told = self.sharding.flights or shares  # the strategy says when they come and go
        told = told or self.parts.job.training.optimizer_in_backward
        if not layout.fresh or told or self.schedule.asynchronous or vocabulary is not None:
            return 0.0
        return self.parts.job.sum_bytes * self.trainable

    def states(self, versions: int = 1) -> States:
        """What it holds of the model; *versions* of the weights are kept where nothing is flushed."""
        return self._states if versions == 1 else states(self.parts.job, self.held, versions=versions)

    @cached_property
    def _states(self) -> States:
        return states(self.parts.job, self.held)

    def closes(self, slot: Slot) -> int | None:
        """The update that follows *slot* at once, where the schedule does not flush."""
        number, rest = divmod(slot.microbatch + 1, self.per_update)
        return number - 1 if self.schedule.asynchronous and slot.work is Work.B and not rest else None

    def skips(self, step: int) -> bool:
        """Whether gradients overflow in *step*, so that its update is left out."""
        return any(isinstance(w, Skip) and w.step == step for w in self.parts.job.what_if)

    def ends_step(self, update: int) -> bool:
        """Whether *update* is the last of its step."""
        return (update + 1) * self.per_update % self.parts.job.training.microbatches == 0
