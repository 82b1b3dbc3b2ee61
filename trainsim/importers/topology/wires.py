"""
Cables of a node as a file says them one by one, and the short form that a topology has for them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainsim.hardware.node import KINDS, kind_of
from trainsim.hardware.ranges import shorten

Physics = tuple[tuple[str, Any], ...]
"""What an entry of ``links`` says beside its ends: kind, and lanes or bandwidth, reachable, latency."""


@dataclass(frozen=True, slots=True)
class Wire:
    """A duplex cable between two devices."""

    a: str
    b: str
    physics: Physics

    @property
    def kind(self) -> str:
        """The kind of link, or a generic one whose generation is that of the GPU."""
        return str(dict(self.physics).get("kind", ""))


def wire(a: str, b: str, **physics: Any) -> Wire:
    """A cable; what is None or 0 is left out.

    >>> wire("gpu0", "pcie0", kind="pcie4", lanes=0)
    Wire(a='gpu0', b='pcie0', physics=(('kind', 'pcie4'),))
    """
    return Wire(a, b, tuple((key, value) for key, value in physics.items() if value))


def entries(wires: Iterable[Wire]) -> list[dict[str, Any]]:
    """The ``links`` of a topology that stand for *wires*.

    >>> mesh = [wire(f"gpu{i}", f"gpu{j}", kind="nvlink3") for i in range(3) for j in range(i)]
    >>> entries(mesh)
    [{'from': 'gpu[0-2]', 'to': 'gpu[0-2]', 'kind': 'nvlink3'}]
    >>> entries([wire(f"gpu{i}", f"pcie{i // 2}", kind="pcie4") for i in range(4)])
    [{'from': 'gpu[0-3]', 'to': 'pcie[0-1]', 'pattern': 'blocks', 'kind': 'pcie4'}]
    """
    alike: dict[tuple[str, str, Physics], list[tuple[str, str]]] = defaultdict(list)
    for one in wires:
        a, b = sorted((one.a, one.b), key=_order)
        alike[kind_of(a), kind_of(b), one.physics].append((a, b))
    return [
        {**ends, **dict(physics)}
        for (kind_a, kind_b, physics), pairs in alike.items()
        for ends in (_among(pairs) if kind_a == kind_b else _between(pairs))
    ]


def _among(pairs: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """Ends of cables among devices of one kind: a mesh of all, or each device with those after it."""
    devices = sorted({end for pair in pairs for end in pair}, key=_order)
    n = len(devices)
    if n > 2 and len(set(pairs)) == n * (n - 1) // 2:
        return [{"from": shorten(devices), "to": shorten(devices)}]
    after: dict[str, list[str]] = defaultdict(list)
    for a, b in pairs:
        after[a].append(b)
    return [{"from": a, "to": shorten(sorted(after[a], key=_order))} for a in sorted(after, key=_order)]


def _between(pairs: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """Ends of cables between devices of two kinds: those with the same others together; equal blocks as one."""
    others: dict[str, list[str]] = defaultdict(list)
    for a, b in pairs:
        others[a].append(b)
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for a in sorted(others, key=_order):
        groups[tuple(sorted(others[a], key=_order))].append(a)
    if blocks := _blocks(groups):
        return [blocks]
    return [{"from": shorten(some), "to": shorten(many)} for many, some in groups.items()]


def _blocks(groups: Mapping[tuple[str, ...], Sequence[str]]) -> dict[str, str] | None:
    """The one entry of equal blocks that *groups* are, in order; None if they are not."""
    if len(groups) < 2 or any(len(many) != 1 for many in groups):
        return None
    few = [many[0] for many in groups]
    listed = [a for some in groups.values() for a in some]
    even = len({len(some) for some in groups.values()}) == 1
    if not even or few != sorted(few, key=_order) or listed != sorted(listed, key=_order):
        return None
    return {"from": shorten(listed), "to": shorten(few), "pattern": "blocks"}


def _order(device: str) -> tuple[int, int]:
    kind = kind_of(device)
    return KINDS.index(kind), int(device.removeprefix(kind))
