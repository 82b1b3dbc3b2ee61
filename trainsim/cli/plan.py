"""``trainsim plan``: the layout that trains fastest on a machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainsim.cli.options import Backend, Json, Names, Price, Sets, StoreFile, Tokens, Workers, command
from trainsim.cli.reading import check_cost, grids_of, load, with_cost
from trainsim.cli.writing import default_folder, folder_for, print_json, print_lines, render
from trainsim.errors import ScenarioError

if TYPE_CHECKING:
    from trainsim.study.planning.plan import Plan

Top = Annotated[int, typer.Option("--top", metavar="N", help="Layouts to list.")]
Keep = Annotated[
    list[str], typer.Option("--keep", metavar="PATH", help="Leave an axis as it is, such as pipeline.schedule.")
]
Values = Annotated[
    list[str],
    typer.Option("--grid", metavar="PATH=V1,V2,...", help="Choose among these values of an axis, or of any field."),
]


Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Chart and scenarios: default out/plan_SCENARIO/.")
]


Wanted = Annotated[
    str, typer.Option("--objective", metavar="WHAT", help="What to have least of: time, cost or memory.")
]
NoFiles = Annotated[bool, typer.Option("--no-files", help="Write nothing.")]


@command
def plan(
    scenario: Names,
    changes: Sets = [],  # noqa: B006
    objective: Wanted = "time",
    top: Top = 10,
    grid: Values = [],  # noqa: B006
    keep: Keep = [],  # noqa: B006
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

    Searches tp, pp, dp, cp, ep, micro-batch, schedule, chunks, recomputation and sharding. With --json nothing is
    written unless --out asks for it.
    """
    from trainsim.study.planning.plan import Question, plan_for
    from trainsim.study.planning.search import planned
    from trainsim.study.runner import Runner

    values = grids_of(grid)
    base = load(scenario, with_cost(changes, tokens, price), tried=values)
    check_cost(base, price)
    if no_files and out:
        raise ScenarioError("--no-files writes nothing: leave out --out, or --no-files")
    writes = out is not None or not (no_files or as_json)
    folder = folder_for(out or _folder(default_folder(base, changes))) if writes else None
    runner = Runner(keep=planned, workers=workers, backend=backend, store=store)
    found = plan_for(base, Question(objective=objective, grid=values, keep=keep, top=top, runner=runner))
    print_json(found.to_dict()) if as_json else render(found)
    if folder and found.choices:
        _write(found, folder, as_json=as_json)
    if found.interrupted:
        raise KeyboardInterrupt
    if not found.choices:
        raise ScenarioError(found.nothing)


def _folder(usual: Path) -> Path:
    return usual.with_name(f"plan_{usual.name}")


def _write(found: Plan, folder: Path, *, as_json: bool) -> None:
    """The chart, the table, and the scenario of each layout."""
    chart, table = folder / "plan.png", folder / "plan.csv"
    found.chart().savefig(chart)
    found.frame().to_csv(table, index=False)
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
