"""Other schedules on the same machine, and other numbers of microbatches."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.job import Job
from trainsim.schedules.traits import traits
from trainsim.study.explain.options import BATCH, SCHEDULE, Trial

TRIED = (("1f1b", 1), ("interleaved-1f1b", 2), ("zb-h1", 1), ("zb-v", 2), ("v-half", 2), ("dualpipev", 2))
"""Schedules that people choose between, and chunks per rank where the scenario has no better number."""


def other_schedules(job: Job) -> Iterator[Trial]:
    """Every schedule of TRIED but the job's own; interleaved with the job's chunks, or with two."""
    if job.parallel.pp == 1:
        return
    now = job.pipeline
    for name, usual in TRIED:
        chunks = now.chunks if traits(name).chunks is None and now.chunks > 1 else usual
        if (name, chunks) != (now.schedule, now.chunks):
            title = f"schedule {name}" + (f" with {chunks} chunks per rank" if chunks > 1 else "")
            changes = {"pipeline.schedule": name, "pipeline.chunks": chunks, **_group(job)}
            yield Trial(kind=SCHEDULE, title=title, changes={**changes, **_layout(job, chunks)})


def _group(job: Job) -> dict[str, None]:
    """What a group means, and which would do, differs between schedules: the usual one."""
    return {"pipeline.group": None} if job.pipeline.group else {}


def _layout(job: Job, chunks: int) -> dict[str, None]:
    """Another number of chunks needs another layout: the usual one."""
    return {"pipeline.layout": None} if chunks != job.pipeline.chunks else {}


def more_microbatches(job: Job) -> Iterator[Trial]:
    """Twice the batch, or the same batch cut finer or coarser."""
    training = job.training
    twice = 2 * training.global_batch
    yield Trial(
        kind=BATCH,
        title=f"global batch {twice}: {2 * training.microbatches} microbatches per step",
        changes={"training.global_batch": twice},
    )
    for size in (training.micro_batch // 2, 2 * training.micro_batch):
        number, rest = divmod(training.micro_batch * training.microbatches, max(size, 1))
        if size and number and not rest:
            yield Trial(
                kind=BATCH,
                title=f"micro batch {size}: {number} microbatches per step",
                changes={"training.micro_batch": size},
            )
