"""What trusting the simulator would have cost in Hugging Face's sweep of nanotron: its choice among what was run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from statistics import mean, median
from typing import NamedTuple

from trainsim.validation.ranking import LAYOUT
from trainsim.validation.scores import RunScore
from trainsim.validation.scoring import validate


class Group(NamedTuple):
    """Runs on as many GPUs whose software and cluster were in one state: how many layouts, the ``best`` measured one
    and the one that is ``chosen`` because it is predicted to be the best; seconds per sequence, measured."""

    gpus: int
    state: str
    layouts: int
    best: RunScore
    chosen: RunScore

    @property
    def regret(self) -> float:
        """How much longer the chosen one takes than the best, as measured."""
        return per_sequence(self.chosen) / per_sequence(self.best) - 1.0


def per_sequence(score: RunScore) -> float:
    """Measured seconds per sequence."""
    assert score.published
    return score.published / score.run.wanted("global_batch")


def _predicted(score: RunScore) -> float:
    assert score.predicted
    return score.predicted / score.run.wanted("global_batch")


@cache
def groups() -> tuple[Group, ...]:
    """By GPUs, then by state of the software."""
    found: dict[tuple[int, str], list[RunScore]] = {}
    for score in validate("nanotron", progress=False, workers=1).scores:
        if score.published and score.predicted:
            key = score.run.wanted("num_gpus"), score.run.text("framework").removeprefix("nanotron").strip(", ")
            found.setdefault(key, []).append(score)
    return tuple(
        Group(gpus, state, len(some), min(some, key=per_sequence), min(some, key=_predicted))
        for (gpus, state), some in sorted(found.items())
        if len({tuple(score.run.text(column) for column in LAYOUT) for score in some}) > 1
    )


def table() -> Iterator[str]:
    """Lines of Markdown: each group, and the regrets of all of them."""
    yield "| GPUs | cluster and software | layouts | best measured | the simulator's choice | slower by |"
    yield "|--:|---|--:|---|---|--:|"
    for g in groups():
        same = g.best is g.chosen
        yield (
            f"| {g.gpus} | {g.state or 'as usual'} | {g.layouts} | {_layout(g.best)} | "
            f"{'the same' if same else _layout(g.chosen)} | {'' if same else f'{g.regret:.1%}'} |"
        )


def found() -> Iterator[str]:
    """The regrets by number of GPUs, and of all groups."""
    yield "| GPUs | groups | median | mean | worst |"
    yield "|--:|--:|--:|--:|--:|"
    for gpus in dict.fromkeys(g.gpus for g in groups()):
        yield _summary(str(gpus), [g.regret for g in groups() if g.gpus == gpus])
    yield _summary("all", [g.regret for g in groups()])


def _summary(title: str, regrets: Sequence[float]) -> str:
    numbers = (f"{of(regrets):.1%}" for of in (median, mean, max))
    return f"| {title} | {len(regrets)} | {' | '.join(numbers)} |"


def _layout(score: RunScore) -> str:
    run = score.run
    tp, pp, micro, stage = (run.whole(column) or 0 for column in ("tp", "pp", "micro_batch", "zero_stage"))
    return f"tp{tp} pp{pp} dp{run.replicas}, micro-batch {micro}, ZeRO-{stage}"
