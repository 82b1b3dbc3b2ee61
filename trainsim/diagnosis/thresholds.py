"""From when on something is called a cause: ``thresholds.yaml``, with the source or reason of each."""

from __future__ import annotations

from functools import cache

from trainsim.documents.catalogue import shipped


@cache
def threshold(name: str) -> float:
    """A threshold by its name.

    >>> threshold("straggling")
    1.1
    """
    return float(shipped("diagnosis", "thresholds").data[name]["value"])
