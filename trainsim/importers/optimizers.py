"""
Optimizers as other tools call them.
"""

from __future__ import annotations

from trainsim.importers.reader import Reader
from trainsim.optimizers import OPTIMIZERS


def say_optimizer(reader: Reader, key: str) -> None:
    """The scenario's optimizer is the one that the file's *key* names; one that nobody knows is told and left open."""
    name = reader.text(key)
    if not name:
        return
    small = name.lower()
    known = small if small in OPTIMIZERS.files else OPTIMIZERS.canonical(name)
    known = known if known in OPTIMIZERS.files else OPTIMIZERS.canonical(small)
    if known in OPTIMIZERS.files:
        reader.say("training.optimizer", known, key)
        return
    words = f"not modelled: {name}; adam is used, or --set training.optimizer=NAME"
    reader.warn(key, words)
