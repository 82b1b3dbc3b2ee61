"""
Cards of values that cannot draw themselves, since they lie below the report: models, machines, orders, replays,
summaries of sweeps, imports.

A notebook asks a value for ``_repr_html_``; for those named here it asks ``CARDS``, once ``register`` has told it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any

from trainsim.tables.blocks import Figure, Figures, Picture, Section, Verbatim
from trainsim.tables.page import card

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from trainsim.hardware.cluster import Cluster
    from trainsim.importers.imported import Imported
    from trainsim.models.transformer import Transformer
    from trainsim.replaying.replay import Replay
    from trainsim.schedules.cells import CellRows
    from trainsim.study.sweep_summary import Summary

LARGEST = 4096
"""Passes of an order that are drawn; more could not be told apart."""


def replay_card(step: Replay) -> str:
    """A replay: its makespan, its bubble in the usual definitions, what ranks hold, and a lane for each."""
    from trainsim.report.order_chart import order_chart

    bubble, order = step.bubble, step.order
    figures = (
        Figure("makespan", f"{step.makespan:g}", "in the unit of the times given"),
        Figure("bubble", f"{bubble.fraction:.1%}", "of the makespan"),
        Figure("of the span", f"{bubble.span_fraction:.1%}", "of the longest, from first pass to last of a rank"),
        Figure("in flight", f"{max(step.in_flight)}", "passes whose activations the fullest rank holds"),
    )
    blocks: tuple[Any, ...] = (Figures(figures),)
    if sum(map(len, order.rows)) <= LARGEST:
        blocks += (_picture(order_chart("", step, axis="time"), "A lane for each rank"),)
    return card([Section("", blocks)], "Replay")


def order_card(order: CellRows) -> str:
    """An order of passes: the cells of each rank, in PyTorch's words."""
    lines = "\n".join(f"{rank:>3}  {' '.join(cell or '.' for cell in row)}" for rank, row in enumerate(order))
    return card([Section("", (Verbatim(lines),), "a line per rank")], f"Order of {order.name}")


def model_card(model: Transformer) -> str:
    """A model: its sizes, its kinds of layers, and its parameters."""
    from trainsim.models.mapping import mapping_of
    from trainsim.report.described import model_section

    return card([model_section(model, mapping_of(model))])


def machine_card(cluster: Cluster) -> str:
    """A machine: what is in it, and its picture."""
    from trainsim.hardware.draw import describe

    picture = _picture(cluster.draw(), f"The network and a node of {cluster.name}")
    return card([Section("", (Verbatim("\n".join(describe(cluster))), picture))], cluster.name)


def summary_card(summary: Summary) -> str:
    """What a sweep shows: the best points, what is traded for memory, and which axis matters."""
    from trainsim.study.sweep_sections import summary_section

    return card([summary_section(summary)])


def import_card(imported: Imported) -> str:
    """What files of other tools say together, and what became of each key."""
    from trainsim.importers.sections import import_sections

    return card(import_sections(imported))


CARDS: Mapping[tuple[str, str], Callable[[Any], str]] = {
    ("trainsim.replaying.replay", "Replay"): replay_card,
    ("trainsim.schedules.cells", "CellRows"): order_card,
    ("trainsim.models.transformer", "Transformer"): model_card,
    ("trainsim.hardware.cluster", "Cluster"): machine_card,
    ("trainsim.study.sweep_summary", "Summary"): summary_card,
    ("trainsim.importers.imported", "Imported"): import_card,
}
"""What shows a value, by the module and the name of its class."""


def register() -> None:
    """Tell the notebook that runs this, if one does, how values are shown. Imports none of their modules."""
    if (shell := sys.modules["IPython"].get_ipython()) is None:
        return
    formatter = shell.display_formatter.formatters["text/html"]
    for (module, name), show in CARDS.items():
        formatter.for_type_by_name(module, name, _never_raises(show))


def _never_raises(show: Callable[[Any], str]) -> Callable[[Any], str]:
    """*show*, which must not hide a value that it cannot draw."""

    def shown(value: Any) -> str:
        try:
            return show(value)
        except Exception as error:
            return f"<pre>{escape(repr(value))}: {escape(str(error))}</pre>"

    return shown


def _picture(drawing: Drawing, caption: str) -> Picture:
    out = BytesIO()
    drawing.savefig(out, format="png", dpi=72)
    return Picture.of(out.getvalue(), caption)
