"""Measured traces on the command line: ``show trace``, and ``compare`` with a scenario or with another trace."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from trainsim.cli.options import Json
from trainsim.cli.reading import load
from trainsim.cli.writing import print_json, render, save_figure, try_drawing
from trainsim.errors import ScenarioError

StepOfTrace = Annotated[
    str | None,
    typer.Option("--step", metavar="N", help="Of a trace: the step with this number there, or all of them."),
]
Traces = Annotated[list[str], typer.Argument(metavar="FILE", help="Traces of a profiler, or a folder of them.")]


def show_trace(
    files: Traces,
    step: StepOfTrace = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Draw the Gantt chart here (.png, .svg, .pdf).")
    ] = None,
    as_json: Json = False,
) -> None:
    """A measured step: where its time goes, and its Gantt chart."""
    from trainsim.measured.comparison import few
    from trainsim.measured.reading import read_trace
    from trainsim.measured.summary import measured_dict

    if out:
        try_drawing(out)
    result = read_trace(files, step=step_of(step))
    print_json(measured_dict(result)) if as_json else render(result)
    if out:
        with redirect_stdout(sys.stderr if as_json else sys.stdout):
            save_figure(result.gantt(ranks=few(range(result.lanes.ranks))), out)


def step_of(text: str | None) -> int | str | None:
    """What ``--step`` says. Raises ScenarioError for what is not a number of a step.

    >>> step_of("5"), step_of("all"), step_of(None)
    (5, 'all', None)
    """
    if text is None or text == "all":
        return text
    if not text.isdecimal() or len(text) > 15:
        raise ScenarioError(f"--step {text}: expected the number of a step in the files, or all")
    return int(text)


def measured_among(names: Sequence[str]) -> list[str]:
    """Which of *names* are measured traces. Raises ScenarioError for a file that is not there or cannot
    be read."""
    from trainsim.measured.reading import ENDINGS, is_trace

    for name in names:
        if name.endswith(ENDINGS) and not Path(name).exists():
            raise ScenarioError(f"{name}: no such file")
    return [name for name in names if (name.endswith(ENDINGS) or Path(name).is_dir()) and is_trace(name)]


def show_measured(
    names: Sequence[str], traces: Sequence[str], changes: Sequence[str], *, step: str | None, out: Path | None,
    as_json: bool, refused: Mapping[str, Any],
) -> None:  # fmt: skip
    """A scenario beside the traces, or, where there is none, the first trace beside the second."""
    from trainsim.measured.comparing import compare_with_trace
    from trainsim.measured.reading import read_trace

    for option, value in refused.items():
        if value:
            raise ScenarioError(f"{option}: is for scenarios; a scenario beside traces is run once")
    scenarios = [name for name in names if name not in traces]
    if len(scenarios) > 1 or (not scenarios and len(traces) != 2):
        raise ScenarioError(
            f"{len(scenarios)} scenarios and {len(traces)} traces: compare needs one scenario and the traces of one "
            "run, or two traces; put the files of a run's ranks into a folder and name the folder"
        )
    if out:
        try_drawing(out)
    if scenarios:
        both = compare_with_trace(load(scenarios[0], changes), list(traces), step=step_of(step))
    elif changes:
        raise ScenarioError(f"--set {changes[0]}: changes a scenario, and these are traces")
    else:
        first, second = (read_trace(name, step=step_of(step)) for name in traces)
        both = compare_with_trace(first, second)
    print_json(both.to_dict()) if as_json else render(both)
    if out:
        with redirect_stdout(sys.stderr if as_json else sys.stdout):
            save_figure(both.gantt(), out)
