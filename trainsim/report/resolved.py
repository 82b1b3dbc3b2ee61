"""A resolved scenario as a person reads it: one line per section, then what was derived and from what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainsim.report.described import plain
from trainsim.tables.blocks import Block, Section
from trainsim.tables.cells import Sign
from trainsim.tables.table import Column, Table
from trainsim.units import format_count

SECTIONS = ("framework", "model", "cluster", "parallel", "pipeline", "sharding", "training", "network", "what_if")
PLAIN = {"network": {"algorithm": "auto"}, "what_if": []}
SILENT: Mapping[str, Mapping[str, Any]] = {
    "parallel": {"cp": 1, "ulysses": 1, "ep": 1, "order": ["tp", "cp", "ep", "dp", "pp"]},
    "training": {"padding": "none", "activation_offload": "none"},
}


def resolved_section(values: Mapping[str, Any], file: str = "") -> Section:
    """What to print before a run: a row per section, then what was derived; *values* is ``Scenario.resolved``."""
    rows = tuple((section, text) for section in SECTIONS if (text := _text(section, values[section])))
    blocks: list[Block] = [Table(columns=(Column(), Column(wraps=True)), rows=rows)]
    if values["derived"]:
        derived = tuple((key, *_derived(note)) for key, note in values["derived"].items())
        columns = (Column("derived"), Column(wraps=True), Column("from", wraps=True))
        blocks.append(Table(columns=columns, rows=derived))
    return Section(str(values["name"]), tuple(blocks), file)


def _text(section: str, value: Any) -> str:
    """What a section says, without what is always so; nothing if that is all of it."""
    if value == PLAIN.get(section, ...):
        return ""
    if section == "model":
        return _model(value)
    if section == "framework" and isinstance(value, Mapping):
        return f"{value['name']} (`trainsim run --json` has every constant)"
    if isinstance(value, Mapping):
        quiet = SILENT.get(section, {})
        return ", ".join(_word(key, inner) for key, inner in value.items() if quiet.get(key, ...) != inner)
    return plain(value)


def _derived(note: str) -> tuple[str, Sign]:
    """
    >>> [str(part) for part in _derived("8  (384 GPUs / (tp 4 x pp 12))")]
    ['8', '384 GPUs / (tp 4 x pp 12)']
    """
    value, _, reason = str(note).partition("  (")
    return value, Sign(reason.removesuffix(")"))


def _model(model: Mapping[str, Any]) -> str:
    heads = f"{model['heads']} heads"
    if model["kv_heads"] != model["heads"]:
        heads += f" ({model['kv_heads']} of keys and values)"
    shape = f"{model['layers']} layers, hidden {model['hidden']}, {heads}, ffn {model['ffn_hidden']}"
    if moe := model.get("moe"):
        shape += f", {moe['experts']} experts of {moe['expert_ffn_hidden']}, {moe['top_k']} per token"
    if "mla" in model:
        shape += ", latent attention"
    if "encoder_layers" in model:
        shape += f", {model['encoder_layers']} of the layers an encoder"
    if "layer_pattern" in model:
        shape += f", layers {', '.join(model['layer_pattern'])}"
    return f"{model['name']}: {shape}, vocabulary {format_count(model['vocab'])}"


def _word(key: str, value: Any) -> str:
    """
    >>> _word("tp", 4), _word("overlap", True), _word("layout", [5, 6, 6, 5])
    ('tp 4', 'overlap', 'layout [5, 6 x2, 5]')
    >>> _word("gpu", {"name": "a30", "memory": "24GiB"})
    'gpu a30'
    """
    if key in ("topology", "gpu") and isinstance(value, Mapping):
        return f"{key} {value.get('name') or plain(value)}"
    if isinstance(value, bool):
        return key if value else f"no {key}"
    return f"{key} {plain(value)}"
