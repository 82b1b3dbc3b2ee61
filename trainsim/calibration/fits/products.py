"""Products of a trace: the clock that a GPU sustains in your steps, from their sizes and times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trainsim.calibration.answer import Compared, Constant, FitAnswer
from trainsim.calibration.bases import Bases, other_gpus
from trainsim.calibration.fit import ConstantFit, register
from trainsim.calibration.fits.least_squares import Floats, solve
from trainsim.calibration.fits.speeds import gpu_with, written_gpu
from trainsim.calibration.measurements import KernelTiming, Measurements
from trainsim.calibration.priors import priors
from trainsim.costs.kernels import cost
from trainsim.errors import TrainsimError
from trainsim.hardware.devices import device_called
from trainsim.hardware.gpu import GPU, load_gpu
from trainsim.models.operations import Gemm

LARGE = 16384
"""Rows and columns of a product that shows what a GPU can do."""


def fit(measured: Measurements, bases: Bases, phase: Callable[[str], None]) -> FitAnswer:
    """An override of the GPU that *bases* names, or of the one that the traces do."""
    phase("fitting products")
    base = gpu_of(measured, bases)
    if base is None:
        called = f"unknown GPU {', '.join(measured.gpus)}" if measured.gpus else "no trace names its GPU"
        return FitAnswer(warnings=(f"products were left out: {called}; name the nearest with --base",))
    gpu = load_gpu(base)
    kernels = [timing for timing in measured.kernels if not timing.alone]
    able = [timing for timing in kernels if _seconds(timing, gpu, 1.0) is not None]
    timings, impossible = possible(able, gpu)
    if not timings:
        why = impossible or (f"products were left out: none is in a precision of {gpu.name}",)
        return FitAnswer(warnings=(*why, *other_gpus(measured.gpus, gpu.name)))
    prior = priors("steps")
    weights = np.sqrt([timing.seconds * timing.count for timing in timings])
    noise = prior["noise"] * weights.max() / weights  # what takes longest counts most

    def residuals(at: Floats) -> Floats:
        return np.array([np.log((_seconds(t, gpu, float(np.exp(at[0]))) or 1.0) / t.seconds) for t in timings])

    factor = float(np.exp(solve(residuals, np.array([prior["clock"]]), noise).at[0]))
    before = gpu.kernels.sustained.gemm
    after = float(f"{before * min(factor, _most(gpu)):.4g}")
    held = () if factor <= _most(gpu) else (_too_fast(timings, gpu, before * factor, after),)
    return FitAnswer(
        constants=(Constant(key="kernels.sustained.gemm", before=before, after=after),),
        compared=tuple(_compared(timing, gpu, after / before) for timing in timings),
        warnings=(*impossible, *held, *other_gpus(measured.gpus, gpu.name)),
        documents={"gpu": gpu_with(base, {"sustained": {"gemm": after}})},
    )


def possible(timings: Sequence[KernelTiming], gpu: GPU) -> tuple[list[KernelTiming], tuple[str, ...]]:
    """Those of *timings* that *gpu* can have taken, and what to say of products that are faster than its datasheet."""
    slow, warnings = [], []
    for timing in timings:
        peak = gpu.flops.get(timing.precision)
        if isinstance(timing.work, Gemm) and peak and timing.seconds * peak < timing.work.flops:
            times = timing.work.flops / (timing.seconds * peak)
            warnings.append(
                f"{_words(timing)} was left out: {timing.seconds * 1e6:.4g} us is {times:.3g} times as fast as the "
                f"datasheet of {gpu.name} allows; is that the GPU?"
            )
        else:
            slow.append(timing)
    return slow, tuple(warnings)


def _most(gpu: GPU) -> float:
    """The factor on the clock with which a large product runs at the speed of the datasheet."""
    precision = next(name for name in ("bf16", "fp16") if name in gpu.flops)
    large = Gemm("large", LARGE, LARGE, LARGE)
    return cost(large, gpu, precision).seconds * gpu.flops[precision] / large.flops


def _too_fast(timings: Sequence[KernelTiming], gpu: GPU, wanted: float, kept: float) -> str:
    """What to say where large products would be faster than the datasheet, with the product that asks most."""
    worst = max(timings, key=lambda timing: (_seconds(timing, gpu, 1.0) or 0.0) / timing.seconds)
    return (
        f"kernels.sustained.gemm = {wanted:.4g} would make large products faster than the datasheet and was held at "
        f"{kept:.4g}; most of all {_words(worst)} in {worst.seconds * 1e6:.4g} us asks for it"
    )


def gpu_of(measured: Measurements, bases: Bases) -> Any:
    """The GPU to start from; None where nothing tells."""
    if bases.gpu:
        return bases.gpu
    if bases.scenario is not None:
        return written_gpu(bases.scenario)
    device = next(filter(None, map(device_called, measured.gpus)), None)
    return device.gpu if device else None


def _seconds(timing: KernelTiming, gpu: GPU, factor: float) -> float | None:
    """What a product takes in a step with another clock; None where the GPU does not do it."""
    sustained = gpu.kernels.sustained
    faster = replace(gpu.kernels, sustained=sustained._replace(gemm=sustained.gemm * factor))
    try:
        return cost(timing.work, replace(gpu, kernels=faster), timing.precision).seconds
    except TrainsimError:
        return None


def _compared(timing: KernelTiming, gpu: GPU, factor: float) -> Compared:
    before, after = (_seconds(timing, gpu, f) or timing.seconds for f in (1.0, factor))
    return Compared(what=_words(timing), measured=timing.seconds, before=before, after=after)


def _words(timing: KernelTiming) -> str:
    work = timing.work
    sizes = f"{work.m} x {work.n} x {work.k}" if isinstance(work, Gemm) else work.name
    return f"{sizes} in {timing.precision}{f', {timing.count} times' if timing.count > 1 else ''}"


def _applies(measured: Measurements) -> bool:
    return any(not timing.alone for timing in measured.kernels)


register(ConstantFit(name="products", applies=_applies, run=fit))
