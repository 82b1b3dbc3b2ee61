"""
What an import answers, as a person reads it: the scenario, then what became of every key.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from trainsim.importers.findings import Remark
from trainsim.importers.imported import Imported, written
from trainsim.tables.blocks import Bullets, Paragraph, Section, Verbatim


def import_sections(imported: Imported) -> list[Section]:
    """The scenario file; what is missing, not modelled and assumed; what was used and what has no effect."""
    title = "Topology" if imported.is_machine else "Scenario"
    out = [Section(title, (Verbatim(body_of(imported)),), _files(imported))]
    if imported.missing:
        lines = tuple(f"{key}: {way}" for key, way in imported.missing.items())
        out.append(Section("Still missing", (Bullets(lines, "bad"),)))
    if imported.warnings:
        lines = tuple(f"{_where(remark)}: {_meaning(remark)}" for remark in imported.warnings)
        out.append(Section("Not modelled", (Bullets(lines, "doubtful"),), "it would have an effect"))
    if imported.defaults:
        out.append(Section("Assumed", (Bullets(tuple(map(_assumption, imported.defaults))),)))
    if imported.compared:
        lines = tuple(f"{_where(remark)}: {remark.words}" for remark in imported.compared)
        out.append(Section("Compared", (Bullets(lines),), "what files tell beside the machine that is made of them"))
    if imported.used:
        lines = tuple(f"{_where(remark)} -> {remark.words}" for remark in imported.used)
        out.append(Section("Used", (Bullets(lines),)))
    if imported.ignored:
        out.append(Section("Without effect", tuple(Paragraph(text) for text in _by_reason(imported.ignored))))
    return out


def body_of(imported: Imported) -> str:
    """The scenario, or the topology, as YAML, without remarks."""
    return written(imported).rstrip()


def remarks_in_short(imported: Imported) -> list[str]:
    """A line for each remark that nobody should miss: what is not modelled, and what was assumed."""
    lines = [f"not modelled: {_where(remark)}: {_meaning(remark)}" for remark in imported.warnings]
    lines += [f"contradicted: {_where(remark)}: {_meaning(remark)}" for remark in imported.contradicted]
    return [*lines, *(f"assumed: {_assumption(remark)}" for remark in imported.defaults)]


def _assumption(remark: Remark) -> str:
    """The value that is taken, or, of what has none, what is not known."""
    has_value = not remark.about and remark.key != "script"
    return f"{remark.key} = {remark.words}" if has_value else f"{remark.key}: {remark.words}"


def _meaning(remark: Remark) -> str:
    """What the remark says under a heading that says already that it is not modelled."""
    return remark.words.removeprefix("not modelled: ")


def _files(imported: Imported) -> str:
    return ", ".join(f"{file} ({importer})" for file, importer in imported.files.items())


def _where(remark: Remark) -> str:
    return f"{Path(remark.place).name}: {remark.key}" if remark.place else remark.key


def _by_reason(remarks: Iterable[Remark]) -> list[str]:
    """A line for each reason with all its keys."""
    reasons: dict[str, list[str]] = {}
    for remark in remarks:
        reasons.setdefault(remark.words, []).append(remark.key)
    return [f"{', '.join(dict.fromkeys(keys))}: {words}" for words, keys in reasons.items()]
