"""
A job that runs its layers as another one does, on a pipeline of another shape: its parts without working them out.

A search looks at thousands of such jobs. What a layer does depends on tensor, context and expert parallelism, on the
micro-batch and on the software, and not on how many stages, chunks or replicas there are.
"""

from __future__ import annotations

from dataclasses import replace

from trainsim.contracts.job import Job
from trainsim.models.layer_kind import LayerKind
from trainsim.program.block_costs import Blocks
from trainsim.program.holdings import Holdings
from trainsim.program.layer_work import style_for
from trainsim.program.network import Network, expert_mesh_of, mesh_of
from trainsim.program.parts import Parts, work_out
from trainsim.program.pieces import Block
from trainsim.program.stages import recompute_modes, virtual_stages
from trainsim.schedules.lookup import facts, slices_of


def rearranged(parts: Parts, job: Job) -> Parts:
    """The parts of *job*, whose blocks are those of *parts* where both jobs run their layers alike.

    Where they do not, or where it cannot be told, they are worked out. A schedule that plans by times is not planned.
    """
    if not alike(parts, job):
        return work_out(job)
    known, network, stages = _blocks(parts), Network(job), virtual_stages(job)
    modes = recompute_modes(job, stages)
    try:
        layers = tuple(known[kind, mode] for kind, mode in zip(job.model.kinds, modes, strict=True))
    except KeyError:
        return work_out(job)
    return Parts(
        job=job,
        network=network,
        blocks=Blocks(job, network),
        holdings=Holdings(job=job, stages=stages),
        layers=layers,
        embedding=parts.embedding,
        head=parts.head,
        _coarse=parts._coarse,
    )


def alike(parts: Parts, job: Job) -> bool:
    """Whether the layers of *job* are made of the very blocks of *parts*."""
    other = parts.job
    special = parts.later or parts.uneven or parts.vocabulary or job.pipeline.vocabulary_parallel
    if special or slices_of(job.pipeline.schedule, job.pipeline.group) > 1 or job.model.lora is not None:
        return False
    same = job.model is other.model and job.cluster is other.cluster and job.framework is other.framework
    return same and _inputs(job) == _inputs(other) and style_for(job) == style_for(other)


def _inputs(job: Job) -> tuple[object, ...]:
    """What blocks are made from, machine, model and software aside."""
    degrees, host = job.parallel, job.framework.host
    places, expert_places = mesh_of(job), expert_mesh_of(job)
    counted = degrees.pp if host.seconds_per_hook or host.seconds_per_counted_tensor else 0
    return (
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


def _blocks(parts: Parts) -> dict[tuple[LayerKind, str], Block]:
    """The blocks of *parts* by kind of layer and what is recomputed of it."""
    modes = recompute_modes(parts.job, parts.stages)
    return dict(zip(zip(parts.job.model.kinds, modes, strict=True), parts.layers, strict=True))
