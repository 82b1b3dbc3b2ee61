"""One worker, or a few, whose passes take longer than those of the same stage in other replicas."""

from __future__ import annotations

import numpy as np

from trainsim.diagnosis.causes import FoundCause, causes
from trainsim.diagnosis.evidence import Evidence
from trainsim.diagnosis.operations import Floats
from trainsim.diagnosis.thresholds import threshold
from trainsim.diagnosis.words import slower, workers_named
from trainsim.units import format_time

KIND = "slow worker"


@causes.register(KIND)
def slow_worker(evidence: Evidence) -> FoundCause | None:
    """Workers that are slower than their peers, and what is gained if they are as fast."""
    passes, peers = evidence.worker_passes, of_peers(evidence)
    known = peers.sum(axis=0) > 0
    ratio = np.ones(len(evidence.workers))
    ratio[known] = np.nan_to_num(passes[:, known].sum(axis=0) / peers[:, known].sum(axis=0), nan=1.0)
    certain = ratio - threshold("certain") * evidence.uncertainty
    slow = np.flatnonzero((ratio > threshold("slower_worker")) & (certain > 1.0))
    if not len(slow):
        return None
    factor = np.ones_like(passes)
    factor[:, slow] = np.nan_to_num(peers[:, slow] / np.where(passes > 0, passes, np.nan)[:, slow], nan=1.0)
    saved = evidence.replay.step - evidence.replay.mean(evidence.scaled(factor))
    worst = slow[np.argsort(-ratio[slow])]
    first = worst[0]
    one = len(slow) == 1
    each = " and ".join(
        f"{name} {format_time(passes[row, first])} where its peers take {format_time(peers[row, first])}"
        for row, name in enumerate(("forward", "backward"))
    )
    subject = f"{workers_named(evidence.workers, worst)} {'is' if one else 'are'} slow"
    whose = "" if one else f" of {workers_named(evidence.workers, worst[:1])}"
    return FoundCause(
        kind=KIND,
        saved=saved,
        sentence=f"{subject}: passes{whose} take {slower(ratio[first])} as long as those of the same stage in other "
        f"replicas ({each})",
        suggestions=(f"check clocks, power and memory errors of the GPUs of {workers_named(evidence.workers, worst)}, "
                     "and what else runs on their hosts; or replace them",),
    )  # fmt: skip


def of_peers(evidence: Evidence) -> Floats:
    """What passes of the other workers of the same stage take: their median; NaN where a worker is alone."""
    passes = evidence.worker_passes
    out = np.full(passes.shape, np.nan)
    for worker, stage in enumerate(evidence.stage.tolist()):
        others = np.flatnonzero((evidence.stage == stage) & ~np.isnan(passes).any(axis=0))
        others = others[others != worker]
        if len(others):
            out[:, worker] = np.median(passes[:, others], axis=1)
    return out
