"""What a notebook shows for runs that are compared or explained."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from trainsim.report.markup import bar, css, image, png_of, table
from trainsim.units import format_bytes, format_time

if TYPE_CHECKING:
    from trainsim.result.comparison import Comparison
    from trainsim.study.explain.explanation import Explanation
    from trainsim.study.side_by_side import SideBySide


def comparison(one: Comparison) -> str:
    """Two runs side by side, for a notebook."""
    most = max((abs(change) for _, change in one.causes), default=1.0)
    rows = [
        (
            escape(part),
            format_time(change, like=most, signed=True),
            bar([(abs(change) / most, "#c0392b" if change > 0 else "#2e8b57")]),
            escape(one.words(part)),
        )
        for part, change in one.causes
    ]
    changes = [(escape(path), escape(str(a)), escape(str(b))) for path, (a, b) in one.changes.items()]
    pairs = [
        ("step", format_time(one.step_before), format_time(one.step_after)),
        ("MFU", f"{one.mfu_before:.1%}", f"{one.mfu_after:.1%}"),
        ("bubble", f"{one.bubble_before:.1%}", f"{one.bubble_after:.1%}"),
        ("memory", format_bytes(one.memory_before), format_bytes(one.memory_after)),
    ]
    return (
        f"<style>{css()}</style><div class='trainsim card'><h3>{format_time(one.seconds, signed=True)} ({one.ratio:+.1%})</h3>"  # noqa: E501
        f"{table(('', *one.titles), [*pairs, *changes])}{table(('part', 'change', '', ''), rows)}</div>"
    )


def side_by_side(some: SideBySide) -> str:
    """Runs in a table with their Gantt charts on one time axis, for a notebook."""
    rows = [
        (
            escape(c.name), format_time(c.step_time), f"{c.bubble_fraction:.1%}", f"{c.mfu:.1%}", format_bytes(max(c.activations)),  # noqa: E501
            format_bytes(c.p2p), format_bytes(c.dp), format_bytes(c.memory_peak) + ("" if c.fits else ": does not fit"),
        )
        for c in some.columns
    ]  # fmt: skip
    head = ("", "step", "bubble", "MFU", "activations", "p2p", "dp", "memory")
    return f"<style>{css()}</style><div class='trainsim card'>{table(head, rows)}{image(png_of(some.gantt()))}</div>"


def explanation(one: Explanation) -> str:
    """What would make a step shorter, for a notebook."""
    lost = [
        (escape(cause), format_time(value, like=one.step), f"{value / one.step:.1%}", escape(one.losses.words[cause]))
        for cause, value in sorted(one.losses.causes.items(), key=lambda item: -item[1])
    ]
    options = [(escape(one.sentence(option)),) for option in (*one.actions, *one.resources)]
    title = f"{escape(one.name)}: {format_time(one.losses.lost)} of {format_time(one.step)} are lost"
    return (
        f"<style>{css()}</style><div class='trainsim card'><h3>{title}</h3>"
        f"{table(('', 'lost', '', ''), lost)}{table(('what would pay',), options)}</div>"
    )
