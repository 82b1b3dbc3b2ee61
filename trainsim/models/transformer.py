"""
A decoder-only transformer as numbers: shapes, families with their defaults, and exact parameter counts.

Catalogue models are files in ``catalog/``, families are files in ``families/``: a new one is a new file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from trainsim.documents.catalogue import Spec
from trainsim.documents.document import Document
from trainsim.documents.origin import Origin
from trainsim.errors import InvalidPlan, NotBuilt, ScenarioError, UnknownName, nearest
from trainsim.models.adapters import Lora, lora
from trainsim.models.known import MODELS, family_data, model_names
from trainsim.models.latent import Mla, read_mla
from trainsim.models.layer_kind import (
    ACTIVATIONS,
    DEFAULT,
    Changes,
    LayerKind,
    check_kind,
    check_pattern,
    counted,
    read_kinds,
    read_pattern,
    shortened,
)
from trainsim.models.mixture import Moe, pattern_of, read_moe
from trainsim.models.sizes import check_name, check_size, check_switch, divisor

POSITIONS = ("learned", "rotary", "alibi", "none")
NORMS = ("layernorm", "rmsnorm", "rmsnorm1p")
BIASES = ("all", "qkv", "none")
_SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "vocab")
_KINDS = (("positions", POSITIONS), ("norm", NORMS), ("biases", BIASES), ("activation", ACTIVATIONS))
_LATER = {"encoder_layers": "encoder-decoder models"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """Layers between an embedding and a head. Counts are exact and unpadded.

    The sizes are those of every layer but those for which ``layer_pattern`` (a name per layer) says another of the
    ``layer_kinds``. Raises InvalidPlan if sizes are not positive or heads do not divide by kv_heads.

    >>> load_model("llama-2-7b").parameters
    6738415616
    """

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_hidden: int
    gated_mlp: bool
    vocab: int
    tied_embeddings: bool
    positions: str
    max_positions: int
    norm: str
    biases: str
    embedding_norm: bool = False  # a norm between embedding and first layer (BLOOM)
    activation: str = "gelu"  # of the MLP, or of its first half if gated
    dropout: bool = False  # trained with dropout, where the framework has kernels for it
    lora: Lora | None = None  # only adapters are trained
    moe: Moe | None = None  # experts in the place of the MLP
    mla: Mla | None = None  # latent attention
    window: int | None = None  # tokens that a query may look at
    layer_kinds: tuple[tuple[str, Changes], ...] = ()  # names and what they have that the sizes above are not
    layer_pattern: tuple[str, ...] = ()  # the kind of every layer; () if all are ``default``

    def __post_init__(self) -> None:
        check_name(self.name)
        for key in (*_SIZES, "max_positions"):
            check_size(self.name, key, getattr(self, key), least=0 if key == "max_positions" else 1)
        for key in ("tied_embeddings", "embedding_norm", "dropout"):
            check_switch(self.name, key, getattr(self, key))
        for key, allowed in _KINDS:
            if getattr(self, key) not in allowed:
                raise UnknownName(f"kind of {key}", str(getattr(self, key)), allowed)
        if self.positions == "learned" and not self.max_positions:
            raise InvalidPlan(f"model {self.name!r}: learned positions need max_positions, the longest sequence")
        check_pattern(self.layer_pattern, [name for name, _ in self.layer_kinds], self.layers)
        for name, kind in _make_kinds(self).items():
            check_kind(self.name if name == DEFAULT else f"{self.name}, layer kind {name}", kind)

    @property
    def kind(self) -> LayerKind:
        """The layer with the model's own sizes."""
        return _named_kinds(self)[DEFAULT]

    @property
    def kinds(self) -> tuple[LayerKind, ...]:
        """The kind of every layer, first to last.

        >>> wide = {"name": "gpt2", "layer_kinds": {"wide": {"ffn_hidden": 4096}}, "layer_pattern": ["wide", "default"]}
        >>> [kind.ffn_hidden for kind in transformer(wide).kinds][:3]
        [4096, 3072, 4096]
        """
        return _kinds(self)

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm: scale, and shift if it is a LayerNorm."""
        return self.hidden * (2 if self.norm == "layernorm" else 1)

    @property
    def layers_parameters(self) -> int:
        """Parameters of all layers."""
        return sum(kind.parameters * count for kind, count in counted(self.kinds).items())

    @property
    def embedding_parameters(self) -> int:
        """The word embedding, without padding of the vocabulary."""
        return self.vocab * self.hidden

    @property
    def position_parameters(self) -> int:
        """Learned positions; 0 if they are computed."""
        return self.max_positions * self.hidden if self.positions == "learned" else 0

    @property
    def embedding_norm_parameters(self) -> int:
        """The norm after the embedding, if the model has one."""
        return self.norm_parameters if self.embedding_norm else 0

    @property
    def final_norm_parameters(self) -> int:
        """The norm before the head."""
        return self.norm_parameters

    @property
    def head_parameters(self) -> int:
        """The output matrix; 0 if it is the embedding's."""
        return 0 if self.tied_embeddings else self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters, as the checkpoint has them.

        >>> load_model("gpt2").parameters, load_model("bloom-176b").parameters
        (124439808, 176247271424)
        """
        return (
            self.layers_parameters
            + self.embedding_parameters
            + self.position_parameters
            + self.embedding_norm_parameters
            + self.final_norm_parameters
            + self.head_parameters
        )

    @property
    def active_parameters(self) -> int:
        """Parameters that a token meets: all of them in a dense model."""
        return self.parameters

    def logits_flops(self, *, sequence_length: int, batch: int = 1) -> float:
        """FLOP of the output matrix product in a forward pass."""
        return 2.0 * batch * sequence_length * self.hidden * self.vocab

    def flops_forward(self, *, sequence_length: int, batch: int = 1, causal: bool = False) -> float:
        """FLOP of a forward pass over *batch* sequences: every matrix product, logits too.

        Attention counts the full square of the sequence, or half of it if *causal*.

        >>> load_model("llama-3-8b").flops_forward(sequence_length=2048)
        32938104193024.0
        """
        size = {"sequence_length": sequence_length, "batch": batch}
        layers = sum(count * kind.flops(**size, causal=causal) for kind, count in counted(self.kinds).items())
        return layers + self.logits_flops(**size)

    def to_dict(self) -> dict[str, Any]:
        """The mapping that :func:`transformer` reads back."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        for key in ("lora", "moe", "mla", "window", "layer_kinds", "layer_pattern"):
            if not values[key]:
                del values[key]
        values |= {key: getattr(self, key).to_dict() for key in ("lora", "moe", "mla") if key in values}
        if self.layer_kinds:
            values["layer_kinds"] = {name: _plain(changes) for name, changes in self.layer_kinds}
        if self.layer_pattern:
            values["layer_pattern"] = shortened(self.layer_pattern)
        return values


def _plain(changes: Changes) -> dict[str, Any]:
    """The changes of a kind as ``read_kinds`` takes them."""
    return {key: value.to_dict() if isinstance(value, Moe | Mla) else value for key, value in changes}


@lru_cache(maxsize=256)
def _named_kinds(model: Transformer) -> Mapping[str, LayerKind]:
    return _make_kinds(model)


def _make_kinds(model: Transformer) -> dict[str, LayerKind]:
    """The kinds of layers that a model has, by name."""
    own = {f.name: getattr(model, f.name) for f in fields(LayerKind) if f.name != "name"}
    return {DEFAULT: LayerKind(**own)} | {
        name: LayerKind(**{**own, **dict(changes)}, name=name) for name, changes in model.layer_kinds
    }


@lru_cache(maxsize=256)
def _kinds(model: Transformer) -> tuple[LayerKind, ...]:
    named = _named_kinds(model)
    return tuple(named[name] for name in model.layer_pattern or (DEFAULT,) * model.layers)


def padded_vocab(vocab: int, tp: int, divisor: int = 128) -> int:
    """The vocabulary rounded up to a multiple of *divisor* x *tp*; Megatron-LM's divisor is 128, PyTorch's is 1.

    >>> padded_vocab(50257, 1), padded_vocab(50257, 8), padded_vocab(50257, 8, 1)
    (50304, 51200, 50264)
    """
    multiple = divisor * tp
    return -(-vocab // multiple) * multiple


def load_model(model: Spec, *, origin: Origin | None = None) -> Transformer:
    """The model that *model* means: a name of the catalogue, the path of a YAML file, or a mapping with a ``base``.

    Raises UnknownName, and ScenarioError for what no model has.

    >>> load_model("bloom-176b").heads
    112
    >>> load_model({"base": "bloom-176b", "layers": 2}).layers
    2
    """
    if isinstance(model, str | Path) and Path(model).suffix == ".json":
        raise NotBuilt("reading config.json is not built yet; write its numbers as a mapping under model:")
    return _model(MODELS.find(model, origin=origin))


@lru_cache(maxsize=128)
def _model(document: Document) -> Transformer:
    return transformer({"name": document.name, **document.data})


def transformer(mapping: Mapping[str, Any]) -> Transformer:
    """The model that a scenario's ``model:`` mapping describes: its family's defaults, then its own values.

    Where its ``name`` is one of the catalogue's and it gives no sizes, they are that model's. Raises ScenarioError for
    unknown or missing keys, NotBuilt for parts that are not simulated.

    >>> transformer({"family": "llama", "layers": 2, "hidden": 4096, "heads": 32, "vocab": 32000}).ffn_hidden
    11008
    """
    given = {k: v for k, v in mapping.items() if v is not None and k not in ("source", "description")}
    if given.get("name") in model_names() and not set(_SIZES) & set(given):
        given = {k: v for k, v in MODELS.find(given["name"]).data.items() if k not in ("source", "description")} | given
    if "lora" in given:
        given["lora"] = lora(given["lora"])
    if "layer_kinds" in given:
        given["layer_kinds"] = read_kinds(given["layer_kinds"])
    if "mla" in given:
        given["mla"] = read_mla(given["mla"])
    known = {f.name for f in fields(Transformer)}
    for key in given:
        if key in _LATER and given[key]:
            raise NotBuilt(f"model.{key}: {_LATER[key]} cannot be simulated yet; leave it out for the dense decoder")
        if key not in known and key not in _LATER:
            near = nearest(str(key), known)
            hint = f" Did you mean {near!r}?" if near else f" Known: {', '.join(sorted(known))}."
            raise ScenarioError(f"model: unknown key {key!r}.{hint}")
    given = {k: v for k, v in given.items() if k in known}
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
    values = values | {"moe": read_moe(moe, ffn_hidden=values["ffn_hidden"])}
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
                f"model {values['name']!r}: hidden={hidden} does not divide by heads={heads}; "
                f"heads={divisor(hidden, heads, -1)} or heads={divisor(hidden, heads, 1)} would, or give head_dim"
            )
        values["head_dim"] = hidden // heads
    if "ffn_hidden" not in values:
        width = ffn["numerator"] * hidden // ffn["denominator"]
        values["ffn_hidden"] = -(-width // ffn["multiple"]) * ffn["multiple"]
    return values
