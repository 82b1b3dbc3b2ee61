"""
The parameter tensors of one rank, module by module, as the usual implementation of a family registers them.

Whoever cuts gradients into buckets or gathers parameters module by module (DDP, DeepSpeed) works on these tensors,
not on layers. A module here is a leaf with parameters of its own: a linear layer, a norm, an embedding. The order is
data of the family (``families/<name>.yaml``, key ``modules``); a module that a model does not have is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from trainsim.errors import InvalidPlan
from trainsim.models.known import family_data
from trainsim.models.layer_kind import LayerKind
from trainsim.models.linears import Linear, linears, vectors
from trainsim.models.transformer import Transformer
from trainsim.models.transformer import padded_vocab as padded

INSIDE = {
    "o": (
        *("q norm", "k norm", "q_a", "q_a norm", "q_b", "kv_a", "kv_a norm", "kv_b"),
        *("qkvz", "ba", "convolution", "decay", "gated norm", "sinks"),
    ),
    "down": (
        *("router", "experts", "shared gate", "shared up", "shared down", "shared scale"),
        *("attention norm", "mlp norm", "cross norm", "cross q", "cross k", "cross v", "cross o"),
    ),
}
"""Modules that only some models of a family have, and behind which of its modules those stand that it does not list."""


class Tensor(NamedTuple):
    """One parameter tensor: the module that owns it, its name there and its elements on this rank."""

    module: str
    name: str
    elements: int

    @property
    def is_matrix(self) -> bool:
        """Whether it has rows and columns."""
        return self.name != "bias" and "norm" not in self.module and self.module not in ("decay", "sinks")


@cache
def family_modules(family: str) -> dict[str, Any]:
    """How a family names and orders its modules: ``registered``, ``layer`` and ``called``. Raises UnknownName.

    >>> family_modules("gpt-j")["layer"][0]
    'input norm'
    """
    given = family_data(family)["modules"]
    listed = set(_names(given["registered"]))
    modules: dict[str, Any] = {
        **given,
        "registered": _with_extras(given["registered"], listed),
        "layer": _with_extras(given["layer"], listed, called=True),
    }
    return modules


def _names(listed: list[Any]) -> Iterator[str]:
    for item in listed:
        if isinstance(item, dict):
            for inner in item.values():
                yield from _names(inner)
        else:
            yield item


def _with_extras(listed: list[Any], known: set[str], *, called: bool = False) -> list[Any]:
    """The modules of a family and, beside their neighbours, those that none but its variants have.

    What is inside of attention is *called* before its output, and registered after it.
    """
    out: list[Any] = []
    for item in listed:
        if isinstance(item, dict):
            out.append({name: _with_extras(inner, known, called=called) for name, inner in item.items()})
        else:
            extras = [extra for extra in INSIDE.get(item, ()) if extra not in known]
            out += [*extras, item] if called and item == "o" else [item, *extras]
    return out


def layer_tensors(kind: LayerKind, tp: int = 1) -> tuple[Tensor, ...]:
    """Tensors of a layer of this *kind* on one rank of *tp*, in the order of registration.

    Queries, keys and values, and gate and up, are one module or several, as in transformers 5.24's model of the family.
    Raises InvalidPlan if the family's layout leaves parameters out.

    >>> from trainsim.models.reading import transformer
    >>> [(t.module, t.elements) for t in layer_tensors(transformer({"family": "llama", "layers": 1, "hidden": 64,
    ...     "heads": 4, "ffn_hidden": 192, "vocab": 512}).kind)][3:6]
    [('o', 4096), ('gate', 12288), ('up', 12288)]
    """
    known = _layer_modules(kind, tp)
    registered = family_modules(kind.family)["registered"]
    return tuple(t for module in registered for t in known.get(module, ()))


def embedding_tensors(model: Transformer, tp: int = 1, *, padded_vocab: int | None = None) -> tuple[Tensor, ...]:
    """Tensors before the first layer on one rank: words (with their padding, over *tp*), positions, norm.

    >>> from trainsim.models.reading import load_model
    >>> [t.elements for t in embedding_tensors(load_model("gpt2"), padded_vocab=50257)]
    [38597376, 786432]
    """
    words = Tensor("word embedding", "weight", _table(model, tp, padded_vocab))
    projection = Tensor("word projection", "weight", model.projection_parameters)
    positions = Tensor("position embedding", "weight", model.position_parameters)
    norm = _norm("embedding norm", model.kind) if model.embedding_norm else ()
    return (words, *(t for t in (projection, positions) if t.elements), *norm)


def head_tensors(
    model: Transformer, tp: int = 1, *, padded_vocab: int | None = None, embedding: bool = True
) -> tuple[Tensor, ...]:
    """Tensors after the last layer on one rank: the final norm, and the output matrix unless it is the embedding's.

    A tied matrix away from its *embedding* (the last stage of a pipeline) is a copy, and is there.

    >>> from trainsim.models.reading import load_model
    >>> [t.elements for t in head_tensors(load_model("llama-2-7b"), padded_vocab=32000)]
    [4096, 131072000]
    """
    matrix = Tensor("head", "weight", _table(model, tp, padded_vocab))
    bias = Tensor("head", "bias", (padded_vocab or padded(model.vocab, tp)) // tp)
    projection = Tensor("head projection", "weight", model.projection_parameters)
    final = _norm("final norm", model.kind) if model.final_norm else ()
    return (
        *(t for _ in range(model.mtp_layers) for t in _further(model, tp)),
        *(_norm("encoder final norm", model.kind) if model.encoder_layers and model.final_norm else ()),
        *final,
        *((projection,) if projection.elements else ()),
        *(() if embedding or model.tied_embeddings or not model.mtp_layers else (matrix,)),
        *(() if model.tied_embeddings and embedding else (matrix,)),
        *((bias,) if model.head_bias else ()),
    )


def _further(model: Transformer, tp: int) -> Iterator[Tensor]:
    """A layer that predicts a token further on: norms, a projection and what a layer has, as parts of the head."""
    for name in ("hidden norm", "input norm", "head norm"):
        yield from _norm(f"further {name}", model.kind)
    yield Tensor("further projection", "weight", model.hidden // tp * 2 * model.hidden)
    yield from (t._replace(module=f"further {t.module}") for t in layer_tensors(model.kinds[-1], tp))


def _table(model: Transformer, tp: int, rows: int | None) -> int:
    return (rows or padded(model.vocab, tp)) // tp * model.embedding_width


def _norm(module: str, kind: LayerKind) -> tuple[Tensor, ...]:
    weight = Tensor(module, "weight", kind.hidden)
    return (weight, Tensor(module, "bias", kind.hidden)) if kind.shifted_norms else (weight,)


def _layer_modules(kind: LayerKind, tp: int) -> dict[str, tuple[Tensor, ...]]:
    """The modules of a layer by name, with the sizes of ``layer_parameters_per_rank``."""
    registered = family_modules(kind.family)["registered"]
    parts: dict[str, list[Linear]] = {}
    for linear in linears(kind, tp):
        parts.setdefault(_module(linear, registered), []).append(linear)
    out = {module: tuple(_of_module(module, together)) for module, together in parts.items()}
    for vector in vectors(kind, tp):
        bias = (Tensor(vector.name, "bias", vector.bias),) if vector.bias else ()
        out[vector.name] = (Tensor(vector.name, "weight", vector.weight), *bias)
    if missing := sorted(set(out) - set(registered)):
        raise InvalidPlan(
            f"model family {kind.family!r}: modules.registered leaves out {', '.join(missing)}; "
            "add it to the family's file"
        )
    return out


def _module(linear: Linear, registered: Sequence[str]) -> str:
    """The module that has a linear layer's weight: queries, keys and values, and gate and up, may be one."""
    if linear.expert:
        return "experts"
    name = {"fc1": "up", "fc2": "down", "shared fc1": "shared up", "shared fc2": "shared down"}.get(
        linear.name, linear.name
    )
    if name in registered:
        return name
    return {"q": "qkv", "k": "qkv", "v": "qkv", "gate": "up"}.get(name, name)


def _of_module(module: str, together: Sequence[Linear]) -> Iterator[Tensor]:
    """A weight and its bias; of experts two of each, one for each product."""
    products = {linear.product for linear in together}
    for product in sorted(products):
        parts = [linear for linear in together if linear.product == product]
        name = "weight" if len(products) == 1 else product.removeprefix("expert ")
        yield Tensor(module, name, sum(w.elements - w.biases for w in parts))
        if biases := sum(w.biases for w in parts):
            yield Tensor(module, "bias", biases)
