"""What kernels, collectives and messages take: seconds alone in ticks, loads and holds in grains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainsim.contracts.exact import grains, ticks
from trainsim.contracts.instructions import Kernel, Meet, Send
from trainsim.contracts.system import Pattern
from trainsim.engine.actor import Actor
from trainsim.engine.fairshare import Use
from trainsim.engine.fluid import Phases, Uses
from trainsim.errors import InvalidProgram
from trainsim.fold.quotient import GroupClass, Load, Loads, Quotient

Timed = Kernel | Meet | Send


class Works:
    """Compiles instructions that take time, each kind once."""

    def __init__(self, quotient: Quotient, uses: Uses):
        self.quotient, self.uses = quotient, uses
        self._timed: dict[Any, tuple[float, int]] = {}
        self._phases: dict[Any, Phases] = {}

    def phases(self, actor: Actor, run: Sequence[Timed], quiet: bool) -> Phases:
        """The phases of a run of *actor*; equal ones are one object. Quiet: nobody else is on its resources yet."""
        pairs = [self._pair(actor, i, quiet) for i in run]
        volumes, uses = zip(*pairs, strict=True)
        known = self._phases.get(key := (volumes, uses))
        if known is None:
            known = self._phases[key] = self.uses.phases(volumes, uses)
        return known

    def _pair(self, actor: Actor, i: Timed, quiet: bool) -> tuple[float, int]:
        """(Seconds alone, number of the use)."""
        if isinstance(i, Kernel):
            key: Any = id(i), actor.slow, -1 if quiet else actor.sm, -1 if quiet else actor.hbm
        else:
            key = id(i), actor.port(i.communicator), quiet
        pair = self._timed.get(key)
        if pair is None:
            make = self._kernel if isinstance(i, Kernel) else self._communication
            seconds, use = make(actor, i, quiet)  # type: ignore[arg-type]
            pair = self._timed[key] = ticks(seconds, self.uses.tick), self.uses.number(use)
        return pair

    def _kernel(self, actor: Actor, kernel: Kernel, quiet: bool) -> tuple[float, Use]:
        shares = () if quiet else ((actor.sm, kernel.sm), (actor.hbm, kernel.hbm))
        loads = tuple((r, grains(share)) for r, share in shares if r >= 0 and share > 0)
        return kernel.seconds * actor.slow, Use(loads)

    def _communication(self, actor: Actor, i: Meet | Send, quiet: bool) -> tuple[float, Use]:
        group = self.quotient.groups[actor.port(i.communicator)]
        pattern, uses = self._pattern(actor, group, i)
        seconds, share = pattern.seconds(group.group, i.nbytes)
        if isinstance(i, Meet):
            seconds *= i.exposed
            if quiet and group.one_program:
                return seconds, Use()
        return seconds, Use(_total(uses.loads, share), _total(uses.holds, 1.0))

    def _pattern(self, actor: Actor, group: GroupClass, i: Meet | Send) -> tuple[Pattern, Loads]:
        patterns = self.quotient.system.communicators[i.communicator].patterns
        operation = i.operation if isinstance(i, Meet) else next(iter(patterns), "a message")
        if operation not in patterns:
            raise InvalidProgram(
                f"{i.name!r} of rank {actor.rank} calls {operation!r} of communicator {str(i.communicator)!r}, which "
                f"has {', '.join(patterns) or 'no operations'}"
            )
        return patterns[operation], group.uses[operation]


def _total(loads: tuple[Load, ...], share: float) -> tuple[tuple[int, float], ...]:
    """What one resource of each class carries: grains first, then the exact sum."""
    total: dict[int, float] = {}
    for r, fraction, count in loads:
        total[r] = total.get(r, 0.0) + count * grains(fraction * share)
    return tuple((r, amount) for r, amount in total.items() if amount > 0)
