"""Products of a trace: the clock that a GPU sustains in your steps, from their sizes and times."""

from __future__ import annotations

from collections.abc import Callable
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


def fit(measured: Measurements, bases: Bases, phase: Callable[[str], None]) -> FitAnswer:
    """An override of the GPU that *bases* names, or of the one that the traces do."""
    phase("fitting products")
    base = gpu_of(measured, bases)
    if base is None:
        called = f"nobody knows the GPU {', '.join(measured.gpus)}" if measured.gpus else "no trace names its GPU"
        return FitAnswer(warnings=(f"products were left out: {called}; name the nearest with --base",))
    gpu = load_gpu(base)
    kernels = [timing for timing in measured.kernels if not timing.alone]
    timings = [timing for timing in kernels if _seconds(timing, gpu, 1.0) is not None]
    if not timings:
        return FitAnswer(warnings=(f"products were left out: none is in a precision of {gpu.name}",))
    prior = priors("steps")
    weights = np.sqrt([timing.seconds * timing.count for timing in timings])
    noise = prior["noise"] * weights.max() / weights  # what takes longest counts most

    def residuals(at: Floats) -> Floats:
        return np.array([np.log((_seconds(t, gpu, float(np.exp(at[0]))) or 1.0) / t.seconds) for t in timings])

    factor = float(np.exp(solve(residuals, np.array([prior["clock"]]), noise).at[0]))
    before = gpu.kernels.sustained.gemm
    after = float(f"{before * factor:.4g}")
    return FitAnswer(
        constants=(Constant(key="kernels.sustained.gemm", before=before, after=after),),
        compared=tuple(_compared(timing, gpu, after / before) for timing in timings),
        warnings=tuple(other_gpus(measured.gpus, gpu.name)),
        documents={"gpu": gpu_with(base, {"sustained": {"gemm": after}})},
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
    work = timing.work
    sizes = f"{work.m} x {work.n} x {work.k}" if isinstance(work, Gemm) else work.name
    times = f", {timing.count} times" if timing.count > 1 else ""
    before, after = (_seconds(timing, gpu, f) or timing.seconds for f in (1.0, factor))
    return Compared(what=f"{sizes} in {timing.precision}{times}", measured=timing.seconds, before=before, after=after)


def _applies(measured: Measurements) -> bool:
    return any(not timing.alone for timing in measured.kernels)


register(ConstantFit(name="products", applies=_applies, run=fit))
