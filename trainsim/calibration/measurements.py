"""
What was measured, as readers hand it to fits: plain frozen values in SI units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainsim.models.operations import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveSweep:
    """One collective over one group, buffer by buffer: ``nbytes`` are NCCL's buffers, ``seconds`` one operation each.

    ``ranks`` GPUs on ``nodes`` hosts, 0 where the file does not say. ``algorithm`` is one that was forced. ``gpu`` is
    what the device calls itself. Where ``one_launcher`` holds, one thread launched on several GPUs, and small buffers
    tell its pace; ``traced`` times are of steps, where ranks wait for each other too.
    """

    operation: str
    ranks: int
    nodes: int
    nbytes: tuple[float, ...]
    seconds: tuple[float, ...]
    file: str
    gpu: str = ""
    algorithm: str = "auto"
    one_launcher: bool = False
    traced: bool = False
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTimes:
    """What a trace says of the host: ``seconds_per_launch`` from one launch of a thread to the next (median),
    ``launches`` counted for it, ``delay`` from a launch to its kernel where the GPU was idle, ``waiting`` the part of
    kernels that began so, ``steps`` seconds of each step, ``kernels`` per step, ``busy`` the part of the steps in which
    a kernel ran."""

    file: str
    seconds_per_launch: float
    launches: int
    delay: float
    waiting: float
    steps: tuple[float, ...]
    kernels: float
    busy: float
    blocking: bool = False
    graph: bool = False
    attention: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTiming:
    """A kernel, how long it took (s), in what precision, and how often that was seen; ``alone`` in a short burst, else
    in a step of training."""

    work: Work
    seconds: float
    precision: str
    count: int = 1
    file: str = ""
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A row of a table of steps: ``changes`` of a scenario by dotted path, and what was measured, one of both."""

    changes: Mapping[str, Any] = field(hash=False)
    step_seconds: float | None
    tokens_per_s_per_gpu: float | None
    place: str
    name: str = ""

    @property
    def title(self) -> str:
        """Its name, else what it changes, else where it stands."""
        return self.name or ", ".join(f"{p.rpartition('.')[2]} {v}" for p, v in self.changes.items()) or self.place


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """All that one file says, or several. ``clocks`` are speeds of products under a long load over those of a burst."""

    sweeps: tuple[CollectiveSweep, ...] = ()
    hosts: tuple[HostTimes, ...] = ()
    kernels: tuple[KernelTiming, ...] = ()
    steps: tuple[MeasuredStep, ...] = ()
    clocks: tuple[float, ...] = ()
    gpus: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def together(parts: Iterable[Measurements]) -> Measurements:
    """The measurements of several files.

    >>> together([Measurements(gpus=("a",)), Measurements(gpus=("b",))]).gpus
    ('a', 'b')
    """
    parts = list(parts)
    return Measurements(
        **{name: tuple(x for part in parts for x in getattr(part, name)) for name in Measurements.__slots__}
    )
