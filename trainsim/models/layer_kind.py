"""
Kinds of layers: the sizes of one transformer layer, all that its operations, parameters and FLOPs follow from.

A model is a list of kinds, one per layer; in most models all of them are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from trainsim.errors import InvalidPlan
from trainsim.models.adapters import Lora, check_targets
from trainsim.models.latent import DeltaNet, Mla
from trainsim.models.linears import linears, vectors
from trainsim.models.mixture import Moe
from trainsim.models.sizes import check_choice, check_size, check_switch, divisor
from trainsim.models.weight_types import weight_type

DEFAULT = "default"
"""The kind with the model's own sizes."""
SIZES = ("heads", "kv_heads", "head_dim", "ffn_hidden")
OTHERS = ("gated_mlp", "activation", "moe", "mla", "linear_attention", "window", "chunk", "positions", "qk_norm")
"""What else a kind may have for itself."""
GATED = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu", "relu": "reglu", "relu2": "reglu"}
"""What the product of two halves is called, by the activation of the first."""
ACTIVATIONS = tuple(GATED)
QK_NORMS = ("none", "head", "full", "l2")
"""How queries and keys are normalised: not, head by head with one scale for all, over all heads at once, unscaled."""
SWITCHES = (
    *("gated_mlp", "norm_bias", "parallel_residual", "shared_norm", "post_norms"),
    *("attention_sinks", "attention_gate"),
)


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
    norm_bias: bool = True  # a LayerNorm has a shift beside its scale
    rotary_share: float = 1.0  # of each head, where positions are rotary
    qk_norm: str = "none"
    parallel_residual: bool = False  # attention and MLP read the same residual stream and are added to it together
    shared_norm: bool = False  # and the result of the same norm
    post_norms: bool = False  # the results of attention and MLP are normalised too
    attention_sinks: bool = False  # a learnt number per head beside the scores
    attention_gate: bool = False  # a product as wide as the queries scales the result of attention
    attention_softcap: float | None = None  # scores are bent by a tanh
    lora: Lora | None = None
    moe: Moe | None = None  # experts in the place of the MLP
    mla: Mla | None = None  # latent attention in the place of heads, kv_heads and head_dim
    linear_attention: DeltaNet | None = None  # in the place of attention
    window: int | None = None  # tokens that a query may look at, itself and those before it; None: all
    chunk: int | None = None  # tokens of a part of the sequence in which attention stays; None: the whole
    causal: bool = True  # a query looks at no later token
    cross_attention: bool = False  # a second attention, to the result of the encoder

    @property
    def shifted_norms(self) -> bool:
        """Whether norms have a shift beside their scale."""
        return self.norm.startswith("layernorm") and self.norm_bias

    @property
    def query_dim(self) -> int:
        """Numbers of a head's query and key."""
        return self.head_dim if self.mla is None else self.mla.qk_head_dim

    @property
    def value_dim(self) -> int:
        """Numbers of a head's value."""
        return self.head_dim if self.mla is None else self.mla.v_head_dim

    @property
    def query_width(self) -> int:
        """Columns of the query projection: heads times the numbers of a head's query."""
        return self.heads * self.query_dim

    @property
    def value_width(self) -> int:
        """Columns of the result of attention: heads times the numbers of a head's value."""
        return self.heads * self.value_dim

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
        """Parameters of one norm: scale, and shift if it is a LayerNorm with one."""
        return self.hidden * (2 if self.shifted_norms else 1)

    @property
    def parameters(self) -> int:
        """Parameters of one layer of this kind, adapters aside."""
        return layer_parameters_per_rank(self, 1)

    @property
    def active_parameters(self) -> int:
        """Those of them that a token meets: of the experts as many as it is sent to."""
        return sum(w.elements * w.met // w.copies for w in linears(self, 1)) + _in_vectors(self, 1)

    def scores_flops(
        self, *, sequence_length: int, batch: int = 1, causal: bool = False, memory: int | None = None
    ) -> float:
        """FLOP of the products of queries, keys and values; with *causal* only those that a mask leaves.

        *memory* are the tokens that cross-attention looks at (None: as many as the sequence has).
        """
        if self.linear_attention is not None:
            return self.linear_attention.flops(batch * sequence_length)
        pairs = self.pairs(sequence_length) if causal else float(sequence_length**2)
        if self.cross_attention:
            pairs += sequence_length * (memory or sequence_length)
        return 2.0 * batch * pairs * (self.query_width + self.value_width)

    def pairs(self, sequence_length: int) -> float:
        """Pairs of a query and a key in a sequence that the mask leaves; half of the square if nothing but order does.

        >>> from trainsim.models.reading import load_model
        >>> load_model("llama-3-8b").kind.pairs(4096) / 4096**2
        0.5
        """
        if not self.causal:
            return float(sequence_length**2)
        if self.chunk is not None:
            full, rest = divmod(sequence_length, self.chunk)
            return (full * self.chunk**2 + rest**2) / 2
        seen = min(self.window or sequence_length, sequence_length)
        return seen * sequence_length - seen**2 / 2

    def flops(self, *, sequence_length: int, batch: int = 1, causal: bool = False, memory: int | None = None) -> float:
        """FLOP of one layer's matrix products in a forward pass; *causal* counts only the scores that a mask leaves."""
        weights = far = 0
        for w in linears(self, 1):
            if w.product == "cross kv":
                far += w.outputs * w.inputs
            else:
                weights += w.outputs * w.inputs * w.met
        products = 2.0 * batch * (sequence_length * weights + (memory or sequence_length) * far)
        scores = self.scores_flops(sequence_length=sequence_length, batch=batch, causal=causal, memory=memory)
        return products + scores


class LayerParameters(NamedTuple):
    """Parameters of a layer on one rank: those that all ranks of its tensor-parallel group have, and its experts'."""

    dense: int
    experts: int

    @property
    def total(self) -> int:
        """Both."""
        return self.dense + self.experts


def layer_parameters(kind: LayerKind, tp: int, *, ep: int = 1, etp: int | None = None) -> LayerParameters:
    """Parameters of one layer on one rank: experts are dealt to *ep* ranks and cut over *etp* (None: over *tp*).

    >>> from trainsim.models.reading import load_model
    >>> layer_parameters(load_model("mixtral-8x7b").kind, 1, ep=8)
    LayerParameters(dense=41984000, experts=176160768)
    """
    made = linears(kind, tp, ep=ep, etp=etp)
    experts = sum(w.elements for w in made if w.expert)
    return LayerParameters(sum(w.elements for w in made) - experts + _in_vectors(kind, tp), experts)


def layer_parameters_per_rank(kind: LayerKind, tp: int, *, ep: int = 1, etp: int | None = None) -> int:
    """Parameters of one layer on one rank of a tensor-parallel group of *tp*.

    Matrices and the biases of split columns are divided; norms and the biases after a sum are on every rank;
    each rank has at least one key-value head.

    >>> from trainsim.models.reading import load_model
    >>> kind = load_model("gpt-22b").kind
    >>> kind.parameters, layer_parameters_per_rank(kind, 8)
    (453064704, 56665344)
    """
    return layer_parameters(kind, tp, ep=ep, etp=etp).total


def _in_vectors(kind: LayerKind, tp: int) -> int:
    return sum(v.weight + v.bias for v in vectors(kind, tp))


def counted(kinds: Iterable[LayerKind]) -> dict[LayerKind, int]:
    """How many layers of each kind there are among *kinds*, in order of first appearance."""
    every = list(kinds)
    objects = {id(kind): kind for kind in every}  # a model has one object per kind, and their hashes take time
    counts: dict[LayerKind, int] = {}
    for number, times in Counter(map(id, every)).items():
        counts[objects[number]] = counts.get(objects[number], 0) + times
    return counts


def check_kind(model: str, kind: LayerKind) -> None:
    """Sizes of a layer are positive, heads divide by those of keys and values, adapters have a place."""
    for key in SIZES:
        check_size(model, key, getattr(kind, key))
    for key in SWITCHES:
        check_switch(model, key, getattr(kind, key))
    check_choice("kind of activation", kind.activation, ACTIVATIONS)
    check_choice("kind of qk_norm", kind.qk_norm, QK_NORMS)
    if kind.activation == "silu" and not kind.gated_mlp:
        raise InvalidPlan(
            f"model {model!r}: silu is simulated in gated MLPs only; give activation gelu, gelu_tanh or relu, or "
            "gated_mlp: true"
        )
    if kind.heads % kind.kv_heads:
        raise InvalidPlan(
            f"model {model!r}: {kind.heads} heads are not divisible by kv_heads={kind.kv_heads}; "
            f"kv_heads={divisor(kind.heads, kind.kv_heads, -1)} "
            f"or kv_heads={divisor(kind.heads, kind.kv_heads, 1)} would"
        )
    _check_attention(model, kind)
    _check_residual(model, kind)
    if kind.lora is not None:
        check_targets(kind.lora, gated=kind.gated_mlp, known=[w.name for w in linears(kind, 1)])
        _check_stored(model, kind, kind.lora)


def _check_stored(model: str, kind: LayerKind, adapted: Lora) -> None:
    """Experts are no linear layers for the libraries that quantise these."""
    stored = None if adapted.base_dtype is None else weight_type(adapted.base_dtype)
    if stored is not None and stored.quantised and kind.moe is not None:
        raise InvalidPlan(
            f"model {model!r}: base_dtype {stored.name} is not simulated with experts, which are not linear layers to "
            "the libraries that quantise these; leave base_dtype out"
        )


def _check_attention(model: str, kind: LayerKind) -> None:
    """What a query looks at, and from what it and the keys are made."""
    for key in ("window", "chunk"):
        if getattr(kind, key) is not None:
            check_size(model, key, getattr(kind, key))
    if kind.window is not None and kind.chunk is not None:
        raise InvalidPlan(f"model {model!r}: a layer has a window or chunks of the sequence; leave window or chunk out")
    share, cap = kind.rotary_share, kind.attention_softcap
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise InvalidPlan(f"model {model!r}: rotary_share is {share!r}; it is the rotated part of a head, such as 0.25")
    check_cap(model, "attention_softcap", cap)
    if kind.mla is None:
        return
    if kind.kv_heads != kind.heads:
        raise InvalidPlan(
            f"model {model!r}: latent attention has keys and values for all {kind.heads} heads, not for "
            f"kv_heads={kind.kv_heads}; leave kv_heads out"
        )
    extras = {"qk_norm": kind.qk_norm != "none", "attention_gate": kind.attention_gate}
    extras |= {"linear_attention": kind.linear_attention is not None, "attention_sinks": kind.attention_sinks}
    for key, given in extras.items():
        if given:
            raise InvalidPlan(f"model {model!r}: latent attention (mla) has no {key}; leave one of them out")


def check_cap(model: str, key: str, cap: object) -> None:
    """Raise InvalidPlan unless a cap is None or a positive number."""
    if cap is not None and (isinstance(cap, bool) or not isinstance(cap, int | float) or not 0 < cap < float("inf")):
        raise InvalidPlan(f"model {model!r}: {key} is {cap!r}; it must be a number above 0, such as 30.0")


def _check_residual(model: str, kind: LayerKind) -> None:
    if kind.shared_norm and not kind.parallel_residual:
        raise InvalidPlan(
            f"model {model!r}: attention and MLP can share a norm (shared_norm) if they run in parallel only; add "
            "parallel_residual: true"
        )
    if kind.parallel_residual and kind.post_norms:
        raise InvalidPlan(f"model {model!r}: post_norms and parallel_residual go together in no model; leave one out")
