"""
What a bash script says: the programs that it starts, and with what.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from trainsim.importers.shell_text import Text
from trainsim.importers.shell_values import Values

DIRECTIVE = re.compile(r"^[ \t]*#SBATCH[ \t]+(-{1,2}[A-Za-z][\w-]*)[= \t]*([^\s#]*)", re.M)
HEAD = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*")
"""Lines before the first command: the scheduler reads no further."""
SHORT = {"-N": "--nodes", "-n": "--ntasks", "-G": "--gpus"}


@dataclass(frozen=True, slots=True)
class Launch:
    """A command as it would be started: its words, variables of its environment, and its line."""

    words: tuple[Text, ...]
    environment: dict[str, Text]
    line: int


@dataclass(frozen=True, slots=True)
class Script:
    """What a script says.

    ``launches`` are its commands that have options, ``variables`` what names hold at the end, ``directives`` those of
    the job scheduler, ``exported`` what programs get, ``written`` files that the script makes itself (name: content),
    ``remarks`` (line, words) what is not known or was left out, ``sourced`` the files that were read beside it.
    """

    launches: list[Launch] = field(default_factory=list)
    variables: Values = field(default_factory=Values)
    directives: dict[str, Text] = field(default_factory=dict)
    exported: dict[str, Text] = field(default_factory=dict)
    written: dict[str, Text] = field(default_factory=dict)
    remarks: list[tuple[int, str]] = field(default_factory=list)
    sourced: list[str] = field(default_factory=list)
    absent: list[tuple[int, str]] = field(default_factory=list)


def read_directives(text: Text, into: dict[str, Text]) -> None:
    """Add what the ``#SBATCH`` lines at the head of *text* ask for to *into*, unless it is there."""
    first = HEAD.match(text.chars)
    for found in DIRECTIVE.finditer(text.chars, 0, first.end() if first else 0):
        name, value = SHORT.get(found[1], found[1]), text[found.start(2) : found.end(2)]
        if name == "--gres" and value.chars.startswith("gpu"):
            name = "--gpus-per-node"
        if name in ("--gpus-per-node", "--gpus"):  # gpu:a100:8
            value = value[value.chars.rfind(":") + 1 :] if not value.unknown else value
        into.setdefault(name.removeprefix("--"), value)
