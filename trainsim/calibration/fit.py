"""The registry of fits: each takes the measurements that it knows, and says what follows from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainsim.calibration.answer import FitAnswer
from trainsim.calibration.bases import Bases
from trainsim.calibration.measurements import Measurements
from trainsim.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantFit:
    """``applies`` tells whether there is anything to fit; ``run`` fits it, on top of what is to be calibrated, and
    tells what it is doing."""

    name: str
    applies: Callable[[Measurements], bool]
    run: Callable[[Measurements, Bases, Callable[[str], None]], FitAnswer]


fits: Registry[ConstantFit] = Registry("fit", "trainsim.calibration.fits")
"""The fits that are known, by name."""


def register(fit: ConstantFit) -> ConstantFit:
    """Add *fit* to the registry."""
    return fits.register(fit.name)(fit)
