"""
Memory of hosts and drives: how large they are, how fast, and the ways from a GPU to them.

A host's memory is one resource that all who copy or compute there share. What one rank keeps there lies in one NUMA
domain, where its process first touched it, so a rank alone goes as fast as one domain. Files are striped over all
drives that a rank's host reaches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from trainsim.documents.catalogue import shipped
from trainsim.units import parse_bandwidth, parse_bytes, parse_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The memory of one socket: capacity in bytes, bandwidth on paper in bytes/s and the part of it that is reached,
    NUMA domains, and the speed of one thread beside that of an EPYC 7742."""

    memory: float
    bandwidth: float
    reachable: float
    numa: int
    single_thread: float = 1.0

    @property
    def reached(self) -> float:
        """Bytes/s that everybody together reaches."""
        return self.bandwidth * self.reachable

    @property
    def alone(self) -> float:
        """Bytes/s that one rank reaches: its memory lies in one NUMA domain."""
        return self.reached / self.numa


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """One drive: bytes/s read and written, capacity in bytes."""

    read: float
    write: float
    capacity: float


@cache
def _data() -> Mapping[str, Any]:
    return shipped("hardware", "storage").data


@cache
def processors() -> Mapping[str, Host]:
    """Memory of every known processor by name.

    >>> processors()["epyc-7742"].numa
    4
    """
    reachable = float(_data()["constants"]["memory_reachable"]["value"])
    return MappingProxyType(
        {
            name: Host(
                memory=parse_bytes(p["memory"]),
                bandwidth=parse_bandwidth(p["bandwidth"]),
                reachable=reachable,
                numa=p["numa"],
                single_thread=p["single_thread"],
            )
            for name, p in _data()["processors"].items()
        }
    )


@cache
def drives() -> Mapping[str, Drive]:
    """Every known kind of drive by name.

    >>> drives()["gen5"].read
    6000000000.0
    """
    return MappingProxyType(
        {
            name: Drive(
                read=parse_bandwidth(d["read"]), write=parse_bandwidth(d["write"]), capacity=parse_bytes(d["capacity"])
            )
            for name, d in _data()["drives"].items()
        }
    )


def default_processor(link: str) -> str:
    """The processor of hosts that hang on links of kind *link*, where a topology does not say; "" if none is known."""
    return str(_data()["default_processor"].get(link, ""))


def default_drive(link: str) -> str:
    """The kind of drives that hang on links of kind *link*, where a topology does not say; "" if none is known."""
    return str(_data()["default_drive"].get(link, ""))


@cache
def storage_latency(what: str) -> float:
    """Seconds before the first byte of a ``copy``, a ``step`` on the host, or an access to a ``drive``."""
    return parse_time(_data()["constants"][f"{what}_latency"]["value"])
