"""Files of answers in Parquet: each is written once, as a whole, and its name says what is in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from trainsim.study.store import StoredRow, StoreError
from trainsim.study.whole_files import put

FORM = 1
"""The form of the columns. Files of other forms are left alone."""
GROUP = 1000
"""Rows that are read at once where one is wanted."""
NAME = re.compile(rf"answers-{FORM}-(\d)-([0-9a-f]{{32}})\.parquet")


class DatedRow(NamedTuple):
    """A row and when it was written, in microseconds since 1970."""

    row: StoredRow
    made: int

    @property
    def rank(self) -> tuple[bool, int]:
        """Of two rows of one key that of the higher rank counts: an answer before a failure, of answers the first, and
        of failures the last."""
        return rank(failed=self.row.failed, made=self.made)


class RowPlace(NamedTuple):
    """The ``file`` and the group of rows in it where a row of that ``rank`` is."""

    rank: tuple[bool, int]
    file: Path
    group: int


def rank(*, failed: bool, made: int) -> tuple[bool, int]:
    """The rank of a row (``DatedRow.rank``).

    >>> rank(failed=False, made=2) > rank(failed=False, made=3) > rank(failed=True, made=4) > rank(failed=True, made=1)
    True
    """
    return not failed, made if failed else -made


def level_of(name: str) -> int | None:
    """How often the rows of the file of that *name* were merged; None for a file that is none of answers.

    >>> level_of(f"answers-1-2-{'0' * 32}.parquet"), level_of("table.parquet")
    (2, None)
    """
    found = NAME.fullmatch(name)
    return int(found[1]) if found else None


def write_rows(rows: Iterable[DatedRow], folder: Path, *, level: int) -> Path:
    """The file in *folder* that has *rows*, sorted. Whoever writes the same writes the same file. Raises OSError."""
    pyarrow, parquet = (import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
    ordered = sorted(rows)
    table = pyarrow.table(
        {
            "key": pyarrow.array([each.row.key for each in ordered], pyarrow.binary()),
            "kept": pyarrow.array([each.row.kept for each in ordered], pyarrow.string()),
            "failed": pyarrow.array([each.row.failed for each in ordered], pyarrow.bool_()),
            "answer": pyarrow.array([each.row.text for each in ordered], pyarrow.string()),
            "made": pyarrow.array([each.made for each in ordered], pyarrow.timestamp("us", tz="UTC")),
        }
    )
    content = BytesIO()
    parquet.write_table(table, content, row_group_size=GROUP, write_page_checksum=True)
    file = folder / f"answers-{FORM}-{level}-{sha256(content.getvalue()).hexdigest()[:32]}.parquet"
    put(content.getvalue(), file)
    return file


def places_in(file: Path) -> Iterator[tuple[bytes, RowPlace]]:
    """Each key of *file* and where its row is. Raises OSError, and StoreError for a file that is damaged."""
    content = file.read_bytes()
    found = NAME.fullmatch(file.name)
    if found is None or sha256(content).hexdigest()[:32] != found[2]:
        raise _damaged(file)
    opened = _opened(BytesIO(content), file)
    for group in range(opened.num_row_groups):
        for key, failed, made in _values(opened, [group], ["key", "failed", "made"]):
            yield key, RowPlace(rank(failed=failed, made=made), file, group)


def rows_in(file: Path, groups: Sequence[int] | None = None) -> list[DatedRow]:
    """The rows of *file*, or of those *groups*. Raises OSError, and StoreError for a file that is damaged."""
    with file.open("rb") as reading:
        opened = _opened(reading, file)
        wanted = range(opened.num_row_groups) if groups is None else groups
        try:
            values = _values(opened, wanted, ["key", "kept", "failed", "answer", "made"])
        except (ValueError, OSError):  # a page is not what its checksum says
            raise _damaged(file) from None
    return [DatedRow(StoredRow(key, kept, failed, text), made) for key, kept, failed, text, made in values]


def _opened(source: Any, file: Path) -> Any:
    pyarrow, parquet = (import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
    try:
        return parquet.ParquetFile(source, page_checksum_verification=True)
    except (pyarrow.ArrowException, OSError):  # of what is in it; that it cannot be opened is said before
        raise _damaged(file) from None


def _values(opened: Any, groups: Sequence[int], columns: list[str]) -> list[tuple[Any, ...]]:
    table = opened.read_row_groups(list(groups), columns=columns)
    return list(
        zip(
            *(
                (table.column(name).cast("int64") if name == "made" else table.column(name)).to_pylist()
                for name in columns
            ),
            strict=True,
        )
    )


def _damaged(file: Path) -> StoreError:
    return StoreError(
        f"store {file.parent}: {file.name} is damaged; remove that file: its points are run anew, all others are kept"
    )
