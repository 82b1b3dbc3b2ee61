"""How logits and loss are made: the way, in how many chunks, and what it does not go together with."""

from __future__ import annotations

from typing import Any

from trainsim.errors import NotBuilt
from trainsim.models.cross_entropies import cross_entropies
from trainsim.scenario.checks import Fault
from trainsim.scenario.context import Context
from trainsim.scenario.schema import CrossEntropySpec

KEY = "training.cross_entropy"
STANDARD = "standard"
"""The way that has no chunks."""


def resolve_loss(context: Context) -> dict[str, Any]:
    """The values of the job's training that say how the loss is made."""
    given = context.spec.training.cross_entropy
    spec = given if isinstance(given, CrossEntropySpec) else CrossEntropySpec(kind=given)
    with context.at(KEY):
        kind = cross_entropies.canonical(spec.kind)
    if spec.chunks and kind == STANDARD:
        others = " or ".join(name for name in cross_entropies if name != STANDARD)
        context.require(Fault(f"{KEY}.chunks", f"the {STANDARD} loss has no chunks; kind: {others} has"))
    if kind != STANDARD and context.spec.pipeline.vocabulary_parallel:
        reason = (
            "a head on all pipeline stages needs the softmax of a whole micro-batch, so all its logits exist at once; "
            f"{STANDARD} would work, or pipeline.vocabulary_parallel: false"
        )
        context.require(Fault(KEY, reason), NotBuilt)
    return {"cross_entropy": kind, "loss_chunks": spec.chunks}
