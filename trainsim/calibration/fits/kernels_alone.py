"""
Kernels that were timed alone: how fast products, attention and memory-bound kernels of a GPU are, over the nearest
architecture; and what a long load makes of its clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from trainsim.calibration.answer import Compared, Constant, FitAnswer
from trainsim.calibration.bases import Bases
from trainsim.calibration.fit import ConstantFit, register
from trainsim.calibration.fits.products import gpu_of, possible
from trainsim.calibration.fits.speeds import gpu_with
from trainsim.calibration.measurements import KernelTiming, Measurements
from trainsim.costs.kernels import alone
from trainsim.errors import ScenarioError
from trainsim.hardware.gpu import GPU, load_gpu
from trainsim.models.operations import Attention, Gemm, MemoryBound

FACTORS = 6
"""Rounds in which a factor is found that makes the middle of the errors zero: a part of a kernel goes with no rate."""


def fit(measured: Measurements, bases: Bases, phase: Callable[[str], None]) -> FitAnswer:
    """An override of the GPU that *bases* names, or of the nearest one. Raises ScenarioError where none is known."""
    phase("fitting kernels")
    base = gpu_of(measured, bases)
    if base is None:
        called = ", ".join(measured.gpus)
        raise ScenarioError(
            f"{called}: this GPU is not known here; name the nearest with --base (`trainsim list gpus`)"
        )
    gpu = load_gpu(base)
    timings, impossible = possible([_named(timing, gpu) for timing in measured.kernels if timing.alone], gpu)
    constants: list[Constant] = []
    document: dict[str, Any] = {}
    for part in (_products, _attention, _memory_bound):
        document |= part(timings, gpu, constants)
    if measured.clocks:
        before, after = gpu.kernels.sustained.gemm, _rounded(min(1.0, median(measured.clocks)))
        document["sustained"] = {"gemm": after}
        constants.append(Constant(key="kernels.sustained.gemm", before=before, after=after))
    made = gpu_with(base, document)
    after_gpu = load_gpu(made)
    return FitAnswer(
        constants=tuple(constants),
        compared=tuple(
            Compared(what=_words(t), measured=t.seconds, before=_seconds(t, gpu), after=_seconds(t, after_gpu))
            for t in timings
        ),
        warnings=impossible,
        kept=(("what a step of training adds to kernels alone (run)", "kernels alone do not tell it"),),
        documents={"gpu": {**made, "source": f"trainsim calibrate --measure on {', '.join(measured.gpus)}"}},
    )


def _named(timing: KernelTiming, gpu: GPU) -> KernelTiming:
    """Attention under the name of the kernel that PyTorch takes there."""
    if not isinstance(timing.work, Attention):
        return timing
    attention = gpu.kernels.attention
    usual = attention.usual if attention.usual in attention.curves else attention.fallback
    return replace(timing, work=replace(timing.work, kernel=usual))


def _products(timings: Sequence[KernelTiming], gpu: GPU, constants: list[Constant]) -> dict[str, Any]:
    products = [timing for timing in timings if isinstance(timing.work, Gemm)]
    if not products:
        return {}
    before = gpu.kernels.gemm.speed

    def faster(factor: float) -> GPU:
        return replace(gpu, kernels=replace(gpu.kernels, gemm=replace(gpu.kernels.gemm, speed=before * factor)))

    after = _rounded(before * _factor(products, faster))
    constants.append(Constant(key="kernels.gemm.speed", before=before, after=after))
    return {"gemm": {"speed": after}}


def _attention(timings: Sequence[KernelTiming], gpu: GPU, constants: list[Constant]) -> dict[str, Any]:
    """Curves of the kernel that was timed: forward as it was, both passes as they were together."""
    passes = [timing for timing in timings if isinstance(timing.work, Attention)]
    if not passes:
        return {}
    kernel = passes[0].work.kernel if isinstance(passes[0].work, Attention) else ""
    curves = gpu.kernels.attention.curves[kernel]
    out: dict[str, dict[int, list[float]]] = {}
    for name, kinds in (("together", ("forward", "backward")), ("forward", ("forward",))):
        known = getattr(curves, name) or curves.together
        out[name] = {}
        for size, curve in known.items():
            ratio = _times_as_fast(passes, gpu, size, kinds)
            out[name][size] = [_rounded(curve.efficiency * ratio), curve.ramp, curve.block]
            if ratio != 1.0:
                key = f"kernels.attention.curves.{kernel}.{name}.{size}"
                constants.append(Constant(key=key, before=curve.efficiency, after=out[name][size][0]))
    return {"attention": {"curves": {kernel: out}}}


def _times_as_fast(passes: Sequence[KernelTiming], gpu: GPU, size: int, directions: Sequence[str]) -> float:
    """How many times as fast attention of a head size is as simulated; 1 where it was not timed."""
    sums: dict[tuple[int, int], list[float]] = {}
    for timing in passes:
        work = timing.work
        if isinstance(work, Attention) and work.head_dim == size and work.direction in directions:
            both = sums.setdefault((work.batch, work.queries), [0.0, 0.0])
            both[0] += _seconds(timing, gpu)
            both[1] += timing.seconds
    ratios = [simulated / seconds for simulated, seconds in sums.values() if seconds > 0]
    return median(ratios) if ratios else 1.0


def _memory_bound(timings: Sequence[KernelTiming], gpu: GPU, constants: list[Constant]) -> dict[str, Any]:
    """Own seconds and the part of the bandwidth of each kind, by a line through its sizes."""
    kinds: dict[str, list[float]] = {}
    variants: dict[str, dict[str, list[float]]] = {}
    found: dict[tuple[str, str], list[KernelTiming]] = {}
    for timing in timings:
        if isinstance(timing.work, MemoryBound):
            found.setdefault((timing.work.kind, timing.work.variant), []).append(timing)
    for (kind, variant), rows in found.items():
        line = _line(rows, gpu)
        if line is None:
            continue
        where = kinds if variant == "tuned" else variants.setdefault(variant, {})
        where[kind] = [_rounded(value) for value in line]
        place = f"kernels.memory_bound.{'kinds' if variant == 'tuned' else f'variants.{variant}'}.{kind}"
        before = gpu.kernels.rate(kind, variant)
        constants.append(Constant(key=place, before=before.efficiency, after=where[kind][1]))
    parts = {"kinds": kinds, "variants": variants}
    return {"memory_bound": {name: part for name, part in parts.items() if part}} if found else {}


def _line(rows: Sequence[KernelTiming], gpu: GPU) -> tuple[float, float] | None:
    """(Seconds of its own, part of the bandwidth) of kernels of several sizes; None if larger ones take no longer."""
    rows = sorted(rows, key=lambda row: row.seconds)
    nbytes = [row.work.nbytes for row in rows if isinstance(row.work, MemoryBound)]
    if len(rows) < 2 or nbytes[-1] <= nbytes[0] or rows[-1].seconds <= 0:
        return None
    weights = 1.0 / np.array([row.seconds for row in rows])
    slope, own = np.polyfit(nbytes, [row.seconds for row in rows], 1, w=weights)
    if slope <= 0:
        return None
    return max(float(own), 0.0), min(1.0, 1.0 / (float(slope) * gpu.memory_bandwidth))


def _factor(timings: Sequence[KernelTiming], faster: Callable[[float], GPU]) -> float:
    """The factor with which half of *timings* are simulated too fast, and half too slow."""
    factor = 1.0
    for _ in range(FACTORS):
        gpu = faster(factor)
        factor *= median(_seconds(timing, gpu) / timing.seconds for timing in timings)
    return factor


def _seconds(timing: KernelTiming, gpu: GPU) -> float:
    return alone(timing.work, gpu, timing.precision).seconds


def _words(timing: KernelTiming) -> str:
    work = timing.work
    if isinstance(work, Gemm):
        return f"product {work.m} x {work.n} x {work.k}"
    if isinstance(work, Attention):
        return f"attention {work.direction}, {work.queries} tokens, heads of {work.head_dim}"
    return f"{work.kind}, {work.nbytes / 2**20:,.0f} MiB"


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _applies(measured: Measurements) -> bool:
    return any(timing.alone for timing in measured.kernels)


register(ConstantFit(name="kernels-alone", applies=_applies, run=fit))
