"""
From a piece of work to seconds on a GPU; each kind of work has its own module.
"""

from __future__ import annotations

from functools import lru_cache

from trainsim.costs.attention import attention_cost
from trainsim.costs.gemm import gemm_cost
from trainsim.costs.memory_bound import memory_bound_cost
from trainsim.costs.request import precision_of, work_of
from trainsim.costs.spread import gpu_spread
from trainsim.costs.types import Cost
from trainsim.documents.catalogue import Spec
from trainsim.hardware.gpu import GPU, load_gpu
from trainsim.models.operations import Attention, Gemm, Work

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


def kernel_time(gpu: Spec | GPU, work: str, /, *, dtype: str = "bf16", **shape: object) -> float:
    """Seconds of one kernel alone. Kinds and their shapes: ``gemm(m, n, k, batch, role, accumulates)``,
    ``attention(batch, heads, kv_heads, seq, head_dim, causal, kernel, direction)``, ``memory_bound(kind, nbytes)``.

    The ``kernel`` of attention is ``sdpa`` (PyTorch's choice, also where it is left out), ``flash1``, ``flash2``,
    ``flash3``, ``xformers``, ``cudnn`` or ``cudnn-fp8`` where they run; its ``direction`` is forward or backward. Sizes
    are whole numbers, ``nbytes`` may be text (``"1GiB"``). Raises a TrainsimError that names what is wrong.

    >>> kernel_time("a100-sxm4-80gb", "gemm", m=8192, n=8192, k=8192) < 0.006
    True
    >>> whole = {"batch": 1, "heads": 32, "seq": 8192, "head_dim": 128}
    >>> flash2, flash3 = (kernel_time("h100-sxm5-80gb", "attention", kernel=k, **whole) for k in ("flash2", "flash3"))
    >>> 1.5 < flash2 / flash3 < 2
    True
    """
    machine = gpu if isinstance(gpu, GPU) else load_gpu(gpu)
    return cost(work_of(work, machine, shape), machine, precision_of(dtype)).seconds
