"""``trainsim plan``: the layout that trains fastest on a machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainsim.cli.options import Backend, Json, Names, Price, Sets, StoreFile, Tokens, Workers, command
from trainsim.cli.reading import check_cost, grids_of, load, tell_if_long, with_cost
from trainsim.cli.writing import default_folder, folder_for, print_json, print_lines, render
from trainsim.errors import ScenarioError

if TYPE_CHECKING:
    from trainsim.scenario.scenario import Scenario
    from trainsim.study.planning.answer import Plan
    from trainsim.study.planning.plan import Question

Top = Annotated[
    int | None,
    typer.Option("--top", metavar="N", help="Layouts to list. Default: 10; with --days, 1 for the size found."),
]
Keep = Annotated[
    list[str],
    typer.Option("--keep", metavar="PATH", help="Do not vary this axis, such as pipeline.schedule; repeatable."),
]
Values = Annotated[
    list[str],
    typer.Option("--grid", metavar="PATH=V1,V2,...", help="Values to search for an axis, or for any other field."),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Folder for chart and scenarios. Default: out/plan_SCENARIO/."),
]
Wanted = Annotated[str, typer.Option("--objective", metavar="WHAT", help="What to minimise: time, cost or memory.")]
Days = Annotated[
    float | None,
    typer.Option("--days", metavar="D", help="Find how many GPUs train it in this many days; with --max-gpus."),
]
MaxGpus = Annotated[
    str | None, typer.Option("--max-gpus", metavar="N", help="Most GPUs that --days may use, such as 1024 or 16k.")
]
NoFiles = Annotated[bool, typer.Option("--no-files", help="Write no files.")]


@command
def plan(
    scenario: Names,
    changes: Sets = [],  # noqa: B006
    objective: Wanted = "time",
    top: Top = None,
    grid: Values = [],  # noqa: B006
    keep: Keep = [],  # noqa: B006
    days: Days = None,
    max_gpus: MaxGpus = None,
    tokens: Tokens = None,
    price: Price = None,
    out: Out = None,
    no_files: NoFiles = False,
    store: StoreFile = None,
    workers: Workers = None,
    backend: Backend = None,
    as_json: Json = False,
) -> None:
    """Find the layout that trains fastest.

    Searches tp, pp, dp, cp, ep, micro-batch, schedule, chunks, recomputation and sharding. With --json no files
    are written unless --out is given.
    """
    from trainsim.study.planning.plan import TOP, Question, plan_for
    from trainsim.study.planning.search import planned
    from trainsim.study.runner import Runner

    values = grids_of(grid)
    base = load(scenario, with_cost(changes, tokens, price), tried=values)
    check_cost(base, price)
    tell_if_long(base)
    sized = days is not None or max_gpus is not None
    most = top if top is not None else 1 if sized else TOP
    runner = Runner(keep=planned, workers=workers, backend=backend, store=store)
    question = Question(objective=objective, grid=values, keep=keep, top=most, runner=runner)
    if sized:
        _sized(base, question, days, max_gpus, out, as_json=as_json)
        return
    folder = _chosen(out, _folder(default_folder(base, changes)), writes=not (no_files or as_json), refused=no_files)
    found = plan_for(base, question)
    print_json(found.to_dict()) if as_json else render(found)
    if folder and found.choices:
        _write(found, folder, as_json=as_json)
    _end(found)


def _end(found: Plan) -> None:
    """Tell by the status what came of it."""
    if found.interrupted:
        raise KeyboardInterrupt
    if not found.choices:
        raise ScenarioError(found.nothing)


def _sized(
    base: Scenario, question: Question, days: float | None, most: str | None, out: Path | None, *, as_json: bool
) -> None:
    """How many GPUs are enough."""
    from trainsim.study.planning.sizing import size_for

    if days is None or most is None:
        missing = "--days 30" if days is None else "--max-gpus 1024"
        raise ScenarioError(f"--days and --max-gpus ask together how many GPUs are enough; add {missing}")
    if out is not None:
        raise ScenarioError(f"--out {out}: nothing is written with --days, which asks how many GPUs; leave out one")
    sizing = size_for(base, question, days=days, most=_gpus(most))
    print_json(sizing.to_dict()) if as_json else render(sizing)
    if sizing.interrupted:
        raise KeyboardInterrupt


def _gpus(words: str) -> int:
    """A number of GPUs as people write it. Raises ScenarioError for words that are none."""
    from trainsim.scenario.fields import whole

    try:
        return int(str(whole(words)))
    except ValueError as error:
        raise ScenarioError(f"--max-gpus {words}: {error}") from None


def _chosen(out: Path | None, usual: Path, *, writes: bool, refused: bool) -> Path | None:
    """The folder to write to, if any."""
    if out is not None and refused:
        raise ScenarioError("--no-files writes nothing: leave out --out, or --no-files")
    return folder_for(out or usual) if out is not None or writes else None


def _folder(usual: Path) -> Path:
    return usual.with_name(f"plan_{usual.name}")


def _write(found: Plan, folder: Path, *, as_json: bool) -> None:
    """The chart, the table, and the scenario of each layout."""
    from trainsim.study.planning.picture import plan_chart

    chart, table = folder / "plan.png", folder / "plan.csv"
    frame = found.frame()
    plan_chart(frame).savefig(chart)
    frame.to_csv(table, index=False)
    files = [chart, table]
    for number in range(len(found.choices)):
        files.append(folder / f"layout_{number + 1}.yaml")
        files[-1].write_text(found.scenario(number).to_yaml(), encoding="utf-8")
    first, last = files[2], files[-1]
    several = f" to {last.name}" if last != first else ""
    words = f"Written: {chart}, {table}, {first.name}{several}"
    if as_json:
        print(words, file=sys.stderr)
    else:
        print_lines([words, f"The best one: trainsim run {first}"])
