"""
A model as the mapping that it is read from: what every file has, and what differs from the usual.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from trainsim.models.known import family_data
from trainsim.models.latent import DeltaNet, Mla
from trainsim.models.mixture import Moe
from trainsim.models.patterns import Changes, shortened

if TYPE_CHECKING:
    from trainsim.models.transformer import Transformer

OPTIONAL = ("lora", "moe", "mla", "linear_attention", "window", "chunk", "layer_kinds", "layer_pattern")
"""Left out where a model has none."""
PARTS = ("lora", "moe", "mla", "linear_attention")
"""Values with mappings of their own."""
ALWAYS = ("embedding_norm", "activation", "dropout")
"""Keys with a default that are written all the same."""


def mapping_of(model: Transformer) -> dict[str, Any]:
    """All that a model's mapping must say to be read as this *model*.

    >>> from trainsim.models.reading import load_model
    >>> mapping_of(load_model("gpt2"))["hidden"]
    768
    """
    family, values = family_data(model.family), {}
    for f in fields(model):
        value = getattr(model, f.name)
        usual = f.name not in ALWAYS and f.name not in family and value == f.default
        if value is not None and not (usual or (f.name in OPTIONAL and not value)):
            values[f.name] = value
    values |= {key: getattr(model, key).to_dict() for key in PARTS if key in values}
    if model.layer_kinds:
        values["layer_kinds"] = {name: _plain(changes) for name, changes in model.layer_kinds}
    if model.layer_pattern:
        values["layer_pattern"] = shortened(model.layer_pattern)
    return values


def _plain(changes: Changes) -> dict[str, Any]:
    """The changes of a kind as ``read_kinds`` takes them."""
    return {key: value.to_dict() if isinstance(value, Moe | Mla | DeltaNet) else value for key, value in changes}
