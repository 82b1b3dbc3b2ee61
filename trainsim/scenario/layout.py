"""How many layers each virtual stage of the pipeline holds."""

from __future__ import annotations

import re
from itertools import groupby

from trainsim.errors import shorten
from trainsim.scenario.checks import Fault, divisors, offer
from trainsim.scenario.fields import repeated

Layout = tuple[int, ...]


def derive(*, layers: int, pp: int, chunks: int) -> tuple[Layout, str] | Fault:
    """The usual layout and its reason, or a Fault with the pp, chunks and layouts that would work.

    Even where layers divide; else the embedding and the head count as a layer each (BLOOM, Llama 3): the first
    and the last virtual stage are one layer short; else the head alone does.

    >>> derive(layers=70, pp=12, chunks=1)[0]
    (5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 5)
    """
    stages = pp * chunks
    of = f"{stages} virtual stages" if chunks > 1 else f"{stages} stages"
    if layers % stages == 0:
        return (layers // stages,) * stages, f"{layers} layers / {of}"
    if (layers + 2) % stages == 0 and stages > 1:
        each = (layers + 2) // stages
        middle = (each,) * (stages - 2)
        return (each - 1, *middle, each - 1), f"({layers} layers + embedding + head) / {of} = {each}"
    if (layers + 1) % stages == 0:
        each = (layers + 1) // stages
        return (*(each,) * (stages - 1), each - 1), f"({layers} layers + head) / {of} = {each}"
    works = sorted({d // chunks for n in range(3) for d in divisors(layers + n) if d % chunks == 0})
    other = sorted({d // pp for n in range(3) for d in divisors(layers + n) if d % pp == 0})
    message = (
        f"{layers} layers are not divisible by pp={pp}{f' x chunks={chunks}' if chunks > 1 else ''}, nor with "
        f"embedding and head counted as layers; {offer(works, pp, 'pp')}"
        f"{', or ' + offer(other, chunks, 'chunks') if other else ''}"
        f", or write the layout: {_example(layers, stages)}"
    )
    return Fault("parallel.pp" if chunks == 1 else "pipeline.chunks", message)


def balanced(*, layers: int, stages: int) -> Layout:
    """Layers that do not divide, shared out as evenly as can be: the outer stages, which have embedding and head, get
    fewer.

    >>> balanced(layers=61, stages=8)
    (7, 7, 8, 8, 8, 8, 8, 7)
    """
    short, more = divmod(layers, stages)
    return (*[short] * ((stages - more + 1) // 2), *[short + 1] * more, *[short] * ((stages - more) // 2))


def _example(layers: int, stages: int) -> str:
    """A balanced layout of what does not divide, as a person would write it."""
    alike = [(layers, len(list(group))) for layers, group in groupby(balanced(layers=layers, stages=stages))]
    return f"[{', '.join(f'{layers}x{count}' if count > 1 else str(layers) for layers, count in alike)}]"


def check(layout: Layout, *, layers: int, pp: int, chunks: int) -> Fault | None:
    """A written layout has a number per virtual stage and neither loses nor invents layers."""
    stages = pp * chunks
    if len(layout) != stages:
        message = f"has {len(layout)} numbers, but pp {pp} x chunks {chunks} = {stages} virtual stages"
        return Fault("pipeline.layout", message)
    if sum(layout) != layers:
        gap = layers - sum(layout)
        word = f"{gap} too few" if gap > 0 else f"{-gap} too many"
        return Fault("pipeline.layout", f"adds up to {sum(layout)} layers, {word}: the model has {layers}")
    return None


def parse(text: str) -> Layout | Fault:
    """The layers per virtual stage of a text: numbers, some of which stand for several, or a Megatron-LM layout (E
    embedding, t layer, L loss, | between stages).

    >>> parse("[5, 6x2, 5]"), parse("Et|(tt|)*2tL")
    ((5, 6, 6, 5), (1, 2, 2, 1))
    """
    wrong = Fault("pipeline.layout", f"{shorten(text)} is not a layout; write [5, 6x2, 5] or Et*5|(t*6|)*2t*5L")
    numbers = repeated(text.strip(" []").split(","))
    assert isinstance(numbers, tuple)
    if all(isinstance(n, int) or n.strip().isdecimal() for n in numbers) and all(len(str(n)) < 10 for n in numbers):
        return tuple(int(n) for n in numbers)
    plain = text.replace(" ", "").replace(",", "").strip("'\"")
    while True:
        expanded = re.sub(r"\(([^()]*)\)(?:\*(\d{1,4}))?", _repeat, plain)
        expanded = re.sub(r"([EtL|])\*(\d{1,4})", _repeat, expanded)
        if expanded == plain:
            break
        plain = expanded
        if len(plain) > 1 << 16:
            return wrong
    if not re.fullmatch(r"[EtL|]+", plain) or plain.count("E") != 1 or plain.count("L") != 1:
        return wrong
    stages = plain.split("|")
    if "E" not in stages[0] or "L" not in stages[-1]:
        return Fault("pipeline.layout", f"{shorten(text)} moves the embedding or the head from the first or last stage")
    return tuple(stage.count("t") for stage in stages)


def _repeat(match: re.Match[str]) -> str:
    return match[1] * int(match[2] or 1)
