"""
What a step's documents make of its sequences: packed, a token looks at its own document only; padded, each document is
a sequence of its own and sequences are as long as the longest.
"""

from __future__ import annotations

from math import lcm
from typing import NamedTuple

import numpy as np

from trainsim.contracts.job import Parallel
from trainsim.errors import ScenarioError, shorten
from trainsim.models.transformer import Transformer
from trainsim.scenario import checks
from trainsim.scenario.batches import Batches
from trainsim.scenario.context import Context
from trainsim.scenario.document_lengths import Ints, draw, packed, padded
from trainsim.scenario.documents_section import DocumentsSpec

DOCUMENTS, PADDING, LENGTH = "training.documents", "training.padding", "training.sequence_length"
MULTIPLE = 8  # tokens to which padded sequences are rounded up, as the data collators of transformers can


class Sequences(NamedTuple):
    """Tokens of a sequence, tokens that a token's document has on average (0: attention does not stay in documents),
    and the length that was asked for where padding made sequences shorter."""

    length: int
    document: int = 0
    asked: int | None = None


def resolve_documents(
    context: Context, model: Transformer, parallel: Parallel, batches: Batches, length: int
) -> Sequences:
    """The sequences of a step that may have as many as *length* tokens. Raises ScenarioError and InvalidPlan."""
    spec = context.spec.training
    if spec.documents is None:
        for key, value in (("training.mask", spec.mask == "document"), (PADDING, spec.padding != "none")):
            if value:
                wants = f"{key.rpartition('.')[2]}: {spec.mask if key.endswith('mask') else spec.padding}"
                reason = f"{wants} needs documents: their mean length, a list of lengths, or a distribution"
                context.require(checks.Fault(key, reason), ScenarioError)
        return Sequences(length)
    if spec.padding != "none":
        return _padded(context, model, parallel, batches, length)
    if spec.mask == "causal":
        context.derived(DOCUMENTS, shorten(spec.documents), "without effect: mask is causal")
        return Sequences(length)
    return Sequences(length, _packed(context, batches, length))


def _packed(context: Context, batches: Batches, length: int) -> int:
    """Tokens that a token's document has on average: the sum of squares over the sum."""
    spec = context.spec.training.documents
    if isinstance(spec, DocumentsSpec):
        lengths = _drawn(context, spec, -(-2 * batches.global_batch * length // spec.mean))
        found = packed(lengths, sequence_length=length, sequences=batches.global_batch)
        document = max(1, round(found.mean))
        reason = (
            f"of {found.documents} documents per step, cut at the ends of sequences; a token's document has {document} "
            f"tokens on average, {found.most:.0f} in the longest case: all sequences are simulated with the mean"
        )
    else:
        assert spec is not None
        given = (spec,) if isinstance(spec, int) else spec
        some = [min(each, length) for each in given]
        document = round(sum(n * n for n in some) / sum(some))
        reason = f"a token's document has {document} tokens on average"
    context.derived("training.mask", "document", reason)
    return document


def _padded(context: Context, model: Transformer, parallel: Parallel, batches: Batches, length: int) -> Sequences:
    """Sequences that are one document each, all of the mean length."""
    spec = context.spec.training
    _require_plain(context, model)
    whole = spec.padding == "max"
    found = padded(_of_step(context, batches), micro_batch=batches.micro_batch, sequence_length=length, whole=whole)
    multiple = lcm(MULTIPLE, 2 * parallel.tp * parallel.cp)
    made = length if whole else min(length, -(-round(found.mean) // multiple) * multiple)
    context.derived(PADDING, spec.padding, f"{found.padding:.1%} of the positions of a step are padding")
    if made == length:
        return Sequences(length)
    reason = (
        f"{spec.padding}: micro-batches are {found.mean:.0f} tokens long on average and {found.most} at most; all are "
        f"simulated with the mean, rounded up to a multiple of {multiple}, so no rank waits for a longer one"
    )
    context.derived(LENGTH, made, reason)
    return Sequences(made, asked=length)


def _require_plain(context: Context, model: Transformer) -> None:
    """Raise what padded sequences do not go together with."""
    spec = context.spec.training
    if spec.mask == "document":
        reason = f"padding: {spec.padding} makes each document a sequence of its own; leave mask out, or padding"
        context.require(checks.Fault("training.mask", reason), ScenarioError)
    other = "an encoder" if model.encoder_layers else "a rollout" if spec.rollout is not None else None
    if other:
        reason = f"padding: {spec.padding} is not simulated with {other}; leave it out and give the lengths"
        context.require(checks.Fault(PADDING, reason), ScenarioError)


def _of_step(context: Context, batches: Batches) -> Ints:
    """The length of each sequence of a step; a list is gone through again and again."""
    spec = context.spec.training.documents
    if isinstance(spec, DocumentsSpec):
        given = _drawn(context, spec, batches.global_batch)
    else:
        given = np.array((spec,) if isinstance(spec, int) else spec, np.int64)
    return np.resize(given, batches.global_batch)


def _drawn(context: Context, spec: DocumentsSpec, count: int) -> Ints:
    with context.at(f"{DOCUMENTS}.distribution"):
        return draw(spec.distribution, mean=spec.mean, deviation=spec.deviation, seed=spec.seed, count=count)
