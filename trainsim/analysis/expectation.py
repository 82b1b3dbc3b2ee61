"""The closed form beside the simulation, and where the two differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from trainsim.analysis.critical import CriticalPath
from trainsim.analysis.reasons import Facts
from trainsim.units import format_time

PASSES = "passes and messages"

COUNTERPARTS = {
    PASSES: ("steady", "fill and drain", "messages"),
    "reductions and update": ("dp", "update"),
}
"""Phases of the step, and the parts of the closed form that stand for them."""

ON_THE_PATH = {
    PASSES: ("passes", "messages"),
    "reductions and update": ("dp", "update"),
}
"""The same phases on the critical path."""

AGREES = 5e-4
"""A difference below this part of the step needs no explanation."""


NAMED = 0.2
"""A phase that differs by less than this part of the most different one is not named beside it."""


class Phase(NamedTuple):
    """A phase of the step in both views, seconds; the simulated one is what lies on the critical path."""

    name: str
    closed_form: float
    simulated: float

    @property
    def difference(self) -> float:
        return self.simulated - self.closed_form


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The step in closed form (``seconds``) against the simulated one; the phases sum to the two exactly."""

    seconds: float
    simulated: float
    phases: tuple[Phase, ...]
    facts: Facts

    @property
    def difference(self) -> float:
        """Simulated over closed form, minus one."""
        return self.simulated / self.seconds - 1.0 if self.seconds > 0 else 0.0

    @property
    def explanation(self) -> str:
        """One line: the phase that differs most, and what may be the reason in this job."""
        if not self.phases:
            return "the closed form has no parts"
        if abs(self.difference) < AGREES:
            return "the two agree"
        most = max(self.phases, key=lambda phase: abs(phase.difference))
        reasons = self.facts.of_passes(most.difference) if most.name == PASSES else self.facts.of_the_end()
        return ": ".join(filter(None, (self._where(most), "; ".join(reasons))))

    def _where(self, most: Phase) -> str:
        """The phases that differ, with their signs: where two of them cancel, neither alone says anything."""
        matter = [phase for phase in self.phases if abs(phase.difference) >= NAMED * abs(most.difference)]
        if len(matter) == 1:
            return f"most of it in {most.name} ({format_time(most.difference, signed=True)})"
        ranked = sorted(matter, key=lambda phase: -abs(phase.difference))
        return " and ".join(f"{format_time(phase.difference, signed=True)} in {phase.name}" for phase in ranked)


def expectation(
    seconds: float, parts: Mapping[str, float], path: CriticalPath, step: float, facts: Facts
) -> Expectation:
    """Pair the parts of the closed form with the phases of the critical path; *facts* may explain a difference."""
    named = {part for some in COUNTERPARTS.values() for part in some}
    phases = [
        Phase(
            name,
            sum(parts.get(part, 0.0) for part in some),
            sum(path.phases.get(phase, 0.0) for phase in ON_THE_PATH[name]),
        )
        for name, some in COUNTERPARTS.items()
    ]
    phases += [Phase(part, value, 0.0) for part, value in parts.items() if part not in named]
    return Expectation(seconds=seconds, simulated=step, phases=tuple(phases), facts=facts)
