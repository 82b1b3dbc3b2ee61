"""
What is drawn at random where the user asks for it: speeds of GPUs, rates of links, and the time of each kernel.

A draw belongs to a GPU, to a link or to one run of a kernel; it is the same whoever else is there, so folding stays
exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trainsim.contracts.instructions import Instruction, Kernel, Program, Task, Template
from trainsim.contracts.job import Job
from trainsim.contracts.system import Floats, Ints
from trainsim.costs.spread import drawn
from trainsim.errors import NotBuilt

MOST_KERNELS = 4_000_000
"""Kernels that can be drawn one by one: each is an object of its own then."""
UNTOUCHED = ("delay", "host")
"""Kinds of kernels that are no work of a GPU."""


def slow_gpus(job: Job) -> Floats:
    """Factor on the kernel times of every rank.

    The GPU draws, not the rank: moved elsewhere, a job meets other GPUs.
    """
    ranks = np.arange(job.parallel.ranks, dtype=np.int64)
    if not job.jitter.gpu:
        return np.ones(len(ranks))
    gpus = job.allocation.gpu_of(ranks)
    return drawn("gpu", int(gpus.max()) + 1, deviation=job.jitter.gpu, seed=job.seed)[gpus]


def kept_of_links(job: Job) -> Floats:
    """Part of its rate that each link keeps: none gets faster than its cable, and those in a node stay as they are."""
    cluster = job.cluster
    if not job.jitter.network:
        return np.ones(len(cluster.bandwidth))
    factors = drawn("network", len(cluster.bandwidth), deviation=job.jitter.network, seed=job.seed)
    return np.where(cluster.is_network, np.minimum(factors, 1.0 / factors), 1.0)


def noisy_programs(programs: Sequence[Program], program_of: Ints, job: Job) -> tuple[tuple[Program, ...], Ints]:
    """A program per rank in which every kernel of every pass takes a time of its own, and who runs which.

    Raises NotBuilt where these would be too many.
    """
    if not job.jitter.kernel:
        return tuple(programs), program_of
    kernels = sum(programs[k].operations for k in program_of.tolist())
    if kernels > MOST_KERNELS:
        raise NotBuilt(
            f"simulation.jitter.kernel = {job.jitter.kernel:g}: {kernels:,} kernels would be drawn one by one, more "
            f"than {MOST_KERNELS:,}; simulation.detail: block, or fewer microbatches or ranks, would work, and "
            "jitter.gpu does"
        )
    drawing = enumerate(program_of.tolist())
    return tuple(_noisy(programs[k], rank, job) for rank, k in drawing), np.arange(len(program_of), dtype=np.int64)


def _noisy(program: Program, rank: int, job: Job) -> Program:
    factors = drawn("kernel", program.operations, deviation=job.jitter.kernel, seed=job.seed, of=rank)
    chains, done = {}, 0
    for chain, tasks in program.chains.items():
        made = []
        for task in tasks:
            template, done = _scaled(task.template, factors, done)
            made.append(Task(template, task.microbatch))
        chains[chain] = tuple(made)
    return replace(program, chains=chains)


def _scaled(template: Template, factors: Floats, done: int) -> tuple[Template, int]:
    """*template* with factors of its own, of which *done* are used up before, and how many are afterwards."""
    instructions: list[Instruction] = []
    for i in template.instructions:
        if isinstance(i, Kernel) and i.kind not in UNTOUCHED:
            seconds = i.seconds * float(factors[done])
            i = Kernel(i.name, i.kind, seconds, i.sm, i.hbm, i.layer, i.stream, i.payloads)
            done += 1
        instructions.append(i)
    return Template(template.work, template.chunk, tuple(instructions), template.holds), done
