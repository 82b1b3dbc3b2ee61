"""
GPUs and models that other tools describe by sizes or by names of their own, beside those of the catalogues.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from trainsim.importers.tables import table, worded

CLOSE = 0.03
"""How far a datasheet's number may be off (of 1) and still be that GPU's."""
ALIKE = 0.85
"""How alike two names of models are (of 1) of which one probably means the other."""
COMPARED = ("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab")
"""Sizes by which a model that is called like one of the catalogue is told from it."""


def gpu_called(name: str) -> str | None:
    """The GPU of the catalogue that another tool calls *name*.

    >>> gpu_called("H100-SXM-80GB"), gpu_called("tpu")
    ('h100-sxm5-80gb', None)
    """
    found = worded(table("machines")["names"], name)
    return found[1] if found else None


def gpu_of(tflops: float, memory: float) -> str | None:
    """The GPU of the catalogue with so many dense 16-bit TFLOP/s and so many GB (or GiB) of memory.

    >>> gpu_of(312, 80), gpu_of(312, 640)
    ('a100-sxm4-80gb', None)
    """
    for entry in table("machines")["sizes"]:
        if _close(tflops, entry["tflops"]) and _close(memory, entry["memory"]):
            return str(entry["gpu"])
    return None


def unlike(name: str, model: Mapping[str, Any]) -> str | None:
    """How *model* differs from the one of the catalogue that is called like it; None if nothing does.

    >>> unlike("llama3_8b_padded", {"layers": 34, "hidden": 4096})
    'llama-3-8b of the catalogue has layers 32, not 34'
    """
    from trainsim.models.known import model_names
    from trainsim.models.reading import load_model

    spelled = {_letters(known): known for known in sorted(model_names(), key=len, reverse=True)}
    called = _letters(name)
    within = max((letters for letters in spelled if letters in called), key=len, default=None)
    alike = [within] if within else get_close_matches(called, spelled, n=1, cutoff=ALIKE)
    if not alike:
        return None
    near = spelled[alike[0]]
    theirs = load_model(near)
    differing = {key: getattr(theirs, key) for key in COMPARED if model.get(key) not in (None, getattr(theirs, key))}
    words = ", ".join(f"{key} {value}, not {model[key]}" for key, value in differing.items())
    return f"{near} of the catalogue has {words}" if words else None


def _letters(name: str) -> str:
    return re.sub(r"llama31", "llama3", re.sub(r"[^a-z0-9]", "", name.lower()))


def _close(value: float, known: float) -> bool:
    return abs(value - known) <= CLOSE * known
