"""The spaces of layouts that the planner is measured on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import trainsim as ts

WIDE: Mapping[str, Sequence[Any]] = {
    "pipeline.schedule": ["1f1b", "interleaved-1f1b", "gpipe", "zb-h1"],
    "pipeline.chunks": [2, 3, 4, 5, 6, 7, 8, 10, 12],
    "sharding.strategy": ["ddp", "zero1"],
}
"""More orders of passes and strategies than the software of a scenario offers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A scenario with *changes*, and values of axes by path; ``target``: seconds that the whole answer may take."""

    title: str
    base: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    target: float | None = None

    def scenario(self) -> ts.Scenario:
        """The scenario, at the detail that a search runs at."""
        return ts.Scenario.load(self.base).replace({**self.changes, "simulation.detail": "block"})


SPACES: Mapping[str, Case] = {
    "bloom": Case(title="BLOOM-176B, 384 A100", base="bloom_3d", target=60.0),
    "bloom-wide": Case(
        title="BLOOM-176B, 384 A100, more orders, strategies and batches",
        base="bloom_3d",
        grid={**WIDE, "training.micro_batch": [1, 2, 4, 8, 16, 32, 64]},
        target=60.0,
    ),
    "bloom-orders": Case(
        title="BLOOM-176B, 384 A100, interleaved, GPipe and DDP too",
        base="bloom_3d",
        grid={**WIDE, "pipeline.schedule": ["1f1b", "interleaved-1f1b", "gpipe"]},
    ),
    "llama": Case(title="Llama-3-405B, 16,384 H100", base="llama3_405b_16k", target=120.0),
    "mixtral": Case(title="Mixtral-8x7B", base="mixtral_8x7b"),
    "deepseek": Case(title="DeepSeek-V3", base="deepseek_v3"),
}
