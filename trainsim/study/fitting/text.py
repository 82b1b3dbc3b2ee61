"""What would make a step fit in memory, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from trainsim.analysis.memory import NEARLY_FULL
from trainsim.report.text import plain, titled
from trainsim.tables.prose import Prose
from trainsim.units import format_bytes, format_time

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

    from trainsim.study.fitting.search import Fitting, Tried

LISTED, NEAREST = 10, 6
"""Changes that are listed: of those that fit, of those that come near."""
NAME = 32
"""Letters of a change that stand before its numbers."""


def fitting(one: Fitting) -> Group:
    """Changes with which all fits, then those that take less, and why others are not among them."""
    from rich.console import Group

    use = one.base.memory
    title = "What would free memory" if use.fits else "What would make it fit"
    blocks: list[RenderableType] = []
    if one.fitting:
        blocks.append(_table(one.fitting[:LISTED], use.capacity, words=True))
    elif use.fits:
        blocks.append("nothing that was tried takes less")
    else:
        blocks.append(Prose("[bold]nothing that was tried fits[/], not even together"))
    if one.smaller:
        blocks += ["", "takes less, but too much" if one.fitting else "the nearest:"]
        blocks.append(_table(one.smaller[:NEAREST], use.capacity, words=not one.fitting))
    if one.useless:
        blocks += ["", Prose(f"takes no less: {'; '.join(plain(o.title) for o in one.useless)}", "dim")]
    if one.refused:
        reasons = "; ".join(f"{o.title} ({_reason(o)})" for o in one.refused)
        blocks += ["", Prose(f"not possible here: {plain(reasons)}", "dim")]
    note = "each was run; the change of the step is for as many tokens"
    return Group(titled(title, Group(Prose(note, "dim"), *blocks)))


def _table(some: Sequence[Tried], capacity: float, *, words: bool) -> RenderableType:
    """A line per change, and what is full beside the GPUs; with *words*, one that says how to write it on the command
    line."""
    from rich.console import Group
    from rich.padding import Padding

    lines: list[RenderableType] = []
    for one in some:
        lines += [Prose(plain(line)) for line in _lines(one, capacity)]
        if one.ran and one.error:
            lines.append(Padding(Prose(plain(one.error), "dim"), (0, 0, 0, 4)))
        if words:
            lines.append(Padding(Prose(plain(set_words(one)), "dim"), (0, 0, 0, 4)))
    return Group(*lines)


def _lines(one: Tried, capacity: float) -> Iterator[str]:
    """What a change is and what came out; on two lines if its name is long."""
    full = (one.peak or 0.0) / capacity
    verdict = ("tight" if full > NEARLY_FULL else "fits") if one.fits else "no room" if one.error else "full"
    name = one.title.ljust(NAME)
    if len(name) > NAME:
        yield name
        name = " " * NAME
    step, longer = format_time(one.step or 0.0), one.longer or 0.0
    yield f"{name} {format_bytes(one.peak or 0.0):>9} {full:>5.0%} {step:>9} {longer:>+7.1%}  {verdict}"


def set_words(one: Tried) -> str:
    """What to write on the command line for it."""
    return " ".join(f"--set {path}={_value(value)}" for path, value in one.what.changes.items())


def _value(value: object) -> str:
    """
    >>> _value(None), _value(True), _value("zero3"), _value(8)
    ('null', 'true', 'zero3', '8')
    """
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value).replace(" ", "")


def _reason(one: Tried) -> str:
    """Why it could not be run, without the way out."""
    return (one.error or "").partition(";")[0].rstrip(".")
