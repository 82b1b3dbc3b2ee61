"""
Traces of the PyTorch profiler: JSON of Kineto, packed by gzip or not, a file per rank or one of several.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainsim.contracts.measured_trace import MeasuredTrace
from trainsim.errors import ScenarioError
from trainsim.measured.file import MeasuredFile
from trainsim.measured.kineto import ProfiledFile, measured, profiled
from trainsim.measured.own_files import is_own, own_trace
from trainsim.measured.reader import TraceReader, TraceRequest, register
from trainsim.measured.trace_events import TraceFile, trace_of


def load(files: Sequence[MeasuredFile], request: TraceRequest) -> MeasuredTrace:
    """The step in *files*. Those of a machine are let go of one by one before the next is read.

    Raises ScenarioError for files of which some are of a machine and some of a simulation.
    """
    own: list[TraceFile] = []
    others: list[ProfiledFile] = []
    for file in files:
        trace = trace_of(file.shown, file.text())
        if is_own(trace):
            own.append(trace)
        else:
            others.append(profiled(trace))
    if own and others:
        raise ScenarioError(
            f"{own[0].shown} is a simulation and {others[0].shown} is not: read them one by one, or compare the two"
        )
    return own_trace(own, request) if own else measured(others, request)


def sniff(file: MeasuredFile) -> float:
    """Sure where a list of trace events begins."""
    start = file.start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start[:1] not in (b"{", b"["):
        return 0.0
    if b'"traceEvents"' in start:
        return 0.9
    return 0.5 if b'"ph"' in start or b"schemaVersion" in start or b"distributedInfo" in start else 0.25


register(TraceReader(name="pytorch-profiler", title="traces of the PyTorch profiler", sniff=sniff, load=load))
