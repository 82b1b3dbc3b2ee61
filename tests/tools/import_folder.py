"""
Every file of a folder imported and run, or refused: a table with the reason.

    python -m tests.tools.import_folder FOLDER [--set cluster.topology=dgx_h100 ...]

A file that says no model, or no machine, is completed with those of --model and --set; what was completed is told.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.importing import USUAL
from trainsim.cli.reading import changes_of
from trainsim.errors import TrainsimError
from trainsim.importers.imported import Imported
from trainsim.importers.importing import import_config

BARE = {"simulation.detail": "block"}


def attempt(path: Path, changes: dict[str, object]) -> tuple[str, str]:
    """The importer (or `refused`) and what came of it."""
    try:
        imported = import_config(path, changes)
        importer = next(iter(imported.files.values()))
    except TrainsimError as error:
        return "refused", str(error).replace(f"{path}", path.name)
    given = _given(imported)
    try:
        result = import_config(path, {**given, **changes, **BARE}).complete.run()
    except TrainsimError as error:
        return importer, f"read; not run: {str(error).replace(f'{path}', path.name)}"
    added = f" (with {', '.join(f'{k}={v}' for k, v in given.items())})" if given else ""
    fits = "fits" if result.memory.fits else "does not fit"
    ranks = result.job.parallel.ranks
    return importer, f"{ranks} GPUs, {result.step_time:.4g} s a step, {fits}; {_counts(imported)}{added}"


def _given(imported: Imported) -> dict[str, object]:
    """What the file leaves open, with something in its place."""
    return {key: USUAL[key] for key in imported.missing}


def _counts(imported: Imported) -> str:
    return f"{len(imported.used)} used, {len(imported.ignored)} without effect, {len(imported.warnings)} not modelled"


def rows(folder: Path, changes: dict[str, object]) -> Iterator[str]:
    """A line of a table per file."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        importer, words = attempt(path, changes)
        yield f"| {path.relative_to(folder)} | {importer} | {' '.join(words.split())[:400]} |"


def main() -> None:
    """Print the table."""
    folder, *words = sys.argv[1:]
    changes = changes_of(word for word in words if word != "--set")
    print("| file | importer | what came of it |\n|---|---|---|")
    for row in rows(Path(folder), changes):
        print(row, flush=True)


if __name__ == "__main__":
    main()
