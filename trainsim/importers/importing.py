"""
From paths to a scenario: each file goes to the importer that knows it, files that it names are read too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainsim.errors import ScenarioError
from trainsim.importers.combining import combined, relative_to
from trainsim.importers.findings import Findings, Reference, Remark
from trainsim.importers.imported import Imported
from trainsim.importers.importer import Importer, importers
from trainsim.importers.not_read import kind_of
from trainsim.importers.source import Source, read_source

SURE = 0.2
"""Below, nobody claims to know a file."""
MOST_FILES = 32


def import_config(
    files: str | Path | Sequence[str | Path], changes: Mapping[str, Any] | None = None, *, kind: str = ""
) -> Imported:
    """The scenario that *files* of other tools describe together, with *changes* at dotted paths.

    *kind* names the importer, where a file could be of several. Raises ScenarioError, with file, line and reason, for
    files that cannot be read, that nobody knows, or that contradict each other.
    """
    paths = [files] if isinstance(files, str | Path) else list(files)
    if not paths:
        raise ScenarioError("no file to import; name at least one, such as a config.json")
    sources = [read_source(path) for path in paths]
    return import_sources(sources, changes, kind=kind)


def import_sources(sources: Sequence[Source], changes: Mapping[str, Any] | None = None, *, kind: str = "") -> Imported:
    """As `import_config`, of texts that are at hand."""
    found = [(importer_of(source, kind), source) for source in sources]
    findings: list[Findings] = []
    given = {Path(source.shown).resolve() for source in sources}
    while found:
        importer, source = found.pop(0)
        if len(findings) == MOST_FILES:
            raise ScenarioError(f"{source.shown}: more than {MOST_FILES} files, including those they refer to")
        said = importer.load(source)
        further, missing = _followed(said.references, source, given)
        given |= {Path(other.shown).resolve() for _, other in further}
        found += further
        findings.append(replace(said, warnings=(*said.warnings, *missing)))
    return combined(findings, changes)


def importer_of(source: Source, kind: str = "") -> Importer:
    """The importer that knows *source*. Raises ScenarioError if nobody does, or several do alike."""
    if kind:
        return importers[kind]
    if source.suffix in (".json", ".toml"):
        _ = source.document  # a broken file is told as such, whoever would have read it
    ranked = sorted(((importer.sniff(source), importer) for importer in importers.values()), key=lambda s: -s[0])
    if ranked and ranked[0][0] > SURE:
        ties = [importer.name for sure, importer in ranked if sure == ranked[0][0]]
        if len(ties) > 1:
            raise ScenarioError(f"{source.shown}: could be {' or '.join(ties)}; say which with --as {ties[0]}")
        return ranked[0][1]
    if not source.text.strip():
        raise ScenarioError(f"{source.shown}: the file is empty")
    if other := kind_of(source.name, source.text):
        raise ScenarioError(f"{source.shown}: {other}")
    if source.suffix in (".yaml", ".yml"):
        _ = source.document
    known = "; ".join(f"{importer.name} ({importer.title})" for importer in importers.values())
    raise ScenarioError(f"{source.shown}: no importer knows this file. Known: {known}. --as NAME chooses one.")


def _followed(
    references: Iterable[Reference], source: Source, given: set[Path]
) -> tuple[list[tuple[Importer, Source]], list[Remark]]:
    """The files that a file names and that are there, and a warning about each of the others."""
    further: list[tuple[Importer, Source]] = []
    missing: list[Remark] = []
    for reference in references:
        if any(path.name == reference.path.name for path in given):
            continue
        path = relative_to(reference.path, source.folder)
        if path is None:
            words = f"refers to {reference.path}, which does not exist: {reference.words}; add it as another file"
            missing.append(Remark(key=reference.key, words=words, place=reference.place))
            continue
        other = read_source(path)
        further.append((importer_of(other), other))
    return further, missing
