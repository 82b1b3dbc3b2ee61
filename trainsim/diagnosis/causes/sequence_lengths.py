"""Microbatches of different length: one input is slow forward and backward and on every stage, the next is not."""

from __future__ import annotations

import numpy as np

from trainsim.diagnosis.causes import FoundCause, causes
from trainsim.diagnosis.evidence import Evidence
from trainsim.diagnosis.thresholds import threshold
from trainsim.diagnosis.words import slower

KIND = "sequence lengths"


@causes.register(KIND)
def sequence_lengths(evidence: Evidence) -> FoundCause | None:
    """What is gained if all microbatches are alike, where forward and backward, and the stages, vary together."""
    if not follows_input(evidence) or not evidence.off.shape[1]:
        return None
    saved = evidence.replay.step - evidence.replay.mean(evidence.steady)
    both = evidence.off[:2].mean(axis=0)
    stages = "" if np.isnan(evidence.stages_together) else f", {evidence.stages_together:.2f} between stages"
    return FoundCause(
        kind=KIND,
        saved=saved,
        sentence="microbatches differ in cost, as with unevenly packed sequences: pass times vary by "
        f"{both.std():.0%} and the longest take {slower(float(np.quantile(both, 0.99)))} the mean, and the same "
        f"microbatch is slow forward and backward (correlation {evidence.directions_together:.2f}{stages})",
        suggestions=(
            "give every microbatch and every replica the same attention work: sort sequences by length and distribute "
            "them by the sum of their squared lengths, or limit the length of documents",
        ),
    )


def follows_input(evidence: Evidence) -> bool:
    """Whether passes are long because of what goes into them."""
    together = threshold("together")
    stages = evidence.stages_together
    return evidence.directions_together >= together and (bool(np.isnan(stages)) or stages >= together)
