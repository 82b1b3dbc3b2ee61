"""Sentences for a terminal: wrapped at spaces, but never between a number and its unit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions
    from rich.measure import Measurement
    from rich.text import Text

NUMBER = re.compile(r"(?<=\d) (?=(?:[munp]?s|[KMGT]?i?B|TFLOP/s|[kMBT]|%|tokens/s|samples/s)\b)")
"""The space between a number and its unit."""
TIED = "\N{NO-BREAK SPACE}"
CODE, EMPHASIS = re.compile(r"`+([^`]+)`+"), re.compile(r"(?<!\w)\*(\w[^*`]*)\*")


def tied(text: str) -> str:
    """*text* with no-break spaces between numbers and units.

    >>> tied("8.0 GiB of it, 2 parts").split(" ")
    ['8.0\\xa0GiB', 'of', 'it,', '2', 'parts']
    """
    return NUMBER.sub(TIED, text)


def unmarked(text: str) -> str:
    """*text* of a docstring without the marks of code and of emphasis.

    >>> unmarked("``2 * (ranks - 1)`` of *group* and `B`")
    '2 * (ranks - 1) of group and B'
    """
    return CODE.sub(r"\1", EMPHASIS.sub(r"\1", text))


@dataclass(frozen=True, slots=True)
class Prose:
    """A text with rich's markup; *style* is that of all of it."""

    markup: str
    style: str = ""

    def _text(self) -> Text:
        from rich.text import Text

        return Text.from_markup(self.markup, style=self.style)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        text = self._text()
        for line in text.divide(breaks(text.plain, options.max_width)):
            line.rstrip()
            line.no_wrap, line.overflow = True, "fold"
            yield line

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.measure import Measurement

        plain = self._text().plain
        longest = max(map(len, tied(plain).split(" ")), default=0)
        return Measurement(min(longest, options.max_width), min(len(plain), options.max_width))


def breaks(plain: str, width: int) -> list[int]:
    """Where lines of at most *width* characters begin, the first excepted; longer words break behind a hyphen.

    >>> breaks("needs 8.0 GiB of it", 11)
    [6, 17]
    >>> breaks("as megatron-deepspeed-2022 does", 12)
    [12, 22]
    """
    out: list[int] = []
    start = 0
    for word in re.finditer(r"[^ ]+", tied(plain)):
        pieces = re.finditer(r"[^-]+-?|-", word[0]) if len(word[0]) > width else re.finditer(r".+", word[0])
        for piece in pieces:
            if word.start() + piece.end() - start > width and word.start() + piece.start() > start:
                start = word.start() + piece.start()
                out.append(start)
    return out
