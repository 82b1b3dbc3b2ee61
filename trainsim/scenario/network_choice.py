"""Which algorithm and protocol carries out each collective of a scenario: its ``network`` section."""

from __future__ import annotations

from collections.abc import Callable

from trainsim.collectives import OPERATIONS, algorithms
from trainsim.collectives.protocols import find_protocol
from trainsim.errors import ScenarioError, UnknownName
from trainsim.scenario.context import Context

ABLE = algorithms["ring"].operations
"""Operations that have protocols."""


def chosen_algorithms(context: Context) -> dict[str, str]:
    """By operation the algorithm, with a protocol behind a slash where one is named; those left to ``auto`` are not
    there. Raises UnknownName and ScenarioError."""
    given = context.spec.network
    names = _by_operation(context, "network.algorithm", given.algorithm, _algorithm, lambda a: algorithms[a].operations)
    kinds = _by_operation(context, "network.protocol", given.protocol, _protocol, lambda protocol: ABLE)
    for operation in kinds:
        name = names.get(operation)
        if name and algorithms[name].steps is None:
            if isinstance(given.protocol, str):
                continue  # it is meant for those that have protocols
            with context.at(f"network.protocol.{operation}"):
                raise ScenarioError(f"{name} has no choice of protocols; ring and tree have")
    out = dict(names)
    for operation, protocol in kinds.items():
        name = names.get(operation, "auto")
        if name == "auto" or algorithms[name].steps is not None:
            out[operation] = f"{name}/{protocol}"
    return out


def _by_operation(
    context: Context,
    key: str,
    given: str | dict[str, str],
    read: Callable[[str, str], str],
    able: Callable[[str], tuple[str, ...]],
) -> dict[str, str]:
    """What is *given* for all operations that are *able*, or for each by its name, without ``auto``."""
    if isinstance(given, str):
        if given == "auto":
            return {}
        with context.at(key):
            return dict.fromkeys(able(given if key.endswith("algorithm") else ""), read(given, ""))
    out = {}
    for operation, name in given.items():
        with context.at(key):
            if operation not in OPERATIONS:
                raise UnknownName("collective operation", operation, OPERATIONS)
            if name != "auto":
                out[operation] = read(name, operation)
    return out


def _algorithm(name: str, operation: str) -> str:
    if operation and operation not in algorithms[name].operations:
        able = [other for other in algorithms if operation in algorithms[other].operations]
        raise ScenarioError(f"{name} does no {operation}; {', '.join(able)} do")
    return algorithms.canonical(name)


def _protocol(name: str, operation: str) -> str:
    if operation and operation not in ABLE:
        raise ScenarioError(f"{operation} has no choice of protocols; {', '.join(ABLE)} have")
    return find_protocol(name)
