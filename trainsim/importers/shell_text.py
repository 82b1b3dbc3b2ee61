"""
Text that knows in which line of a script each of its letters stands, also after it went through variables.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

OPEN, CLOSE = "\ue000", "\ue001"
"""Around the description of a value that is not known."""
UNKNOWN = re.compile(f"{OPEN}([^{OPEN}{CLOSE}]*){CLOSE}")
FORBIDDEN = re.compile(f"[{OPEN}{CLOSE}\0]")


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """Letters and their lines.

    >>> text = of_file("a\\nb c")
    >>> text[2:3].chars, text[2:3].line
    ('b', 2)
    """

    chars: str
    lines: array[int]

    def __getitem__(self, part: slice) -> Text:
        return Text(self.chars[part], self.lines[part])

    def __len__(self) -> int:
        return len(self.chars)

    @property
    def line(self) -> int:
        """The line of the first letter; 0 if there is none."""
        return self.lines[0] if self.chars else 0

    @property
    def unknown(self) -> tuple[str, ...]:
        """What in it is not known."""
        return tuple(UNKNOWN.findall(self.chars))

    @property
    def shown(self) -> str:
        """As a person would write it."""
        return UNKNOWN.sub(r"\1", self.chars)


NOTHING = Text("", array("I"))


def of_file(content: str) -> Text:
    """The text of a file; letters that mark unknown values become others."""
    content = FORBIDDEN.sub("\ufffd", content.replace("\r\n", "\n"))
    lines = array("I")
    for number, line in enumerate(re.findall(r"[^\n]*\n|[^\n]+", content), 1):
        lines.extend(array("I", [number]) * len(line))
    return Text(content, lines)


def said(chars: str, line: int) -> Text:
    """*chars* as if they stood in *line*."""
    return Text(chars, array("I", [line]) * len(chars))


def not_known(what: str, line: int) -> Text:
    """A value that is not known, called *what*.

    >>> not_known("$1", 3).unknown, not_known("$1", 3).shown
    (('$1',), '$1')
    """
    plain = re.sub(r"\s+", "\u00a0", UNKNOWN.sub(r"\1", what)).strip("\u00a0")[:60]
    return said(f"{OPEN}{plain}{CLOSE}", line)


def joined(parts: Iterable[Text]) -> Text:
    """All *parts*, one after the other."""
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    lines = array("I")
    for part in parts:
        lines.extend(part.lines)
    return Text("".join(part.chars for part in parts), lines)


BLANKS = re.compile(r"[^ \t\n]+")


def split(text: Text) -> list[Text]:
    """The words between blanks.

    >>> [word.chars for word in split(said(" a  b", 1))]
    ['a', 'b']
    """
    return [text[found.start() : found.end()] for found in BLANKS.finditer(text.chars)]
