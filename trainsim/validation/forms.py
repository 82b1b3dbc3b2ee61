"""The forms in which tables of runs come: a function per form makes rows of the usual columns of its own."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from trainsim.errors import InvalidData
from trainsim.validation.nanotron import SIGNS as NANOTRON
from trainsim.validation.nanotron import as_usual as of_nanotron
from trainsim.validation.published import Form, PublishedRun, read_runs

FORMS: tuple[tuple[frozenset[str], Form], ...] = ((NANOTRON, of_nanotron),)
"""Columns by which a form is known, and what makes the usual columns of its own."""


def rows_of(path: str | Path) -> Iterator[PublishedRun]:
    """The runs of a table in any of the forms, in order. Raises InvalidData for a file that is none of them."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            columns = set(next(csv.reader(file), ()))
    except FileNotFoundError:
        raise InvalidData(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidData(f"{path}: cannot be read as a CSV file: {error}") from None
    form = next((form for signs, form in FORMS if signs <= columns), dict)
    yield from read_runs(path, form)
