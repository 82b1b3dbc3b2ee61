"""
Names of numbered devices in short: ``gpu[0-3,6]`` is gpu0, gpu1, gpu2, gpu3 and gpu6.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainsim.errors import InvalidTopology

_NAME = re.compile(r"([A-Za-z_]+)(?:\[([^\[\]]*)\]|(\d*))")
_SPAN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_LONGEST = 1 << 20


def expand(text: str, *, count: int | None = None) -> tuple[str, ...]:
    """The device names that *text* stands for; ``gpu[*]`` needs to know how many there are.

    >>> expand("gpu[0-2,5]")
    ('gpu0', 'gpu1', 'gpu2', 'gpu5')
    >>> expand("nic[*]", count=2), expand("host1")
    (('nic0', 'nic1'), ('host1',))
    >>> expand("gpu[3-1]")
    Traceback (most recent call last):
    trainsim.errors.InvalidTopology: 'gpu[3-1]' counts down; write gpu[1-3]
    """
    match = _NAME.fullmatch(text.strip())
    if not match:
        raise InvalidTopology(f"{text!r} is not a device or a range of them; write gpu0, gpu[0-7], gpu[0,2,4]")
    stem, inside, number = match.groups()
    if inside is None:
        return (stem + number,)
    if inside.strip() == "*":
        if count is None:
            raise InvalidTopology(f"{text!r}: the number of {stem} is not known here; write {stem}[0-7]")
        return tuple(f"{stem}{i}" for i in range(count))
    names = tuple(f"{stem}{i}" for span in inside.split(",") for i in _numbers(text, stem, span.strip()))
    twice = next((n for i, n in enumerate(names[1:], 1) if n in names[:i]), None) if len(names) < 4096 else None
    if twice is not None:
        raise InvalidTopology(f"{text!r} names {twice} twice")
    return names


def stem(text: str) -> str:
    """The kind that a name or range starts with.

    >>> stem("gpu[0-7]"), stem("nic3")
    ('gpu', 'nic')
    """
    match = re.match(r"[A-Za-z_]*", text.strip())
    return match[0] if match else ""


def shorten(names: Sequence[str]) -> str:
    """The inverse of `expand`, for messages.

    >>> shorten(["gpu0", "gpu1", "gpu2", "gpu5"]), shorten(["host1"])
    ('gpu[0-2,5]', 'host1')
    """
    numbers = sorted(int(n.removeprefix(stem(n)) or -1) for n in names)
    if len(names) == 1 or len({stem(n) for n in names}) != 1 or numbers[0] < 0:
        return ", ".join(names)
    spans: list[list[int]] = []
    for i in numbers:
        if spans and i == spans[-1][1] + 1:
            spans[-1][1] = i
        else:
            spans.append([i, i])
    return f"{stem(names[0])}[{','.join(str(a) if a == b else f'{a}-{b}' for a, b in spans)}]"


def _numbers(text: str, name: str, span: str) -> range:
    match = _SPAN.fullmatch(span)
    if not match:
        raise InvalidTopology(f"{text!r}: {span!r} is not a number or a range of numbers; write {name}[0-7]")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise InvalidTopology(f"{text!r} counts down; write {name}[{last}-{first}]")
    if last - first >= _LONGEST:
        raise InvalidTopology(f"{text!r} names {last - first + 1} devices; no node has that many")
    return range(first, last + 1)
