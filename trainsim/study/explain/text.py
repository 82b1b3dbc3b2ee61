"""What would make a step shorter, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.report.text import bar, coloured, plain, table, titled
from trainsim.study.explain.losses import WORDS
from trainsim.tables.prose import Prose
from trainsim.units import format_bytes, format_time

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

    from trainsim.study.explain.explanation import Explanation
    from trainsim.study.explain.options import Option

ACTIONS = 6
"""Changes that are listed."""
SAVED, SPENT, PATH = "#2e8b57", "#8c8c8c", "#c0142b"


def explanation(one: Explanation) -> Group:
    """Losses, the ranked list of changes, resources twice as fast, and the critical path."""
    from rich.console import Group

    return Group(
        titled(one.name, f"step {format_time(one.step)} (at detail block); {one.slowest}"),
        _losses(one),
        titled("What would pay most (each was run)", _actions(one)),
        titled("If it were twice as fast", _resources(one)),
        _path(one),
    )


def _losses(one: Explanation) -> RenderableType:
    lost = one.losses
    grid = table("lrrlL")
    grid.add_row(
        "work",
        format_time(lost.work, like=one.step),
        f"{lost.work / one.step:.1%}",
        "",
        Prose("of the mean rank", "dim"),
    )
    for cause, value in sorted(lost.causes.items(), key=lambda item: -item[1]):
        if abs(value) > 5e-4 * one.step:
            part = value / one.step
            drawn = coloured(bar(abs(part), 12), SPENT)
            grid.add_row(cause, format_time(value, like=one.step), f"{part:.1%}", drawn, Prose(WORDS[cause], "dim"))
    return titled(f"Where {format_time(lost.lost)} of {format_time(one.step)} are lost", grid)


def _actions(one: Explanation) -> RenderableType:
    from rich.console import Group

    some = one.actions[:ACTIONS]
    if not some:
        return "none of the changes that were tried saves anything"
    blocks: list[RenderableType] = []
    for number, option in enumerate(some, 1):
        grid = table("rL")
        grid.add_row(f"{number}.", Prose(plain(one.sentence(option))))
        fits = "" if option.fits else ": does not fit"
        grid.add_row("", Prose(f"{plain(_how(option))}memory {format_bytes(option.memory)}{fits}", "dim"))
        blocks.append(grid)
    if one.refused:
        blocks.append(f"[dim]not possible here: {'; '.join(one.refused)}")
    return Group(*blocks)


def _how(option: Option) -> str:
    """What to write on the command line for it."""
    words = [f"--set {path}={_value(value)}" for path, value in option.changes.items() if value is not None]
    return " ".join(words) + ("; " if words else "")


def _value(value: object) -> str:
    return str(value).replace(" ", "")


def _resources(one: Explanation) -> RenderableType:
    grid = table("lrrlr")
    grid.add_row("", "saves", "", "", "of critical path", style="dim")
    for option in one.resources:
        part = option.saves / one.step
        grid.add_row(
            option.title, format_time(option.saves, like=one.step), f"{part:.1%}", coloured(bar(part, 20), SAVED),
            f"{option.share:.1%}" if option.share is not None else "",
        )  # fmt: skip
    return grid


def _path(one: Explanation) -> RenderableType:
    grid = table("lrrl")
    for cause in one.critical_path:
        if cause.share > 5e-4:
            grid.add_row(
                cause.kind,
                format_time(cause.seconds, like=one.step),
                f"{cause.share:.1%}",
                coloured(bar(cause.share, 20), PATH),
            )
    return titled("Critical path, by kind", grid)
