"""
Modules of a layer that drop what they saved and run again before backward: Megatron-LM's ``--recompute-modules``.

A module is a function that takes a layer's operations and gives them back with what it drops and does again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from trainsim.models.layer_kind import LayerKind
from trainsim.models.operations import Operation
from trainsim.models.recompute import CORE, Layer
from trainsim.models.shapes import Shape
from trainsim.registry import Registry

Module = Callable[[Sequence[Operation], LayerKind, Shape], Layer]
recompute_modules: Registry[Module] = Registry("module that can be recomputed")


def chosen(layer: Sequence[Operation], kind: LayerKind, shape: Shape, modules: Sequence[str]) -> Layer:
    """*layer* with everything that *modules* drop and do again."""
    for name in modules:
        layer = recompute_modules[name](layer, kind, shape)
    return tuple(layer)


@recompute_modules.register("core_attn")
def core_attention(layer: Sequence[Operation], kind: LayerKind, shape: Shape) -> Layer:
    """Scores, softmax and dropout, where they are kept."""
    return tuple(_again(o, o.saved) if o.name in CORE else o for o in layer)


@recompute_modules.register("layernorm")
def layernorm(layer: Sequence[Operation], kind: LayerKind, shape: Shape) -> Layer:
    """The results of both norms, which are the inputs of what follows them."""
    kept = {"norm1": shape.linear_element, "norm2": shape.linear_element if kind.moe is None else shape.element}
    tokens = shape.norm_tokens * kind.hidden
    return tuple(_again(o, kept[o.name] * tokens) if o.name in kept else o for o in layer)


@recompute_modules.register("mla_up_proj")
def latent_up_projection(layer: Sequence[Operation], kind: LayerKind, shape: Shape) -> Layer:
    """Queries, keys and values of latent attention, made again from its small vectors."""
    if kind.mla is None:
        return tuple(layer)
    heads = max(1, kind.heads // shape.tp)
    query, key, value = (heads * width for width in (kind.query_dim, kind.query_dim, kind.value_dim))
    kept = {"q_b": query, "q": query, "kv_b": key + value}
    out = []
    for o in layer:
        if o.name in kept:
            out.append(_again(o, shape.element * shape.tokens * kept[o.name]))
        else:
            out.append(_again(o, 0.0) if o.name in ("rope", "q_a norm", "kv_a norm") else o)
    return tuple(out)


@recompute_modules.register("moe_act")
def expert_activation(layer: Sequence[Operation], kind: LayerKind, shape: Shape) -> Layer:
    """What the experts' second products take, made again from what their first ones gave."""
    if kind.moe is None:
        return tuple(layer)
    names = [o.name for o in layer]
    at = names.index("expert fc2")
    return (*layer[: at - 1], _again(layer[at - 1], layer[at].saved), *layer[at:])


@recompute_modules.register("moe")
def mixture(layer: Sequence[Operation], kind: LayerKind, shape: Shape) -> Layer:
    """All of the experts' part of a layer, tokens sent again; its input stays."""
    if kind.moe is None:
        return tuple(layer)
    names = [o.name for o in layer]
    first, last = names.index("router"), names.index("shared fc2" if "shared fc2" in names else "combine")
    keeps = shape.element * shape.norm_tokens * kind.hidden
    return _all_again(layer, layer[first : last + 1], keeps=keeps)


@recompute_modules.register("shared_experts")
def shared_experts(layer: Sequence[Operation], kind: LayerKind, shape: Shape) -> Layer:
    """Experts that every token meets; their input is kept for the others too."""
    names = [o.name for o in layer]
    if "shared fc1" not in names:
        return tuple(layer)
    first, last = names.index("shared fc1"), names.index("shared fc2")
    return _all_again(layer, layer[first : last + 1], keeps=0.0)


@recompute_modules.register("mlp")
def dense_mlp(layer: Sequence[Operation], kind: LayerKind, shape: Shape) -> Layer:
    """The MLP of a layer without experts; its input stays."""
    names = [o.name for o in layer]
    if "fc1" not in names:
        return tuple(layer)
    first, last = names.index("fc1"), names.index("fc2")
    keeps = shape.norm_tokens * kind.hidden * shape.linear_element
    return _all_again(layer, layer[first : last + 1], keeps=keeps)


def _all_again(layer: Sequence[Operation], some: Sequence[Operation], *, keeps: float) -> Layer:
    """*some* operations of a layer drop all that they saved but *keeps* bytes."""
    inside = {id(o) for o in some}
    out = []
    for o in layer:
        if id(o) in inside:
            stays = min(keeps, o.saved)
            keeps -= stays
            o = _again(o, o.saved - stays)
        out.append(o)
    return tuple(out)


def _again(o: Operation, dropped: float) -> Operation:
    """*o* that drops so many bytes more and runs again."""
    return replace(o, dropped=max(o.dropped, dropped), again=o.forward)
