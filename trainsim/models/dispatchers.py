"""
How tokens get to the ranks of their experts and back: one function per dispatcher.

A dispatcher says which collectives it sends a rank's tokens with, and which copies of them it makes: ``before`` on
the side of the tokens, ``behind`` on the side of the experts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import comb
from typing import NamedTuple

from trainsim.models.local_layer import LocalLayer
from trainsim.models.mixture import Moe
from trainsim.models.operations import Exchange, MemoryBound
from trainsim.models.shapes import ExpertShape
from trainsim.registry import Registry


class Sent(NamedTuple):
    """Collectives of a layer's tokens: to the experts and back in a forward, results' gradients to the experts and
    tokens' gradients back in a backward; and the copies of tokens on both sides."""

    before: tuple[MemoryBound, ...]
    behind: tuple[MemoryBound, ...]
    dispatch: tuple[Exchange, ...]
    combine: tuple[Exchange, ...]
    gradients: tuple[Exchange, ...]
    returned: tuple[Exchange, ...]


Dispatcher = Callable[[LocalLayer, Moe], Sent]
dispatchers: Registry[Dispatcher] = Registry("token dispatcher")

RELAYED = 0.125
"""Part of the way within a node that does not run under the way between nodes: one of DeepEP's chunks in eight."""


@dispatchers.register("alltoall")
def all_to_all(make: LocalLayer, moe: Moe) -> Sent:
    """Every token is copied once per expert, sorted by expert and sent to its rank; so are results on their way back.

    Source: NVIDIA/Megatron-LM, megatron/core/transformer/moe/token_dispatcher.py (MoEAlltoAllTokenDispatcher).
    """
    rows = make.shape.norm_tokens * moe.top_k * make.shape.experts.busiest
    sort = (_copy(make, "sort by expert", 2.0 * _received(make, moe)),) if _local(make, moe) > 1 else ()
    return Sent(
        (_copy(make, "permute", make.shape.norm_tokens * (1.0 + moe.top_k)),),
        sort,
        *((Exchange(f"{name}.all_to_all", "ep", "all_to_all", rows * row),) for name, row in _ways(make)),
    )


@dispatchers.register("allgather")
def all_gather(make: LocalLayer, moe: Moe) -> Sent:
    """Every rank gets all tokens, takes those of its experts, and results are summed where the tokens came from.

    Source: NVIDIA/Megatron-LM, megatron/core/transformer/moe/token_dispatcher.py (MoEAllGatherTokenDispatcher).
    """
    rows = make.shape.norm_tokens * make.shape.experts.ep
    operations = ("all_gather", "reduce_scatter") * 2
    return Sent(
        (),
        (_copy(make, "permute", 2.0 * _received(make, moe)),),
        *(
            (Exchange(f"{name}.{operation}", "ep", operation, rows * row),)
            for (name, row), operation in zip(_ways(make), operations, strict=True)
        ),
    )


@dispatchers.register("deepep")
def deepep(make: LocalLayer, moe: Moe) -> Sent:
    """A token is sent once to every node that has experts of it, and there once to every rank.

    What goes on within a node runs under the way between nodes, chunk by chunk; kernels take tokens from where they
    are, so that only the experts' side copies them. Source: deepseek-ai/DeepEP (normal kernels); DeepSeek-V3 report
    (arXiv 2412.19437), section 3.2.2.
    """
    spread = make.shape.experts
    rows = make.shape.norm_tokens * spread.busiest
    ranks = rows * places(moe.experts, moe.top_k, spread.ep)
    far = rows * places(moe.experts, moe.top_k, spread.ep // spread.near)
    return Sent(
        (),
        (_copy(make, "permute", 2.0 * _received(make, moe)),),
        *(tuple(_relayed(name, spread, ranks * row, far * row)) for name, row in _ways(make)),
    )


dispatchers.register("hybridep")(deepep)


def _relayed(name: str, spread: ExpertShape, ranks: float, far: float) -> Iterator[Exchange]:
    """Between nodes, and within them: *far* and *ranks* bytes to all nodes and to all ranks."""
    near, ep = spread.near, spread.ep
    across = 1 < near < ep
    if near < ep:
        yield Exchange(f"{name}.between nodes", "ep", "all_to_all", far, ("across", near) if near > 1 else None)
    if near > 1:
        part, exposed = (("within", near), RELAYED) if across else (None, 1.0)
        yield Exchange(f"{name}.within node", "ep", "all_to_all", ranks, part, exposed)


def places(experts: int, top_k: int, parts: int) -> float:
    """Of *parts* equal parts of all experts, how many a token has at least one of its *top_k* in, on average.

    >>> [round(places(experts, 8, parts), 3) for experts, parts in ((256, 256), (256, 8), (8, 1))]
    [8.0, 5.295, 1.0]
    """
    others = experts - experts // parts
    return parts * (1 - comb(others, top_k) / comb(experts, top_k))


def _ways(make: LocalLayer) -> tuple[tuple[str, float], ...]:
    """The four ways of a layer's tokens, and bytes per token: what is summed on arrival stays in 16 bits."""
    row, low = _row(make), make.kind.hidden * (make.shape.experts.dispatched_bytes or make.shape.element)
    return ("dispatch", low), ("combine", row), ("combine gradient", low), ("dispatch gradient", row)


def _row(make: LocalLayer) -> float:
    """Bytes of a token."""
    return float(make.shape.element * make.kind.hidden)


def _local(make: LocalLayer, moe: Moe) -> int:
    return moe.experts // make.shape.experts.ep


def _received(make: LocalLayer, moe: Moe) -> float:
    """Rows that come to the experts of this rank."""
    return make.shape.norm_tokens * moe.top_k * make.shape.experts.load * make.shape.gathered_by


def _copy(make: LocalLayer, name: str, rows: float) -> MemoryBound:
    """A kernel that reads and writes so many rows in all."""
    return MemoryBound(name, "permute", _row(make) * rows)
