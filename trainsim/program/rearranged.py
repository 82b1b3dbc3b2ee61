"""
A job that runs its layers as another one does, on a pipeline of another shape: its parts without working them out.

A search looks at thousands of such jobs, and a sweep has hundreds. What a layer does depends on tensor, context and
expert parallelism, on the micro-batch and on the software, and not on how many stages, chunks or replicas there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from trainsim.collectives import algorithms
from trainsim.contracts.job import Job
from trainsim.models.layer_kind import LayerKind
from trainsim.program.block_costs import Blocks
from trainsim.program.holdings import Holdings
from trainsim.program.layer_work import style_for
from trainsim.program.network import Network, expert_mesh_of, mesh_of
from trainsim.program.parts import Parts, planned, work_out
from trainsim.program.pieces import Block
from trainsim.program.stages import Stage, recompute_modes, virtual_stages
from trainsim.schedules.lookup import facts, slices_of
from trainsim.sharding import strategies
from trainsim.sharding.plan import ShardingPlan

T = TypeVar("T")
MOST_KEPT, MOST_TEMPLATES = 256, 1024
"""Shapes or families of jobs that are kept, and templates of each family."""


class Shapes:
    """What jobs hold and exchange that differ in their micro-batch, in what is recomputed and in the order of their
    passes only, by the shape of their pipeline."""

    def __init__(self) -> None:
        self._holdings: dict[object, Holdings] = {}
        self._sharding: dict[object, dict[int, ShardingPlan]] = {}

    def holdings(self, job: Job, stages: tuple[Stage, ...]) -> Holdings:
        """The parameters of each rank of *job*."""
        return _kept(self._holdings, (job.parallel.dp, stages), lambda: Holdings(job=job, stages=stages))

    def sharding(self, job: Job, stages: tuple[Stage, ...]) -> dict[int, ShardingPlan]:
        """What ranks of *job* exchange, as far as that has been worked out for a job of its shape. What is exchanged
        under every pass depends on the passes."""
        if strategies[job.sharding.strategy].every_pass:
            return {}
        return _kept(
            self._sharding, (job.parallel.dp, stages, job.training.microbatches == 1, repr(job.sharding)), dict
        )


def _kept(kept: dict[object, T], key: object, make: Callable[[], T]) -> T:
    """What is *kept* under *key*, or else what *make* makes; the oldest goes when there are many."""
    if key not in kept:
        while len(kept) >= MOST_KEPT:
            del kept[next(iter(kept))]
        kept[key] = make()
    return kept[key]


class Rearranging:
    """The blocks of a job that is worked out, for jobs that run their layers like it; *shapes* are shared with jobs of
    another micro-batch. ``alike`` are the templates of passes over these blocks."""

    def __init__(self, parts: Parts, shapes: Shapes | None = None):
        self.shapes, self.alike = shapes or Shapes(), parts.alike
        self._embedding, self._head = parts.embedding, parts.head
        self._coarse, self._in_pairs = parts._coarse, parts.in_pairs
        self._plain = not (parts.later or parts.uneven or parts.vocabulary)
        self._family = _family(parts.job)
        self._software = parts.job.model, parts.job.cluster, parts.job.framework  # the family knows them by identity
        self._blocks: dict[tuple[LayerKind, str], Block] = {}
        self._learn(parts)

    def _learn(self, parts: Parts) -> None:
        kinds, modes = parts.job.model.kinds, recompute_modes(parts.job, parts.stages)
        for kind, mode, block in zip(kinds, modes, parts.layers, strict=True):
            self._blocks.setdefault((kind, mode), block)

    def parts(self, job: Job) -> Parts:
        """The parts of *job*, with the blocks of the other one where both run their layers alike.

        Where they do not, or where it cannot be told, they are worked out. A schedule that plans by times is not
        planned.
        """
        return self.of_family(job) if self.serves(job) else work_out(job, plans=False)

    def of_family(self, job: Job) -> Parts:
        """The parts of a *job* that it serves."""
        while len(self.alike) > MOST_TEMPLATES:
            del self.alike[next(iter(self.alike))]
        network, stages = Network(job), virtual_stages(job)
        layers = self._layers(job, stages)
        if layers is None:
            parts = work_out(job, plans=False)
            self._learn(parts)
            return parts
        return Parts(
            job=job,
            network=network,
            blocks=Blocks(job, network),
            holdings=self.shapes.holdings(job, stages),
            layers=layers,
            embedding=self._embedding,
            head=self._head,
            alike=self.alike,
            in_pairs=self._in_pairs,
            _coarse=self._coarse,
            _sharding=self.shapes.sharding(job, stages),
        )

    def serves(self, job: Job) -> bool:
        """Whether the layers of *job* are made of the very blocks of the job that is worked out, or of such as differ
        in what is recomputed."""
        return self._plain and _plain(job) and _family(job) == self._family

    def _layers(self, job: Job, stages: Sequence[Stage]) -> tuple[Block, ...] | None:
        """The block of every layer, in forward order; None where one has not been worked out."""
        training, kinds = job.training, job.model.kinds
        if training.recompute_layers is None and training.recompute_every == 1:
            modes: tuple[str, ...] = (training.recompute,) * len(kinds)
        else:
            modes = recompute_modes(job, stages)
        keys = list(zip(map(id, kinds), modes, strict=True))
        known = {key: self._blocks.get((kind, key[1])) for key, kind in dict(zip(keys, kinds, strict=True)).items()}
        layers = tuple(block for block in map(known.__getitem__, keys) if block is not None)
        return layers if len(layers) == len(keys) else None


def rearranged(parts: Parts, job: Job) -> Parts:
    """The parts of *job*, whose blocks are those of *parts* where both jobs run their layers alike."""
    return Rearranging(parts).parts(job)


def worked_out(job: Job) -> Parts:
    """The parts of *job* as ``work_out`` has them, from the blocks and templates of jobs of this process before it that
    ran their layers alike."""
    if not _plain(job):
        return work_out(job)
    families: dict[object, Rearranging] = job.cluster.memo.setdefault("families", {})
    known = families.get(family := _family(job))
    if known is not None:
        return planned(known.of_family(job))
    parts = work_out(job)
    if not parts.uneven:
        _kept(families, family, lambda: Rearranging(parts))
    return parts


def _plain(job: Job) -> bool:
    """Whether sequences and logits are whole, and all layers trained."""
    pipeline = job.pipeline
    return not (pipeline.vocabulary_parallel or slices_of(pipeline.schedule, pipeline.group) > 1 or job.model.lora)


ANY_RECOMPUTATION: dict[str, Any] = {"recompute": "none", "recompute_layers": None, "recompute_every": 1}


def _family(job: Job) -> tuple[object, ...]:
    """What blocks are made from; jobs that have it in common run their layers alike."""
    degrees, software = job.parallel, job.framework
    places, expert_places = mesh_of(job), expert_mesh_of(job)
    counted = degrees.pp if software.host.seconds_per_hook or software.host.seconds_per_counted_tensor else 0
    return (
        *map(id, (job.model, job.cluster, software.kernels, software.communication, software.memory)),
        (software.name, software.family, software.compiled, software.host),  # the host's times are scaled for each job
        style_for(job),
        tuple(places.stride(axis) for axis in ("tp", "cp")),
        tuple(expert_places.stride(axis) for axis in ("etp", "ep")) if job.model.has_experts else (),
        replace(degrees, pp=1, dp=1),
        replace(
            job.training, microbatches=1, global_batch=1, recompute="none", recompute_layers=None, recompute_every=1
        ),
        job.sharding.strategy,
        facts(job.pipeline.schedule).split,
        job.padded_vocab,
        job.allocation,
        job.background,
        tuple(sorted(job.algorithm.items())),
        tuple(algorithms.values()),
        job.what_if,
        job.jitter,
        job.seed,
        job.detail,
        degrees.ranks,
        counted,
    )
