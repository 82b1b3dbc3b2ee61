"""Models and schedules as text, for ``trainsim show``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainsim.models.transformer import Transformer
from trainsim.units import format_count

EXAMPLE_SEQUENCE = 2048


def model_lines(model: Transformer) -> Iterator[str]:
    """What a model is made of: sizes, then parameters part by part."""
    yield model.name
    for key, value in model.to_dict().items():
        if key not in ("name",):
            yield f"  {key:<18} {value}"
    parts = {
        "layers": model.layers_parameters,
        "embedding": model.embedding_parameters,
        "positions": model.position_parameters,
        "embedding norm": model.embedding_norm_parameters,
        "final norm": model.final_norm_parameters,
        "head": model.head_parameters,
    }
    yield f"  {'parameters':<18} {model.parameters:,} ({format_count(model.parameters)})"
    for name, number in parts.items():
        if number:
            yield f"    {name:<16} {number:,} ({number / model.parameters:.1%})"
    length = min(model.max_positions or EXAMPLE_SEQUENCE, EXAMPLE_SEQUENCE)
    flops = model.flops_forward(sequence_length=length)
    yield f"  {'forward pass':<18} {flops / 1e12:.2f} TFLOP for one sequence of {length} tokens"


def schedule_lines(name: str, order: Sequence[Sequence[str]]) -> Iterator[str]:
    """The order in which every rank works, a line each."""
    yield f"{name}: {len(order)} ranks"
    for rank, cells in enumerate(order):
        yield f"  rank {rank:<3} {' '.join(cells)}"
