"""Stages that have more to do than others, in every replica: layers, or the head, are divided unevenly."""

from __future__ import annotations

import numpy as np

from trainsim.diagnosis.causes import FoundCause, causes
from trainsim.diagnosis.evidence import Evidence
from trainsim.diagnosis.operations import Floats
from trainsim.diagnosis.thresholds import threshold
from trainsim.diagnosis.words import slower, stages_named
from trainsim.units import format_time

KIND = "uneven stages"


@causes.register(KIND)
def uneven_stages(evidence: Evidence) -> FoundCause | None:
    """The stage that has most to do, and what is gained if all have the same."""
    passes = evidence.stage_passes
    known = ~np.isnan(passes).any(axis=0)
    if known.sum() < 2:
        return None
    both = np.where(known, passes.sum(axis=0), -np.inf)
    slowest = int(both.argmax())
    others = known & (np.arange(len(both)) != slowest)
    usual = float(both[others].mean())
    if usual <= 0 or both[slowest] < threshold("slower_stage") * usual:
        return None
    mean = passes[:, known].mean(axis=1)
    replay = evidence.replay
    factor = mean[:, None] / np.where(passes > 0, passes, np.nan)
    saved = replay.step - replay.mean(scaled_stages(evidence, factor))
    last = len(both) - 1
    alone = replay.table.shape.dp * replay.table.shape.dsp == 1
    return FoundCause(
        kind=KIND,
        saved=saved,
        sentence=f"the stages are uneven: a microbatch takes {format_time(both[slowest])} forward and backward on "
        f"{stages_named([slowest], last)}, {slower(both[slowest] / usual)} as long as on the others "
        f"({format_time(usual)} on average)"
        + (
            ", the same in every replica"
            if not alone
            else ", or its GPU is slow: with one replica the two look the same"
        ),
        suggestions=(_moving(evidence, slowest, usual),),
    )


def scaled_stages(evidence: Evidence, factor: Floats) -> tuple[Floats, ...]:
    """Own durations with the passes of each stage multiplied: *factor* has a row per direction."""
    return evidence.scaled(np.nan_to_num(factor, nan=1.0)[:, evidence.stage])


def _moving(evidence: Evidence, slowest: int, usual: float) -> str:
    """How much work to move from the slowest stage to the others, and what a step takes then."""
    replay, both = evidence.replay, evidence.stage_passes.sum(axis=0)
    stages, layers = np.flatnonzero(~np.isnan(both)), replay.table.shape.layers
    excess = float(both[slowest] - np.nanmean(both))
    what = f"{excess / both[slowest]:.0%} of its work ({excess / usual:.0%} of what another stage has)"
    if layers:
        layer = float(np.nansum(both)) / layers  # with the head among them: rather a layer too few
        count = max(round(excess / layer), 1)
        excess, what = count * layer, f"{count} layer{'s' if count > 1 else ''} of {layers}"
    target = both + excess / (len(stages) - 1)
    target[slowest] = both[slowest] - excess
    factor = target / np.where(both > 0, both, np.nan)
    seconds = replay.mean(scaled_stages(evidence, np.tile(factor, (2, 1))))
    head = ", which also has the head and the loss," if slowest == len(both) - 1 else ""
    return (
        f"move {what} from stage {slowest}{head} to the other stages: a step would take {format_time(seconds)} "
        f"instead of {format_time(replay.step)} ({seconds / replay.step - 1:+.1%})"
    )
