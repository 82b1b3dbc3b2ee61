"""
What the caller of the model keeps of its results until the backward pass is over: logits, and keys and values.

A variable that holds the model's output keeps them alive (transformers' ``outputs`` has ``logits`` and, where
``use_cache`` is left on, ``past_key_values``), though autograd lets go of them earlier.
"""

from __future__ import annotations

from trainsim.models.decoding import cache_bytes
from trainsim.program.parts import Parts
from trainsim.program.stages import Stage, recompute_modes
from trainsim.sharding.launches import shape_of


def kept_logits(parts: Parts, stage: Stage) -> float:
    """Bytes of the logits of a micro-batch (or slice of one) that are kept with virtual stage *stage*.

    Each is as long as an activation; further tokens have logits of their own.
    """
    job = parts.job
    if not (stage.head and job.training.kept_logits):
        return 0.0
    shape = shape_of(job)
    here = shape.in_decoder if job.model.encoder_layers else shape
    cut = job.training.loss_parallel or job.parallel.tp == 1
    width = job.padded_vocab // job.parallel.tp * (1 if cut else job.parallel.tp)
    return float(here.element * here.tokens * width * (1 + job.model.mtp_layers))


def kept_anyway(parts: Parts, stage: Stage) -> float:
    """The part of them that the head's own backward needs: 16-bit logits of a compiled loss in chunks."""
    training, compiled = parts.job.training, parts.job.framework.compiled is not False
    chunked = training.cross_entropy == "chunked" and training.loss_chunks != 1
    return kept_logits(parts, stage) if chunked and compiled else 0.0


def kept_keys(parts: Parts, stage: Stage) -> float:
    """Bytes of keys and values of the layers of *stage* that are kept for the caller and not for a backward."""
    job = parts.job
    if job.training.kept_logits != "outputs":
        return 0.0
    shape, modes = shape_of(job), recompute_modes(job, parts.stages)
    places = range(stage.first, stage.first + stage.layers)
    again = [job.model.kinds[place] for place in places if modes[place] == "full"]
    return sum(cache_bytes(kind, job.parallel.tp, shape.element) * shape.tokens for kind in again)
