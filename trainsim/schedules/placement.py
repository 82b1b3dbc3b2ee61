"""Where the stages of a pipeline live: which stage a rank's chunk is, and the other way round."""

from __future__ import annotations

from enum import StrEnum


class StagePlacement(StrEnum):
    """How chunks of layers are laid over the ranks."""

    LOOP = "loop"
    """Chunk c of rank r is stage c * ranks + r."""
    V = "v"
    """Two chunks: stages go down the ranks and come back up, so the first and the last are both on rank 0."""
    WAVE = "wave"
    """Like V, any even number of times."""
    TWO_WAY = "two-way"
    """Two replicas of the pipeline, in opposite directions: stage s is also stage ranks + s, on rank ranks - 1 - s."""


def stage_of(placement: StagePlacement, rank: int, chunk: int, ranks: int) -> int:
    """The stage that is chunk *chunk* of *rank*; in a two-way pipeline replicas count on, from *ranks*.

    >>> [[stage_of(StagePlacement.V, rank, chunk, 3) for chunk in (0, 1)] for rank in (0, 1, 2)]
    [[0, 5], [1, 4], [2, 3]]
    """
    upwards = placement is not StagePlacement.LOOP and chunk % 2 == 1
    return chunk * ranks + (ranks - 1 - rank if upwards else rank)


def place_of(placement: StagePlacement, stage: int, ranks: int) -> tuple[int, int]:
    """(Rank, chunk) of *stage*: the inverse of ``stage_of``.

    >>> [place_of(StagePlacement.WAVE, stage, 2) for stage in range(4)]
    [(0, 0), (1, 0), (1, 1), (0, 1)]
    """
    chunk, along = divmod(stage, ranks)
    upwards = placement is not StagePlacement.LOOP and chunk % 2 == 1
    return (ranks - 1 - along if upwards else along), chunk


def model_stage(placement: StagePlacement, stage: int, ranks: int) -> int:
    """The stage of the model that *stage* is or replicates.

    >>> model_stage(StagePlacement.TWO_WAY, 5, 4), model_stage(StagePlacement.V, 5, 4)
    (1, 5)
    """
    return stage % ranks if placement is StagePlacement.TWO_WAY else stage
