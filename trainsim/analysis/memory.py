"""What each rank holds over time, what is kept off the GPUs, and whether there is room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from trainsim.analysis.lanes import Floats, Ints, Lanes
from trainsim.analysis.passes import Moment, moment
from trainsim.contracts.allocation import Allocation
from trainsim.contracts.trace import Trace
from trainsim.hardware.cluster import Cluster

STATES = ("weights", "gradients", "optimizer")
CATEGORIES = (*STATES, "gathered", "activations", "logits", "kv_cache", "buffers", "temporary", "slack", "framework")
"""What memory is for, in the order in which pictures stack it."""

NEARLY_FULL = 0.95
"""Part of the memory, the allocator's slack included, from which on a run is at risk."""
NOT_COUNTED = (
    "fragmentation beyond the allocator's usual slack",
    "workspaces of libraries beyond the framework's constant (cuBLAS, NCCL channels)",
    "memory of other processes on the GPU",
)
RESERVED = (*NOT_COUNTED[:-1], "memory of other processes beyond reserved_memory")
"""What a prediction leaves out; the measured peak is above the predicted one by that much."""


GIGA = 2.0**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Memory of the hosts of a node, or its drives: bytes on the fullest node, and what one node has room for."""

    name: str
    peak_per_node: float = 0.0
    capacity: float = 0.0

    @property
    def fits(self) -> bool:
        return self.peak_per_node <= self.capacity

    @property
    def complaint(self) -> str:
        """In words that it does not fit; nothing if it does."""
        if self.fits:
            return ""
        need, have = self.peak_per_node / GIGA, self.capacity / GIGA
        return f"Does not fit: {self.name} of a node would hold {need:.1f} GiB of {have:.1f} GiB."


NO_HOST, NO_DRIVES = Store(name="host memory"), Store(name="drives")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageMemory:
    """The fullest rank of one pipeline stage, at the moment at which it holds most; bytes.

    ``at_peak`` has the bytes of each category then; ``returned`` is the part of its slack that the allocator gives back
    before it fails. ``times`` (s) are the moments at which something changed, and
    ``levels`` the bytes of each category from then on (an array per category that is ever held).
    """

    stage: int
    rank: int
    peak: float
    peak_at_s: float
    returned: float = 1.0
    at_peak: Mapping[str, float]
    times: Floats = field(repr=False)
    levels: Mapping[str, Floats] = field(repr=False)

    @property
    def largest(self) -> str:
        """The category that takes most at the peak."""
        return max(CATEGORIES, key=self.part)

    @property
    def needed(self) -> float:
        """What the rank cannot do without: the allocator gives its slack back before it fails, or a part of it."""
        return self.peak - self.returned * self.part("slack")

    @property
    def most_activations(self) -> float:
        """The most that is kept from forward to backward passes, at whatever moment; bytes."""
        return float(sum((self.levels[c] for c in ("activations", "logits") if c in self.levels), np.zeros(1)).max())

    @property
    def top(self) -> Floats:
        """All that is held, from each of ``times`` on."""
        top: Floats = np.sum(list(self.levels.values()), axis=0)
        return top

    @property
    def lowest(self) -> float:
        """What is held at the quietest moment: states, buffers and the framework."""
        return float(self.top.min())

    def part(self, category: str) -> float:
        """Bytes of one of CATEGORIES at the peak."""
        return float(self.at_peak.get(category, 0.0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MemoryUse:
    """Memory of the whole job: the fullest rank must fit, and on the fullest node what is not on GPUs. Bytes.

    ``capacity`` is what the job can have of a GPU; others keep ``reserved`` of what programs see. ``nominal`` is what
    the GPU is sold with, 0 where that does not matter.
    """

    peak: float
    capacity: float
    peak_rank: int
    per_stage: tuple[StageMemory, ...]
    host: Store = NO_HOST
    nvme: Store = NO_DRIVES
    reserved: float = 0.0
    nominal: float = 0.0

    @property
    def not_counted(self) -> tuple[str, ...]:
        """What the prediction leaves out."""
        return RESERVED if self.reserved else NOT_COUNTED

    @property
    def usable(self) -> float:
        """What programs see of a GPU's memory."""
        return self.capacity + self.reserved

    @property
    def fits(self) -> bool:
        return self.gpus_fit and self.host.fits and self.nvme.fits

    @property
    def needed(self) -> float:
        """What the fullest rank cannot do without."""
        return max(stage.needed for stage in self.per_stage)

    @property
    def gpus_fit(self) -> bool:
        return self.needed <= self.capacity

    @property
    def complaints(self) -> tuple[str, ...]:
        """In words what does not fit."""
        full = self.fullest
        gpu = (
            f"Does not fit: rank {full.rank} of stage {full.stage} needs {self.needed / GIGA:.1f} GiB of "
            f"{self.capacity / GIGA:.1f} GiB{self.room_words}; the largest part is {full.largest} "
            f"({full.part(full.largest) / GIGA:.1f} GiB)."
        )
        return tuple(filter(None, ("" if self.gpus_fit else gpu, self.host.complaint, self.nvme.complaint)))

    @property
    def room_words(self) -> str:
        """What the capacity is a part of, in brackets; nothing where it is all."""
        kept = f", others keep {self.reserved / GIGA:.1f}" if self.reserved else ""
        seen = f", of which programs can use {self.usable / GIGA:.1f}" if self.nominal else ""
        return f" (the GPU has {self.nominal / GIGA:.1f}{seen}{kept})" if self.nominal else ""

    @property
    def fullest(self) -> StageMemory:
        """The stage that holds most."""
        return max(self.per_stage, key=lambda stage: stage.peak)


def memory(lanes: Lanes, capacity: float, beside: tuple[Store, Store] | None = None) -> MemoryUse:
    """The level of every class over the step; of each stage the fullest class is kept. *beside* are memory of hosts and
    drives."""
    fullest: dict[int, tuple[float, int, _MemoryChanges]] = {}
    changes_of = _changes(lanes.trace)
    for c in np.argsort(lanes.trace.representative).tolist():  # of equally full ranks the first, folded or not
        stage, static = int(lanes.stage[c]), lanes.trace.memory[c]
        changes = changes_of[c]
        peak = static.total + changes.most
        if stage not in fullest or peak > fullest[stage][0]:
            fullest[stage] = peak, c, changes
    per_stage = tuple(_stage(lanes, c, changes) for _, (_, c, changes) in sorted(fullest.items()))
    top = max(per_stage, key=lambda stage: stage.peak)
    use = MemoryUse(peak=top.peak, capacity=capacity, peak_rank=top.rank, per_stage=per_stage)
    return replace(use, host=beside[0], nvme=beside[1]) if beside else use


def held_by(lanes: Lanes, ranks: Iterable[int]) -> Iterator[StageMemory]:
    """What each of *ranks* holds over the step, whether or not it is the fullest of its stage."""
    changes_of = _changes(lanes.trace)
    for rank in ranks:
        rank_class = int(lanes.trace.rank_class[rank])
        yield _stage(lanes, rank_class, changes_of[rank_class])


@dataclass(frozen=True, slots=True, eq=False)
class _MemoryChanges:
    """What comes and goes on one class of ranks, in the order of time; where times are equal, what goes comes first."""

    times: Floats
    category: Ints
    nbytes: Floats

    @property
    def most(self) -> float:
        """The most that is held at once."""
        return float(np.cumsum(self.nbytes).max(initial=0.0))


def _changes(trace: Trace) -> list[_MemoryChanges]:
    """What every class takes and gives back on its chains."""
    chain, times, category, nbytes = _holdings(trace)
    owner = np.array([owner for owner, _ in trace.chains], np.int64)[chain]
    order = np.lexsort((nbytes > 0, times, owner))  # which leaves what is alike in its order
    times, numbers, nbytes = times[order], category[order].astype(np.int64), nbytes[order]
    ends = np.searchsorted(owner[order], np.arange(trace.classes + 1)).tolist()
    return [_MemoryChanges(times[a:b], numbers[a:b], nbytes[a:b]) for a, b in pairwise(ends)]


def _holdings(trace: Trace) -> tuple[Ints, Floats, Floats, Floats]:
    """(Chains, times, numbers of categories, bytes) of what all chains take and give back.

    What is taken is there once the next instruction of its task is posted, or when the one before has ended if another
    chain is told of it then; what is given back is gone when the one before has ended, or after a wait when the next
    one of the chain is posted.
    """
    tasks = np.concatenate([of_chain.facts for of_chain in trace.tasks])
    chain = np.repeat(np.arange(len(trace.tasks)), [len(of_chain.facts) for of_chain in trace.tasks])
    holdings = [fact.holdings for fact in trace.facts]
    each = np.array([len(some) for some in holdings], np.int64)[tasks]
    if not each.any():
        return np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0)
    number = {category: k for k, category in enumerate(CATEGORIES)}
    columns = np.array([(h[0], number[h.category], *h[2:]) for some in holdings for h in some])
    # All holdings of all facts stand in one table; a task has a slice of it, from ``first`` on, and the slices of all
    # tasks are laid end to end.
    first = np.cumsum([0, *map(len, holdings)])[tasks]
    which = np.repeat(first, each) + np.arange(int(each.sum())) - np.repeat(np.cumsum(each) - each, each)
    span, category, nbytes, waited, told = columns[which].T
    spans = np.array([fact.spans for fact in trace.facts], np.int64)[tasks]
    of_chain = np.bincount(chain, spans, len(trace.tasks)).astype(np.int64)
    # The span of the whole chain before which a holding stands: those of earlier tasks, and its place in its own.
    before = np.cumsum(spans) - spans - (np.cumsum(of_chain) - of_chain)[chain]
    next_span, chain = np.repeat(before, each) + span.astype(np.int64), np.repeat(chain, each)
    later = (nbytes > 0) & ((told == 0) | (span == 0)) & (span < np.repeat(spans, each))
    ahead = later | (waited > 0) & (next_span < of_chain[chain])
    posted, ended = trace.span_times(chain, np.where(ahead, next_span, np.maximum(next_span - 1, 0)))
    return chain, np.where(ahead, posted, np.where(next_span > 0, ended, 0.0)), category, nbytes


def _stage(lanes: Lanes, rank_class: int, changes: _MemoryChanges) -> StageMemory:
    """Levels of all categories of one class; of one that never changes a single number is kept."""
    static = lanes.trace.memory[rank_class]
    changing = np.bincount(changes.category, minlength=len(CATEGORIES)).astype(bool).tolist()
    first = [getattr(static, name, 0.0) * (name != "slack") for name in CATEGORIES]
    size = len(changes.times) + 2
    held = [
        _level(changes, k, nbytes) if changing[k] else np.ndarray(size, np.float64, np.float64(nbytes), strides=(0,))
        for k, nbytes in enumerate(first)
    ]
    slack, framework, cache = (CATEGORIES.index(name) for name in ("slack", "framework", "kv_cache"))
    given_out = _sum(held) - held[framework] - held[cache]
    held[slack] = static.slack * np.maximum.accumulate(given_out)
    top = _sum(held)
    at = int((given_out + held[framework] + held[cache]).argmax())
    times = np.concatenate([[0.0], changes.times, [lanes.duration]])
    return StageMemory(
        stage=int(lanes.stage[rank_class]),
        rank=int(lanes.trace.representative[rank_class]),
        peak=float(top[at]),
        peak_at_s=float(times[at]),
        returned=static.returned,
        at_peak={category: float(held[row][at]) for row, category in enumerate(CATEGORIES)},
        times=times,
        levels={
            category: held[row]
            for row, category in enumerate(CATEGORIES)
            if first[row] or ((changing[row] or row == slack) and held[row].any())
        },
    )


def _level(changes: _MemoryChanges, category: int, first: float) -> Floats:
    """The bytes of a category at the start, after each of *changes* and at the end; it begins with *first*."""
    own, size = changes.category == category, len(changes.times) + 2
    steps = np.zeros(size)
    steps[0], steps[1:-1][own] = first, changes.nbytes[own]
    return np.cumsum(steps)


def _sum(levels: list[Floats]) -> Floats:
    """All *levels* together, added up in their order."""
    total = levels[0].copy()
    for level in levels[1:]:
        total += level
    return total


def at_peak(lanes: Lanes, stage: StageMemory) -> Moment:
    """What the fullest rank of a stage does when it holds most."""
    return moment(lanes, stage.rank, stage.peak_at_s)


def stores(lanes: Lanes, cluster: Cluster, allocation: Allocation) -> tuple[Store, Store]:
    """(Memory of hosts, drives) of *cluster*, with what the ranks of a run keep there for the whole step."""
    node, host, drive = cluster.node, cluster.node.host, cluster.node.drive
    where = cluster.node_of(allocation.gpu_of(np.arange(lanes.ranks)))

    def fullest(kind: str) -> float:
        per_class = np.array([getattr(memory, kind) for memory in lanes.trace.memory])
        return float(np.bincount(where, per_class[lanes.trace.rank_class]).max(initial=0.0))

    return (
        replace(NO_HOST, peak_per_node=fullest("host"), capacity=host.memory * node.count("host") if host else 0.0),
        replace(
            NO_DRIVES, peak_per_node=fullest("nvme"), capacity=drive.capacity * node.count("nvme") if drive else 0.0
        ),
    )
