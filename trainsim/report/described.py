"""One thing of a catalogue as a person reads it: what its file says, and where that comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trainsim.models.layer_kind import counted
from trainsim.tables.blocks import Block, Paragraph, Section
from trainsim.tables.cells import Sign, Unit
from trainsim.tables.table import Column, Table
from trainsim.units import format_layout

if TYPE_CHECKING:
    from trainsim.models.layer_kind import LayerKind
    from trainsim.models.transformer import Transformer

APART = ("name", "description", "source", "base")
"""Keys that stand outside the table."""


def described(name: str, data: Mapping[str, Any], file: str) -> Section:
    """The values of a document by their dotted keys, its description above and its source below."""
    rows = tuple((key, Sign(value, "")) for key, value in leaves(data) if key not in APART)
    blocks: list[Block] = [Table(columns=(Column(), Column(wraps=True)), rows=rows)]
    if about := data.get("description"):
        blocks.insert(0, Paragraph(str(about)))
    if source := data.get("source"):
        blocks.append(Paragraph(f"Source: {' '.join(str(source).split())}", "quiet"))
    return Section(name, tuple(blocks), file)


def leaves(data: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys and values, as they would be written in a file.

    >>> list(leaves({"flops": {"bf16": "312TFLOP/s"}, "layout": [5, 6, 6], "measured": True}))
    [('flops.bf16', '312TFLOP/s'), ('layout', '[5, 6 x2]'), ('measured', 'true')]
    """
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", plain(value)


def plain(value: Any) -> str:
    """A value in one line, as YAML has it.

    >>> plain(None), plain([["a", 1.0], ["b", 2]]), plain({})
    ('null', '[[a, 1], [b, 2]]', '{}')
    """
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, list | tuple):
        if len(value) > 1 and all(isinstance(item, int) and not isinstance(item, bool) for item in value):
            return format_layout(value)
        return f"[{', '.join(map(plain, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {plain(inner)}' for key, inner in value.items())}}}"
    return f"{value:g}" if isinstance(value, float) else " ".join(str(value).split())


EXAMPLE_SEQUENCE = 2048
"""Tokens of the forward pass whose FLOPs are named."""


def _kinds(kinds: Mapping[LayerKind, int]) -> Table:
    """The layers of a model by kind."""
    columns = (
        Column("layers of a kind"),
        Column("layers", Unit.WHOLE),
        Column("parameters each", Unit.WHOLE),
        Column("active", Unit.WHOLE),
    )
    rows = tuple((kind.name, count, kind.parameters, kind.active_parameters) for kind, count in kinds.items())
    return Table(columns=columns, rows=rows)


def model_section(model: Transformer, data: Mapping[str, Any]) -> Section:
    """What a model is made of: sizes, then parameters part by part; *data* is what its file says."""
    hidden = {"name", "activation"} if model.gated_mlp else {"name"}  # a gated MLP has that of its family
    sizes = tuple((key, Sign(plain(value), "")) for key, value in model.to_dict().items() if key not in hidden)
    parts = {
        "layers": model.layers_parameters,
        "embedding": model.embedding_parameters,
        "positions": model.position_parameters,
        "projections": 2 * model.projection_parameters,
        "embedding norm": model.embedding_norm_parameters,
        "final norm": model.final_norm_parameters,
        "head": model.head_parameters,
        "further tokens": model.mtp_parameters,
    }
    rows = [(name, number, number / model.parameters) for name, number in parts.items() if number]
    columns = (Column("parameters"), Column("", Unit.WHOLE), Column("", Unit.SHARE))
    rows.append(("all", model.parameters, 1.0))
    if model.active_parameters != model.parameters:
        rows.append(("that a token meets", model.active_parameters, model.active_parameters / model.parameters))
    table = Table(columns=columns, rows=tuple(rows))
    length = min(model.max_positions or EXAMPLE_SEQUENCE, EXAMPLE_SEQUENCE)
    flops = model.flops_forward(sequence_length=length) / 1e12
    blocks: list[Block] = [Table(columns=(Column(), Column(wraps=True)), rows=sizes), table]
    if len(kinds := counted(model.kinds)) > 1 or model.moe is not None:
        blocks.append(_kinds(kinds))
    blocks.append(Paragraph(f"Forward pass: {flops:.2f} TFLOP for one sequence of {length} tokens."))
    if source := data.get("source"):
        blocks.append(Paragraph(f"Source: {' '.join(str(source).split())}", "quiet"))
    return Section(model.name, tuple(blocks), str(data.get("description", "")))
