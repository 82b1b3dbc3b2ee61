"""Changing a scenario by dotted paths, as ``--set`` and sweeps do."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from trainsim.documents.origin import Key, Origin, dotted, key_of
from trainsim.errors import ScenarioError
from trainsim.hardware.topology import MERGED, OVERRIDES
from trainsim.models.reading import load_model
from trainsim.scenario.named import NAMED
from trainsim.scenario.schema_errors import known_keys, unknown_key


def changed(data: Mapping[str, Any], changes: Mapping[str, Any], *, origin: Origin | None = None) -> dict[str, Any]:
    """A copy of *data* with the value at each dotted path of *changes* replaced.

    A model's name or path (from the folder of *origin*) becomes a mapping when one of its fields is set. Raises
    ScenarioError for a path that cannot be.

    >>> changed({"parallel": {"tp": 4}}, {"parallel.tp": 8, "training.recompute.layers": 2})
    {'parallel': {'tp': 8}, 'training': {'recompute': {'mode': 'full', 'layers': 2}}}
    """
    copy = deepcopy(dict(data))
    for path, value in changes.items():
        if not isinstance(path, str):
            raise ScenarioError(f"{path!r} is not a path; a path is words joined by dots, such as 'parallel.tp'")
        _set(copy, path, plain(value), origin)
    return copy


def is_within(path: str, section: str) -> bool:
    """Whether *path* is *section* itself or a place in it.

    >>> is_within("parallel.tp", "parallel"), is_within("parallel.tp", "parallel.t")
    (True, False)
    """
    return f"{path}.".startswith(f"{section}.")


def plain(value: Any) -> Any:
    """A copy of *value* with numpy's numbers and arrays as Python's own.

    >>> import numpy as np
    >>> plain([np.int64(4), np.array([1.5, 2.0])])
    [4, [1.5, 2.0]]
    """
    if isinstance(value, list | tuple):
        return type(value)([plain(v) for v in value])
    return value.tolist() if hasattr(value, "tolist") else deepcopy(value)


def _set(data: dict[str, Any], path: str, value: Any, origin: Origin | None) -> None:
    key = key_of(path)
    here: Any = data
    for n, part in enumerate(key[:-1]):
        inner = _get(here, part, path)
        if isinstance(key[n + 1], int) and not isinstance(inner, list):
            raise ScenarioError(f"{path}: {dotted(key[: n + 1])} has no entries yet; set the whole list")
        if not isinstance(inner, dict | list):
            inner = _opened(key[: n + 1], inner, path, origin)
            here[part] = inner
        here = inner
    last = key[-1]
    if isinstance(here, list):
        _get(here, last, path)
    elif len(key) > 1 and isinstance(key[-2], str) and not known_keys(key[:-1]) and not _is_open(key[:-1]):
        raise ScenarioError(f"{path}: {dotted(key[:-1])} is not a section, so it has no {last!r}")
    elif last not in known_keys(key[:-1]) and key[0] != "cluster" and known_keys(key[:-1]):
        raise ScenarioError(f"{path}: {unknown_key(key)}")
    here[last] = value


def _of_machine(key: Key) -> bool:
    """Whether it is a mapping of the topology that a scenario changes in part: ``cluster.hosts``."""
    return len(key) == 2 and key[0] == "cluster" and key[1] in MERGED


def _is_open(key: Key) -> bool:
    """Whether it is a mapping whose keys are not the scenario's own: of the topology, or of a thing that is named."""
    return _of_machine(key) or any(dotted(key[:n]) in NAMED for n in (1, 2))


def _get(here: Any, part: str | int, path: str) -> Any:
    if isinstance(here, list):
        if not isinstance(part, int) or part >= len(here):
            raise ScenarioError(f"{path}: {part!r} is not an index into a list of {len(here)}")
        return here[part]
    return here.get(part)


def _opened(key: Key, value: Any, path: str, origin: Origin | None) -> dict[str, Any]:
    """The mapping that a short form stands for."""
    if value is None and (_of_machine(key) or (_is_open(key) and dotted(key) not in NAMED)):
        return {}
    if dotted(key) in NAMED:
        if not isinstance(value, str):
            raise ScenarioError(f"{path}: set {dotted(key)} to a name first; then its fields can be set")
        return {"base": value}
    if not known_keys(key) or isinstance(key[-1], int):
        known = key[-1] in known_keys(key[:-1]) or (key[0] == "cluster" and key[-1] in OVERRIDES)
        what = f"{key[-1]} is a single value, not a section" if known else unknown_key(key)
        raise ScenarioError(f"{path}: {what}")
    if key == ("model",) and isinstance(value, str):
        return load_model(value, origin=origin).to_dict()
    if key == ("training", "recompute"):
        return {"mode": value or "full"}
    if key == ("training", "cross_entropy"):
        return {"kind": value or "chunked"}
    if value is None:
        return {}
    raise ScenarioError(f"{path}: {dotted(key)} is {value!r}, not a mapping")
