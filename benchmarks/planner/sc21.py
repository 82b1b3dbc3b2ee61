"""The layouts of Narayanan et al. 2021 (table 1) beside what the planner chooses with the same software."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from benchmarks.planner.published import Replay, best, replay, rows, scenario
from trainsim.study.planning.answer import Plan

SOURCE = "Narayanan et al. SC21 Table 1"
KEEP = ("training.recompute", "parallel.sequence_parallel", "sharding.strategy")
"""Axes that Megatron-LM of 2021 left no choice of: it recomputed all, had no sequence parallelism and no ZeRO."""
ORDERS = {"pipeline.schedule": ["1f1b", "interleaved-1f1b"]}
NEAR = (0.01, 0.02, 0.05)


class Chosen(NamedTuple):
    """A published run, and the plan for its model on its machine."""

    published: Replay
    plan: Plan

    @property
    def slower(self) -> float:
        """By which part the published layout takes longer than the planner's, by simulation."""
        return self.published.simulated / self.plan.best.ran.measured.step_time - 1.0


@cache
def chosen() -> tuple[Chosen, ...]:
    """All rows of the table."""
    return tuple(Chosen(replay(run), best(scenario(run), grid=ORDERS, keep=KEEP)) for run in rows(source=SOURCE))


def table() -> Iterator[str]:
    """Lines of Markdown."""
    yield "| model | GPUs | published layout | measured | simulated | the planner's | simulated | published slower by |"
    yield "|---|--:|---|--:|--:|---|--:|--:|"
    for c in chosen():
        run = c.published.run
        yield (
            f"| {run.text('model_name')} | {run.wanted('num_gpus'):,} | {c.published.layout} | "
            f"{c.published.published:.2f} s | {c.published.simulated:.2f} s | {c.plan.best.layout.title} | "
            f"{c.plan.best.ran.measured.step_time:.2f} s | {c.slower:+.1%} |"
        )


def found() -> Iterator[str]:
    """In how many of them the published layout is nearly as good."""
    counts = [sum(c.slower <= near for c in chosen()) for near in NEAR]
    words = ", ".join(f"{count} within {near:.0%}" for count, near in zip(counts, NEAR, strict=True))
    yield f"Of {len(chosen())} published layouts are {words} of the planner's best, by simulation."
