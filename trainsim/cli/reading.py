"""From words of the command line to values of the library."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainsim.errors import ScenarioError

if TYPE_CHECKING:
    from trainsim.scenario.scenario import Scenario


def load(names: str | Sequence[str], changes: Iterable[str], *, tried: Iterable[str] = ()) -> Scenario:
    """The scenario that the words name, with the changes of ``--set``; *tried* are the paths whose values are tried.

    Several *names*, or one of them with ``+`` between files, are files of other tools that describe one job together;
    what of them is not modelled is told on standard error. Raises ScenarioError for a change that a later one, or each
    point of a sweep, would undo.
    """
    from trainsim.scenario.changes import is_within
    from trainsim.scenario.scenario import Scenario

    values = changes_of(changes)
    for path in tried:
        if undone := next((earlier for earlier in values if is_within(earlier, path)), None):
            raise ScenarioError(f"{path}: the values to try would undo --set {undone}; keep one")
    files = [file for name in ([names] if isinstance(names, str) else names) for file in _files(name)]
    if len(files) > 1 or _of_others(files[0]):
        return _imported(files, values)
    base = Scenario.load(files[0])
    return base.replace(values) if values else base


def data_of(names: Sequence[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """What the words say as a scenario's mapping, which need not be complete: a model is enough, also by its name."""
    from trainsim.importers.importing import import_config
    from trainsim.importers.sections import remarks_in_short
    from trainsim.models.known import model_names
    from trainsim.scenario.changes import changed
    from trainsim.scenario.loading import scenario_names
    from trainsim.scenario.scenario import Scenario

    files = [file for name in names for file in _files(name)]
    if files[0] in model_names() and files[0] not in scenario_names():
        return changed({"model": files[0], "cluster": {}}, values)
    if len(files) == 1 and not _of_others(files[0]):
        return dict(Scenario.load(files[0]).replace(values).data)
    imported = import_config(files, values)
    print(*remarks_in_short(imported), sep="\n", file=sys.stderr)
    return dict(imported.scenario)


def tell_if_long(base: Scenario) -> bool:
    """Say on standard error, before it is run, that *base* will take long; whether there was anything to say.

    A scenario that cannot be run is no matter of this.
    """
    from trainsim.errors import TrainsimError
    from trainsim.report.long_runs import long_by_jitter

    try:
        line = long_by_jitter(base.resolve())
    except TrainsimError:
        return False
    if line:
        print(line, file=sys.stderr, flush=True)
    return line is not None


def changes_of(texts: Iterable[str]) -> dict[str, Any]:
    """Paths and values of several ``--set``. Raises ScenarioError for one that a later one would undo."""
    from trainsim.scenario.changes import is_within

    values: dict[str, Any] = {}
    for text in texts:
        path, value = split(text, "--set parallel.tp=8")
        if undone := next((earlier for earlier in values if is_within(earlier, path)), None):
            raise ScenarioError(f"--set {text}: would undo the --set of {undone} before it; keep one")
        values[path] = value_of(value)
    return values


def _files(name: str) -> list[str]:
    """The files that *name* stands for: ``a.json+b.json`` are two, if no file is called so."""
    return [name] if "+" not in name or Path(name).exists() else [part for part in name.split("+") if part]


def _of_others(name: str) -> bool:
    """Whether *name* is a file that another tool reads. Raises ScenarioError for one that is broken."""
    path = Path(name)
    if not path.suffix or not path.is_file():
        return False
    from trainsim.importers.importing import importer_of
    from trainsim.importers.source import read_source

    try:
        return importer_of(read_source(path)).name != "trainsim"
    except ScenarioError:
        if path.suffix in (".yaml", ".yml"):
            return False  # read as a scenario, whose errors say more
        raise


def _imported(files: Sequence[str], values: Mapping[str, Any]) -> Scenario:
    """The scenario that *files* are together."""
    from trainsim.importers.importing import import_config
    from trainsim.importers.sections import remarks_in_short

    imported = import_config(files, values)
    scenario = imported.complete
    print(*remarks_in_short(imported), sep="\n", file=sys.stderr)
    return scenario


def with_cost(changes: Sequence[str], tokens: str | None, price: str | None) -> list[str]:
    """The *changes* with what ``--tokens`` and ``--price`` set.

    >>> with_cost(["parallel.tp=2"], "15T", "2.5")
    ['parallel.tp=2', 'training.tokens=15T', 'cluster.price_per_gpu_hour=2.5']
    """
    more = {"training.tokens": tokens, "cluster.price_per_gpu_hour": price}
    return [*changes, *(f"{path}={value}" for path, value in more.items() if value is not None)]


def check_cost(scenario: Scenario, price: str | None, *, tried: Iterable[str] = ()) -> None:
    """Raise ScenarioError for a price of a training whose tokens nobody says."""
    if price is not None and scenario.spec.training.tokens is None and "training.tokens" not in tried:
        raise ScenarioError(
            f"--price {price}: a cost is that of a whole training; add its tokens, such as --tokens 15T"
        )


def words(command: str, names: str | Sequence[str], changes: Iterable[str]) -> str:
    """The command line of *command* for the same scenario.

    >>> words("trainsim show memory", "my file.yaml", ["parallel.tp=2"])
    "trainsim show memory 'my file.yaml' --set parallel.tp=2"
    """
    from shlex import join

    given = [names] if isinstance(names, str) else list(names)
    return f"{command} {join([*given, *(word for change in changes for word in ('--set', change))])}".rstrip()


def split(text: str, example: str) -> tuple[str, str]:
    """The two sides of ``path=value``."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise ScenarioError(f"{text!r}: expected path=value, for example {example}")
    return path.strip(), value


def value_of(text: str) -> Any:
    """What *text* means as YAML, else the text itself."""
    from trainsim.documents.document import value_of as read

    return read(text)


def grids_of(texts: list[str]) -> dict[str, list[Any]]:
    """Paths and values of several ``--grid``; each path once."""
    grids: dict[str, list[Any]] = {}
    for text in texts:
        path, values = grid_of(text)
        if path in grids:
            raise ScenarioError(f"{text!r}: {path} has a --grid already; put all its values into one")
        grids[path] = values
    return grids


def grid_of(text: str) -> tuple[str, list[Any]]:
    """The path and the values of one ``--grid``."""
    path, value = split(text, "--grid parallel.tp=1,2,4")
    values = value_of(f"[{value}]")
    if not isinstance(values, list) or not values:
        raise ScenarioError(f"{text!r}: expected values with commas between them, for example --grid parallel.tp=1,2,4")
    return path, values
