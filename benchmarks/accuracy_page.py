"""The tables and the picture of docs/accuracy.md that are made of scores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, median
from typing import TYPE_CHECKING

import numpy as np

from trainsim.validation.ranking import ranking
from trainsim.validation.scores import RunScore, by_source, errors_of
from trainsim.validation.summary import errors, overall

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scores = Sequence[RunScore]
TOLD = 0.5
"""The largest error that the picture shows where it is; larger ones stand at its edge."""


def replaced(page: str, made: Mapping[str, str]) -> str:
    """*page* with each block between ``<!-- made: name -->`` and ``<!-- end -->`` made anew."""
    for name, text in made.items():
        block = re.compile(rf"(<!-- made: {re.escape(name)} -->\n).*?(<!-- end -->)", re.S)
        if not block.search(page):
            raise ValueError(f"the page has no block {name!r}")
        page = block.sub(lambda found, text=text: f"{found[1]}{text}\n{found[2]}", page)  # type: ignore[misc]
    return page


def blocks(tables: Mapping[str, Scores], within: Mapping[str, float]) -> dict[str, str]:
    """The text of every block."""
    return {
        "sources": "\n".join(_sources(tables["all"], tables["left out"], within)),
        "overall": "\n".join(_overall(tables, within)),
        "nanotron": "\n".join(_nanotron(tables["nanotron"])),
        "refused": "\n".join(_refused(tables["all"])),
    }


def _sources(known: Scores, left_out: Scores, within: Mapping[str, float]) -> Iterable[str]:
    yield "| source | runs | median error | 90 % below | bias | left out: median | 90 % below | bias | in range |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    forgotten = by_source(left_out)
    for source, scores in by_source(known).items():
        found, without = errors(errors_of(scores)), errors(errors_of(forgotten[source]))
        if found is None or without is None:
            continue
        name = f"{source}: {scores[0].run.text('source')}"
        yield (
            f"| {name} | {found.runs} | {found.median:.1%} | {found.ninety:.1%} | {found.bias:+.1%} "
            f"| {without.median:.1%} | {without.ninety:.1%} | {without.bias:+.1%} | {within[source]:.0%} |"
        )


def _overall(tables: Mapping[str, Scores], within: Mapping[str, float]) -> Iterable[str]:
    yield f"* All sources known: {overall(tables['all'])}"
    yield f"* Each source held out, with a stand-in for its software profile: {overall(tables['left out'])}"
    if found := ranking(tables["all"]):
        yield (
            f"* Order: {found.in_order:.1%} of {found.pairs} pairs of layouts of one model on the same number of "
            f"GPUs come out in the published order; the layout predicted to be best takes {found.regret:.1%} "
            f"longer than the best (mean of {found.groups} groups; at most {found.largest_regret:.1%})."
        )
    runs = {source: len(scores) for source, scores in by_source(tables["left out"]).items() if source in within}
    of_runs = sum(within[source] * count for source, count in runs.items()) / sum(runs.values())
    values = within.values()
    yield (
        f"* Ranges that should hold four of five steps hold {of_runs:.0%} of the runs, each source left out: "
        f"{mean(values):.0%} in the mean of sources and {median(values):.0%} in the median, for the errors of a source "
        "are alike, so that most sources lie inside and some half outside."
    )


def _nanotron(scores: Scores) -> Iterable[str]:
    found = errors(errors_of(scores))
    if found is None:
        return
    yield (
        f"{found.runs} completed runs: median error {found.median:.1%}, 90 % below {found.ninety:.1%}, bias "
        f"{found.bias:+.1%}."
    )
    peaks = errors(error for score in scores if (error := score.memory_error) is not None)
    if peaks:
        yield (
            f"Peak memory (reserved) of {peaks.runs}: median error {peaks.median:.1%}, 90 % below {peaks.ninety:.1%}, "
            f"bias {peaks.bias:+.1%}."
        )
    if ranked := ranking(scores):
        yield f"Order: {ranked.in_order:.1%} of {ranked.pairs} pairs; regret {ranked.regret:.1%} on average."


def _refused(scores: Scores) -> Iterable[str]:
    refused = [score for score in scores if score.reason]
    yield f"{len(refused)} of {len(scores)} rows cannot be replayed{':' if refused else '.'}"
    for reason in dict.fromkeys(score.reason for score in refused):
        yield f"* {', '.join(s.run.id for s in refused if s.reason == reason)}: {reason}"


def picture(tables: Mapping[str, Scores]) -> Figure:
    """Predicted over published step by source; beside it the same with each source left out."""
    from trainsim.figures import figure

    drawn = figure(figsize=(11.0, 6.4))
    axes = drawn.subplots(1, 2, sharex=True, sharey=True)
    for ax, name, title in zip(
        axes, ("all", "left out"), ("with all that is known", "each source left out"), strict=True
    ):
        _panel(ax, tables[name], title)
    axes[0].set_ylabel("predicted over published step time")
    axes[1].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    drawn.tight_layout()
    return drawn


def _panel(ax: object, scores: Scores, title: str) -> None:
    from matplotlib.axes import Axes

    assert isinstance(ax, Axes)
    for number, (source, some) in enumerate(by_source(scores).items()):
        known = [score for score in some if score.error is not None]
        ratio = [min(max(score.error or 0.0, -TOLD), TOLD) + 1.0 for score in known]
        marker = "osDv^<>Ph"[number % 9]
        ax.plot(
            [s.published or 0.0 for s in known], ratio, marker, ms=3.5, alpha=0.6, color=f"C{number % 10}", label=source
        )
    ax.set_xscale("log")
    ax.axhline(1.0, color="0.3", lw=0.8)
    ax.axhspan(0.9, 1.1, color="0.5", alpha=0.12, lw=0)
    ax.set_title(title, fontsize=10)
    ax.set_xlabel("published step time (s)")
    ax.set_yticks(np.arange(0.5, 1.51, 0.1))
