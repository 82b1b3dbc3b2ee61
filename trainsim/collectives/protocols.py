"""
Protocols of rings and trees by name, as NCCL_PROTO asks for one: LL, LL128 and Simple of NCCL's tuning model.

Left to itself, a library takes the one that is quickest for the size; the times of ``auto`` are fitted to what comes of
that. A named protocol has its own latency per step and its own part of the links' rate, whatever the size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from trainsim.collectives import PlacedGroups, algorithms
from trainsim.collectives.latency import scaled
from trainsim.collectives.traffic import Rates, carried
from trainsim.contracts.system import Pattern
from trainsim.errors import InvalidPlan, UnknownName
from trainsim.hardware.constants import protocol_table


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolTimes:
    """One protocol of one kind of algorithm: seconds to start, per step within a domain and between domains, and the
    part of the links' rate that is left for data. ``chunks``: whether large buffers fill a pipeline."""

    base: float
    step: float
    network_step: float
    rate: float
    chunks: bool


@cache
def protocols() -> Mapping[str, Mapping[str, ProtocolTimes]]:
    """By name of the protocol, by name of the algorithm.

    >>> protocols()["ll128"]["ring"].base
    1.4e-05
    """
    return {
        name: {algorithm: ProtocolTimes(**row) for algorithm, row in rows.items()}
        for name, rows in protocol_table().items()
    }


def find_protocol(name: str) -> str:
    """The protocol called *name*, in any case. Raises UnknownName."""
    if name.lower() not in protocols():
        raise UnknownName("protocol of collectives", name, [*protocols(), "auto"])
    return name.lower()


def split_protocol(algorithm: str) -> tuple[str, str]:
    """(Algorithm, protocol) of what people write: ``ring/LL128``; empty where no protocol is named. Raises UnknownName.

    >>> split_protocol("Ring/LL128"), split_protocol("auto")
    (('ring', 'll128'), ('auto', ''))
    """
    if not isinstance(algorithm, str):
        raise InvalidPlan(f"algorithm {algorithm!r}: give a name, such as auto, ring or ring/ll128")
    given, _, protocol = algorithm.partition("/")
    known = {name.lower(): name for name in algorithms}
    name = "auto" if given.lower() == "auto" else algorithms.canonical(known.get(given.lower(), given))
    return name, "" if protocol in ("", "auto") else find_protocol(protocol)


def with_protocol(placement: PlacedGroups, operation: str, name: str, protocol: str, rates: Rates) -> Pattern:
    """How the algorithm called *name* carries out *operation* with a *protocol*.

    Raises InvalidPlan where it knows no protocols.
    """
    rows, algorithm = protocols()[protocol], algorithms[name]
    if algorithm.steps is None:
        raise InvalidPlan(f"protocol {protocol}: {name} has no choice of protocols; {' and '.join(rows)} have")
    kind, steps, hops = algorithm.steps(operation, placement)
    row = rows[kind]
    made = carried(placement, operation, algorithm, rates)
    seconds = scaled(placement, row.base + row.step * steps + row.network_step * hops)
    return replace(
        made,
        bandwidth=made.bandwidth * row.rate,
        latency=seconds,
        ramp=made.ramp if row.chunks else np.zeros_like(made.ramp),
        chain=np.zeros_like(made.chain),
    )
