"""What a run of several jobs leaves behind in a directory."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from trainsim.report.files import FILES, USUAL, save_pictures
from trainsim.report.files import save as save_one

if TYPE_CHECKING:
    from trainsim.jobs.outcome import JobsResult


def save(
    result: JobsResult, directory: Path, kinds: Collection[str] = USUAL, *, whole: bool = False
) -> tuple[Path, ...]:
    """Write jobs.json and the picture of all jobs, and into a folder for each job what ``run`` writes of one: files of
    *kinds* (keys of FILES); *whole*: every span of a pipeline. The paths, in that order."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    if "result" in kinds:
        paths.append(directory / "jobs.json")
        text = json.dumps(result.to_dict(), indent=1, allow_nan=False, default=str)
        paths[-1].write_text(text + "\n", encoding="utf-8")
    if pictures := [directory / FILES[kind] for kind in ("gantt", "svg") if kind in kinds]:
        save_pictures(result.gantt(), pictures)
        paths += pictures
    for k, job in enumerate(result.jobs):
        paths += save_one(job.together, directory / folder_of(k, job.name), kinds, whole_trace=whole)
    return tuple(paths)


def folder_of(k: int, name: str) -> str:
    """The folder of job number *k*.

    >>> folder_of(0, "big/job"), folder_of(1, "..")
    ('1_big_job', '2_..')
    """
    return f"{k + 1}_" + "".join(c if c.isalnum() or c in "-_.=" else "_" for c in name)[:100]
