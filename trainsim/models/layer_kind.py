"""
Kinds of layers: the sizes of one transformer layer, all that its operations, parameters and FLOPs follow from.

A model is a list of kinds, one per layer; in most models all of them are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainsim.errors import InvalidPlan, ScenarioError, UnknownName, nearest
from trainsim.models.adapters import Lora, check_targets
from trainsim.models.latent import Mla, read_mla
from trainsim.models.mixture import Moe, read_moe
from trainsim.models.sizes import MOST_LAYERS, check_size, check_switch, divisor

DEFAULT = "default"
"""The kind with the model's own sizes."""
SIZES = ("heads", "kv_heads", "head_dim", "ffn_hidden")
OTHERS = ("gated_mlp", "activation", "moe", "mla", "window")
"""What else a kind may have for itself."""
GATED = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu", "relu": "reglu"}
"""What the product of two halves is called, by the activation of the first."""
ACTIVATIONS = tuple(GATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """The sizes of one layer; two kinds with the same sizes are equal whatever they are called."""

    name: str = field(default=DEFAULT, compare=False)
    family: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_hidden: int
    gated_mlp: bool
    positions: str
    norm: str
    biases: str
    activation: str
    dropout: bool = False
    lora: Lora | None = None
    moe: Moe | None = None  # experts in the place of the MLP
    mla: Mla | None = None  # latent attention in the place of heads, kv_heads and head_dim
    window: int | None = None  # tokens that a query may look at, itself and those before it; None: all

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
    def parameters(self) -> int:
        """Parameters of one layer of this kind, adapters aside."""
        return layer_parameters_per_rank(self, 1)

    def flops(self, *, sequence_length: int, batch: int = 1, causal: bool = False) -> float:
        """FLOP of one layer's matrix products in a forward pass; *causal* counts half of the scores."""
        tokens = batch * sequence_length
        weights = self.hidden * (2 * self.query_width + 2 * self.kv_width + self.fc1_width + self.ffn_hidden)
        scores = 2.0 * tokens * sequence_length * self.query_width * (0.5 if causal else 1.0)
        return 2.0 * tokens * weights + 2 * scores


def layer_parameters_per_rank(kind: LayerKind, tp: int) -> int:
    """Parameters of one layer on one rank of a tensor-parallel group of *tp*.

    Matrices and the biases of split columns are divided; norms and the biases after a sum are on every rank;
    each rank has at least one key-value head.

    >>> from trainsim.models.reading import load_model
    >>> kind = load_model("gpt-22b").kind
    >>> kind.parameters, layer_parameters_per_rank(kind, 8)
    (453064704, 56665344)
    """
    h, d = kind.hidden, kind.head_dim
    queries = kind.heads // tp * d
    qkv = queries + 2 * max(1, kind.kv_heads // tp) * d
    fc1 = kind.fc1_width // tp
    weights = h * (qkv + queries + fc1 + kind.ffn_hidden // tp)
    biases = {"all": qkv + fc1 + 2 * h, "qkv": qkv, "none": 0}[kind.biases]
    return weights + biases + 2 * kind.norm_parameters


def counted(kinds: Iterable[LayerKind]) -> dict[LayerKind, int]:
    """How many layers of each kind there are among *kinds*, in order of first appearance."""
    counts: dict[LayerKind, int] = {}
    for kind in kinds:
        counts[kind] = counts.get(kind, 0) + 1
    return counts


Changes = tuple[tuple[str, Any], ...]
"""What a kind of layer has that the model's own sizes are not: (key, value) each."""


def read_kinds(given: Any) -> tuple[tuple[str, Changes], ...]:
    """The named kinds of a scenario's ``model.layer_kinds``. Raises ScenarioError.

    >>> read_kinds({"wide": {"ffn_hidden": 8192}})
    (('wide', (('ffn_hidden', 8192),)),)
    """
    if not isinstance(given, Mapping):
        raise ScenarioError("model.layer_kinds wants a mapping, such as {wide: {ffn_hidden: 8192}}")
    allowed = (*SIZES, *OTHERS)
    for name, changes in given.items():
        if name == DEFAULT:
            raise ScenarioError(f"model.layer_kinds: {DEFAULT} is the model's own layer; give this kind another name")
        if not isinstance(changes, Mapping):
            raise ScenarioError(f"model.layer_kinds.{name} wants a mapping, such as {{ffn_hidden: 8192}}")
        for key in changes:
            if key not in allowed:
                near = nearest(str(key), allowed)
                hint = f"did you mean {near!r}?" if near else f"a kind may change {', '.join(allowed)}"
                raise ScenarioError(f"model.layer_kinds.{name}: unknown key {key!r}; {hint}")
    return tuple((str(name), tuple(_read(changes).items())) for name, changes in given.items())


def _read(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes of a kind with its experts and its latent attention as values."""
    parts: dict[str, Callable[[Any], object]] = {"moe": read_moe, "mla": read_mla}
    return {k: parts[k](v) if k in parts and v is not None else v for k, v in changes.items()}


def read_pattern(given: Any, layers: int) -> tuple[str, ...]:
    """The kind of each of *layers* layers, from a list that is as long or is repeated; ``wide*3`` is three of a kind.

    Raises ScenarioError and InvalidPlan.

    >>> read_pattern(["dense*2", "default"], 6)
    ('dense', 'dense', 'default', 'dense', 'dense', 'default')
    """
    if not isinstance(given, list | tuple) or not given or not all(isinstance(name, str) for name in given):
        raise ScenarioError(f"model.layer_pattern is {given!r}; it must be a list of kinds, such as [wide, default]")
    pattern: list[str] = []
    for entry in given:
        name, star, count = entry.partition("*")
        if star and not (count.strip().isdecimal() and 0 < int(count) <= MOST_LAYERS):
            raise ScenarioError(f"model.layer_pattern: {entry!r} is not NAME*COUNT, such as wide*3")
        pattern += [name.strip()] * (int(count) if star else 1)
    if layers % len(pattern):
        raise InvalidPlan(
            f"model.layer_pattern has {len(pattern)} layers, which does not divide the model's {layers}; "
            f"write {layers} of them, or a number that divides it"
        )
    return tuple(pattern) * (layers // len(pattern))


def check_kind(model: str, kind: LayerKind) -> None:
    """Sizes of a layer are positive, heads divide by those of keys and values, adapters have a place."""
    for key in SIZES:
        check_size(model, key, getattr(kind, key))
    check_switch(model, "gated_mlp", kind.gated_mlp)
    if kind.window is not None:
        check_size(model, "window", kind.window)
    if kind.activation not in ACTIVATIONS:
        raise UnknownName("kind of activation", str(kind.activation), ACTIVATIONS)
    if kind.activation == "silu" and not kind.gated_mlp:
        raise InvalidPlan(
            f"model {model!r}: silu is simulated in gated MLPs only; give activation gelu, gelu_tanh or relu, or "
            "gated_mlp: true"
        )
    if kind.heads % kind.kv_heads:
        raise InvalidPlan(
            f"model {model!r}: {kind.heads} heads do not divide by kv_heads={kind.kv_heads}; "
            f"kv_heads={divisor(kind.heads, kind.kv_heads, -1)} "
            f"or kv_heads={divisor(kind.heads, kind.kv_heads, 1)} would"
        )
    if kind.lora is not None:
        check_targets(kind.lora, gated=kind.gated_mlp)


def check_pattern(pattern: Sequence[str], named: Sequence[str], layers: int) -> None:
    """Every layer has a kind that exists. Raises UnknownName and InvalidPlan."""
    for name in pattern:
        if name != DEFAULT and name not in named:
            raise UnknownName("kind of layer", name, (DEFAULT, *named))
    if pattern and len(pattern) != layers:
        raise InvalidPlan(f"the pattern has {len(pattern)} layers and the model {layers}")


def shortened(pattern: Sequence[str]) -> list[str]:
    """A pattern as a person would write it.

    >>> shortened(("dense", "dense", "default", "dense"))
    ['dense*2', 'default', 'dense']
    """
    out: list[tuple[str, int]] = []
    for name in pattern:
        if out and out[-1][0] == name:
            out[-1] = (name, out[-1][1] + 1)
        else:
            out.append((name, 1))
    return [f"{name}*{count}" if count > 1 else name for name, count in out]
