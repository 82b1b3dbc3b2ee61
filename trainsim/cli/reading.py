"""From words of the command line to values of the library."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from trainsim.errors import ScenarioError

if TYPE_CHECKING:
    from trainsim.scenario.scenario import Scenario


def load(name: str, changes: Iterable[str], *, tried: Iterable[str] = ()) -> Scenario:
    """The scenario that the words name, with the changes of ``--set``; *tried* are the paths of ``--grid``.

    Raises ScenarioError for a change that a later one, or each point of the grid, would undo.
    """
    from trainsim.scenario.changes import is_within
    from trainsim.scenario.scenario import Scenario

    values: dict[str, Any] = {}
    for text in changes:
        path, value = split(text, "--set parallel.tp=8")
        if undone := next((earlier for earlier in values if is_within(earlier, path)), None):
            raise ScenarioError(f"--set {text}: would undo the --set of {undone} before it; keep one")
        values[path] = value_of(value)
    for path in tried:
        if undone := next((earlier for earlier in values if is_within(earlier, path)), None):
            raise ScenarioError(f"--grid {path}: would undo --set {undone}; keep one")
    base = Scenario.load(name)
    return base.replace(values) if values else base


def words(command: str, name: str, changes: Iterable[str]) -> str:
    """The command line of *command* for the same scenario.

    >>> words("trainsim show memory", "my file.yaml", ["parallel.tp=2"])
    "trainsim show memory 'my file.yaml' --set parallel.tp=2"
    """
    from shlex import join, quote

    return f"{command} {quote(name)} {join(word for change in changes for word in ('--set', change))}".rstrip()


def split(text: str, example: str) -> tuple[str, str]:
    """The two sides of ``path=value``."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise ScenarioError(f"{text!r}: wants path=value, for example {example}")
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
        raise ScenarioError(f"{text!r}: wants values with commas between them, for example --grid parallel.tp=1,2,4")
    return path, values
