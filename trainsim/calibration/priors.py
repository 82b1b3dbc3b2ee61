"""What is believed before anything is measured: ``priors.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from trainsim.documents.catalogue import shipped


@cache
def priors(fit: str) -> Mapping[str, float]:
    """The priors of a fit, by the name of its unknown; ``noise`` of a measurement, ``told`` of what is written.

    >>> priors("steps")["clock"] > priors("steps")["noise"]
    True
    """
    return {name: float(entry["value"]) for name, entry in shipped("calibration", "priors").data[fit].items()}
