"""Who sends how many bytes to whom."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainsim.analysis.analysis import Analysis
from trainsim.analysis.pairs import SentBytes, who_sends
from trainsim.report.page.columns import packed
from trainsim.report.sections import PAGE, section
from trainsim.tables.blocks import Interactive, Section
from trainsim.tables.cells import Unit
from trainsim.tables.table import Column, Table

LARGEST = 8
"""Pairs that a table names where no script runs."""


@section("who sends to whom", place=61, shown_by=(PAGE,), needs=Analysis)
def who_sends_to_whom(result: Analysis) -> Section | None:
    """A map of the bytes between ranks, or between nodes where ranks are many."""
    sent = who_sends(result.lanes, result.simulation.network)
    if not sent.by_kind:
        return None
    note = "bytes of one step; collectives as rings through one node after the other, an all-to-all to every other rank"
    return Section("Who sends to whom", (Interactive("matrix", _data(sent), (_largest(sent),)),), note)


def _data(sent: SentBytes) -> dict[str, Any]:
    kinds = []
    for kind, table in sent.by_kind.items():
        source, target = np.nonzero(table)
        nbytes = packed(np.rint(table[source, target]))
        kinds.append({"kind": kind, "from": packed(source), "to": packed(target), "bytes": nbytes})
    return {"title": "Bytes that each sends to each", "names": list(sent.names), "kinds": kinds}


def _largest(sent: SentBytes) -> Table:
    total = sent.total
    order = np.argsort(-total, axis=None, kind="stable")[:LARGEST]
    pairs = [divmod(int(k), len(sent.names)) for k in order if total.flat[k] > 0]
    rows = tuple((sent.names[a], sent.names[b], float(total[a, b]), _kinds(sent, a, b)) for a, b in pairs)
    columns = (Column("from"), Column("to"), Column("sent", Unit.BYTES), Column("kinds"))
    return Table(columns=columns, rows=rows, title="the largest flows")


def _kinds(sent: SentBytes, source: int, target: int) -> str:
    return ", ".join(kind for kind, table in sent.by_kind.items() if table[source, target] > 0)
