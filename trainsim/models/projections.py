"""
What makes queries, keys and values on one rank: one product, or the small vectors of latent attention.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.models.local_layer import LocalLayer
from trainsim.models.operations import Operation


def projections(make: LocalLayer) -> Iterator[Operation]:
    """Everything between a norm and the core of attention."""
    if make.kind.mla is not None:
        yield from _latent(make)
        return
    kept = make.kept_width * make.shape.element
    yield make.linear("qkv", make.heads_width, make.kind.hidden, "column", keeps=kept)
    yield from _qk_norm(make)
    yield from _rope(make)


def _rope(make: LocalLayer) -> Iterator[Operation]:
    """Rotation of queries and keys, in place of a model with rotary positions."""
    if make.kind.positions == "rotary":
        tokens, rotated = make.shape.tokens, make.query_width + make.kv_heads * make.kind.query_dim
        elements = tokens * rotated * make.kind.rotary_share
        forward, backward = make.rotation(elements, fused=4.0 * elements)
        yield Operation(name="rope", forward=(forward,), input_gradient=(backward,))


def _qk_norm(make: LocalLayer) -> Iterator[Operation]:
    """Norms of queries and keys: over all heads at once the ranks that have them agree on the sums of squares."""
    if make.kind.qk_norm == "none":
        return
    tokens, full = make.shape.tokens, make.kind.qk_norm == "full"
    elements = float(tokens * (make.query_width + make.kv_heads * make.kind.head_dim))
    rows = tokens * (2 if full else make.heads + make.kv_heads)
    forward, backward = make.norm_kernels("qk norm", elements, element=make.shape.element)
    yield Operation(
        name="qk norm",
        forward=(forward,),
        input_gradient=(backward,),
        reduced=(8.0 * tokens,) if full else (),
        saved=make.kept(make.kind.norm, elements, rows),
        transient=make.working(2 * elements),
    )


def _latent(make: LocalLayer) -> Iterator[Operation]:
    """Latent attention as it is trained, its keys and values unfolded (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    Every rank makes the small vectors of its tokens; the products up from them are cut by heads (Megatron-LM's
    multi_latent_attention.py).
    """
    mla, hidden, element = make.kind.mla, make.kind.hidden, make.shape.element
    assert mla is not None
    if mla.q_lora_rank is None:
        yield make.linear("q", make.query_width, hidden, "column", keeps=make.query_width * element)
    else:
        yield make.linear("q_a", mla.q_lora_rank, hidden, "none")
        yield make.norm("q_a norm", mla.q_lora_rank)
        yield make.linear("q_b", make.query_width, mla.q_lora_rank, "column", keeps=make.query_width * element)
    yield make.linear("kv_a", mla.kv_lora_rank + mla.qk_rope_head_dim, hidden, "none", shared_input=True)
    yield make.norm("kv_a norm", mla.kv_lora_rank)
    unfolded = make.heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    kept = (make.kept_width - make.query_width) * element
    yield make.linear("kv_b", unfolded, mla.kv_lora_rank, "column", keeps=kept)
    rotated = (make.heads + 1) * mla.qk_rope_head_dim
    joined = make.heads * mla.qk_head_dim  # keys: a part of each head, and a rotated part that all heads share
    moved = 4.0 * make.shape.tokens * (rotated + joined)
    forward, backward = make.rotation(float(make.shape.tokens * rotated), fused=moved)
    yield Operation(name="rope", forward=(forward,), input_gradient=(backward,))
