"""
Coarser programs for quick sweeps: neighbouring kernels and collectives of one kind become one interval.

What is merged no longer meets other ranks nor shares links: collectives of the layers take the time that they take
alone, or alone under the kernels that hide them. Their bytes are still counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from trainsim.contracts.groups import Group
from trainsim.contracts.instructions import Hold, Kernel, Meet, Payload, Piece
from trainsim.contracts.system import FLOOR
from trainsim.program.network import Network
from trainsim.program.pieces import IN_LAYERS, Overlapped
from trainsim.program.pieces import Piece as Work


def coarsen(pieces: Iterable[Piece], detail: str, network: Network) -> list[Piece]:
    """*pieces* at detail ``layer`` (an interval per layer and kind) or ``block`` (one per kind).

    Waits, signals and messages stay where they are. Memory is taken before the interval, as much of it as is held at
    any moment within, and given back after it.
    """
    out, run = list[Piece](), _Interval(detail)
    for i in pieces:
        if isinstance(i, Kernel):
            run.add(i)
        elif isinstance(i, Hold):
            run.hold(i)
        elif isinstance(i, Meet) and i.kind in IN_LAYERS:
            run.add(_interval(i, _seconds(i, network)))
        else:
            if not run.empty:
                out += run.pieces()
                run = _Interval(detail)
            out.append(i)
    return out if run.empty else [*out, *run.pieces()]


def merged(pieces: Iterable[Work], network: Network) -> tuple[Kernel, ...]:
    """The pieces of a block as an interval per kind."""
    run = _Interval("block")
    for piece in pieces:
        for kernel in _intervals(piece, network):
            run.add(kernel)
    return tuple(run.kernels())


def _intervals(piece: Work, network: Network) -> Iterator[Kernel]:
    if isinstance(piece, Kernel):
        yield piece
    elif isinstance(piece, Meet):
        yield _interval(piece, _seconds(piece, network))
    else:
        yield from _hidden(piece, network)


def _interval(meet: Meet, seconds: float) -> Kernel:
    """A collective as an interval of so many *seconds*."""
    return Kernel(meet.name, meet.kind, seconds, 0.0, 0.0, meet.layer, meet.stream, meet.payloads)


def _seconds(meet: Meet, network: Network) -> float:
    return network.seconds(meet.communicator, meet.operation, meet.nbytes) * meet.exposed


def _hidden(piece: Overlapped, network: Network) -> Iterator[Kernel]:
    """Kernels as long as they take while a collective holds SMs and takes bandwidth of the HBM, and what is left of it
    when they are over."""
    meet, left = piece.meet, _seconds(piece.meet, network)
    assert isinstance(meet.communicator, Group)
    held, taken = network.taken_beside(meet.communicator, meet.operation)
    for kernel in piece.kernels:
        rate, other = _rates(kernel, held, taken)
        together = min(kernel.seconds / rate, left / other)
        seconds = together + max(0.0, kernel.seconds - together * rate)
        left = max(0.0, left - together * other)
        share = kernel.seconds / max(seconds, 1e-30)
        yield replace(kernel, seconds=seconds, sm=kernel.sm * share, hbm=kernel.hbm * share)
    yield _interval(meet, left)


def _rates(kernel: Kernel, held: float, taken: float) -> tuple[float, float]:
    """How fast, as parts of their own speeds, a kernel and a collective run at once: max-min fair, where the collective
    holds a share of the SMs and takes one of the HBM's bandwidth."""
    most = min(1.0, max(1.0 - held, FLOOR) / kernel.sm) if kernel.sm > 0 else 1.0
    level = min(1.0, 1.0 / max(kernel.hbm + taken, 1e-30))
    rate = min(most, level)
    return rate, max(level, min(1.0, (1.0 - rate * kernel.hbm) / max(taken, 1e-30)))


@dataclass(slots=True)
class _Sum:
    """What kernels that become one take together: seconds, and seconds times shares."""

    seconds: float = 0.0
    sm: float = 0.0
    hbm: float = 0.0
    payloads: tuple[Payload, ...] = ()


class _Interval:
    """Neighbours that become one interval per (layer and) kind, with what they hold in between."""

    __slots__ = ("_left", "_most", "_now", "_sums", "layers")

    def __init__(self, detail: str):
        self.layers = detail == "layer"
        self._sums: dict[tuple[int, str, str], _Sum] = {}
        self._left: dict[str, float] = {}
        self._now = self._most = 0.0

    @property
    def empty(self) -> bool:
        """Whether there is nothing in it yet."""
        return not self._sums and not self._left

    def add(self, kernel: Kernel) -> None:
        """One more kernel; what was held since the one before is all there now, or gone."""
        self._most = max(self._most, self._now)
        key = kernel.layer if self.layers else -1, kernel.kind, kernel.stream
        so_far, seconds = self._sums.get(key), kernel.seconds
        if so_far is None:
            so_far = self._sums[key] = _Sum()
        so_far.seconds += seconds
        so_far.sm += kernel.sm * seconds
        so_far.hbm += kernel.hbm * seconds
        so_far.payloads += kernel.payloads

    def hold(self, hold: Hold) -> None:
        """Memory that is taken or given back between kernels."""
        self._left[hold.category] = self._left.get(hold.category, 0.0) + hold.nbytes
        self._now += hold.nbytes

    def kernels(self) -> Iterator[Kernel]:
        """One kernel per (layer and) kind, with the time-weighted shares of its parts."""
        for (layer, kind, stream), parts in self._sums.items():
            weight = max(parts.seconds, 1e-30)
            yield Kernel(
                kind, kind, parts.seconds, parts.sm / weight, parts.hbm / weight, layer, stream, parts.payloads
            )

    def pieces(self) -> Iterator[Piece]:
        """The kernels between what is taken and what is given back: never more at once than the holds one by one."""
        if not self._left:
            yield from self.kernels()
            return
        most = max(self._most, self._now)
        taken = [Hold(category, nbytes) for category, nbytes in self._left.items() if nbytes > 0]
        beside = most - sum(hold.nbytes for hold in taken)  # less than 0: some of it is taken when other memory is free
        yield from taken if beside >= 0 else ()
        yield Hold("temporary", beside if beside >= 0 else most)
        yield from self.kernels()
        yield Hold("temporary", -beside if beside >= 0 else -most)
        yield from (Hold(category, nbytes) for category, nbytes in self._left.items() if nbytes < 0)
        yield from taken if beside < 0 else ()
