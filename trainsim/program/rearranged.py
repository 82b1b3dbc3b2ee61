"""
A job that runs its layers as another one does, on a pipeline of another shape: its parts without working them out.

A search looks at thousands of such jobs. What a layer does depends on tensor, context and expert parallelism, on the
micro-batch and on the software, and not on how many stages, chunks or replicas there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trainsim.contracts.job import Job
from trainsim.models.layer_kind import LayerKind
from trainsim.program.block_costs import Blocks
from trainsim.program.holdings import Holdings
from trainsim.program.layer_work import style_for
from trainsim.program.network import Network, expert_mesh_of, mesh_of
from trainsim.program.parts import Parts, work_out
from trainsim.program.pieces import Block
from trainsim.program.stages import Stage, recompute_modes, virtual_stages
from trainsim.schedules.lookup import facts, slices_of
from trainsim.sharding import strategies
from trainsim.sharding.plan import ShardingPlan


class Shapes:
    """What jobs hold and exchange that differ in their micro-batch and in what is recomputed only, by the shape of
    their pipeline."""

    def __init__(self) -> None:
        self._holdings: dict[object, Holdings] = {}
        self._sharding: dict[object, dict[int, ShardingPlan]] = {}

    def holdings(self, job: Job, stages: tuple[Stage, ...]) -> Holdings:
        """The parameters of each rank of *job*."""
        return self._holdings.setdefault(_shape(job), Holdings(job=job, stages=stages))

    def sharding(self, job: Job) -> dict[int, ShardingPlan]:
        """What ranks of *job* exchange, as far as that has been worked out for a job of its shape. What is exchanged
        under every pass depends on the passes."""
        if strategies[job.sharding.strategy].every_pass:
            return {}
        return self._sharding.setdefault((*_shape(job), job.training.microbatches == 1), {})


def _shape(job: Job) -> tuple[object, ...]:
    pipeline, degrees = job.pipeline, job.parallel
    return degrees.pp, degrees.dp, pipeline.schedule, pipeline.chunks, pipeline.layout


class Rearranging:
    """The blocks of a job that is worked out, for jobs that run their layers like it; *shapes* are shared with jobs of
    another micro-batch."""

    def __init__(self, parts: Parts, shapes: Shapes | None = None):
        self.worked_out, self.shapes = parts, shapes or Shapes()
        self._inputs = _inputs(parts.job)
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
        if not self.serves(job):
            return work_out(job, plans=False)
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
            embedding=self.worked_out.embedding,
            head=self.worked_out.head,
            in_pairs=self.worked_out.in_pairs,
            _coarse=self.worked_out._coarse,
            _sharding=self.shapes.sharding(job),
        )

    def serves(self, job: Job) -> bool:
        """Whether the layers of *job* are made of the very blocks of the job that is worked out, or of such as differ
        in what is recomputed."""
        parts, other = self.worked_out, self.worked_out.job
        special = parts.later or parts.uneven or parts.vocabulary or job.pipeline.vocabulary_parallel
        if special or slices_of(job.pipeline.schedule, job.pipeline.group) > 1 or job.model.lora is not None:
            return False
        same = job.model is other.model and job.cluster is other.cluster and job.framework is other.framework
        return same and _inputs(job) == self._inputs

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


ANY_RECOMPUTATION: dict[str, Any] = {"recompute": "none", "recompute_layers": None, "recompute_every": 1}


def _inputs(job: Job) -> tuple[object, ...]:
    """What blocks are made from, machine, model and software aside."""
    degrees, host = job.parallel, job.framework.host
    places, expert_places = mesh_of(job), expert_mesh_of(job)
    counted = degrees.pp if host.seconds_per_hook or host.seconds_per_counted_tensor else 0
    return (
        style_for(job),
        [places.stride(axis) for axis in ("tp", "cp")],
        [expert_places.stride(axis) for axis in ("etp", "ep")] if job.model.has_experts else [],
        replace(degrees, pp=1, dp=1),
        replace(
            job.training, microbatches=1, global_batch=1, recompute="none", recompute_layers=None, recompute_every=1
        ),
        job.sharding.strategy,
        facts(job.pipeline.schedule).split,
        job.padded_vocab,
        job.allocation,
        job.background,
        job.algorithm,
        job.jitter,
        job.detail,
        degrees.ranks,
        counted,
    )
