"""Constants of kernels as a person reads them: where each was written, what is said of it, how far kernels are off."""

from __future__ import annotations

from collections.abc import Sequence

from trainsim.costs.errors import KernelError
from trainsim.documents.document import Document
from trainsim.documents.origin import key_of
from trainsim.documents.remarks import place_of, remark_on
from trainsim.report.described import APART, leaves
from trainsim.tables.blocks import Block, Paragraph, Section
from trainsim.tables.cells import Sign, Unit
from trainsim.tables.table import Column, Table


def constants_section(document: Document) -> Section:
    """Every constant with its file, its line and the remark there; what the file says of itself around them."""
    rows, last = [], ""
    for key, value in leaves(document.data):
        if key not in APART:
            path = key_of(key)
            remark = remark_on(document.origin, path)
            again = "as above" if remark and remark == last else remark
            rows.append((key, Sign(value, ""), place_of(document.origin, path), again))
            last = remark
    columns = (Column(), Column(wraps=True), Column("where", priority=2), Column("source", wraps=True, priority=1))
    blocks: list[Block] = [Table(columns=columns, rows=tuple(rows))]
    if about := document.data.get("description"):
        blocks.insert(0, Paragraph(str(about)))
    if source := document.data.get("source"):
        blocks.append(Paragraph(f"Source: {' '.join(str(source).split())}", "quiet"))
    return Section(document.name, tuple(blocks), str(document.origin.file))


def errors_section(errors: Sequence[KernelError], gpu: str) -> Section:
    """How far kernels alone are from what was measured, on *gpu* or on those it shares its constants with."""
    others = {e.gpu for e in errors} - {gpu}
    columns = (
        Column("kernel", wraps=True),
        *((Column("on", priority=1),) if others else ()),
        Column("measured", Unit.WHOLE),
        Column("median error", Unit.SHARE),
        Column("90 % below", Unit.SHARE),
        Column("bias", Unit.CHANGE, priority=2),
        Column("source", wraps=True, priority=3),
    )
    rows = tuple((e.what, *((e.gpu,) if others else ()), e.measured, e.median, e.p90, e.bias, e.source) for e in errors)
    nothing = Paragraph("Nobody measured kernels that these constants hold for.")
    table = Table(columns=columns, rows=rows)
    return Section("Errors of kernels alone", (table if errors else nothing,), "python -m benchmarks.kernels")
