"""``ts.read_trace``: measured traces as results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainsim.errors import ScenarioError
from trainsim.measured.file import measured_file
from trainsim.measured.reader import TraceRequest, load
from trainsim.result.measured_result import MeasuredResult


def read_trace(
    paths: str | Path | Sequence[str | Path], *, step: int | str | None = None, name: str | None = None
) -> MeasuredResult:
    """The step that files of a profiler hold, one per rank or one of all, with the numbers and pictures of a simulated
    one: ``step_time``, ``breakdown``, ``bubble``, ``critical_path``, ``gantt()``, ``timeline()``, ...

    *step* is the number of a step that the files mark, or ``all`` of them back to back; None takes the one of median
    length, and ``measured.part`` says which. Raises ScenarioError for files that cannot be read as traces.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given:
        raise ScenarioError("no files to read a trace from; name one per rank, or one of all ranks")
    if step is not None and step != "all" and (isinstance(step, bool) or not isinstance(step, int)):
        raise ScenarioError(f"step {step!r}: wants the number of a step in the files, or all")
    return MeasuredResult(measured=load([measured_file(path) for path in given], TraceRequest(step=step, name=name)))
