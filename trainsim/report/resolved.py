"""A resolved scenario as a person reads it: one line per section, then what was derived and from what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainsim.units import format_count, format_layout

SECTIONS = ("framework", "model", "cluster", "parallel", "pipeline", "sharding", "training", "network", "what_if")
PLAIN = {"network": {"algorithm": "auto"}, "what_if": []}
SILENT = {"parallel": {"cp": 1, "ep": 1, "order": ["tp", "cp", "ep", "dp", "pp"]}}


def resolved_lines(values: Mapping[str, Any]) -> Iterator[str]:
    """The lines to print before a run; *values* is ``Scenario.resolved``."""
    yield str(values["name"])
    for section in SECTIONS:
        value = values[section]
        if value == PLAIN.get(section, ...):
            continue
        if section == "model":
            yield f"  {section:<10} {_model(value)}"
        elif isinstance(value, Mapping):
            quiet = SILENT.get(section, {})
            words = [_word(key, one) for key, one in value.items() if quiet.get(key, ...) != one]
            yield f"  {section:<10} {', '.join(words)}"
        else:
            yield f"  {section:<10} {_plain(value)}"
    if values["derived"]:
        yield "  derived"
        width = max(map(len, values["derived"]))
        yield from (f"    {key:<{width}}  {note}" for key, note in values["derived"].items())


def _model(model: Mapping[str, Any]) -> str:
    heads = f"{model['heads']} heads"
    if model["kv_heads"] != model["heads"]:
        heads += f" ({model['kv_heads']} of keys and values)"
    shape = f"{model['layers']} layers, hidden {model['hidden']}, {heads}, ffn {model['ffn_hidden']}"
    if "layer_pattern" in model:
        shape += f", layers {', '.join(model['layer_pattern'])}"
    return f"{model['name']}: {shape}, vocabulary {format_count(model['vocab'])}"


def _word(key: str, value: Any) -> str:
    """
    >>> _word("tp", 4), _word("overlap", True), _word("layout", [5, 6, 6, 5])
    ('tp 4', 'overlap', 'layout [5, 6 x2, 5]')
    """
    if isinstance(value, bool):
        return key if value else f"no {key}"
    if key == "layout":
        return f"layout {format_layout(value)}"
    return f"{key} {_plain(value)}"


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_plain(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_plain, value)) + "]"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
