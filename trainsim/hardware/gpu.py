"""
A GPU: its datasheet, from ``gpus/<name>.yaml``, and the measured constants of its architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated

from trainsim.documents.building import SOME, Bounds, build, keys_of
from trainsim.documents.catalogue import COMMON, Catalogue, Data, Spec, folder_in
from trainsim.documents.document import Document
from trainsim.documents.origin import Origin
from trainsim.documents.part import DocumentPart
from trainsim.errors import InvalidPlan, TrainsimError
from trainsim.hardware.boards import clock_under, least_power, usable_share
from trainsim.hardware.kernel_constants import KERNELS, KernelConstants, load_kernels
from trainsim.units import format_power, parse_bandwidth, parse_bytes, parse_flops, parse_power

FOLLOW = {"memory": "usable_memory", "tdp": "power"}
"""What a base says of the second no longer holds where the first is another."""


def _holds(base: Data, over: Data) -> Data:
    gone = {follower for leader, follower in FOLLOW.items() if leader in over}
    return {key: value for key, value in base.items() if key not in gone}


GPUS = Catalogue(
    kind="GPU",
    plural="GPUs",
    key="gpus",
    folders=folder_in("hardware", "gpus"),
    holds=_holds,
    inner={"kernels": KERNELS},
)


MOST_BYTES, MOST_WATTS = 1e18, 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class GPU:
    """What one GPU can do. ``measured`` says whether its kernel constants come from this very model of GPU;
    otherwise they are its nearest relative's, scaled by the datasheet.

    ``usable_memory`` is what programs see of ``memory``: the total that PyTorch reports. ``power`` is the limit on the
    board's power, at most ``tdp``; both are 0 where nobody says.
    """

    name: str
    flops: dict[str, Annotated[float, parse_flops, SOME]] = field(hash=False)  # dense peak by precision
    memory: Annotated[float, parse_bytes, SOME]  # on the datasheet
    usable_memory: Annotated[float, parse_bytes, SOME]  # what programs see of it; left out: the usual part
    memory_bandwidth: Annotated[float, parse_bandwidth, SOME]  # on the datasheet
    sms: Annotated[int, Bounds(1)]  # streaming multiprocessors, or what takes their place
    nvlink_bandwidth: Annotated[float, parse_bandwidth]  # of all its NVLinks in one direction; 0: none
    nvls: bool = True  # it lets a switch that can multicast and add up do so (Hopper and later)
    source: str = field(hash=False)
    kernels: KernelConstants = field(hash=False, repr=False)  # a set of kernel constants
    measured: bool = False  # its kernels were measured on this very GPU
    tdp: Annotated[float, parse_power] = 0.0  # of the board; 0: nobody says
    power: Annotated[float, parse_power] = 0.0  # the limit that it runs under; left out: the TDP

    @property
    def clock(self) -> float:
        """The clock of long matrix work under the power limit, over that without one.

        >>> load_gpu("h100-sxm5-80gb").clock, load_gpu({"base": "h100-sxm5-80gb", "power": "350W"}).clock
        (1.0, 0.7211247851537042)
        """
        return clock_under(self.power / self.tdp) if self.power < self.tdp else 1.0

    def peak(self, precision: str) -> float:
        """Dense peak, FLOP/s. Raises InvalidPlan for a precision that the GPU does not have.

        >>> load_gpu("h100-sxm5-80gb").peak("fp8")
        1979000000000000.0
        """
        if precision not in self.flops:
            has = ", ".join(sorted(self.flops))
            raise InvalidPlan(f"{self.name} has no {precision} arithmetic; use one of {has}")
        return self.flops[precision]

    @property
    def half_peak(self) -> float:
        """Dense peak of 16-bit matrix products, FLOP/s."""
        return self.flops.get("bf16") or self.flops["fp16"]


def load_gpu(gpu: Spec, *, origin: Origin | None = None) -> GPU:
    """The GPU that *gpu* means: a name of ``hardware/gpus/``, a path, or a mapping with a ``base``.

    Raises UnknownName, and InvalidData that names the file, the line and the key.

    >>> load_gpu("a100-sxm4-80gb").sms
    108
    >>> load_gpu({"base": "a100-sxm4-80gb", "memory_bandwidth": "4TB/s"}).memory_bandwidth
    4000000000000.0
    """
    document = GPUS.find(gpu, origin=origin)
    return _gpu(document, _kernels_of(document))


def _kernels_of(document: Document) -> KernelConstants:
    """The kernel constants that a GPU names; read anew each time, since they may lie in a file of their own."""
    kernels = document.data.get("kernels")
    if kernels is None:
        raise document.fail(("kernels",), "'kernels' is missing: a set of kernel constants, such as generic")
    try:
        return load_kernels(kernels, origin=document.origin.part(("kernels",)))
    except TrainsimError as error:
        raise document.fail(("kernels",), str(error)) if isinstance(kernels, str) else error from None


@lru_cache(maxsize=64)
def _gpu(document: Document, kernels: KernelConstants) -> GPU:
    section = DocumentPart.open(document, (), document.data, dict.fromkeys([*keys_of(GPU), *COMMON]))
    given = {"usable_memory": _usable_memory(section), "power": _power(section), "kernels": kernels}
    gpu = build(GPU, section, name=document.name, source=section.text("source", ""), **given)
    if not {"bf16", "fp16"} & set(gpu.flops):
        raise section.fail("flops", "needs the peak of bf16 or fp16 at least")
    return gpu


def _usable_memory(section: DocumentPart) -> float:
    """What programs see of the memory, as written or the usual part of it."""
    memory = section.quantity("memory", parse_bytes, low=1.0, high=MOST_BYTES)
    return section.quantity("usable_memory", parse_bytes, memory * usable_share(), low=1.0, high=memory)


def _power(section: DocumentPart) -> float:
    """The limit on the board's power, as written or the TDP."""
    tdp = section.quantity("tdp", parse_power, 0.0, low=0.0, high=MOST_WATTS)
    power = section.quantity("power", parse_power, tdp, low=0.0, high=MOST_WATTS)
    if "power" not in section.data:
        return power
    if not tdp:
        raise section.fail("power", "a limit needs the board's own power to compare it with: give tdp as well")
    least = round(tdp * least_power(), 3)
    if not least <= power <= tdp:
        what = "above the board's TDP" if power > tdp else f"below {format_power(least)}, the lowest that is simulated"
        way = f"a limit is from {format_power(least)} to {format_power(tdp)}; leave it out for none"
        raise section.fail("power", f"{format_power(power)} is {what}: {way}")
    return power


def gpu_names() -> tuple[str, ...]:
    """All GPUs that ship with the package."""
    return GPUS.names()
