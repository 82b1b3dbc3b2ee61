"""
A square of words as terminals print it: who is joined to whom and how.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainsim.errors import shorten
from trainsim.importers.topology.notebook import Notebook

ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-Z\\-_]")
LABEL = re.compile(r"GPU\d{1,4}|NIC\d{1,4}|[A-Za-z][\w.:-]*\d")
MOST_LABELS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkMatrix:
    """``cell[a, b]`` is the word in the row of a under b; ``rest`` what stands behind the cells of a row."""

    labels: tuple[str, ...]
    cell: Mapping[tuple[str, str], str]
    rest: Mapping[str, tuple[str, ...]]
    header: int
    end: int
    behind: str


def plain_lines(text: str) -> list[str]:
    """The lines of *text* without colours.

    >>> plain_lines("\\x1b[4mGPU0\\x1b[0m\\tGPU1")
    ['GPU0\\tGPU1']
    """
    return ANSI.sub("", text).splitlines()


def read_matrix(book: Notebook, lines: Sequence[str], start: int, cells: re.Pattern[str]) -> LinkMatrix:
    """The matrix whose header is line *start* (from 0) of *lines*, with *cells* for words.

    Raises ScenarioError for rows that are short, glued together, double, or missing for a GPU, and where the two
    halves contradict each other.
    """
    words = lines[start].split()
    count = next((i for i, word in enumerate(words) if not LABEL.fullmatch(word)), len(words))
    labels, behind = tuple(words[:count]), " ".join(words[count:])
    if len(set(labels)) < len(labels) or len(labels) > MOST_LABELS:
        raise book.fail(
            f"the header names {shorten(' '.join(labels))}: each device once, {MOST_LABELS} at most", start + 1
        )
    cell: dict[tuple[str, str], str] = {}
    rest: dict[str, tuple[str, ...]] = {}
    end = start + 1
    for number in range(start + 1, len(lines)):
        row = lines[number].split()
        if not row or row[0] not in labels:
            if rest and row:
                break
            continue
        end = number + 1
        if row[0] in rest:
            raise book.fail(f"{row[0]} has two rows: two matrices in one file? Keep one", number + 1)
        found = row[1 : 1 + count]
        if wrong := next((word for word in found if not cells.fullmatch(word)), None):
            known = ", ".join(re.sub(r"\\d\{.*?\}", "#", cells.pattern).split("|"))
            message = f"{shorten(wrong)} in the row of {row[0]} is not a word of the matrix; is the file complete?"
            raise book.fail(f"{message} It can be {known}", number + 1)
        if len(found) < count:
            raise book.fail(f"the row of {row[0]} has {len(found)} words for {count} columns; was it cut?", number + 1)
        cell |= {(row[0], label): word for label, word in zip(labels, found, strict=True)}
        rest[row[0]] = tuple(row[1 + count :])
    _check(book, labels, cell, start)
    return LinkMatrix(labels=labels, cell=cell, rest=rest, header=start, end=end, behind=behind)


def _check(book: Notebook, labels: Sequence[str], cell: Mapping[tuple[str, str], str], start: int) -> None:
    lost = [name for name in labels if name.startswith("GPU") and (name, name) not in cell]
    if lost:
        raise book.fail(f"no row for {', '.join(lost[:8])}; the matrix was cut: give all of it", start + 1)
    for (a, b), word in cell.items():
        if (b, a) in cell and cell[b, a] != word:
            raise book.fail(f"{a} says {word} of {b}, which says {cell[b, a]} of {a}", start + 1)


class JoinedNames:
    """Names joined to groups, one by one."""

    def __init__(self, names: Sequence[str]):
        self._of = {name: name for name in names}

    def join(self, a: str, b: str) -> None:
        """Put the groups of *a* and *b* together."""
        self._of[self._top(a)] = self._top(b)

    def all(self) -> list[list[str]]:
        """The groups, names and groups in the order of the names."""
        groups: dict[str, list[str]] = {}
        for name in self._of:
            groups.setdefault(self._top(name), []).append(name)
        return list(groups.values())

    def _top(self, name: str) -> str:
        while self._of[name] != name:
            self._of[name] = self._of[self._of[name]]
            name = self._of[name]
        return name
