"""
What holds for the boards of all GPUs: the memory that programs see, and the clock that a limit on the power leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from trainsim.documents.catalogue import shipped


@cache
def _data() -> Mapping[str, Any]:
    return shipped("hardware", "boards").data


def usable_share() -> float:
    """The part of a GPU's memory that PyTorch reports, where its file does not say."""
    return float(_data()["usable_memory"]["value"])


def least_power() -> float:
    """The lowest limit over the TDP for which `clock_under` holds."""
    return float(_data()["power"]["least"]["value"])


def clock_under(limit: float) -> float:
    """The clock of long matrix work under a power *limit*, both over what they are without one.

    Board power is a fixed part and one that goes as a power of the clock; all constants are in ``boards.yaml``.

    >>> clock_under(1.0), round(clock_under(500 / 700), 3)
    (1.0, 0.863)
    """
    power = _data()["power"]
    fixed, exponent = float(power["fixed"]["value"]), float(power["exponent"]["value"])
    return float(min(1.0, ((limit - fixed) / (1.0 - fixed)) ** (1.0 / exponent)))
