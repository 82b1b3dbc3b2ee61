"""Which algorithm and protocol carries out each collective of a scenario: its ``network`` section."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
    names = _by_operation(context, "network.algorithm", given.algorithm, _algorithms)
    out = dict(names)
    for operation, protocol in _by_operation(context, "network.protocol", given.protocol, _protocols).items():
        name = names.get(operation, "auto")
        if name == "auto" or algorithms[name].steps is not None:
            out[operation] = f"{name}/{protocol}"
        elif isinstance(given.protocol, Mapping):  # one for all is meant for those that have protocols
            with context.at(f"network.protocol.{operation}"):
                raise ScenarioError(f"{name} has no choice of protocols; ring and tree do")
    return out


def _by_operation(
    context: Context, key: str, given: str | dict[str, str], read: Callable[[str], tuple[str, tuple[str, ...]]]
) -> dict[str, str]:
    """What is *given* for all operations or for each by its name, without ``auto``; *read* gives the proper name of a
    value and the operations that can have it."""
    out: dict[str, str] = {}
    wanted = {None: given} if isinstance(given, str) else given
    for operation, value in wanted.items():
        with context.at(key):
            if operation is not None and operation not in OPERATIONS:
                raise UnknownName("collective operation", operation, OPERATIONS)
            if value == "auto":
                continue
            name, able = read(value)
            if operation is not None and operation not in able:
                raise ScenarioError(f"{value} does not implement {operation}; it implements {', '.join(able)}")
            out |= dict.fromkeys(able if operation is None else (operation,), name)
    return out


def _algorithms(name: str) -> tuple[str, tuple[str, ...]]:
    return algorithms.canonical(name), algorithms[name].operations


def _protocols(name: str) -> tuple[str, tuple[str, ...]]:
    return find_protocol(name), ABLE
