"""
A job that runs its layers as another one does, on a pipeline of another shape: its parts without working them out.

A search looks at thousands of such jobs. What a layer does depends on tensor, context and expert parallelism, on the
micro-batch and on the software, and not on how many stages, chunks or replicas there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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


class Rearranging:
    """The blocks of a job that is worked out, for jobs that run their layers like it."""

    def __init__(self, parts: Parts):
        self.worked_out = parts
        self._inputs = _inputs(parts.job)
        kinds, modes = parts.job.model.kinds, recompute_modes(parts.job, parts.stages)
        self._blocks: dict[tuple[LayerKind, str], Block] = dict(
            zip(zip(kinds, modes, strict=True), parts.layers, strict=True)
        )
        self._same = len(set(map(id, parts.layers))) == 1

    def parts(self, job: Job) -> Parts:
        """The parts of *job*, with the blocks of the other one where both run their layers alike.

        Where they do not, or where it cannot be told, they are worked out. A schedule that plans by times is not
        planned.
        """
        if not self.serves(job):
            return work_out(job)
        network, stages = Network(job), virtual_stages(job)
        layers = self._layers(job, stages)
        if layers is None:
            return work_out(job)
        return Parts(
            job=job,
            network=network,
            blocks=Blocks(job, network),
            holdings=Holdings(job=job, stages=stages),
            layers=layers,
            embedding=self.worked_out.embedding,
            head=self.worked_out.head,
            _coarse=self.worked_out._coarse,
        )

    def serves(self, job: Job) -> bool:
        """Whether the layers of *job* are made of the very blocks of the job that is worked out."""
        parts, other = self.worked_out, self.worked_out.job
        special = parts.later or parts.uneven or parts.vocabulary or job.pipeline.vocabulary_parallel
        if special or slices_of(job.pipeline.schedule, job.pipeline.group) > 1 or job.model.lora is not None:
            return False
        same = job.model is other.model and job.cluster is other.cluster and job.framework is other.framework
        return same and _inputs(job) == self._inputs

    def _layers(self, job: Job, stages: Sequence[Stage]) -> tuple[Block, ...] | None:
        """The block of every layer, in forward order; None where one has not been worked out."""
        training = job.training
        if self._same and training.recompute_layers is None and training.recompute_every == 1:
            return self.worked_out.layers
        modes = recompute_modes(job, stages)
        found = [self._blocks.get(key) for key in zip(job.model.kinds, modes, strict=True)]
        layers = tuple(block for block in found if block is not None)
        return layers if len(layers) == len(found) else None


def rearranged(parts: Parts, job: Job) -> Parts:
    """The parts of *job*, whose blocks are those of *parts* where both jobs run their layers alike."""
    return Rearranging(parts).parts(job)


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
        replace(job.training, microbatches=1, global_batch=1),
        job.sharding.strategy,
        facts(job.pipeline.schedule).split,
        job.padded_vocab,
        job.allocation,
        job.algorithm,
        job.jitter,
        job.detail,
        degrees.ranks,
        counted,
    )
