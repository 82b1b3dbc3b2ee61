"""What a framework keeps of every parameter between steps, in words that a data file can say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

WORDS = {
    "weights": ("training", "fp32"),
    "accumulation": ("training", "fp32"),
    "beside": ("none", "buckets", "low"),
    "gradient_cast": ("none", "resident", "step"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLayout:
    """Weights, gradients and the optimizer's copies. In single precision everything is fp32 and nothing is cast.

    ``weights`` are stored in the ``training`` precision (``master``: with an fp32 copy among the optimizer's states),
    or in ``fp32`` and cast for each use; ``cast_copy``: the cast ones stay until the step is over (autocast's cache).
    Gradients are summed in ``accumulation``; ``beside`` them is ``low``: the last ones in the training precision, or
    ``buckets``: the copies that are sent. ``gradient_cast``: the optimizer's fp32 copy of 16-bit sums is ``resident``,
    or taken for the ``step``, of at most ``sub_group`` parameters at once (0: of all) where weights are shared.
    ``sums_apart``: a shared gradient is made beside its sum over microbatches. ``foreach``: the step runs each of its
    operations over all tensors. ``fresh``: whole gradients are made by the first backward of a step and dropped after
    its update. ``fp8_copies`` are kept per parameter of a linear layer that computes in fp8 (bytes).
    """

    weights: str
    master: bool
    cast_copy: bool
    accumulation: str
    beside: str
    gradient_cast: str
    sub_group: float
    sums_apart: bool
    foreach: bool
    fresh: bool
    fp8_copies: float


def state_layout(data: Mapping[str, Any]) -> StateLayout:
    """The layout that the ``states`` of a profile describe.

    Raises ValueError for a word that means nothing.
    """
    for key, allowed in WORDS.items():
        if data[key] not in allowed:
            raise ValueError(f"states.{key} is {data[key]!r}; it can be {', '.join(allowed)}")
    kinds = {f.name: f.type for f in fields(StateLayout)}
    values: dict[str, Any] = {key: float(value) if kinds[key] == "float" else value for key, value in data.items()}
    return StateLayout(**values)
