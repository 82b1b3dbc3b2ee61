"""``trainsim calibrate``: measurements as overrides of a topology, a framework or a GPU."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainsim.cli.options import Json, Sets
from trainsim.cli.reading import load
from trainsim.cli.writing import print_json, render, try_drawing, try_first, try_writing
from trainsim.errors import ScenarioError

if TYPE_CHECKING:
    from trainsim.calibration.calibration import Calibration

Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the override here (.yaml).")]
Base = Annotated[
    list[str],
    typer.Option(
        "--base", "--topology", "--framework", "--gpu", metavar="NAME",
        help="The closest built-in topology, framework or GPU, or a file; repeatable.",
    ),
]  # fmt: skip
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Plot measured against simulated times (.png, .svg).")
]


def calibrate(
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE", help="Logs, traces, tables.")] = None,
    scenario: Annotated[
        str | None,
        typer.Option("--scenario", metavar="NAME", help="The scenario that a table of steps varies, by name or file."),
    ] = None,
    changes: Sets = [],  # noqa: B006
    base: Base = [],  # noqa: B006
    measure: Annotated[
        bool, typer.Option("--measure", help="Time kernels and copies on the GPU of this machine; needs PyTorch.")
    ] = False,
    out: Out = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Fit constants to your own measurements.

    Understood are logs of nccl-tests, traces of the PyTorch profiler and tables of measured steps, several at once.
    What they do not tell stays as it is.
    """
    from trainsim.calibration.bases import bases_of
    from trainsim.calibration.calibrating import calibrated, measurements_of
    from trainsim.calibration.measurements import together
    from trainsim.calibration.measuring import measure_here
    from trainsim.report.progress import working

    if changes and scenario is None:
        raise ScenarioError("--set changes a scenario; name one with --scenario")
    bases = bases_of(base, load(scenario, changes) if scenario is not None else None)
    _try(out, plot, read=[*(files or ()), *base, scenario])
    with working("calibrate") as phase:
        phase("measuring" if measure else "reading")
        here = [measure_here(phase)] if measure else []
        read = [measurements_of(files or [])] if files or not measure else []
        found = calibrated(together([*here, *read]), bases, phase)
    print_json(found.to_dict()) if as_json else render(found)
    if out:
        _write(found, out)
    if plot:
        _draw(found, plot)


def _try(out: Path | None, plot: Path | None, *, read: Sequence[str | None]) -> None:
    """Fail now if a file cannot be written, or is one of those that are *read*."""
    if out and out.suffix not in (".yaml", ".yml"):
        raise ScenarioError(f"--out {out}: an override is a .yaml file")
    try_first({"--out": (out, try_writing), "--plot": (plot, try_drawing)}, read=read)


def _write(found: Calibration, out: Path) -> None:
    """Each override as a file; beside the first one, others are called by their kind."""
    uses = {"topology": "cluster.topology", "framework": "framework", "gpu": "cluster.gpu", "scenario": "trainsim run"}
    for number, kind in enumerate(found.documents):
        file = out if number == 0 else out.with_suffix(f".{kind}{out.suffix}")
        file.write_text(found.to_yaml(kind), encoding="utf-8")
        print(f"Written: {file} (for {uses[kind]})", file=sys.stderr)


def _draw(found: Calibration, plot: Path) -> None:
    from trainsim.calibration.picture import draw

    draw(found).savefig(plot, bbox_inches="tight")
    print(f"Drawn: {plot}", file=sys.stderr)
