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
from trainsim.costs.standard_attention import STANDARD, standard_attention
from trainsim.costs.types import Cost
from trainsim.documents.catalogue import Spec
from trainsim.hardware.gpu import GPU, load_gpu
from trainsim.hardware.kernel_constants import ALONE, Speeds
from trainsim.models.operations import Attention, Gemm, Work

__all__ = ["Cost", "alone", "cost", "gpu_spread", "kernel_time"]


@lru_cache(maxsize=1 << 16)
def cost(work: Work, gpu: GPU, precision: str, software: Speeds = ALONE) -> Cost:
    """What *work* costs in a step of training on *gpu*, in the job's *precision*, while nothing else runs beside it:
    at the clock of a long load, with what published steps add to kernels alone, at the speeds of a generation of
    *software*.

    >>> cost(Gemm("square", 8192, 8192, 8192), load_gpu("a100-sxm4-80gb"), "bf16").sm
    1.0
    """
    return _priced(work, gpu, precision, gpu.kernels.in_a_step.times(software))


@lru_cache(maxsize=1 << 16)
def alone(work: Work, gpu: GPU, precision: str) -> Cost:
    """What *work* costs as benchmarks measure it: by itself, in a short burst.

    >>> square, h100 = Gemm("square", 8192, 8192, 8192), load_gpu("h100-sxm5-80gb")
    >>> alone(square, h100, "bf16").seconds < cost(square, h100, "bf16").seconds
    True
    """
    return _priced(work, gpu, precision, ALONE)


def _priced(work: Work, gpu: GPU, precision: str, speeds: Speeds) -> Cost:
    if isinstance(work, Gemm):
        return gemm_cost(work, gpu, precision, speeds.gemm)
    if isinstance(work, Attention):
        if work.kernel == STANDARD:
            return _together([_priced(part, gpu, precision, speeds) for part in standard_attention(work)])
        return attention_cost(work, gpu, speeds.attention)
    return memory_bound_cost(work, gpu, speeds.memory_bound)


def _together(parts: list[Cost]) -> Cost:
    """Kernels one after the other as one, with the mean of what they use."""
    seconds = sum(part.seconds for part in parts)
    return Cost(
        seconds,
        sum(part.seconds * part.sm for part in parts) / seconds,
        sum(part.seconds * part.hbm for part in parts) / seconds,
    )


def kernel_time(gpu: Spec | GPU, work: str, /, *, dtype: str = "bf16", **shape: object) -> float:
    """Seconds of one kernel alone, in a short burst as benchmarks measure it; in a training step it may be slower.

    Kinds and their shapes: ``gemm(m, n, k, batch, role, accumulates, grouped)``, ``attention(batch, heads,
    kv_heads, seq, head_dim, value_dim, causal, kernel, direction)``, ``memory_bound(kind, nbytes, variant)``.

    The ``kernel`` of attention is ``sdpa`` (PyTorch's choice, also where it is left out), ``flash1``, ``flash2``,
    ``flash3``, ``xformers``, ``triton``, ``cudnn`` or ``cudnn-fp8`` where they run, or ``eager``, PyTorch's operators
    together; its ``direction`` is forward or backward. The ``variant`` of a memory-bound kernel is that of software
    (``torch``, ``compiled``, ``liger``, ``vllm``); left out it is a tuned one. Sizes are whole numbers, ``nbytes``
    may be text (``"1GiB"``). Raises a TrainsimError that names what is wrong.

    >>> kernel_time("a100-sxm4-80gb", "gemm", m=8192, n=8192, k=8192) < 0.006
    True
    >>> whole = {"batch": 1, "heads": 32, "seq": 8192, "head_dim": 128}
    >>> flash2, flash3 = (kernel_time("h100-sxm5-80gb", "attention", kernel=k, **whole) for k in ("flash2", "flash3"))
    >>> 1.5 < flash2 / flash3 < 2
    True
    """
    machine = gpu if isinstance(gpu, GPU) else load_gpu(gpu)
    return alone(work_of(work, machine, shape), machine, precision_of(dtype)).seconds
