"""What a plan answers: the best layouts, and what became of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainsim.analysis.kinds import COMMUNICATION
from trainsim.errors import ScenarioError
from trainsim.scenario.scenario import Scenario
from trainsim.study.planning.bounding import Bounded
from trainsim.study.planning.layout import Layout
from trainsim.study.planning.reasons import grouped_reasons
from trainsim.study.planning.search import Planned

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import RenderableType

COLUMNS = (
    "layout", "changes", "step_time_s", "over_best", "tokens_per_s_per_gpu", "mfu", "bubble_fraction",
    "exposed_communication_s", "needed_memory_bytes", "capacity_bytes", "fits", "days", "cost", "why", "breakdown_s",
)  # fmt: skip
"""Of the table; ``breakdown_s`` are the seconds of each part of the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A layout that was run and fits: its numbers, what to ``change`` in the scenario, and ``why`` the best is better,
    in words (nothing for the best)."""

    layout: Layout
    changes: Mapping[str, Any]
    ran: Planned
    over_best: float = 0.0
    why: str = ""

    @property
    def exposed(self) -> float:
        """Seconds of the mean rank in communication that nothing hides, copies of what is offloaded included."""
        return sum(self.ran.breakdown.get(part, 0.0) for part in COMMUNICATION)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; seconds and bytes."""
        measured = self.ran.measured
        return {
            "layout": self.layout.title,
            "changes": dict(self.changes),
            "step_time_s": measured.step_time,
            "over_best": self.over_best,
            "tokens_per_s_per_gpu": measured.tokens_per_s_per_gpu,
            "mfu": measured.mfu,
            "bubble_fraction": measured.bubble_fraction,
            "exposed_communication_s": self.exposed,
            "needed_memory_bytes": measured.needed_memory,
            "capacity_bytes": measured.capacity,
            "fits": measured.fits,
            "days": measured.days,
            "cost": measured.cost,
            "why": self.why or None,
            "breakdown_s": dict(self.ran.breakdown),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The best layouts of a scenario, the first one ``best``; how many ``layouts`` there are, and what became of the
    others: ``refused`` by reason, ``too_large`` for memory, ``slower`` for sure (they have at least ``rest`` of what is
    to be small), ``run``. ``now`` is the scenario as it is, or ``not_now`` says why it cannot be run. ``assumed`` are
    values that nobody gave. ``interrupted``: not all was looked at."""

    base: Scenario
    objective: str
    choices: tuple[Choice, ...]
    layouts: int
    refused: Mapping[str, int]
    too_large: int
    slower: int
    run: int
    rest: float | None
    capacity: float
    smallest: Bounded | None = None
    now: Choice | None = None
    not_now: str = ""
    assumed: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def best(self) -> Choice:
        """The first of ``choices``. Raises ScenarioError where nothing fits."""
        if not self.choices:
            raise ScenarioError(self.nothing)
        return self.choices[0]

    @property
    def nothing(self) -> str:
        """In words why there is no choice, and what would make one."""
        if self.interrupted:
            return "interrupted before any layout that fits was run"
        if not self.layouts:
            return (
                "no layout divides: sequences per step, GPUs and layers have no degrees in common with the values of "
                "the axes; others, or another training.global_batch or cluster.nodes, would"
            )
        if self.smallest is None:
            reasons = "; ".join(text for text, _ in grouped_reasons(self.refused)[:2])
            return f"none of the {self.layouts:,} layouts can be run: {reasons}"
        need, have = self.smallest.nbytes / 2**30, self.capacity / 2**30
        return (
            f"none of the {self.layouts:,} layouts fits: even {self.smallest.layout.title} needs {need:.1f} GiB or "
            f"more, of {have:.1f}; more cluster.nodes, another cluster.gpu or sharding.offload.optimizer: cpu would do"
        )

    def scenario(self, number: int = 0) -> Scenario:
        """The scenario of the choice with that *number*, from 0."""
        return self.base.replace(self.choices[number].changes)

    def frame(self) -> DataFrame:
        """A row per choice, the best first; ``attrs`` have the scenario as it is (``now``) and how many layouts there
        were."""
        from pandas import DataFrame

        frame = DataFrame([choice.to_dict() for choice in self.choices], columns=list(COLUMNS))
        now = self.now.to_dict() if self.now else None
        frame.attrs |= {"name": self.base.name, "layouts": self.layouts, "now": now, "interrupted": self.interrupted}
        return frame

    def to_dict(self) -> dict[str, Any]:
        """Plain data with stable keys; seconds and bytes."""
        return {
            "name": self.base.name,
            "objective": self.objective,
            "layouts": self.layouts,
            "refused": dict(self.refused),
            "too_large": self.too_large,
            "slower": self.slower,
            "run": self.run,
            "capacity_bytes": self.capacity,
            "assumed": list(self.assumed),
            "now": self.now.to_dict() if self.now else None,
            "choices": [choice.to_dict() for choice in self.choices],
        }

    def __rich__(self) -> RenderableType:
        from trainsim.study.planning.sections import plan_sections
        from trainsim.tables.terminal import rich_sections

        return rich_sections(plan_sections(self))

    def _repr_html_(self) -> str:
        from trainsim.study.planning.sections import plan_sections
        from trainsim.tables.page import card

        return card(plan_sections(self))
