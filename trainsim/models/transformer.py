"""
A decoder-only transformer as numbers: shapes, families with their defaults, and exact parameter counts.

Catalogue models are files in ``catalog/``, families are files in ``families/``: a new one is a new file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from trainsim.errors import InvalidPlan, UnknownName
from trainsim.models.adapters import Lora
from trainsim.models.latent import Mla
from trainsim.models.layer_kind import (
    ACTIVATIONS,
    DEFAULT,
    Changes,
    LayerKind,
    check_kind,
    check_pattern,
    counted,
    shortened,
)
from trainsim.models.mixture import Moe
from trainsim.models.sizes import check_name, check_size, check_switch

POSITIONS = ("learned", "rotary", "alibi", "none")
NORMS = ("layernorm", "rmsnorm", "rmsnorm1p")
BIASES = ("all", "qkv", "none")
SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "vocab")
_KINDS = (("positions", POSITIONS), ("norm", NORMS), ("biases", BIASES), ("activation", ACTIVATIONS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """Layers between an embedding and a head. Counts are exact and unpadded.

    The sizes are those of every layer but those for which ``layer_pattern`` (a name per layer) says another of the
    ``layer_kinds``. Raises InvalidPlan if sizes are not positive or heads do not divide by kv_heads.

    >>> from trainsim.models.reading import load_model
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
        for key in (*SIZES, "max_positions"):
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

        >>> from trainsim.models.reading import transformer
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

        >>> from trainsim.models.reading import load_model
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

        >>> from trainsim.models.reading import load_model
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
