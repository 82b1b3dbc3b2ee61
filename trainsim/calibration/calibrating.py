"""``ts.calibrate``: files of measurements in, overrides out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from trainsim.calibration.bases import Bases, bases_of
from trainsim.calibration.calibration import Calibration, joined
from trainsim.calibration.fit import fits
from trainsim.calibration.measurements import Measurements, together
from trainsim.calibration.reader import read
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
    job = Scenario.load(scenario) if isinstance(scenario, str | Path) else scenario
    bases = bases_of([base] if isinstance(base, str) else base, job)
    return calibrated(measurements_of(files), bases)


def measurements_of(files: str | Path | Sequence[str | Path]) -> Measurements:
    """All that *files* say. Raises ScenarioError for none, too many, and for what cannot be read."""
    paths = [files] if isinstance(files, str | Path) else list(files)
    if not paths:
        raise ScenarioError("no file to calibrate with; name at least one, such as all_reduce.log, or use --measure")
    if len(paths) > MOST_FILES:
        raise ScenarioError(f"{len(paths)} files are more than {MOST_FILES}; give fewer, such as one per kind of rank")
    return together(map(read, paths))


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
