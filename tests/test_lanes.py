"""Collectives that run under kernels: a lane per axis, and a pass takes the longer of the two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from tests.jobs import small
from trainsim.contracts.groups import TENSOR, Group, Queue
from trainsim.contracts.instructions import Kernel, Meet
from trainsim.contracts.job import Job
from trainsim.engine import run
from trainsim.fold import fold, prune, unfolded
from trainsim.program.lower import PASSES, lowered
from trainsim.program.parts import work_out
from trainsim.program.pieces import Block, Overlapped, Piece, lane

CONTEXT = Group(("cp",))
LARGE = float(1 << 30)
AXES = {"tp": TENSOR, "cp": CONTEXT}


def job_with_cp(**changes: object) -> Job:
    """A job whose replicas cut sequences between two ranks; what its layers then exchange is given by the test."""
    job = small(parallel__pp=1, training__global_batch=8, sharding__strategy="ddp", **changes)
    return replace(job, parallel=replace(job.parallel, cp=2, dp=job.parallel.dp // 2))


def seconds(job: Job, forward: Sequence[Piece], *, folded: bool = True) -> float:
    """Seconds that a layer adds to a forward by doing *forward*, in a step of which nothing else changes."""
    times = []
    for pieces in (tuple(forward), ()):
        parts = work_out(job)
        block: Block = replace(parts.layers[0], forward=pieces, backward=())
        system = prune(lowered(replace(parts, layers=(block,) * job.model.layers)).system)
        times.append(run(fold(system) if folded else unfolded(system)).duration)
    return (times[0] - times[1]) / (job.training.microbatches * job.model.layers)


def kernel(length: float) -> Kernel:
    """Work that leaves the collective all the SMs and HBM that it wants."""
    return Kernel("attention", "forward", length, 0.0, 0.0)


def meet(axis: str) -> Meet:
    return Meet("keys and values", axis, AXES[axis], "all_gather", LARGE, stream=axis)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("share", [0.25, 0.9, 1.1, 4.0])
def test_a_collective_under_kernels_takes_the_longer_of_the_two(axis: str, share: float) -> None:
    job = job_with_cp()
    collective = seconds(job, [meet(axis)])
    long = kernel(share * collective)
    assert seconds(job, [long, meet(axis)]) == pytest.approx((1 + share) * collective, rel=1e-6)
    assert seconds(job, [Overlapped.of(meet(axis), (long,))]) == pytest.approx(max(1, share) * collective, rel=1e-6)


def test_the_closed_form_says_the_same() -> None:
    job = job_with_cp()
    blocks = work_out(job).blocks
    collective = blocks.alone([meet("cp")])
    for share in (0.5, 2.0):
        pieces = [Overlapped.of(meet("cp"), (kernel(share * collective),))]
        assert blocks.alone(pieces) == pytest.approx(max(1, share) * collective)
        assert dict(blocks.parts(pieces)) == pytest.approx(
            {"forward": share * collective, "cp": max(0, 1 - share) * collective}
        )


def test_each_axis_has_a_lane_of_its_own() -> None:
    job = job_with_cp()
    overlapped = [Overlapped.of(meet(axis), (kernel(1e-3),)) for axis in AXES]
    parts = work_out(job)
    block = replace(parts.layers[0], forward=tuple(overlapped), backward=())
    system = lowered(replace(parts, layers=(block,) * job.model.layers)).system
    chains = system.programs[0].chains
    for axis, piece in zip(AXES, overlapped, strict=True):
        assert lane(piece.meet) == axis
        posted = {i.communicator for task in chains[axis] for i in task.template.instructions if isinstance(i, Meet)}
        assert posted == {AXES[axis].on(Queue.OVERLAP)}
    assert len(chains["cp"]) == job.training.microbatches
    compute = {i.communicator for t in chains["compute"] for i in t.template.instructions if isinstance(i, Meet)}
    assert not any(isinstance(group, Group) and group.queue is Queue.OVERLAP for group in compute)


def test_folding_knows_the_lanes() -> None:
    job = job_with_cp()
    pieces = [Overlapped.of(meet(axis), (kernel(1e-3),)) for axis in AXES]
    assert seconds(job, pieces) == seconds(job, pieces, folded=False)


def test_passes_of_lowering_have_names_of_their_own() -> None:
    names = [lowering_pass.__name__ for lowering_pass, _ in PASSES]
    assert len(set(names)) == len(names)
    assert all(lowering_pass.__doc__ and check.__doc__ for lowering_pass, check in PASSES)
    assert not any(a is b for (a, _), (b, _) in combinations(PASSES, 2))
