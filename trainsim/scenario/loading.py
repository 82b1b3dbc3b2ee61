"""Scenario files: found by name or path, read as YAML, with the line of every key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from trainsim.errors import ScenarioError, nearest
from trainsim.scenario.origin import Key, Origin

LONGEST_FILE = 1 << 20  # bytes
UNREADABLE = (yaml.YAMLError, ValueError, KeyError, OverflowError, RecursionError)
"""What PyYAML raises for text that means nothing: some tags and dates end in Python's own errors."""
MOST_VALUES = 100_000
_PACKAGE = Path(__file__).parents[1]


def scenario_folders() -> list[Path]:
    """Where scenarios are found by name: inside the installed package, else beside it in a checkout."""
    return [folder for folder in (_PACKAGE / "scenarios", _PACKAGE.parent / "scenarios") if folder.is_dir()]


def scenario_names() -> tuple[str, ...]:
    """The scenarios that ship with the package."""
    return tuple(sorted({file.stem for folder in scenario_folders() for file in folder.glob("*.yaml")}))


def find_scenario(name_or_path: str | Path) -> Path:
    """The file of a scenario: a path, or the name of one that ships with the package.

    Raises ScenarioError if there is none.
    """
    path = Path(name_or_path)
    if path.is_file():
        return path
    if path.is_dir():
        raise ScenarioError(f"{path} is a folder; name a scenario file in it")
    for folder in scenario_folders():
        for file in (folder / path.name, folder / f"{path.name}.yaml"):
            if file.is_file() and path.parent in (Path(), Path("scenarios")):
                return file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    names = scenario_names()
    near = nearest(path.stem, names)
    hint = f" Did you mean {near!r}?" if near else ""
    raise ScenarioError(f"{name_or_path}: no such file.{hint} Scenarios found by name: {', '.join(names)}.")


def read_scenario(path: Path) -> tuple[dict[str, Any], Origin]:
    """The mapping in the file at *path*, and where each of its values stands.

    Raises ScenarioError, with the line, for what is not one YAML mapping with distinct keys.
    """
    try:
        if path.stat().st_size > LONGEST_FILE:
            raise ScenarioError(f"{path}: longer than {LONGEST_FILE} bytes, so not a scenario")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    return read_text(text, name=str(path), folder=path.parent)


def read_text(text: str, *, name: str, folder: Path) -> tuple[dict[str, Any], Origin]:
    """As ``read_scenario``, for YAML *text* that is called *name* in messages."""
    try:
        loader = yaml.SafeLoader(text)
    except yaml.YAMLError as error:
        raise ScenarioError(f"{name}: not valid YAML: {str(error).splitlines()[0]}") from error
    try:
        node = loader.get_single_node()
        if node is None:
            raise ScenarioError(f"{name}: is empty; a scenario needs at least `model:` and `cluster:`")
        if not isinstance(node, yaml.MappingNode):
            kind = "list" if isinstance(node, yaml.SequenceNode) else "single value"
            raise ScenarioError(f"{name}:1: holds a {kind}; a scenario is a mapping with `model:` and `cluster:`")
        lines = dict(_lines(node, (), name))
        data = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        raise ScenarioError(_yaml_message(error, name)) from error
    except UNREADABLE as error:
        raise ScenarioError(f"{name}: not valid YAML: {' '.join(str(error).split())}") from error
    finally:
        loader.dispose()
    return data, Origin(file=name, folder=folder, lines=lines)


def _yaml_message(error: yaml.MarkedYAMLError, name: str) -> str:
    mark = error.problem_mark or error.context_mark
    line = f":{mark.line + 1}" if mark else ""
    what = error.problem or error.context or "cannot be read"
    if "'\\t'" in what:
        what = "a tab at the start of a value; YAML wants spaces"
    elif "single document" in (error.context or ""):
        what = "holds several documents (---); a scenario is one"
    return f"{name}{line}: not valid YAML: {what}"


def _lines(node: yaml.Node, key: Key, name: str) -> Iterator[tuple[Key, int]]:
    """(key, line) of everything under *node*; refuses duplicate keys, endless aliases and complex keys."""
    budget = MOST_VALUES
    stack: list[tuple[yaml.Node, Key]] = [(node, key)]
    while stack:
        node, key = stack.pop()
        if (budget := budget - 1) < 0 or len(key) > 20:
            raise ScenarioError(f"{name}: holds too many or too deeply nested values (aliases of aliases?)")
        line = node.start_mark.line + 1
        if isinstance(node, yaml.SequenceNode):
            stack.extend((item, (*key, k)) for k, item in enumerate(node.value))
        elif isinstance(node, yaml.MappingNode):
            seen: dict[str, int] = {}
            for left, right in node.value:
                line = left.start_mark.line + 1
                if not isinstance(left, yaml.ScalarNode):
                    raise ScenarioError(f"{name}:{line}: a key must be a word, not a list or a mapping")
                if left.value in seen:
                    before = seen[left.value]
                    raise ScenarioError(f"{name}:{line}: {left.value} is already given in line {before}; keep one")
                seen[left.value] = line
                yield (*key, left.value), line
                stack.append((right, (*key, left.value)))
        if key and isinstance(key[-1], int):
            yield key, node.start_mark.line + 1
