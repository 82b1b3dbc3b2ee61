"""A change of the job that was run, and what it saves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LAYERS, RESOURCE, SCHEDULE, BATCH = "layers", "resource", "schedule", "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One change and what came out. ``saves`` is how much shorter the step is, for the same number of tokens (seconds;
    negative: longer), ``changes`` what to change in the scenario (dotted path -> value; empty where it is the machine
    that would change), ``share`` the part of the critical path that the change touches, or None."""

    kind: str
    title: str
    step: float
    saves: float
    memory: float
    fits: bool
    changes: Mapping[str, Any] = field(default_factory=dict)
    share: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data; seconds and bytes."""
        return {
            "kind": self.kind,
            "title": self.title,
            "step_time_s": self.step,
            "saves_s": self.saves,
            "memory_peak_bytes": self.memory,
            "fits": self.fits,
            "changes": dict(self.changes),
            "critical_path_share": self.share,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A change to be run: what it is called, and what to change in the scenario."""

    kind: str
    title: str
    changes: Mapping[str, Any]
