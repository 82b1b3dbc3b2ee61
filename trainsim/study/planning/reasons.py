"""Why layouts are refused, in few words: reasons that differ in nothing but their numbers are one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
LISTED = 4
"""Different numbers that are named one by one."""


def grouped_reasons(refused: Mapping[str, int]) -> list[tuple[str, int]]:
    """(Reason, layouts) of *refused*, those that differ in numbers only as one, the most frequent first.

    >>> grouped_reasons({"tp=2 needs it": 3, "no layers": 4, "tp=4 needs it": 2, "tp=8 needs it": 1})
    [('tp=2, 4 or 8 needs it', 6), ('no layers', 4)]
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    for reason in refused:
        alike.setdefault(tuple(NUMBER.split(reason)), []).append(reason)
    counts = [(_joined(words, some), sum(map(refused.__getitem__, some))) for words, some in alike.items()]
    return sorted(counts, key=lambda found: -found[1])


def _joined(words: Sequence[str], reasons: Sequence[str]) -> str:
    """*reasons* in one, which have the same *words* around their numbers."""
    columns = zip(*map(NUMBER.findall, reasons), strict=True)
    numbers = [_either(sorted(set(column), key=_value)) for column in columns]
    return "".join(part for pair in zip(words, [*numbers, ""], strict=True) for part in pair)


def _value(number: str) -> float:
    return float(number.replace(",", ""))


def _either(numbers: Sequence[str]) -> str:
    """One of *numbers*, which grow."""
    if len(numbers) > LISTED:
        return f"{numbers[0]} to {numbers[-1]}"
    return " or ".join(filter(None, [", ".join(numbers[:-1]), numbers[-1]]))
