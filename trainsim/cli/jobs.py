"""``trainsim run`` of several jobs on one machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from trainsim.cli.reading import changes_of
from trainsim.cli.writing import folder_for, print_json, render, slug
from trainsim.errors import ScenarioError, TrainsimError


def is_of_several_jobs(names: Sequence[str]) -> bool:
    """Whether the words name a file of several jobs; of what cannot be read others say why."""
    from trainsim.scenario.loading import SCENARIOS, of_several_jobs

    try:
        return len(names) == 1 and of_several_jobs(SCENARIOS.find(names[0]).data)
    except TrainsimError:
        return False


def check_without_cost(tokens: str | None, price: str | None) -> None:
    """Raise ScenarioError for a cost that is asked for of several jobs."""
    for option, value in (("--tokens", tokens), ("--price", price)):
        if value is not None:
            raise ScenarioError(f"{option} {value}: is of the training of one scenario, and several jobs are run here")


def run_several(
    name: str, changes: Sequence[str], *, out: Path | None, kinds: Sequence[str], as_json: bool, fold: bool
) -> bool:
    """Run the jobs of a file, print what came out and write the files; whether all fit in memory."""
    from trainsim.jobs.files import save
    from trainsim.jobs.running import run_jobs
    from trainsim.jobs.sections import sections
    from trainsim.report.progress import working
    from trainsim.report.text import written

    values = changes_of(changes)
    usual = Path("out") / slug("__".join((Path(name).stem, *sorted(changes))))
    folder = folder_for(out or usual) if kinds else None
    with working(Path(name).stem) as phase:
        result = run_jobs(name, values, fold=fold, phase=phase)
    if as_json:
        print_json(result.to_dict())
    else:
        render(sections(result))
    if folder:
        with working(result.name) as phase:
            phase("drawing")
            whole = "whole-trace" in kinds
            paths = save(result, folder, [*kinds, *(["trace"] if whole else [])], whole=whole)
        if as_json:
            print("\n".join(map(str, paths)), file=sys.stderr)
        else:
            render(written(paths))
    return all(job.together.memory.fits for job in result.jobs)
