"""The pages of the site that are made from code and data, by their place in the site."""

from __future__ import annotations

from collections.abc import Iterator


def generated() -> Iterator[tuple[str, str | bytes]]:
    """(Place in the site, content) of each page and picture."""
    yield from ()
