"""``trainsim calibrate --measure``: kernels and copies timed on the machine at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import product
from typing import Any

from trainsim.calibration.measurements import KernelTiming, Measurements
from trainsim.calibration.torch_device import TorchDevice
from trainsim.errors import ScenarioError
from trainsim.models.operations import Attention, Gemm, MemoryBound
from trainsim.units import format_bandwidth

PRECISION = "bf16"
ROWS = (512, 2048, 8192, 16384)
WIDTHS = ((4096, 4096), (14336, 4096), (4096, 14336), (32000, 4096))
"""(n, k) of products: the linear layers of models of 7 to 8 billion parameters, and a head."""
HEADS = ((32, 64), (32, 128))
LENGTHS = (1024, 4096, 8192)
SIZES = (1 << 23, 1 << 28, 1 << 30)
"""Bytes that memory-bound kernels move: small ones tell their own time, large ones their rate."""
KINDS = {"elementwise": "tuned", "gelu": "tuned", "norm": "torch", "softmax": "torch"}
"""Kinds of memory-bound kernels, and whose kernels PyTorch's are."""
LOADED = Gemm("gemm", 8192, 8192, 8192)


def measure_here(phase: Callable[[str], None] = lambda name: None, torch: Any = None) -> Measurements:
    """Times of products, attention, memory-bound kernels and copies on the current GPU.

    *torch* is the module PyTorch; None: the one that is installed. Raises ScenarioError where there is none, or no GPU.
    """
    torch = _installed() if torch is None else torch
    if not torch.cuda.is_available():
        raise ScenarioError("--measure: PyTorch sees no GPU here; run it on a machine with one, or give files instead")
    device = TorchDevice(torch)
    timings = []
    for number, timing in enumerate(_timings(device), 1):
        phase(f"measuring {device.name}: {number} kernels")
        timings.append(timing)
    phase(f"measuring {device.name}: a long load")
    burst, long = device.gemm(LOADED), device.loaded(LOADED)
    phase(f"measuring {device.name}: copies")
    copies = ", ".join(f"{name} {format_bandwidth(rate)}" for name, rate in device.copies().items())
    return Measurements(
        kernels=tuple(timings), clocks=(burst / long,), gpus=(device.name,), facts=(f"{device.name}: copies {copies}",)
    )


def _installed() -> Any:
    try:
        return import_module("torch")
    except ImportError as fault:
        raise ScenarioError(
            f"--measure: PyTorch cannot be imported here ({fault}); install it, or give files instead"
        ) from None


def _timings(device: TorchDevice) -> Iterator[KernelTiming]:
    """All kernels that are timed, one after another."""
    for m, (n, k) in product(ROWS, WIDTHS):
        work = Gemm("gemm", m, n, k)
        yield KernelTiming(work=work, seconds=device.gemm(work), precision=PRECISION, file=device.name, alone=True)
    for (heads, size), length in product(HEADS, LENGTHS):
        passes = [_attention(heads, size, length, direction) for direction in ("forward", "backward")]
        for attention, seconds in zip(passes, device.attention(passes[0]), strict=True):
            yield KernelTiming(work=attention, seconds=seconds, precision=PRECISION, file=device.name, alone=True)
    for (kind, variant), size in product(KINDS.items(), SIZES):
        moved = MemoryBound(kind, kind, float(size), variant=variant)
        seconds = device.memory_bound(moved)
        yield KernelTiming(work=moved, seconds=seconds, precision=PRECISION, file=device.name, alone=True)


def _attention(heads: int, size: int, length: int, direction: str) -> Attention:
    batch = max(1, LENGTHS[-1] // length)
    return Attention("attention", "sdpa", batch, heads, heads, length, length, size, direction=direction)
