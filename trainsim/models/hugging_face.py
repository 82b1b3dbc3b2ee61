"""
Models as Hugging Face writes them down: a ``config.json``, read as the class of transformers reads it.

What a file leaves out is its class's default (``hugging_face.yaml``): missing and null differ. Layers that transformers
does not build (``num_nextn_predict_layers``) are not read either.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from trainsim.documents.catalogue import shipped
from trainsim.errors import ScenarioError, nearest, shorten
from trainsim.models import hugging_face_mixtures, hugging_face_rules
from trainsim.models.hugging_face_config import Config

NAMES: Mapping[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd", "n_embed", "d_model"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv"),
    "head_dim": ("d_kv", "kv_channels"),
    "intermediate_size": ("n_inner", "ffn_dim", "d_ff", "ffn_hidden_size"),
    "max_position_embeddings": ("n_positions", "max_seq_len", "n_ctx", "seq_length"),
    "hidden_act": ("hidden_activation", "activation_function", "activation"),
    "num_experts": ("num_local_experts", "n_routed_experts"),
    "hidden_dropout": ("resid_pdrop", "hidden_dropout_prob", "dropout", "dropout_rate"),
    "partial_rotary_factor": ("rotary_pct",),
}
"""The other names of a number in configurations of other classes."""
ALIASES: Mapping[str, str] = {
    "RefinedWebModel": "falcon",
    "RefinedWeb": "falcon",
    "phi-msft": "phi",
    "kimi_k2": "deepseek_v3",
    "deepseek": "deepseek_v2",
}
ENDINGS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
SEEN = ("vision_config", "audio_config")
FURTHER_TYPES = {
    **dict.fromkeys(("layer_types", "no_rope_layers", "moe_layers"), "a list"),
    **dict.fromkeys(("num_ln_in_parallel_attn", "num_decoder_layers", "rotary_dim"), "a whole number"),
    **dict.fromkeys(("full_attention_interval", "sliding_window_pattern"), "a whole number"),
    **{"attn_config": "a mapping", "attention_out_bias": "true or false"},
}
"""What keys are that no class has a default for."""
FITS: Mapping[str, Callable[[Any], bool]] = {
    "true or false": lambda value: isinstance(value, bool),
    "a whole number": lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST,
    "a number": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MOST,
    "a word": lambda value: isinstance(value, str),
    "a list": lambda value: isinstance(value, list) and all(isinstance(item, int | str) for item in value),
    "a mapping": lambda value: isinstance(value, Mapping),
}
"""Whether a value is what its key wants."""
MOST = 1 << 40
LARGEST = 1 << 22
"""Bytes of the largest file that is read."""


def read_config(path: Path) -> dict[str, Any]:
    """The mapping that :func:`trainsim.models.reading.transformer` takes, from a ``config.json`` at *path*.

    Raises ScenarioError for what is no configuration, and for classes that are not known here.
    """
    return as_mapping(_values(path), path)[0]


def as_mapping(values: Mapping[str, Any], path: Path) -> tuple[dict[str, Any], frozenset[str]]:
    """The same for the *values* of a file at *path*, and the keys of the file that were looked at.

    >>> small = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 100}
    >>> mapping, looked_at = as_mapping(small, Path("small.json"))
    >>> mapping["layers"], "n_layer" in looked_at
    (2, True)
    """
    if seen := [key for key in SEEN if values.get(key)]:
        raise ScenarioError(
            f"{path}: a model of more than text ({', '.join(seen)}); only text is simulated: write its text_config as "
            "a file of its own"
        )
    if isinstance(values.get("text_config"), Mapping):
        values = {**values["text_config"]}
    table = classes()
    kind = _class(path, values, table)
    given = _canonical(values)
    _check_types(path, given)
    known = LookedAt(table[kind]["defaults"] | given)
    config = Config(path=path, kind=kind, values=known)
    mapping = {"name": _name(path), "family": table[kind]["family"], **_common(config)}
    rules = {**hugging_face_rules.RULES, **hugging_face_mixtures.RULES}
    further = rules[kind](config) if kind in rules else {}
    names = known.keys_seen | {other for usual in known.keys_seen for other in NAMES.get(usual, ())}
    looked_at = frozenset({"model_type", "architectures"} | names) & set(values)
    return {key: value for key, value in (mapping | further).items() if value is not None}, looked_at


class LookedAt(dict[str, Any]):
    """A mapping that remembers the keys that somebody asked for."""

    def __init__(self, values: Mapping[str, Any]):
        super().__init__(values)
        self.keys_seen: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        """The value of *key*, which counts as looked at."""
        self.keys_seen.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.keys_seen.add(key)
        return super().__getitem__(key)


def classes() -> dict[str, dict[str, Any]]:
    """The ``model_type``s that are known, with the family and the defaults of each.

    >>> classes()["mistral"]["defaults"]["num_key_value_heads"]
    8
    """
    data = shipped("models", "hugging_face").data
    return {key: value for key, value in data.items() if isinstance(value, dict)}


@cache
def _types() -> dict[str, str]:
    """What the value of each key is, by the defaults that classes have for it."""
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a word", list: "a list"}
    defaults = [(key, value) for table in classes().values() for key, value in table["defaults"].items()]
    return {key: words[type(value)] for key, value in defaults if value is not None} | FURTHER_TYPES


def _check_types(path: Path, values: Mapping[str, Any]) -> None:
    """Every value that matters, unless it is null, is of its key's kind. Raises ScenarioError."""
    for key, word in _types().items():
        value = values.get(key)
        if value is not None and not FITS[word](value):
            raise ScenarioError(f"{path}: {key} is {shorten(value)}; it must be {word}, or null")


def _values(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > LARGEST:
            raise ScenarioError(f"{path}: too large for a config.json")
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ScenarioError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(values, dict):
        raise ScenarioError(f'{path}: a config.json is a mapping, such as {{"model_type": "llama", ...}}')
    return values


def _class(path: Path, values: Mapping[str, Any], table: Mapping[str, Any]) -> str:
    """The class of a configuration: its ``model_type``, with which ``architectures`` that are known must agree."""
    given, written = values.get("model_type"), values.get("architectures")
    by_name = {key.replace("_text", "").replace("_", ""): key for key in table}
    named = str(written[0]) if isinstance(written, list) and written else ""
    stem = next((named.removesuffix(end) for end in ENDINGS if named.endswith(end)), named).lower()
    built = by_name.get(stem)
    if given is None and built is not None:
        return built
    if given is None:
        raise ScenarioError(f"{path}: no model_type; a config.json of transformers names one, such as llama")
    kind = ALIASES.get(str(given), str(given))
    kind = f"{kind}_text" if f"{kind}_text" in table else kind
    if kind not in table:
        near = nearest(kind, [*table, *ALIASES])
        hint = f"the nearest known is {near!r}; " if near else ""
        raise ScenarioError(
            f"{path}: model_type {given!r} is not known; {hint}known: {', '.join(table)}. Write its sizes as a mapping "
            "under model:"
        )
    if built is not None and built != kind:
        raise ScenarioError(f"{path}: model_type is {given!r} and architectures {named}; change the one that is wrong")
    return kind


def _canonical(values: Mapping[str, Any]) -> dict[str, Any]:
    """*values* under the names that most classes use; a name of another class counts if the usual one is not there."""
    out = dict(values)
    for usual, others in NAMES.items():
        for other in others:
            if usual not in out and other in out:
                out[usual] = out[other]
    return out


def _name(path: Path) -> str:
    """What a model is called: its folder if the file is called config.json, else the file."""
    return path.resolve().parent.name if path.name == "config.json" else path.stem.removesuffix(".config")


def _common(config: Config) -> dict[str, Any]:
    """What nearly all classes have."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    return {
        "layers": config.size("num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_dim": config.get("head_dim"),
        "ffn_hidden": config.get("intermediate_size") or 4 * hidden,
        "vocab": config.size("vocab_size"),
        "tied_embeddings": config.get("tie_word_embeddings"),
        "max_positions": config.get("max_position_embeddings"),
        "activation": None if config.get("hidden_act") is None else config.activation("hidden_act"),
        "dropout": bool(config.get("hidden_dropout")),
        "window": None,
    }
