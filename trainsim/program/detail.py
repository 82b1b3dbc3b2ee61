"""
Coarser programs for quick sweeps: neighbouring kernels and collectives of one kind become one interval.

What is merged no longer meets other ranks nor shares links: collectives of the layers take the time that they take
alone. Their bytes are still counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainsim.contracts.instructions import Hold, Kernel, Meet, Piece
from trainsim.program.block_costs import IN_LAYERS
from trainsim.program.network import Network


def coarsen(pieces: Iterable[Piece], detail: str, network: Network) -> list[Piece]:
    """*pieces* at detail ``layer`` (an interval per layer and kind) or ``block`` (one per kind).

    Waits, signals and messages stay where they are. Memory is taken before the interval, as much of it as is held at
    any moment within, and given back after it.
    """
    out: list[Piece] = []
    run: list[Kernel] = []
    holds: list[list[Hold]] = [[]]
    for i in pieces:
        if isinstance(i, Kernel):
            run.append(i)
            holds.append([])
        elif isinstance(i, Meet) and i.kind in IN_LAYERS:
            seconds = network.seconds(i.communicator, i.operation, i.nbytes) * i.exposed
            run.append(Kernel(i.name, i.kind, seconds, 0.0, 0.0, i.layer, i.stream, payloads=i.payloads))
            holds.append([])
        elif isinstance(i, Hold):
            holds[-1].append(i)
        else:
            out += [*_held(holds, _merge(run, detail)), i]
            run, holds = [], [[]]
    return [*out, *_held(holds, _merge(run, detail))]


def _held(holds: Iterable[Iterable[Hold]], kernels: Iterable[Kernel]) -> Iterator[Piece]:
    """*kernels* between what is taken and what is given back: never more at once than the holds one by one.

    *holds* are those before each kernel and after the last one: of each lot, what goes is gone before others come.
    """
    left: dict[str, float] = {}
    now = most = 0.0
    for lot in holds:
        for hold in lot:
            left[hold.category] = left.get(hold.category, 0.0) + hold.nbytes
            now += hold.nbytes
        most = max(most, now)
    taken = [Hold(category, nbytes) for category, nbytes in left.items() if nbytes > 0]
    beside = most - sum(hold.nbytes for hold in taken)  # less than 0: some of it is taken when other memory is free
    yield from taken if beside >= 0 else ()
    yield Hold("temporary", beside if beside >= 0 else most)
    yield from kernels
    yield Hold("temporary", -beside if beside >= 0 else -most)
    yield from (Hold(category, nbytes) for category, nbytes in left.items() if nbytes < 0)
    yield from taken if beside < 0 else ()


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
        payloads = tuple(payload for k in parts for payload in k.payloads)
        yield Kernel(kind, kind, seconds, sm, hbm, layer, stream, payloads=payloads)
