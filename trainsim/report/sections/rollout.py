"""What a step generates before it trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.analysis.analysis import Analysis
from trainsim.report.sections import CARD, PAGE, TERMINAL, section
from trainsim.tables.blocks import Figure, Figures, Section
from trainsim.units import format_bytes, format_number_of, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator


@section("rollout", place=5, shown_by=(TERMINAL, PAGE, CARD), needs=Analysis)
def rollout(result: Analysis) -> Section | None:
    """Seconds of its parts beside those of training, the sequences that run at once, and their cache."""
    if result.rollout is None:
        return None
    return Section("Rollout", (Figures(tuple(_figures(result))),), "generation before training")


def _figures(result: Analysis) -> Iterator[Figure]:
    use, plan = result.rollout, result.simulation.plan.rollout
    assert use is not None
    assert plan is not None
    rate = f"{use.generated_tokens_per_s:,.0f} tokens/s of {use.generated_tokens:,} tokens generated"
    parts = f"prefill {format_time(use.prefill_s)}, decode {format_time(use.decode_s)}"
    yield Figure("generation", format_time(use.generation_s), f"{parts}; {rate}")
    if use.scoring_s:
        passes = format_number_of(plan.rollout.scored_by, "model")
        yield Figure("scoring", format_time(use.scoring_s), f"forward passes of {passes} over all sequences")
    yield Figure("weights", format_time(use.weights_s), f"to the engines, {format_bytes(use.weights_bytes)} per GPU")
    told = "passes, reductions and update; MFU and tokens/s above are theirs over the whole step"
    yield Figure("training", format_time(use.training_s), told)
    engines = f"of {use.samples_per_engine} per engine, {format_number_of(use.engines, 'engine')}"
    waves = f"in {format_number_of(use.waves, 'wave')}, {use.iterations} iterations"
    again = f", {use.preemptions} preempted" if use.preemptions else ""
    yield Figure("running", format_number_of(use.running_sequences, "sequence"), f"{engines}, {waves}{again}")
    cache = f"of {format_bytes(use.cache_bytes)}; {use.cache_unused:.1%} of it empty on average"
    yield Figure("KV cache", format_bytes(use.cache_peak_bytes), cache)
