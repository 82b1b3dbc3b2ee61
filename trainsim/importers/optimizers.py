"""
Optimizers as other tools call them.
"""

from __future__ import annotations

from trainsim.errors import TrainsimError
from trainsim.importers.reader import Reader
from trainsim.optimizers import load_optimizer

SPELLINGS = {
    "adamw": ("adamw_torch", "adamw_torch_fused", "adamw_apex_fused", "adamw_hf", "fusedadam"),
    "adam8bit": ("adamw_bnb_8bit", "adamw_8bit", "adamw_torch_8bit"),
}
"""Optimizers of the catalogue under the names that transformers and DeepSpeed have for them, in small letters."""


def say_optimizer(reader: Reader, key: str) -> None:
    """The scenario's optimizer is the one that the file's *key* names; one that nobody knows is told and left open."""
    name = reader.text(key)
    if not name:
        return
    small = name.lower()
    usual = next((ours for ours, names in SPELLINGS.items() if small in names), small)
    for spelled in (name, small, usual):
        try:
            known = load_optimizer(spelled).name
        except TrainsimError:
            continue
        reader.say("training.optimizer", known, key)
        return
    words = f"not modelled: what {name} keeps and moves; adam is taken, or say --set training.optimizer=NAME"
    reader.warn(key, words)
