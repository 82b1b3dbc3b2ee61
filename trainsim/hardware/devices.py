"""Which GPU and which machine a device's own name stands for: ``devices.yaml``."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from trainsim.documents.catalogue import shipped


class Device(NamedTuple):
    """A GPU of the catalogue, and the topology that machines with it usually have."""

    gpu: str
    topology: str


@cache
def _known() -> tuple[tuple[re.Pattern[str], Device], ...]:
    entries = shipped("hardware", "devices").data["devices"]
    return tuple((re.compile(e["name"], re.IGNORECASE), Device(e["gpu"], e["topology"])) for e in entries)


def device_called(name: str) -> Device | None:
    """The device that calls itself *name*, if it is known.

    >>> device_called("NVIDIA H100 80GB HBM3")
    Device(gpu='h100-sxm5-80gb', topology='dgx_h100')
    >>> device_called("Tesla K80") is None
    True
    """
    return next((device for pattern, device in _known() if pattern.search(name)), None)
