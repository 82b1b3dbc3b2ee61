"""
How far times of kernels alone are from what was measured: ``errors.yaml``, made by ``python -m benchmarks.kernels``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from trainsim.documents.catalogue import shipped
from trainsim.hardware.gpu import GPU, load_gpu


class KernelError(NamedTuple):
    """Errors of a kind of kernel on one GPU against ``measured`` times of ``source``.

    ``median`` and ``p90`` (which nine in ten stay below) are of their sizes, ``bias`` is the median with its sign:
    below 0 is too fast. All are parts of one.
    """

    what: str
    gpu: str
    measured: int
    median: float
    p90: float
    bias: float
    source: str


def errors_alone(gpu: GPU) -> tuple[KernelError, ...]:
    """The errors on *gpu*, or on the GPUs whose set of kernel constants it shares where nobody measured it.

    >>> [e.what for e in errors_alone(load_gpu("gb200"))][:2]
    ['STREAM copy', 'STREAM triad']
    """
    table: Mapping[str, Any] = shipped("costs", "errors").data
    names = [gpu.name] if gpu.name in table else [n for n in table if load_gpu(n).kernels.name == gpu.kernels.name]
    return tuple(KernelError(what=what, gpu=name, **row) for name in names for what, row in table[name].items())
