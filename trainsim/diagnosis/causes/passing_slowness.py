"""Workers that are slow now and then: passes of one worker are held up, and its others, and its peers, are not."""

from __future__ import annotations

import numpy as np

from trainsim.diagnosis.causes import FoundCause, causes
from trainsim.diagnosis.causes.sequence_lengths import follows_input
from trainsim.diagnosis.evidence import Evidence
from trainsim.diagnosis.thresholds import threshold
from trainsim.diagnosis.words import slower

KIND = "passing slowness"


@causes.register(KIND)
def passing_slowness(evidence: Evidence) -> FoundCause | None:
    """What is gained if no pass takes longer than is usual for its worker, where that does not follow the input."""
    if follows_input(evidence) or not evidence.off.shape[1]:
        return None
    saved = evidence.replay.step - evidence.replay.mean(evidence.steady)
    spread = evidence.off[:2].std(axis=1)
    longest = slower(float(np.quantile(evidence.off[:2].max(axis=0), 0.99)))
    if evidence.directions_together >= threshold("together"):
        how = "forward and backward together, but not on all stages at once, as when GPUs change their clock"
        help_ = "look for changing clocks (power, temperature) and for other work on the GPUs"
    elif spread[0] > spread[1]:
        how = "mostly forwards, which Python launches, as with pauses of the host, for example by its garbage collector"
        help_ = (
            "collect garbage at the same step on all ranks (gc.disable(), then gc.collect() every few hundred steps)"
        )
    else:
        how = "and it does not depend on the input"
        help_ = "look for other work on the hosts and GPUs"
    return FoundCause(
        kind=KIND,
        saved=saved,
        sentence=f"individual passes are slow on changing workers: the longest take {longest} the mean, {how}",
        suggestions=(help_,),
    )
