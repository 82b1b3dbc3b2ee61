"""What a notebook shows for an explanation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.report.style import PARTS
from trainsim.tables.blocks import Bullets, Section
from trainsim.tables.cells import Bar, Sign, Unit
from trainsim.tables.page import card
from trainsim.tables.table import Column, Table
from trainsim.units import format_time

if TYPE_CHECKING:
    from trainsim.study.explain.explanation import Explanation


def explanation(one: Explanation) -> str:
    """What would make a step shorter, for a notebook."""
    losses = sorted(one.losses.causes.items(), key=lambda item: -item[1])
    lost = Table(
        columns=(
            Column(),
            Column("lost", Unit.TIME, like=one.step),
            Column("", Unit.SHARE),
            Column(),
            Column(wraps=True),
        ),
        rows=tuple(
            (cause, value, value / one.step, Bar.of(value / one.step, PARTS["other"]), Sign(one.losses.words[cause]))
            for cause, value in losses
        ),
    )
    options = tuple(one.sentence(option) for option in (*one.actions, *one.resources))
    title = f"{one.name}: {format_time(one.losses.lost)} of {format_time(one.step)} are lost"
    return card([Section(title, (lost,)), Section("What would pay", (Bullets(options),))])
