"""
The weights of a layer on one rank: its linear layers and its vectors (norms and the like).

Parameters, FLOPs, the tensors that optimizers look at and the modules that frameworks gather follow from these
lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from trainsim.models.layer_kind import LayerKind

QKV_BIASED = ("all", "qkv", "attention")
ATTENTION_BIASED = ("all", "attention")
MLP_BIASED = ("all", "mlp")


class Linear(NamedTuple):
    """A linear layer of a transformer layer on one rank: ``copies`` of ``outputs`` x ``inputs``.

    ``product`` is the matrix product that it is a part of (``qkv``, ``proj``, ``fc1``, ``fc2``, ...); ``parallel`` says
    whether its columns (outputs) or rows (inputs) are cut over the tensor-parallel group. A token meets ``met`` of the
    copies that all ranks have together.
    """

    name: str
    product: str
    outputs: int
    inputs: int
    parallel: str
    biased: bool = False
    copies: int = 1
    met: int = 1
    expert: bool = False

    @property
    def biases(self) -> int:
        """Elements of its biases."""
        return self.outputs * self.copies if self.biased else 0

    @property
    def elements(self) -> int:
        """Parameters, biases too."""
        return self.outputs * self.inputs * self.copies + self.biases


class Vector(NamedTuple):
    """The parameters of a layer that are in no matrix: a norm's scale (and ``bias``), or one number per head."""

    name: str
    weight: int
    bias: int = 0


def linears(kind: LayerKind, tp: int, *, ep: int = 1, etp: int | None = None) -> tuple[Linear, ...]:
    """The linear layers of one transformer layer on one of *tp* ranks, in forward order.

    Experts are dealt to *ep* ranks and cut over *etp* (None: over *tp*, as everything else).

    >>> from trainsim.models.reading import load_model
    >>> [(linear.name, linear.outputs, linear.inputs) for linear in linears(load_model("llama-3-8b").kind, 2)][:3]
    [('q', 2048, 4096), ('k', 512, 4096), ('v', 512, 4096)]
    """
    feed = _mlp(kind, tp) if kind.moe is None else _mixture(kind, tp, ep, tp if etp is None else etp)
    return (*_attention(kind, tp), *(_cross(kind, tp) if kind.cross_attention else ()), *feed)


def vectors(kind: LayerKind, tp: int) -> tuple[Vector, ...]:
    """The norms of a layer and its other vectors on one of *tp* ranks.

    >>> from trainsim.models.reading import load_model
    >>> vectors(load_model("llama-3-8b").kind, 1)
    (Vector(name='input norm', weight=4096, bias=0), Vector(name='post norm', weight=4096, bias=0))
    """
    names = ["input norm"]
    names += ["attention norm"] if kind.post_norms else []
    names += ["cross norm"] if kind.cross_attention else []
    names += [] if kind.shared_norm else ["post norm"]
    names += ["mlp norm"] if kind.post_norms else []
    norms = [_norm(kind, name, kind.hidden) for name in names]
    return (*norms, *_inner_vectors(kind, tp))


def _norm(kind: LayerKind, name: str, width: int) -> Vector:
    return Vector(name, width, width if kind.shifted_norms else 0)


def _inner_vectors(kind: LayerKind, tp: int) -> Iterator[Vector]:
    """Norms inside of attention, and numbers per head."""
    heads, keys = max(1, kind.heads // tp), max(1, kind.kv_heads // tp)
    if kind.linear_attention is not None:
        delta = kind.linear_attention
        yield Vector("convolution", delta.channels // tp * delta.kernel)
        yield Vector("decay", 2 * max(1, delta.value_heads // tp))
        yield Vector("gated norm", delta.value_head_dim)
        return
    if kind.mla is not None:
        if kind.mla.q_lora_rank is not None:
            yield _norm(kind, "q_a norm", kind.mla.q_lora_rank)
        yield _norm(kind, "kv_a norm", kind.mla.kv_lora_rank)
    if kind.qk_norm in ("head", "full"):
        widths = (heads, keys) if kind.qk_norm == "full" else (1, 1)
        for name, count in zip(("q norm", "k norm"), widths, strict=True):
            yield _norm(kind, name, count * kind.head_dim)
    if kind.attention_sinks:
        yield Vector("sinks", heads)


def _attention(kind: LayerKind, tp: int) -> tuple[Linear, ...]:
    if kind.linear_attention is not None:
        return _delta(kind, tp)
    if kind.mla is not None:
        return _latent(kind, tp)
    h, queries = kind.hidden, max(1, kind.heads // tp) * kind.head_dim
    keys, inner, outer = max(1, kind.kv_heads // tp) * kind.head_dim, *_biased(kind)
    gated = queries * (2 if kind.attention_gate else 1)
    return (
        Linear("q", "qkv", gated, h, "column", inner),
        Linear("k", "qkv", keys, h, "column", inner),
        Linear("v", "qkv", keys, h, "column", inner),
        Linear("o", "proj", h, queries, "row", outer),
    )


def _biased(kind: LayerKind) -> tuple[bool, bool]:
    """Whether queries, keys and values have biases, and whether the output of attention has."""
    return kind.biases in QKV_BIASED, kind.biases in ATTENTION_BIASED


def _cross(kind: LayerKind, tp: int) -> tuple[Linear, ...]:
    """Attention from a decoder to the encoder's output, with matrices of its own."""
    named = {"q": "cross q", "k": "cross k", "v": "cross v", "o": "cross o"}
    products = {"q": "cross q", "k": "cross kv", "v": "cross kv", "o": "cross proj"}
    return tuple(
        linear._replace(name=named[linear.name], product=products[linear.name]) for linear in _attention(kind, tp)
    )


def _latent(kind: LayerKind, tp: int) -> tuple[Linear, ...]:
    """Latent attention: every rank makes the small vectors, the products up from them are cut by heads."""
    mla = kind.mla
    assert mla is not None
    h, heads, (_, biased) = kind.hidden, max(1, kind.heads // tp), _biased(kind)
    queries, values = heads * mla.qk_head_dim, heads * mla.v_head_dim
    first: tuple[Linear, ...]
    if mla.q_lora_rank is None:
        first = (Linear("q", "q", queries, h, "column"),)
    else:
        first = (
            Linear("q_a", "q_a", mla.q_lora_rank, h, "none", biased),
            Linear("q_b", "q_b", queries, mla.q_lora_rank, "column"),
        )
    return (
        *first,
        Linear("kv_a", "kv_a", mla.kv_lora_rank + mla.qk_rope_head_dim, h, "none", biased),
        Linear("kv_b", "kv_b", heads * (mla.qk_nope_head_dim + mla.v_head_dim), mla.kv_lora_rank, "column"),
        Linear("o", "proj", h, values, "row", biased),
    )


def _delta(kind: LayerKind, tp: int) -> tuple[Linear, ...]:
    """A gated delta network: queries, keys, values and their gate, two numbers per head, and the output."""
    delta = kind.linear_attention
    assert delta is not None
    h, values = kind.hidden, delta.value_heads * delta.value_head_dim // tp
    return (
        Linear("qkvz", "qkvz", delta.channels // tp + values, h, "column"),
        Linear("ba", "ba", 2 * max(1, delta.value_heads // tp), h, "column"),
        Linear("o", "proj", h, values, "row"),
    )


def _mlp(kind: LayerKind, tp: int) -> tuple[Linear, ...]:
    names = ("gate", "up", "down") if kind.gated_mlp else ("fc1", "fc2")
    return _feed(kind, names, kind.ffn_hidden // tp, biased=kind.biases in MLP_BIASED)


def _feed(kind: LayerKind, names: tuple[str, ...], width: int, *, biased: bool) -> tuple[Linear, ...]:
    """The matrices of an MLP of a *width*: those of its first product, and that of its second."""
    *first, second = names
    prefix = second.rpartition(" ")[0]
    product = f"{prefix} " if prefix else ""
    return (
        *(Linear(name, f"{product}fc1", width, kind.hidden, "column", biased) for name in first),
        Linear(second, f"{product}fc2", kind.hidden, width, "row", biased),
    )


def _mixture(kind: LayerKind, tp: int, ep: int, etp: int) -> Iterator[Linear]:
    """The router, the experts of one rank and those that all tokens meet, which are cut as a dense MLP is."""
    moe, biased = kind.moe, kind.biases in MLP_BIASED
    assert moe is not None
    yield Linear("router", "router", moe.experts, kind.hidden, "none", kind.biases == "all")
    names = ("gate", "up", "down") if kind.gated_mlp else ("fc1", "fc2")
    experts = tuple(f"expert {name}" for name in names)
    for linear in _feed(kind, experts, moe.expert_ffn_hidden // etp, biased=biased):
        yield linear._replace(copies=max(1, moe.experts // ep), met=moe.top_k, expert=True)
    if moe.shared_ffn_hidden:
        shared = tuple(f"shared {name}" for name in names)
        yield from _feed(kind, shared, moe.shared_ffn_hidden // tp, biased=biased)
        if moe.shared_gate:
            yield Linear("shared scale", "shared scale", 1, kind.hidden, "none")
