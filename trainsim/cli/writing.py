"""What goes to the terminal and to files; no other module of the package prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainsim.errors import ScenarioError, TrainsimError

if TYPE_CHECKING:
    from pandas import DataFrame

    from trainsim.scenario.scenario import Scenario


LONGEST = 120
"""Letters of a folder's name."""


def default_folder(base: Scenario, changes: Iterable[str] = ()) -> Path:
    """Where the files of a scenario go: each variant (``--set``) has a folder of its own, such as
    ``out/bloom_3d__parallel.tp=8``."""
    return Path("out") / slug("__".join((Path(base.origin.file).stem or base.name, *sorted(changes))))


def slug(name: str) -> str:
    """*name* as that of a file; a long one ends in a few letters that tell it from others.

    >>> slug("bloom_3d__cluster.nic_bandwidth=25 GB/s"), len(slug("x" * 500))
    ('bloom_3d__cluster.nic_bandwidth=25_GB_s', 120)
    """
    from hashlib import sha256

    text = "".join(c if c.isalnum() or c in "-_.=" else "_" for c in name)
    if len(text) <= LONGEST:
        return text
    mark = sha256(name.encode()).hexdigest()[:8]
    return f"{text[: LONGEST - len(mark) - 2]}__{mark}"


def folder_for(path: Path) -> Path:
    """*path*, made and tried out before any work is done."""
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(20, "is a file, where files are to go into a folder; name another", str(path))
    path.mkdir(parents=True, exist_ok=True)
    if not os.access(path, os.W_OK):
        raise PermissionError(13, "no permission to write", str(path))
    return path


def try_writing(file: Path) -> None:
    """Fail now, not after an hour, if *file* cannot be written; nothing is left of the attempt."""
    folder_for(file.parent)
    new = not file.exists()
    with file.open("a"):
        pass
    if new:
        file.unlink()


def keep_apart(option: str, file: Path, read: Iterable[str | Path | None]) -> None:
    """Refuse to write *file*, which an *option* names, over one of those that are *read*."""
    for other in read:
        if other is not None and file.exists() and Path(other).exists() and file.samefile(other):
            raise ScenarioError(f"{option} {file}: is a file that is read here and would be lost; give another name")


def try_parquet(file: Path) -> None:
    """The same for a file of Parquet, which pandas writes with another library."""
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise TrainsimError(f"--parquet {file}: needs pyarrow: pip install 'trainsim[parquet]'; or write --csv")
    try_writing(file)


def save_parquet(frame: DataFrame, file: Path) -> None:
    """*frame* as Parquet, whose columns hold values of one type: where there are several, as text."""
    mixed = [name for name, column in frame.items() if column.dtype == object and column.map(type).nunique() > 1]
    texts = frame.assign(**{str(name): frame[name].map(_text) for name in mixed})
    texts.to_parquet(file, index=False)


def _text(value: Any) -> str | None:
    return None if value is None or value != value else str(value)


def try_first(
    files: Mapping[str, tuple[Path | None, Callable[[Path], None]]], *, read: Iterable[str | Path | None]
) -> None:
    """Fail now if a file that an option names cannot be written, or is one of those that are *read*: each option has
    its file and what tries it out."""
    inputs = list(read)
    for option, (file, attempt) in files.items():
        if file:
            keep_apart(option, file, inputs)
            attempt(file)


def try_drawing(file: Path, *, graphs: Iterable[str] = ()) -> None:
    """The same for a picture, whose kind is the ending of its name; *graphs* are the endings of files of a graph, which
    somebody else writes."""
    from matplotlib.figure import Figure

    kinds = sorted(Figure().canvas.get_supported_filetypes())
    if file.suffix.removeprefix(".").lower() not in kinds:
        others = f"; {' or '.join(graphs)} is its graph" if graphs else ""
        raise TrainsimError(
            f"{file}: the ending says what kind of picture it is: .png, .svg or .pdf; also {', '.join(kinds)}{others}"
        )
    try_writing(file)


def picture_file(file: Path) -> Path:
    """*file* as the one of a chart. Raises ScenarioError and IsADirectoryError for what cannot be one."""
    from trainsim.report.files import PICTURES

    if file.suffix.removeprefix(".") not in PICTURES:
        raise ScenarioError(f"--out {file}: the picture is a {' or '.join(f'.{kind}' for kind in PICTURES)} file")
    if file.is_dir():
        raise IsADirectoryError(21, "is a directory", str(file))
    return file


def print_lines(lines: Iterable[str]) -> None:
    """Plain text on standard output."""
    for line in lines:
        print(line)


def print_json(value: dict[str, Any]) -> None:
    """One JSON object on standard output; a date of a scenario is written as YAML would."""
    import json

    letters = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(json.dumps(value, ensure_ascii=not letters.lower().startswith("utf"), default=str))


def render(thing: Any) -> None:
    """Text, tables and sections on standard output, by rich."""
    from rich.console import Console

    from trainsim.tables.blocks import Section
    from trainsim.tables.table import Table
    from trainsim.tables.terminal import rich_sections, rich_table

    if isinstance(thing, Table):
        shown: Any = rich_table(thing)
    elif isinstance(thing, Section | list):
        shown = rich_sections(thing if isinstance(thing, list) else [thing])
    else:
        shown = thing
    Console(highlight=False).print(shown)


def save_figure(figure: Any, file: Path) -> None:
    """A matplotlib figure as a file; its format is the name's ending."""
    try:
        figure.savefig(file, bbox_inches="tight")
    except ValueError as error:
        raise TrainsimError(f"{file}: {error}") from None
    print(f"Drawn: {file}")
