"""Which constant of the model a difference between a simulated and a measured step speaks of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainsim.analysis.kinds import COMMUNICATION
from trainsim.measured.collective_rows import CollectiveKey, CollectiveUse
from trainsim.measured.kernel_categories import ATTENTIONS, MEMORY, PRODUCTS
from trainsim.measured.step_parts import IDLE, StepPart

KEYS = {
    PRODUCTS: "cluster.gpu.kernels.sustained.gemm",
    ATTENTIONS: "cluster.gpu.kernels.sustained.attention",
    MEMORY: "cluster.gpu.kernels.sustained.memory_bound",
    "optimizer": "cluster.gpu.memory_bandwidth",
    "host": "framework.host.seconds_per_operation",
    "offload": "cluster.hosts",
}
"""The key of a scenario that scales each part of a step."""
DURATIONS = frozenset({"framework.host.seconds_per_operation", "cluster.collectives.latency_scale"})
"""Keys that are seconds, or scale them; all others are speeds."""
SMALL = 1 << 20
"""Bytes of a buffer below which its latency takes longer than the bytes."""
WORTH = 0.005
"""Part of the step from which on a difference is worth a line."""

FAR = 4.0
"""A factor beyond which constants are unlikely to be what is wrong."""
HOST_POWER = 4.0
"""What the host adds to a block of kernels grows with about this power of its own time, while that is the shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mending:
    """A part of the step that differs by ``seconds`` (measured less simulated), the dotted ``key`` of a scenario that
    scales it, and the ``factor`` by which to multiply what stands there; ``key`` is empty where no constant does.
    ``alone`` says which of the two has the part, if only one does."""

    part: str
    seconds: float
    key: str
    factor: float
    alone: str = ""

    @property
    def words(self) -> str:
        """What to do."""
        if not self.key and self.part != IDLE and self.alone:
            return f"only in {self.alone}: are the two the same job?"
        if not self.key:
            return "follows from the rest: no constant of its own"
        doubt = "" if 1.0 / FAR <= self.factor <= FAR else "; so far off, are the two the same job?"
        return f"{self.key} times {self.factor:.3g}{doubt}"


Uses = Mapping[CollectiveKey, CollectiveUse]


def mendings(
    simulated: Mapping[StepPart, float], measured: Mapping[StepPart, float], uses: tuple[Uses, Uses], step: float
) -> tuple[Mending, ...]:
    """Parts that differ notably, the largest difference first; phases of one category are one part. *uses* are the
    collectives of the two."""
    names = dict.fromkeys(part.name for part in (*simulated, *measured))
    out = []
    for name in names:
        ours, theirs = (sum(v for part, v in of.items() if part.name == name) for of in (simulated, measured))
        if abs(theirs - ours) > WORTH * step:
            key, ratio = _of_collectives(name, uses) if name in COMMUNICATION and name != "offload" else ("", 0.0)
            key = key or KEYS.get(name, "")
            ratio = ratio or (theirs / ours if ours else 0.0)
            if name == "host" and ratio:
                ratio **= 1.0 / HOST_POWER
            factor = ratio if key in DURATIONS else 1.0 / ratio if ratio else 0.0
            known = key if factor else ""
            alone = "" if ours and theirs else "the simulation" if ours else "the trace"
            out.append(Mending(part=name, seconds=theirs - ours, key=known, factor=factor, alone=alone))
    return tuple(sorted(out, key=lambda one: -abs(one.seconds)))


def _of_collectives(kind: str, uses: tuple[Uses, Uses]) -> tuple[str, float]:
    """The constant of the network that a kind of communication speaks of, and how much longer collectives of the same
    size take on the machine: those of whatever size differ most in all."""
    simulated, measured = uses
    found: dict[str, list[float]] = {}
    for key, ours in simulated.items():
        theirs = measured.get(key) or _alike(key, measured)
        if key.kind != kind or theirs is None or not theirs.count:
            continue
        row = found.setdefault(_constant(key, ours), [0.0, 0.0])
        row[0] += ours.seconds
        row[1] += theirs.mean * ours.count
    if not found:
        return _slowest(kind, simulated), 0.0
    best = max(found, key=lambda name: abs(found[name][1] - found[name][0]))
    ours_s, theirs_s = found[best]
    return best, theirs_s / ours_s if ours_s else 0.0


def _constant(key: CollectiveKey, use: CollectiveUse) -> str:
    """The constant that a collective's time depends on most."""
    if key.nbytes < SMALL:
        return "cluster.collectives.latency_scale"
    return "cluster.nic_bandwidth" if use.network > 0 else "cluster.nvlink_bandwidth"


def _slowest(kind: str, simulated: Uses) -> str:
    """The constant of those that take longest in all, where the files do not tell their sizes."""
    own = {key: use for key, use in simulated.items() if key.kind == kind}
    return _constant(longest := max(own, key=lambda key: own[key].seconds), own[longest]) if own else ""


def _alike(key: CollectiveKey, others: Uses) -> CollectiveUse | None:
    """The row of the same operation and nearly as many bytes, whatever is known of its group."""
    near = [
        (abs(other.nbytes - key.nbytes), use)
        for other, use in others.items()
        if other.kind == key.kind and other.operation == key.operation and not (other.size and key.size)
    ]
    return min(near, key=lambda pair: pair[0])[1] if near else None
