"""
What the host takes on another processor than the one with which a profile's times were found.
"""

from __future__ import annotations

from dataclasses import replace

from trainsim.frameworks import Framework

TIMES = (
    "seconds_per_operation",
    "seconds_per_hook",
    "seconds_per_counted_tensor",
    "recompute_seconds",
    "step_seconds",
)


def paced(framework: Framework, factor: float) -> Framework:
    """*framework* where all that its host does takes *factor* times as long.

    >>> from trainsim.frameworks import load_framework
    >>> neutral = load_framework("neutral")
    >>> paced(neutral, 2.0).host.seconds_per_operation / neutral.host.seconds_per_operation
    2.0
    """
    host = framework.host
    return replace(framework, host=replace(host, **{name: factor * getattr(host, name) for name in TIMES}))
