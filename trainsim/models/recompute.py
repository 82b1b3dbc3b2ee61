"""
Selective recomputation: of the operations of a layer, which drop what they saved and run again before backward.

A policy is a function in the registry ``policies``; a framework's profile names its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from trainsim.models.frozen import UNPACKED
from trainsim.models.layer_kind import LayerKind
from trainsim.models.operations import Exchange, Gemm, MemoryBound, Operation, Step, Under
from trainsim.models.shapes import Shape
from trainsim.registry import Registry

Layer = tuple[Operation, ...]
Policy = Callable[[Sequence[Operation], LayerKind, Shape], Layer]
policies: Registry[Policy] = Registry("policy of selective recomputation")

CORE = ("scores", "softcap", "softmax", "attention dropout", "context")


@policies.register("attention")
def attention(layer: Sequence[Operation], kind: LayerKind, shape: Shape) -> Layer:
    """Scores, softmax and dropout, where they are kept (Korthikanti et al. 2022); fused attention keeps no scores."""
    return tuple(replace(o, dropped=o.saved, again=o.forward) if _is_core(o) else o for o in layer)


def _is_core(o: Operation) -> bool:
    """Whether an operation is between scores and their products with values, of either attention."""
    return o.name.removeprefix("cross ") in CORE


@policies.register("products", "op")
def products(layer: Sequence[Operation], kind: LayerKind, shape: Shape) -> Layer:
    """All but every second product and the result of fused attention (pytorch/torchtitan's selective checkpointing).

    Products in the order wq, wk, wv, wo, w1, w3, w2: the odd ones keep their results. The layer's input is kept too;
    the rest runs again when backward starts. Collectives do not.
    """
    q, kv = kind.query_width, kind.kv_width
    shares = {"qkv": (q + kv) / (q + 2 * kv), "proj": 0.0}
    shares |= {"fc1": 0.5, "fc2": 1.0} if kind.gated_mlp else {"fc1": 1.0, "fc2": 0.0}
    fused = not any(o.name in CORE for o in layer)
    result = shape.element * shape.tokens * kind.value_width / shape.tp if fused else 0.0
    return tuple(_chosen(o, shares, result) for o in layer)


def _chosen(o: Operation, shares: Mapping[str, float], result: float) -> Operation:
    """*o* with what it drops and does again; *shares* of the results of products and that of attention stay."""
    exchanges = any(isinstance(step, Exchange | Under) for step in o.forward)
    if o.name.removeprefix("cross ") == "attention" or exchanges:
        return o
    if o.name == "proj":  # its input is the result of attention
        return replace(o, dropped=o.saved - result, again=o.forward)
    if o.name == "norm1":
        return replace(o, dropped=o.saved - o.output, again=o.forward)  # the layer's input is as large as the result
    if o.name == "add2":
        return replace(o, dropped=o.saved)
    share = shares.get(o.name, 0.0)
    return replace(o, dropped=o.saved - share * o.output, again=tuple(_part(o.forward, 1 - share)))


def _part(steps: Sequence[Step], share: float) -> Iterator[Step]:
    """*steps* of which so large a *share* of the products runs, with as much of what their weights need."""
    for step in steps:
        if isinstance(step, Gemm):
            step = replace(step, n=round(step.n * share))
            yield from (step,) if step.n else ()
        elif isinstance(step, MemoryBound) and step.name.endswith(UNPACKED):
            yield from (replace(step, nbytes=step.nbytes * share),) if share else ()
        else:
            yield step
