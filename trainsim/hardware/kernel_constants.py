"""
How well a GPU runs kernels: measured constants of one architecture, from ``kernels/<name>.yaml``.

A file names its ``base`` and says only what differs; every constant has its source there. Times in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import yaml

from trainsim.errors import UnknownName


class Tile(NamedTuple):
    """Output block of a GEMM kernel and the part of the peak that a full wave of it reaches."""

    m: int
    n: int
    efficiency: float


class Rate(NamedTuple):
    """A memory-bound kernel: fixed seconds, and the part of the memory bandwidth that it reaches."""

    overhead: float
    efficiency: float


class Curve(NamedTuple):
    """Efficiency of an attention kernel over length S: ``efficiency * S/(S + ramp) * S/(S + block)``."""

    efficiency: float
    ramp: float
    block: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmConstants:
    """Model of a matrix product: tiles in waves, against memory traffic, joined by a fourth-power sum."""

    overhead: float
    tiles: tuple[Tile, ...]
    fill: float  # depth k that filling the pipeline of a tile costs
    wave_sharpness: float  # 0: last waves cost a whole wave; 1: only their share
    memory_efficiency: float
    split_k: float  # a weight gradient may be split over this many blocks ...
    split_k_depth: float  # ... of at least this depth
    layout: dict[str, float]  # speed by role
    misaligned: dict[str, float]  # speed where a contiguous size is no multiple of ``alignment``
    alignment: int
    speedup: dict[str, float]  # achieved over 16 bits, by precision
    sustained: float  # clock under a long load over that of a short burst


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConstants:
    """Curves by kernel and head size (the nearest of 64 and 128), and a wave term over blocks of queries."""

    curves: dict[str, dict[int, Curve]]
    fallback: str  # curve of a kernel that nobody measured here
    query_block: int
    wave_sharpness: float
    overhead: dict[str, float]  # by direction
    sustained: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelConstants:
    """Everything that costs know about an architecture."""

    name: str
    source: str
    gemm: GemmConstants
    attention: AttentionConstants
    memory_bound: dict[str, Rate] = field(default_factory=dict)
    memory_scale: float  # measured over modelled traffic in whole training steps
    memory_sm_share: float  # SMs that a kernel needs to saturate the memory


@cache
def load_kernels(name: str) -> KernelConstants:
    """The constants of ``hardware/kernels/<name>.yaml``. Raises UnknownName.

    >>> load_kernels("ampere").gemm.tiles[0]
    Tile(m=256, n=128, efficiency=0.7545)
    """
    data = _read(name)
    gemm, attention = data["gemm"], data["attention"]
    rates = data["memory_bound"]
    return KernelConstants(
        name=name,
        source=" ".join(data["source"].split()),
        gemm=GemmConstants(**{**gemm, "tiles": tuple(Tile(*t) for t in gemm["tiles"])}),
        attention=AttentionConstants(
            **{
                **attention,
                "curves": {
                    kernel: {int(size): Curve(*curve) for size, curve in sizes.items()}
                    for kernel, sizes in attention["curves"].items()
                },
            }
        ),
        memory_bound={kind: Rate(*rate) for kind, rate in rates["kinds"].items()},
        memory_scale=rates["scale"],
        memory_sm_share=rates["sm_share"],
    )


def kernel_names() -> tuple[str, ...]:
    """All architectures with constants."""
    found = (p.name for p in (files(__package__) / "kernels").iterdir())
    return tuple(sorted(n.removesuffix(".yaml") for n in found if n.endswith(".yaml")))


def _read(name: str) -> dict[str, Any]:
    if name not in kernel_names():
        raise UnknownName("set of kernel constants", name, kernel_names())
    data: dict[str, Any] = yaml.safe_load((files(__package__) / "kernels" / f"{name}.yaml").read_text())
    base = data.pop("base", None)
    return _merged(_read(base), data) if base else data


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """*over* on top of *base*, mappings inside mappings too."""
    both = dict(base)
    for key, value in over.items():
        old = both.get(key)
        both[key] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return both
