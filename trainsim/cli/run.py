"""``trainsim run``: one scenario, printed and written to files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainsim.cli.jobs import check_without_cost, is_of_several_jobs, run_several
from trainsim.cli.options import Files, Json, Names, Price, Ranks, Sets, Tokens, command
from trainsim.cli.reading import check_cost, load, tell_if_long, with_cost, words
from trainsim.cli.trace_ranks import check_ranks, ranks_in
from trainsim.cli.writing import default_folder, folder_for, print_json, print_lines, render
from trainsim.errors import ScenarioError, UnknownName

if TYPE_CHECKING:
    from trainsim.result.result import Result
    from trainsim.scenario.scenario import Scenario

NO = 1  # exit status of a scenario that ran and whose answer is "no"
NONE, WHOLE_TRACE = "none", "whole-trace"


@command
def run(
    scenario: Names,
    changes: Sets = [],  # noqa: B006
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder for the files. Default: out/SCENARIO__CHANGES/.")
    ] = None,
    files: Files = None,
    ranks: Ranks = None,
    no_files: Annotated[bool, typer.Option("--no-files", help="The same as --files none.")] = False,
    as_json: Json = False,
    no_fold: Annotated[
        bool, typer.Option("--no-fold", help="Simulate every rank individually: slow, same numbers.")
    ] = False,
    tokens: Tokens = None,
    price: Price = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if it does not fit in memory.")] = False,
) -> None:
    """Simulate a step: numbers, charts, a trace and a report.

    Also takes a file with several jobs on one machine. With --json no files are written without --files or --out.
    """
    kinds = chosen(files, out=out, no_files=no_files, as_json=as_json)
    several = is_of_several_jobs(scenario)
    check_ranks(ranks, kinds, several=several)
    if several:
        check_without_cost(tokens, price)
        fit = run_several(scenario[0], changes, out=out, kinds=kinds, as_json=as_json, fold=not no_fold)
        raise typer.Exit(NO if strict and not fit else 0)
    changes = with_cost(changes, tokens, price)
    base = load(scenario, changes)
    check_cost(base, price)
    if no_fold:
        base = base.replace({"simulation.fold": False})
    wanted = None if ranks is None else ranks_in(ranks, base.resolve().parallel.ranks)
    folder = folder_for(out or default_folder(base, changes)) if kinds else None
    result = _printed(base, scenario, changes, as_json=as_json)
    if folder:
        _write(result, folder, kinds, wanted, as_json=as_json)
    if strict and not result.memory.fits:
        raise typer.Exit(NO)


def chosen(files: str | None, *, out: Path | None, no_files: bool, as_json: bool) -> tuple[str, ...]:
    """The kinds of files to write, from the options of the command line."""
    from trainsim.report.files import FILES, USUAL

    if no_files and (files or out):
        raise ScenarioError("--no-files writes nothing: leave out --files and --out, or --no-files")
    if files is None:
        return () if no_files or (as_json and not out) else USUAL
    asked = tuple(word.strip() for word in files.split(",") if word.strip())
    if asked == (NONE,):
        return ()
    if not asked:
        raise ScenarioError(f"--files {files!r}: expected some of {', '.join(FILES)}, or {NONE}")
    if NONE in asked:
        raise ScenarioError(f"--files {files!r}: {NONE} stands alone; leave it out, or leave out the others")
    known = (*FILES, WHOLE_TRACE)
    if unknown := next((word for word in asked if word not in known), None):
        raise UnknownName("kind of file", unknown, (*known, NONE))
    return tuple(kind for kind in known if kind in asked)


def _printed(base: Scenario, scenario: Sequence[str], changes: Sequence[str], *, as_json: bool) -> Result:
    """Run it and print what came out."""
    from trainsim.report.long_runs import why_long
    from trainsim.report.progress import working
    from trainsim.report.resolved import resolved_section
    from trainsim.report.text import summary

    if not as_json:
        render(resolved_section(base.resolved))
    job, told = base.resolve(), tell_if_long(base)
    with working(base.name, None if told else lambda: why_long(job)) as phase:
        result = base.run(phase)
        phase("summing up")
        answer = result.to_dict() if as_json else summary(result)
    if isinstance(answer, dict):
        print_json(answer)
        return result
    render(answer)
    if not result.memory.fits:
        print_lines([f"What would make it fit: {words('trainsim show memory', scenario, changes)}", ""])
    return result


def _write(result: Result, folder: Path, kinds: Sequence[str], ranks: Sequence[int] | None, *, as_json: bool) -> None:
    from trainsim.report.chrome import excerpt
    from trainsim.report.files import save
    from trainsim.report.long_runs import why_long
    from trainsim.report.progress import working
    from trainsim.report.text import written

    with working(result.name, lambda: why_long(result.job)) as phase:
        phase("drawing")
        whole = WHOLE_TRACE in kinds  # every span of a pipeline, however large the file
        paths = save(result, folder, [*kinds, *(["trace"] if whole else [])], whole_trace=whole, ranks=ranks)
    if as_json:
        print("\n".join(map(str, paths)), file=sys.stderr)
    else:
        part = excerpt(result).words if "trace" in kinds and not whole and ranks is None else ""
        render(written(paths, excerpt=part))
