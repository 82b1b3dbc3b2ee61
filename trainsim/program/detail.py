"""
Coarser programs for quick sweeps: neighbouring kernels and collectives of one kind become one interval.

What is merged no longer meets other ranks nor shares links: tensor-parallel collectives take the time that they
take alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainsim.program.instructions import Instruction, Kernel, Meet
from trainsim.program.network import Network


def coarsen(instructions: Iterable[Instruction], detail: str, network: Network) -> list[Instruction]:
    """*instructions* at detail ``layer`` (an interval per layer and kind) or ``block`` (one per kind).

    Waits, signals and messages stay where they are.
    """
    out: list[Instruction] = []
    run: list[Kernel] = []
    for i in instructions:
        if isinstance(i, Kernel):
            run.append(i)
        elif isinstance(i, Meet) and i.communicator == "tp":
            seconds = network.seconds(i.communicator, i.operation, i.nbytes) * i.exposed
            run.append(Kernel(i.name, i.kind, seconds, 0.0, 0.0, i.layer, i.stream))
        else:
            out += [*_merge(run, detail), i]
            run = []
    return [*out, *_merge(run, detail)]


def _merge(kernels: list[Kernel], detail: str) -> Iterator[Kernel]:
    """One kernel per (layer and) kind, with the time-weighted shares of its parts."""
    groups: dict[tuple[int, str, str], list[Kernel]] = {}
    for k in kernels:
        groups.setdefault((k.layer if detail == "layer" else -1, k.kind, k.stream), []).append(k)
    for (layer, kind, stream), parts in groups.items():
        seconds = sum(k.seconds for k in parts)
        weight = max(seconds, 1e-30)
        sm = sum(k.sm * k.seconds for k in parts) / weight
        hbm = sum(k.hbm * k.seconds for k in parts) / weight
        yield Kernel(kind, kind, seconds, sm, hbm, layer, stream)
