"""``ts.read_trace``: measured traces as results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainsim.errors import ScenarioError
from trainsim.garbage import no_search_for_cycles
from trainsim.measured.file import measured_file
from trainsim.measured.reader import TraceRequest, load, trace_readers
from trainsim.result.measured_result import MeasuredResult


def read_trace(
    paths: str | Path | Sequence[str | Path], *, step: int | str | None = None, name: str | None = None
) -> MeasuredResult:
    """The step that files of a profiler hold, one per rank or one of all, with the numbers and pictures of a simulated
    one: ``step_time``, ``breakdown``, ``bubble``, ``critical_path``, ``gantt()``, ``timeline()``, ...

    *step* is the number of a step that the files mark, or ``all`` of them back to back; None takes the one of median
    length, and ``measured.part`` says which. A folder stands for the files in it. Raises ScenarioError for files that
    cannot be read as traces.
    """
    given = [file for path in ([paths] if isinstance(paths, str | Path) else paths) for file in files_at(path)]
    if not given:
        raise ScenarioError("no trace files; give one per rank, or one with all ranks")
    if step is not None and step != "all" and (isinstance(step, bool) or not isinstance(step, int)):
        raise ScenarioError(f"step {step!r}: expected the number of a step in the files, or all")
    files = [measured_file(path) for path in given]
    with no_search_for_cycles():
        return MeasuredResult(measured=load(files, TraceRequest(step=step, name=name)))


ENDINGS = (".json", ".json.gz", ".parquet")
"""What files of traces in a folder end in."""
CERTAIN = 0.5
"""From here on a reader is sure that a file is a trace, and not some other file of the kind."""


def files_at(path: str | Path) -> list[Path]:
    """The file at *path*, or the files of traces in a folder. Raises ScenarioError for a folder without any."""
    folder = Path(path)
    if not folder.is_dir():
        return [folder]
    found = sorted(file for file in folder.iterdir() if file.name.endswith(ENDINGS) and file.is_file())
    if not found:
        raise ScenarioError(f"{path}: the folder has no trace files; they end in {', '.join(ENDINGS)}")
    return found


def is_trace(path: str | Path) -> bool:
    """Whether *path* is a measured trace, or a folder of them, rather than a scenario."""
    place = Path(path)
    if place.is_dir():
        return any(file.name.endswith(ENDINGS) for file in place.iterdir())
    if not place.is_file() or not place.name.endswith(ENDINGS):
        return False
    file = measured_file(place)
    return any(reader.sniff(file) >= CERTAIN for reader in trace_readers.values())
