"""
The registry of readers of measured traces, and how files find theirs: each says how sure it is, and the surest reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainsim.contracts.measured_trace import MeasuredTrace
from trainsim.errors import ScenarioError
from trainsim.measured.file import MeasuredFile
from trainsim.registry import Registry

SURE = 0.2
"""Below, nobody claims to know a file."""
MOST_NAMED = 3
"""Files that a message names; more say nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """What to read of files: the ``step`` with this number there, ``all``, or None for one that stands for the rest;
    ``name`` is what the trace is called, None: as its files are."""

    step: int | str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReader:
    """One format. ``sniff`` says how sure it is (0 to 1) that a file is its own; ``load`` makes one trace of files that
    belong together (a file per rank, or one of all), and raises ScenarioError where nothing in them can be used."""

    name: str
    title: str
    sniff: Callable[[MeasuredFile], float]
    load: Callable[[Sequence[MeasuredFile], TraceRequest], MeasuredTrace]


trace_readers: Registry[TraceReader] = Registry("format of measured traces", "trainsim.measured.readers")
"""The formats that are known, by name."""


def register(reader: TraceReader) -> TraceReader:
    """Add *reader* to the registry."""
    return trace_readers.register(reader.name)(reader)


def reader_of(file: MeasuredFile) -> TraceReader | None:
    """The reader that knows *file*; None if nobody does."""
    sure = {name: reader.sniff(file) for name, reader in trace_readers.items()}
    best = max(sure, key=lambda name: sure[name], default="")
    return trace_readers[best] if sure.get(best, 0.0) > SURE else None


def load(files: Sequence[MeasuredFile], request: TraceRequest) -> MeasuredTrace:
    """The trace that *files* are together. Raises ScenarioError for files of no format that is known, or of several."""
    known = {file.shown: reader_of(file) for file in files}
    for shown, reader in known.items():
        if reader is None:
            titles = "; ".join(reader.title for reader in trace_readers.values())
            raise ScenarioError(f"{shown}: is not a known kind of trace. Known: {titles}.")
    readers = [reader for reader in known.values() if reader is not None]
    usual = max(readers, key=readers.count)
    if odd := [shown for shown, reader in known.items() if reader is not usual]:
        more = f" and {len(odd) - MOST_NAMED} more" if len(odd) > MOST_NAMED else ""
        raise ScenarioError(
            f"all files of a trace must have the same format; these are not {usual.title} like the rest, leave them "
            f"out: {', '.join(odd[:MOST_NAMED])}{more}"
        )
    return usual.load(files, request)
