"""
What the name of a GPU says of the links around it, and what its architecture says of its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from trainsim.documents.catalogue import Spec
from trainsim.documents.document import read_file
from trainsim.documents.origin import Origin
from trainsim.hardware.constants import link_kinds
from trainsim.hardware.gpu import GPU, GPUS
from trainsim.units import parse_bandwidth

GENERIC = ("nvlink", "pcie")
"""Kinds of link whose generation is that of the GPU."""


@cache
def parts() -> Mapping[str, Any]:
    """The table ``parts.yaml``."""
    path = Path(__file__).with_name("parts.yaml")
    return read_file(path, shown=path.name).data


def gpu_with_id(device: str) -> str | None:
    """The GPU of the catalogue with a PCI device id.

    >>> gpu_with_id("0x20B2"), gpu_with_id("0x0000")
    ('a100-sxm4-80gb', None)
    """
    found = parts()["devices"].get(device.lower())
    return str(found) if found else None


def architecture(sm: int) -> Mapping[str, Any] | None:
    """The kinds of link of GPUs of compute capability *sm*, as NCCL writes it.

    >>> architecture(90)["nvlink"], architecture(12)
    ('nvlink4', None)
    """
    return next((entry for entry in parts()["generations"].values() if sm in entry["sm"]), None)


def gpus_of(sm: int) -> list[str]:
    """The GPUs of the catalogue that have compute capability *sm*."""
    named = [name for name, entry in parts()["generations"].items() if sm in entry["sm"]]
    return [name for name in GPUS.names() if _kernels(name) in named]


def generation_of(gpu: Spec, origin: Origin | None = None) -> Mapping[str, Any]:
    """The kinds of link around a *gpu*; empty where nobody knows. Raises what `load_gpu` raises.

    >>> generation_of("a40")["pcie"], generation_of("mi250x")
    ('pcie4', {})
    """
    found: Mapping[str, Any] = parts()["generations"].get(_kernels(gpu, origin), {})
    return found


def physics_of(kind: str, lanes: int, generation: Mapping[str, Any]) -> dict[str, Any]:
    """What a topology says of a link of *lanes* (0: the usual number) of a generic *kind*.

    >>> physics_of("nvlink", 12, generation_of("a100-sxm4-80gb")), physics_of("pcie", 16, generation_of("l4"))
    ({'kind': 'nvlink3', 'lanes': 12}, {'kind': 'pcie4'})
    """
    name = str(generation[kind])
    if kind == "nvlink" and "lane" in generation and lanes:
        return {"kind": name, "bandwidth": f"{parse_bandwidth(generation['lane']) * lanes / 1e9:g}GB/s"}
    return {"kind": name} if lanes in (0, link_kinds()[name].lanes) else {"kind": name, "lanes": lanes}


def rated(gpu: GPU, lanes: int, of: int) -> dict[str, Any]:
    """What a topology says of *lanes* of the *of* links of a GPU whose generation nobody knows.

    >>> from trainsim.hardware.gpu import load_gpu
    >>> rated(load_gpu("mi250x"), 1, 8)
    {'kind': 'infinity4', 'bandwidth': '43.75GB/s'}
    """
    return {"kind": "infinity4", "bandwidth": f"{gpu.nvlink_bandwidth * lanes / of / 1e9:g}GB/s"}


def socket_link(vendor: str, model: int) -> dict[str, Any]:
    """What joins sockets whose processors are of a *vendor* and *model* of /proc/cpuinfo.

    >>> socket_link("AuthenticAMD", 49), socket_link("GenuineIntel", 143)
    ({'kind': 'xgmi'}, {'kind': 'upi', 'lanes': 4})
    """
    known = parts()["sockets"].get(vendor, [])
    entry = next((one for one in known if model <= one["newest"]), parts()["unknown_socket"])
    return {key: entry[key] for key in ("kind", "lanes") if key in entry}


def _kernels(gpu: Spec, origin: Origin | None = None) -> str:
    """The set of kernel constants that a GPU names, or that its own stands on."""
    said = GPUS.find(gpu, origin=origin).data.get("kernels")
    base = said.get("base") if isinstance(said, Mapping) else said
    return base if isinstance(base, str) else ""
