"""Layouts that others measured, replayed: published beside simulated times, and whether they come out in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import trainsim as ts
from trainsim.study.planning.answer import Plan
from trainsim.study.planning.plan import Question, plan_for
from trainsim.study.planning.search import planned
from trainsim.study.runner import Runner
from trainsim.validation.mapping import scenario_of
from trainsim.validation.published import PublishedRun, read_runs
from trainsim.validation.scoring import UNSEEN

GIB = 2.0**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A published run: seconds and bytes (as nvidia-smi shows them) measured and simulated, and whether it fits."""

    run: PublishedRun
    published: float | None
    simulated: float
    peak: float | None
    simulated_peak: float
    fits: bool

    @property
    def layout(self) -> str:
        """Its degrees and micro-batch."""
        return layout_of(self.run)

    @property
    def error(self) -> float | None:
        """Simulated over published, less 1."""
        return self.simulated / self.published - 1.0 if self.published else None


def layout_of(run: PublishedRun) -> str:
    """The layout of a row in words."""
    tp, pp, micro = (run.whole(column) or 1 for column in ("tp", "pp", "micro_batch"))
    chunks = run.whole("vpp") or 1
    return f"tp{tp} pp{pp} dp{run.replicas}, micro-batch {micro}" + (f", {chunks} chunks" if chunks > 1 else "")


def rows(**wanted: str) -> list[PublishedRun]:
    """The published runs whose columns have these values, or begin with them."""
    return [run for run in read_runs() if all(run.text(key).startswith(value) for key, value in wanted.items())]


def scenario(run: PublishedRun) -> ts.Scenario:
    """The scenario of a published run."""
    return ts.Scenario.from_dict(scenario_of(run).scenario)


def replay(run: PublishedRun, *, changed: Mapping[str, str] | None = None, ran: bool = True) -> Replay:
    """*run* with some columns *changed*; not *ran*: nobody measured that, for it ran out of memory."""
    run = replace(run, cells={**run.cells, **(changed or {})})
    result = scenario(run).run()
    unseen = UNSEEN[run.memory_measure]
    peak = max(stage.peak - sum(stage.part(part) for part in unseen) for stage in result.memory.per_stage)
    return Replay(
        run=run,
        published=run.step_time if ran else None,
        simulated=result.step_time,
        peak=run.peak_memory if ran else None,
        simulated_peak=peak,
        fits=result.memory.fits,
    )


def order(replays: Iterable[Replay], apart: float = 0.0) -> tuple[int, int]:
    """Pairs in the published order, and pairs in all; only those that differ by more than a part *apart*."""
    known = [(r.published, r.simulated) for r in replays if r.published]
    pairs = [(a, b) for a, b in combinations(known, 2) if abs(a[0] / b[0] - 1.0) > apart]
    return sum((a[0] < b[0]) == (a[1] < b[1]) for a, b in pairs), len(pairs)


def best(base: ts.Scenario, *, grid: Mapping[str, Sequence[Any]] | None = None, keep: Sequence[str] = ()) -> Plan:
    """What ``trainsim plan`` answers, without a bar."""
    runner = Runner(keep=planned, workers=1, progress=False)
    return plan_for(base, Question(grid=grid or {}, keep=keep, top=1, runner=runner, progress=False))
