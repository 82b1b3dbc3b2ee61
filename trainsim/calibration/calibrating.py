"""``ts.calibrate``: files of measurements in, overrides out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import UnionType
from typing import Any

from trainsim.calibration.bases import Bases, bases_of
from trainsim.calibration.calibration import Calibration, joined
from trainsim.calibration.fit import fits
from trainsim.calibration.measurements import Measurements, together
from trainsim.calibration.reader import reader_of, text_of
from trainsim.errors import ScenarioError
from trainsim.scenario.scenario import Scenario

MOST_FILES = 4096


def calibrate(
    files: str | Path | Sequence[str | Path],
    *,
    scenario: Scenario | str | Path | None = None,
    base: str | Sequence[str] = (),
) -> Calibration:
    """The constants that *files* of measurements tell: logs of nccl-tests, traces of the PyTorch profiler, tables of
    steps (docs/calibrate.md).

    *base* names the nearest topology, framework and GPU that ship, or files of one's own, whichever are needed; left
    out, those of the *scenario*, or what the files say. Raises ScenarioError for files that nobody knows, that are
    damaged, or that tell nothing.
    """
    if not (scenario is None or isinstance(scenario, Scenario | str | Path)):
        raise ScenarioError(f"scenario={scenario!r}: expected a Scenario, the name of one, or its file")
    job = Scenario.load(scenario) if isinstance(scenario, str | Path) else scenario
    bases = bases_of(_several("base", base, str, "the name of a topology, framework or GPU, or several"), job)
    return calibrated(measurements_of(files), bases)


def _several(name: str, given: Any, kind: type | UnionType, wants: str) -> list[Any]:
    """*given*, one of a *kind* or several, as a list. Raises ScenarioError for anything else."""
    listed = [given] if isinstance(given, kind) else given
    if not isinstance(listed, Iterable) or isinstance(listed, str | bytes | Mapping):
        raise ScenarioError(f"{name}={given!r}: expected {wants}")
    listed = list(listed)
    if wrong := [one for one in listed if not isinstance(one, kind)]:
        raise ScenarioError(f"{name}={given!r}: expected {wants}, and {wrong[0]!r} is none")
    return listed


def measurements_of(files: str | Path | Sequence[str | Path]) -> Measurements:
    """All that *files* say. Raises ScenarioError for none, too many, the same twice, and for what cannot be
    read."""
    paths = _several("files", files, str | Path, "the path of a file of measurements, or several")
    if not paths:
        raise ScenarioError("no file to calibrate with; name at least one, such as all_reduce.log, or use --measure")
    if len(paths) > MOST_FILES:
        raise ScenarioError(f"{len(paths)} files are more than {MOST_FILES}; give fewer, such as one per kind of rank")
    return together(_each_once(paths))


def _each_once(paths: Iterable[str | Path]) -> Iterator[Measurements]:
    """What each of *paths* says. Raises ScenarioError for two that say the same, which would count twice."""
    seen: dict[bytes, str | Path] = {}
    for path in paths:
        text = text_of(Path(path))
        digest = sha256(text.text.encode()).digest()
        if earlier := seen.get(digest):
            same = "is given twice" if str(earlier) == str(path) else f"says the same as {earlier}"
            raise ScenarioError(f"{path}: {same}, and its measurements would count twice; leave one out")
        seen[digest] = path
        yield reader_of(text).load(text)


def calibrated(measured: Measurements, bases: Bases, phase: Callable[[str], None] = lambda name: None) -> Calibration:
    """What *measured* tells of *bases*; *phase* is told what is being done. Raises ScenarioError if that is nothing."""
    measured = _usable(measured, bases)
    parts = [fit.run(measured, bases, phase) for fit in fits.values() if fit.applies(measured)]
    if not parts:
        raise ScenarioError("nothing in these files can be fitted: no collective, no launch, no kernel and no step")
    made = joined(parts)
    return Calibration(
        constants=made.constants,
        compared=made.compared,
        kept=made.kept,
        facts=(*measured.facts, *made.facts),
        warnings=(*measured.warnings, *made.warnings),
        documents=made.documents,
    )


def _usable(measured: Measurements, bases: Bases) -> Measurements:
    """Without collectives of traces, unless the machine is named: in a step they also wait for other ranks."""
    traced = [sweep for sweep in measured.sweeps if sweep.traced]
    if not traced or bases.topology:
        return measured
    kinds = ", ".join(dict.fromkeys(f"{sweep.operation} of {sweep.ranks}" for sweep in traced))
    said = f"traces have collectives with their sizes ({kinds}); name the machine with --base to fit them too"
    rest = tuple(sweep for sweep in measured.sweeps if not sweep.traced)
    return replace(measured, sweeps=rest, warnings=(*measured.warnings, said))
