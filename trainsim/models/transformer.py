"""
A decoder-only transformer as numbers: shapes, families with their defaults, and exact parameter counts.

Catalogue models are files in ``catalog/``, families are files in ``families/``: a new one is a new file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from trainsim.errors import InvalidPlan, NotBuilt, ScenarioError, UnknownName, nearest
from trainsim.models.adapters import Lora, check_targets, lora

POSITIONS = ("learned", "rotary", "alibi", "none")
NORMS = ("layernorm", "rmsnorm", "rmsnorm1p")
ACTIVATIONS = ("gelu", "gelu_tanh", "relu")
BIASES = ("all", "qkv", "none")
_SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "vocab")
_SWITCHES = ("gated_mlp", "tied_embeddings", "embedding_norm", "dropout")
_KINDS = (("positions", POSITIONS), ("norm", NORMS), ("biases", BIASES), ("activation", ACTIVATIONS))
_LATER = {
    "moe": "mixture of experts",
    "mla": "multi-head latent attention",
    "encoder_layers": "encoder-decoder models",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """A stack of equal layers between an embedding and a head. Counts are exact and unpadded.

    Raises InvalidPlan if sizes are not positive or heads do not divide by kv_heads.

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
    activation: str = "gelu"  # of an MLP that is not gated
    dropout: bool = False  # trained with dropout, where the framework has kernels for it
    lora: Lora | None = None  # only adapters are trained

    def __post_init__(self) -> None:
        for key in (*_SIZES, "max_positions"):
            _check_size(self.name, key, getattr(self, key), least=0 if key == "max_positions" else 1)
        for key in _SWITCHES:
            if not isinstance(getattr(self, key), bool):
                raise InvalidPlan(f"model {self.name!r}: {key} is {getattr(self, key)!r}; it must be true or false")
        for key, allowed in _KINDS:
            if getattr(self, key) not in allowed:
                raise UnknownName(f"kind of {key}", str(getattr(self, key)), allowed)
        if self.heads % self.kv_heads:
            raise InvalidPlan(
                f"model {self.name!r}: {self.heads} heads do not divide by kv_heads={self.kv_heads}; "
                f"kv_heads={_divisor(self.heads, self.kv_heads, -1)} "
                f"or kv_heads={_divisor(self.heads, self.kv_heads, 1)} would"
            )
        if self.lora is not None:
            check_targets(self.lora, gated=self.gated_mlp)
        if self.positions == "learned" and not self.max_positions:
            raise InvalidPlan(f"model {self.name!r}: learned positions need max_positions, the longest sequence")

    @property
    def query_width(self) -> int:
        """Columns of the query projection: heads x head_dim."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Columns of the key (or value) projection."""
        return self.kv_heads * self.head_dim

    @property
    def fc1_width(self) -> int:
        """Columns of the first MLP product; gate and up are one product if gated."""
        return self.ffn_hidden * (2 if self.gated_mlp else 1)

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm: scale, and shift if it is a LayerNorm."""
        return self.hidden * (2 if self.norm == "layernorm" else 1)

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer."""
        return layer_parameters_per_rank(self, 1)

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
            self.layers * self.layer_parameters
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

    def layer_flops(self, *, sequence_length: int, batch: int = 1, causal: bool = False) -> float:
        """FLOP of one layer's matrix products in a forward pass; *causal* counts half of the scores."""
        tokens = batch * sequence_length
        weights = self.hidden * (2 * self.query_width + 2 * self.kv_width + self.fc1_width + self.ffn_hidden)
        scores = 2.0 * tokens * sequence_length * self.query_width * (0.5 if causal else 1.0)
        return 2.0 * tokens * weights + 2 * scores

    def logits_flops(self, *, sequence_length: int, batch: int = 1) -> float:
        """FLOP of the output matrix product in a forward pass."""
        return 2.0 * batch * sequence_length * self.hidden * self.vocab

    def flops_forward(self, *, sequence_length: int, batch: int = 1, causal: bool = False) -> float:
        """FLOP of a forward pass over *batch* sequences: every matrix product, logits too.

        Attention counts the full square of the sequence, or half of it if *causal*.

        >>> load_model("llama-3-8b").flops_forward(sequence_length=2048)
        32938104193024.0
        """
        layer = self.layer_flops(sequence_length=sequence_length, batch=batch, causal=causal)
        return self.layers * layer + self.logits_flops(sequence_length=sequence_length, batch=batch)

    def to_dict(self) -> dict[str, Any]:
        """The mapping that :func:`transformer` reads back."""
        values = asdict(self)
        return values | {"lora": self.lora.to_dict()} if self.lora else {k: v for k, v in values.items() if k != "lora"}


def layer_parameters_per_rank(model: Transformer, tp: int) -> int:
    """Parameters of one layer on one rank of a tensor-parallel group of *tp*.

    Matrices and the biases of split columns are divided; norms and the biases after a sum are on every rank;
    each rank has at least one key-value head.

    >>> load_model("gpt-22b").layer_parameters, layer_parameters_per_rank(load_model("gpt-22b"), 8)
    (453064704, 56665344)
    """
    h, d = model.hidden, model.head_dim
    queries = model.heads // tp * d
    qkv = queries + 2 * max(1, model.kv_heads // tp) * d
    fc1 = model.fc1_width // tp
    weights = h * (qkv + queries + fc1 + model.ffn_hidden // tp)
    biases = {"all": qkv + fc1 + 2 * h, "qkv": qkv, "none": 0}[model.biases]
    return weights + biases + 2 * model.norm_parameters


def padded_vocab(vocab: int, tp: int, divisor: int = 128) -> int:
    """The vocabulary rounded up to a multiple of *divisor* x *tp*, as Megatron-LM does it.

    >>> padded_vocab(50257, 1), padded_vocab(50257, 8)
    (50304, 51200)
    """
    multiple = divisor * tp
    return -(-vocab // multiple) * multiple


def _data(folder: str, kind: str, name: str) -> dict[str, Any]:
    known = _names(folder)
    if name not in known:
        raise UnknownName(kind, name, known)
    data: dict[str, Any] = yaml.safe_load((files(__package__) / folder / f"{name}.yaml").read_text())
    return data


@cache
def _names(folder: str) -> tuple[str, ...]:
    found = (p.name for p in (files(__package__) / folder).iterdir())
    return tuple(sorted(n.removesuffix(".yaml") for n in found if n.endswith(".yaml")))


def model_names() -> tuple[str, ...]:
    """All models of the catalogue."""
    return _names("catalog")


def family_names() -> tuple[str, ...]:
    """All families, whose defaults fill in what a mapping leaves out."""
    return _names("families")


def family_data(family: str) -> dict[str, Any]:
    """What a family's file says. Raises UnknownName.

    >>> family_data("llama")["norm"]
    'rmsnorm'
    """
    return _data("families", "model family", family)


@cache
def load_model(name: str) -> Transformer:
    """The catalogue model called *name*, from ``catalog/<name>.yaml``. Raises UnknownName.

    >>> load_model("bloom-176b").heads
    112
    """
    return transformer({"name": name} | _data("catalog", "model", name))


def transformer(mapping: Mapping[str, Any]) -> Transformer:
    """The model that a scenario's ``model:`` mapping describes: its family's defaults, then its own values.

    Where its ``name`` is one of the catalogue's and it gives no sizes, they are that model's. Raises ScenarioError for
    unknown or missing keys, NotBuilt for parts that are not simulated.

    >>> transformer({"family": "llama", "layers": 2, "hidden": 4096, "heads": 32, "vocab": 32000}).ffn_hidden
    11008
    """
    given = {k: v for k, v in mapping.items() if v is not None and k != "source"}
    if given.get("name") in model_names() and not set(_SIZES) & set(given):
        given = {k: v for k, v in _data("catalog", "model", given["name"]).items() if k != "source"} | given
    if "lora" in given:
        given["lora"] = lora(given["lora"])
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
    ffn = rules.pop("ffn")
    values = {"name": "model", **{k: v for k, v in rules.items() if k not in ("about", "modules")}, **given}
    return Transformer(**_derived(values, ffn))


def _derived(values: dict[str, Any], ffn: Mapping[str, int]) -> dict[str, Any]:
    """Add the sizes that follow from others: kv_heads, head_dim, ffn_hidden."""
    for key in ("layers", "hidden", "heads"):
        _check_size(values["name"], key, values[key])
    hidden, heads = values["hidden"], values["heads"]
    values.setdefault("kv_heads", heads)
    if "head_dim" not in values:
        if hidden % heads:
            raise InvalidPlan(
                f"model {values['name']!r}: hidden={hidden} does not divide by heads={heads}; "
                f"heads={_divisor(hidden, heads, -1)} or heads={_divisor(hidden, heads, 1)} would, or give head_dim"
            )
        values["head_dim"] = hidden // heads
    if "ffn_hidden" not in values:
        width = ffn["numerator"] * hidden // ffn["denominator"]
        values["ffn_hidden"] = -(-width // ffn["multiple"]) * ffn["multiple"]
    return values


def _check_size(model: str, key: str, value: object, *, least: int = 1) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidPlan(f"model {model!r}: {key} is {value!r}; it must be a whole number >= {least}")


def _divisor(number: int, near: int, step: int) -> int:
    """The divisor of *number* next to *near*, downwards or upwards."""
    reach = min(max(number, 1), 1 << 16)
    found = (near + step * i for i in range(reach) if 0 < near + step * i <= number)
    return next((n for n in found if number % n == 0), 1 if step < 0 else number)
