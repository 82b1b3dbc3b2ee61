"""
In which order a training step calls the modules of a model: forward, and backward as autograd comes back to them.

Containers (a layer, its attention, its MLP) are calls too, though they own no parameters: DeepSpeed hangs a hook on
every module and decides at each of them what to gather ahead. The tree of modules is data of the family
(``families/<name>.yaml``), the calls of a model as transformers 5.24 makes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from typing import Any, NamedTuple

from trainsim.models.layer_kind import counted
from trainsim.models.tensors import INSIDE, Tensor, embedding_tensors, family_modules, head_tensors, layer_tensors
from trainsim.models.transformer import Transformer

LISTED = frozenset(
    ("q", "k", "v", "qkv", "o", "gate", "up", "down", "input norm", "post norm", "final norm", *chain(*INSIDE.values()))
)
"""Modules that are left out where a layer does not have them."""
WITHOUT_BACKWARD = ("rotary",)  # tables of angles: nothing in them has a gradient


class Module(NamedTuple):
    """A module, the indices of its own parameters in order of registration, and what it calls, in order."""

    name: str
    parameters: tuple[int, ...] = ()
    children: tuple[Module, ...] = ()


class Call(NamedTuple):
    """One call of a module: its name, the parameters it owns, and whether it is a (first or repeated) forward."""

    module: str
    parameters: tuple[int, ...]
    forward: bool


@dataclass(frozen=True, slots=True)
class Modules:
    """A whole model on one rank: its tensors in order of registration, and the tree of its calls."""

    tensors: tuple[Tensor, ...]
    root: Module

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements of every tensor."""
        return tuple(t.elements for t in self.tensors)


def modules(model: Transformer, tp: int = 1, *, padded_vocab: int | None = None) -> Modules:
    """The tensors of all layers, the embedding and the head on one rank of *tp*, and who calls them.

    A tied head uses the embedding's matrix.

    >>> from trainsim.models.reading import load_model
    >>> whole = modules(load_model("llama-2-7b"), padded_vocab=32000)
    >>> len(whole.tensors), sum(whole.sizes)
    (291, 6738415616)
    """
    first = embedding_tensors(model, tp, padded_vocab=padded_vocab)
    last = head_tensors(model, tp, padded_vocab=padded_vocab)
    of_kind = {kind: layer_tensors(kind, tp) for kind in counted(model.kinds)}
    layers = [of_kind[kind] for kind in model.kinds]
    starts = [0, *accumulate(map(len, layers))]  # of each layer's tensors, behind those of the embedding
    tensors = (*first, *(tensor for layer in layers for tensor in layer), *last)
    tree = family_modules(model.family)
    outer = _indices((*first, *last), 0, gap=starts[-1], after=len(first))
    if model.tied_embeddings:
        outer["head"] = (*outer["word embedding"], *outer.get("head", ()))
    called = tuple(
        Module("layer", (), _children(tree["layer"], _indices(layer, len(first) + start), {}))
        for layer, start in zip(layers, starts, strict=False)
    )
    embedding = tuple(Module(name, outer[name]) for name in dict.fromkeys(t.module for t in first))
    before_head = tuple(Module(name, outer[name]) for name in dict.fromkeys(t.module for t in last) if name != "head")
    inserted = {"layers": called, "embedding": embedding, "final norm": before_head}
    return Modules(tensors, Module("root", (), _children(tree["called"], outer, inserted)))


def calls(root: Module, *, recompute: bool | Sequence[bool] = False) -> tuple[Call, ...]:
    """Forward and backward of one microbatch: backward meets a container before what it calls, last call first.

    With *recompute* every layer, or each for which it is true, runs forward once more before its backward (full
    activation recomputation).

    >>> leaf = Module("attention", (0,)), Module("mlp", (1,))
    >>> [c.module for c in calls(Module("root", (), leaf))]
    ['root', 'attention', 'mlp', 'root', 'mlp', 'attention']
    """
    again = repeat(recompute) if isinstance(recompute, bool) else reversed(recompute)
    return (*_forward(root), *_backward(root, again))


def ready_order(root: Module) -> tuple[int, ...]:
    """Parameters in the order in which their gradients are ready, a shared one at its last use; biases before weights.

    >>> ready_order(Module("root", (), (Module("embedding", (0,)), Module("mlp", (1, 2)), Module("head", (0,)))))
    (2, 1, 0)
    """
    uses = [p for call in _backward(root, repeat(False)) for p in reversed(call.parameters)]
    return tuple(dict.fromkeys(reversed(uses)))[::-1]


def _forward(module: Module) -> Iterator[Call]:
    yield Call(module.name, module.parameters, True)
    for child in module.children:
        yield from _forward(child)


def _backward(module: Module, recompute: Iterator[bool]) -> Iterator[Call]:
    """Calls from the last to the first; *recompute* says of each layer, in this order, whether it runs again."""
    if module.name in WITHOUT_BACKWARD:
        return
    if module.name == "layer" and next(recompute):
        yield from _forward(module)
    yield Call(module.name, module.parameters, False)
    for child in reversed(module.children):
        yield from _backward(child, recompute)


def _indices(tensors: tuple[Tensor, ...], start: int, *, gap: int = 0, after: int = 0) -> dict[str, tuple[int, ...]]:
    """Indices of each module's tensors, numbered from *start*, with a *gap* once *after* of them are counted."""
    out: dict[str, tuple[int, ...]] = {}
    for k, tensor in enumerate(tensors):
        index = start + k + (gap if after and k >= after else 0)
        out[tensor.module] = (*out.get(tensor.module, ()), index)
    return out


def _children(
    listed: list[Any], parameters: dict[str, tuple[int, ...]], inserted: dict[str, tuple[Module, ...]]
) -> tuple[Module, ...]:
    """The modules that a family's file lists, those without parameters too, but none that are missing."""
    out: list[Module] = []
    for item in listed:
        if isinstance(item, dict):
            out += (Module(name, (), _children(inner, parameters, inserted)) for name, inner in item.items())
        elif item in inserted:
            out += inserted[item]
        elif item in parameters or item not in LISTED:
            out.append(Module(item, parameters.get(item, ())))
    return tuple(out)
