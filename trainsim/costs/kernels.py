"""
From a piece of work to seconds on a GPU; each kind of work has its own module.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from trainsim.costs.attention import attention_cost
from trainsim.costs.gemm import gemm_cost
from trainsim.costs.memory_bound import memory_bound_cost
from trainsim.costs.spread import gpu_spread
from trainsim.costs.types import Cost
from trainsim.documents.catalogue import Spec
from trainsim.errors import ScenarioError, UnknownName
from trainsim.hardware.gpu import GPU, load_gpu
from trainsim.models.operations import Attention, Gemm, MemoryBound, Work
from trainsim.units import Quantity, parse_bytes

__all__ = ["Cost", "cost", "gpu_spread", "kernel_time"]


@lru_cache(maxsize=1 << 16)
def cost(work: Work, gpu: GPU, precision: str) -> Cost:
    """What *work* costs on *gpu* with nothing else running, in the job's *precision*.

    >>> cost(Gemm("square", 8192, 8192, 8192), load_gpu("a100-sxm4-80gb"), "bf16").sm
    1.0
    """
    if isinstance(work, Gemm):
        return gemm_cost(work, gpu, precision)
    if isinstance(work, Attention):
        return attention_cost(work, gpu)
    return memory_bound_cost(work, gpu)


def _gemm(*, m: int, n: int, k: int, batch: int = 1, role: str = "forward", accumulates: bool = False) -> Work:
    return Gemm("gemm", m, n, k, batch, role, accumulates)


def _attention(
    *,
    batch: int,
    heads: int,
    seq: int,
    head_dim: int,
    kv_heads: int | None = None,
    causal: bool = True,
    kernel: str = "flash2",
    direction: str = "forward",
) -> Work:
    kv_heads = kv_heads or heads
    return Attention("attention", kernel, batch, heads, kv_heads, seq, seq, head_dim, causal, direction)


def _memory_bound(*, kind: str, nbytes: Quantity) -> Work:
    return MemoryBound(kind, kind, parse_bytes(nbytes))


_MAKERS: dict[str, Callable[..., Work]] = {"gemm": _gemm, "attention": _attention, "memory_bound": _memory_bound}


def kernel_time(gpu: Spec | GPU, work: str, /, *, dtype: str = "bf16", **shape: object) -> float:
    """Seconds of one kernel alone. Kinds and their shapes: ``gemm(m, n, k)``, ``attention(batch, heads, kv_heads, seq,
    head_dim, causal, kernel, direction)``, ``memory_bound(kind, nbytes)``.

    >>> kernel_time("a100-sxm4-80gb", "gemm", m=8192, n=8192, k=8192) < 0.006
    True
    """
    if work not in _MAKERS:
        raise UnknownName("kind of kernel", work, _MAKERS)
    try:
        made = _MAKERS[work](**shape)
    except TypeError as error:
        raise ScenarioError(f"{work}: {str(error).replace(f'_{work}()', 'its shape')}") from None
    return cost(made, gpu if isinstance(gpu, GPU) else load_gpu(gpu), dtype).seconds
