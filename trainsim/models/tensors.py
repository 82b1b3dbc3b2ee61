"""
The parameter tensors of one rank, module by module, as the usual implementation of a family registers them.

Whoever cuts gradients into buckets or gathers parameters module by module (DDP, DeepSpeed) works on these tensors,
not on layers. A module here is a leaf with parameters of its own: a linear layer, a norm, an embedding. The order is
data of the family (``families/<name>.yaml``, key ``modules``); a module that a model does not have is left out.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from trainsim.errors import InvalidPlan
from trainsim.models.known import family_data
from trainsim.models.layer_kind import LayerKind
from trainsim.models.transformer import Transformer
from trainsim.models.transformer import padded_vocab as padded


class Tensor(NamedTuple):
    """One parameter tensor: the module that owns it, its name there and its elements on this rank."""

    module: str
    name: str
    elements: int


@cache
def family_modules(family: str) -> dict[str, Any]:
    """How a family names and orders its modules: ``registered``, ``layer`` and ``called``. Raises UnknownName.

    >>> family_modules("bloom")["registered"]
    ['input norm', 'qkv', 'o', 'post norm', 'up', 'down']
    """
    modules: dict[str, Any] = family_data(family)["modules"]
    return modules


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
    positions = Tensor("position embedding", "weight", model.position_parameters)
    norm = _norm("embedding norm", model) if model.embedding_norm else ()
    return (words, *((positions,) if positions.elements else ()), *norm)


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
    return (*_norm("final norm", model), *(() if model.tied_embeddings and embedding else (matrix,)))


def _table(model: Transformer, tp: int, rows: int | None) -> int:
    return (rows or padded(model.vocab, tp)) // tp * model.hidden


def _norm(module: str, kind: LayerKind | Transformer) -> tuple[Tensor, ...]:
    weight = Tensor(module, "weight", kind.hidden)
    return (weight, Tensor(module, "bias", kind.hidden)) if kind.norm == "layernorm" else (weight,)


def _layer_modules(kind: LayerKind, tp: int) -> dict[str, tuple[Tensor, ...]]:
    """The modules of a layer by name, with the sizes of ``layer_parameters_per_rank``."""
    registered = family_modules(kind.family)["registered"]
    hidden, queries = kind.hidden, kind.heads // tp * kind.head_dim
    keys = max(1, kind.kv_heads // tp) * kind.head_dim
    qkv, first, inner = queries + 2 * keys, kind.fc1_width // tp, kind.ffn_hidden // tp
    gate = first // 2 if kind.gated_mlp and "gate" in registered else 0
    widths = {"qkv": qkv} if "qkv" in registered else {"q": queries, "k": keys, "v": keys}
    inner_widths = ({"gate": gate} if gate else {}) | {"up": first - gate}
    everywhere, attention = kind.biases == "all", kind.biases in ("all", "qkv")

    def linear(module: str, inputs: int, outputs: int, biased: bool) -> tuple[Tensor, ...]:
        weight = Tensor(module, "weight", inputs * outputs)
        return (weight, Tensor(module, "bias", outputs)) if biased else (weight,)

    out = {module: linear(module, hidden, width, attention) for module, width in widths.items()}
    out |= {module: linear(module, hidden, width, everywhere) for module, width in inner_widths.items()}
    out |= {"o": linear("o", queries, hidden, everywhere), "down": linear("down", inner, hidden, everywhere)}
    out |= {module: _norm(module, kind) for module in ("input norm", "post norm")}
    if missing := sorted(set(out) - set(registered)):
        raise InvalidPlan(
            f"model family {kind.family!r}: modules.registered leaves out {', '.join(missing)}; "
            "add it to the family's file"
        )
    return out
