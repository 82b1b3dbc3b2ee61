"""The search of BigScience for the layout of BLOOM: what they measured in a day, and what the planner says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from benchmarks.planner.published import GIB, Replay, best, order, replay, rows, scenario
from trainsim.study.planning.answer import Plan

SECTION = "GBS Variations"
"""Of their chronicles: one day, one model of 72 layers, all on 384 A100."""
MODEL = "bs-h14336-L72"
LIKE = "S6-078"
"""The row whose software, machine and model the layouts have that ran out of memory."""
OUT_OF_MEMORY: tuple[Mapping[str, str], ...] = (
    {"tp": "2", "pp": "6", "dp": "32", "micro_batch": "1"},
    {"tp": "8", "pp": "1", "dp": "48", "micro_batch": "1", "global_batch": "2016"},
)
"""Layouts of that day that did not fit (their micro-batches are not told: the smallest)."""
AS_THEY = ("training.recompute", "parallel.sequence_parallel", "pipeline.schedule", "sharding.strategy")
"""Axes that their software left no choice of."""


@cache
def replays() -> tuple[Replay, ...]:
    """The layouts of that day, the fastest first, and those that did not fit."""
    measured = [
        run
        for run in rows(source_id="S6", model_name=MODEL, global_batch="2048")
        if SECTION in run.text("source_location")
    ]
    known = sorted((replay(run) for run in measured), key=lambda r: r.published or 0.0)
    (like,) = rows(id=LIKE)
    return *known, *(replay(like, changed=changed, ran=False) for changed in OUT_OF_MEMORY)


@cache
def plans() -> dict[str, Plan]:
    """What the planner chooses for the same model on the same machine, by what it may choose."""
    (like,) = rows(id=LIKE)
    base = scenario(like)
    return {
        "the layouts available to them (full recompute, 1F1B, no sequence parallelism)": best(base, keep=AS_THEY),
        "all that is searched": best(base),
    }


def table() -> Iterator[str]:
    """Lines of Markdown: each layout, published and simulated, and then what was found."""
    yield "| layout | published | simulated | error | place | memory published | simulated |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    ran = [r for r in replays() if r.published]
    places = {id(r): place for place, r in enumerate(sorted(ran, key=lambda r: r.simulated), 1)}
    for number, r in enumerate(ran, 1):
        peak = f"{r.peak / GIB:.0f} GiB" if r.peak else ""
        yield (
            f"| {r.layout} | {r.published:.2f} s | {r.simulated:.2f} s | {r.error:+.1%} | {number} → {places[id(r)]} | "
            f"{peak} | {r.simulated_peak / GIB:.0f} GiB{'' if r.fits else ', does not fit'} |"
        )
    for r in replays():
        if not r.published:
            verdict = "fits" if r.fits else "does not fit"
            yield f"| {r.layout} | out of memory | | | | | {r.simulated_peak / GIB:.0f} GiB: {verdict} |"


def found() -> Iterator[str]:
    """The order in numbers, and what the planner chooses."""
    right, pairs = order(replays())
    apart, of = order(replays(), apart=0.02)
    errors = [abs(r.error) for r in replays() if r.error is not None]
    yield (
        f"* {right} of {pairs} pairs come out in the published order (Kendall's tau {2 * right / pairs - 1:.2f}); "
        f"{apart} of the {of} that differ by more than 2 %. The mean error is {sum(errors) / len(errors):.1%}."
    )
    for words, plan in plans().items():
        yield f"* The planner, choosing among {words}: {_answer(plan)}"


def _answer(plan: Plan) -> str:
    """What a plan chose, and what that took where they measured it."""
    first, best_layout, took = replays()[0], plan.best.layout, plan.best.ran.measured.step_time
    more = f"{took / first.simulated - 1:+.1%} against the fastest of that day, simulated"
    said = f"{best_layout.title}: {took:.2f} s, {more} ({plan.layouts:,} layouts, {plan.run} run)"
    words = f"tp{best_layout.tp} pp{best_layout.pp} dp{best_layout.dp}, micro-batch {best_layout.micro_batch}"
    same = [r for r in replays() if r.layout == words and r.published and best_layout.recompute == "full"]
    if not same or best_layout.sequence_parallel:
        return f"{said}."
    return f"{said}. They measured it: {same[0].published:.2f} s, {regret(same[0]):+.1%} against the fastest."


def regret(chosen: Replay) -> float:
    """By which part a layout takes longer than the fastest, as measured."""
    measured, fastest = chosen.published, replays()[0].published
    assert measured is not None
    assert fastest is not None
    return measured / fastest - 1.0
