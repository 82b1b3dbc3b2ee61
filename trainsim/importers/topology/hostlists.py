"""
Lists of hosts as Slurm writes them: ``node[001-064,070]`` in short for 65 names.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product
from math import prod

from trainsim.errors import ScenarioError, shorten

MOST_HOSTS = 1 << 20


def hosts(text: str) -> list[str]:
    """The names that *text* stands for, in order. Raises ScenarioError for what is no such list.

    >>> hosts("a[08-10],b,c[1,3]x")
    ['a08', 'a09', 'a10', 'b', 'c1x', 'c3x']
    >>> hosts("rack[1-2]node[1-2]")
    ['rack1node1', 'rack1node2', 'rack2node1', 'rack2node2']
    """
    names: list[str] = []
    for part in _parts(text):
        pieces = [_listed(_numbers(piece, text), text) if inside else [piece] for inside, piece in _pieces(part, text)]
        if len(names) + prod(map(len, pieces)) > MOST_HOSTS:
            raise ScenarioError(f"{shorten(text)} names more than {MOST_HOSTS} hosts")
        names += ["".join(combination) for combination in product(*pieces)]
    return names


def _listed(numbers: Iterator[str], whole: str) -> list[str]:
    """*numbers* as a list, if they are not too many."""
    listed = list(islice(numbers, MOST_HOSTS + 1))
    if len(listed) > MOST_HOSTS:
        raise ScenarioError(f"{shorten(whole)} names more than {MOST_HOSTS} hosts")
    return listed


def _parts(text: str) -> Iterator[str]:
    """*text* cut at commas outside brackets."""
    depth, part = 0, ""
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            yield part.strip()
            part = ""
        else:
            part += letter
    yield part.strip()


def _pieces(part: str, whole: str) -> Iterator[tuple[bool, str]]:
    """(Whether it stands in brackets, the text) of each piece."""
    rest = part
    if not rest:
        raise ScenarioError(f"{shorten(whole)} is not a list of hosts: a name is missing beside a comma")
    while rest:
        before, bracket, rest = rest.partition("[")
        if "]" in before:
            raise ScenarioError(f"{shorten(whole)} is not a list of hosts: a ] without a [")
        if before:
            yield False, before
        if bracket:
            inside, closed, rest = rest.partition("]")
            if not closed or not inside:
                raise ScenarioError(f"{shorten(whole)} is not a list of hosts: write name[1-8] or name[1,3,5]")
            yield True, inside


def _numbers(inside: str, whole: str) -> Iterator[str]:
    """The numbers of ``001-004,9``, as wide as they are written."""
    for span in inside.split(","):
        first, dash, last = span.strip().partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and len(first) < 10 and len(last) < 10):
            raise ScenarioError(f"{shorten(whole)}: {shorten(span)} is neither a number nor a range such as 001-064")
        low, high = int(first), int(last)
        if high < low or high - low >= MOST_HOSTS:
            way = "counts down" if high < low else f"names more than {MOST_HOSTS} hosts"
            raise ScenarioError(f"{shorten(whole)}: {span.strip()} {way}")
        yield from (f"{value:0{len(first)}d}" for value in range(low, high + 1))
