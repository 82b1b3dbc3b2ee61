"""
Models as people name them: by the catalogue, by a file, or by a mapping of sizes over their family's defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from trainsim.documents.catalogue import Spec
from trainsim.documents.document import Document
from trainsim.documents.origin import Origin
from trainsim.errors import InvalidPlan, ScenarioError, nearest
from trainsim.models.adapters import lora
from trainsim.models.hugging_face import read_config
from trainsim.models.known import MODELS, family_data, model_names
from trainsim.models.latent import read_delta, read_mla
from trainsim.models.mixture import pattern_of, read_moe
from trainsim.models.patterns import read_kinds, read_pattern
from trainsim.models.sizes import check_size, divisor
from trainsim.models.transformer import SIZES, Transformer

_PARTS: Mapping[str, Callable[[Any], object]] = {
    "lora": lora,
    "layer_kinds": read_kinds,
    "mla": read_mla,
    "linear_attention": read_delta,
}
"""Keys whose mappings become values of their own."""


def load_model(model: Spec, *, origin: Origin | None = None) -> Transformer:
    """The model that *model* means: a name of the catalogue, the path of a YAML file or of a ``config.json`` of
    Hugging Face, or a mapping with a ``base``.

    Raises UnknownName, and ScenarioError for what no model has.

    >>> load_model("bloom-176b").heads
    112
    >>> load_model({"base": "bloom-176b", "layers": 2}).layers
    2
    """
    base = model.get("base") if isinstance(model, Mapping) else model
    if isinstance(base, str | Path) and Path(base).suffix == ".json":
        whole = read_config(MODELS.path(base, origin.folder if origin else Path()))
        changes = {key: value for key, value in model.items() if key != "base"} if isinstance(model, Mapping) else {}
        return transformer(whole | changes)
    return _model(MODELS.find(model, origin=origin))


@lru_cache(maxsize=128)
def _model(document: Document) -> Transformer:
    return transformer({"name": document.name, **document.data})


def transformer(mapping: Mapping[str, Any]) -> Transformer:
    """The model that a scenario's ``model:`` mapping describes: its family's defaults, then its own values.

    Where its ``name`` is one of the catalogue's and it gives no sizes, they are that model's. Raises ScenarioError for
    unknown or missing keys, and InvalidPlan for numbers that do not go together.

    >>> transformer({"family": "llama", "layers": 2, "hidden": 4096, "heads": 32, "vocab": 32000}).ffn_hidden
    11008
    """
    given = {k: v for k, v in mapping.items() if v is not None and k not in ("source", "description")}
    if given.get("name") in model_names() and not set(SIZES) & set(given):
        given = {k: v for k, v in MODELS.find(given["name"]).data.items() if k not in ("source", "description")} | given
    for key, read in _PARTS.items():
        if key in given:
            given[key] = read(given[key])
    known = {f.name for f in fields(Transformer)}
    for key in given:
        if key not in known:
            near = nearest(str(key), known)
            hint = f" Did you mean {near!r}?" if near else f" Known: {', '.join(sorted(known))}."
            raise ScenarioError(f"model: unknown key {key!r}.{hint}")
    rules = family_data(str(given.setdefault("family", "gpt")))
    missing = [k for k in ("layers", "hidden", "heads", "vocab") if k not in given]
    if missing:
        raise ScenarioError(f"model: {', '.join(missing)} must be given (or name a model of the catalogue)")
    if "layer_pattern" in given:
        check_size(str(given.get("name", "model")), "layers", given["layers"])
        given["layer_pattern"] = read_pattern(given["layer_pattern"], given["layers"])
    ffn = rules.pop("ffn")
    values = {"name": "model", **{k: v for k, v in rules.items() if k != "modules"}, **given}
    return Transformer(**_with_experts(_derived(values, ffn)))


def _with_experts(values: dict[str, Any]) -> dict[str, Any]:
    """The experts as a value, and the layers without them as a kind of their own unless a pattern is given."""
    moe = values.get("moe")
    if moe is None:
        return values
    experts = read_moe(moe, ffn_hidden=values["ffn_hidden"])
    if experts.experts == 1 and not experts.shared_ffn_hidden:  # nothing to choose
        return values | {"moe": None, "ffn_hidden": experts.expert_ffn_hidden}
    values = values | {"moe": experts}
    pattern = pattern_of(moe, values["layers"]) if isinstance(moe, Mapping) else ()
    if not pattern:
        return values
    if "layer_pattern" in values:
        raise InvalidPlan("model: moe.first_dense and moe.every are a layer_pattern; give one of them")
    dense = ("dense", (("moe", None),))
    return values | {"layer_kinds": (*values.get("layer_kinds", ()), dense), "layer_pattern": pattern}


def _derived(values: dict[str, Any], ffn: Mapping[str, int]) -> dict[str, Any]:
    """Add the sizes that follow from others: kv_heads, head_dim, ffn_hidden."""
    for key in ("layers", "hidden", "heads"):
        check_size(values["name"], key, values[key])
    hidden, heads = values["hidden"], values["heads"]
    values = {"kv_heads": heads, "activation": "silu" if values["gated_mlp"] is True else "gelu"} | values
    if "head_dim" not in values:
        if hidden % heads:
            raise InvalidPlan(
                f"model {values['name']!r}: hidden={hidden} is not divisible by heads={heads}; "
                f"heads={divisor(hidden, heads, -1)} or heads={divisor(hidden, heads, 1)} would, or give head_dim"
            )
        values["head_dim"] = hidden // heads
    if "ffn_hidden" not in values:
        width = ffn["numerator"] * hidden // ffn["denominator"]
        values["ffn_hidden"] = -(-width // ffn["multiple"]) * ffn["multiple"]
    return values
