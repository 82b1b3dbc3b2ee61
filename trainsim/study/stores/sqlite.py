"""A file of answers: a database of SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainsim.study.store import KEPT, AnswerStore, StoredRow, StoreError
from trainsim.study.stores import means_folder, store_kinds

APPLICATION = 0x74725331
"""What the file says that it belongs to (``PRAGMA application_id``)."""
FORM = 1
"""The form of the table; files of older forms get a table of this one beside theirs."""
TABLE = f"answers_{FORM}"
CREATE = f"""CREATE TABLE IF NOT EXISTS {TABLE} (
    key BLOB PRIMARY KEY, kept TEXT NOT NULL, failed INTEGER NOT NULL, answer TEXT NOT NULL,
    made TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP) WITHOUT ROWID"""
PATIENCE = 60.0
"""Seconds to wait while another process writes."""
AT_ONCE = 500
"""Keys of one question."""


@store_kinds.register("sqlite")
@dataclass(frozen=True, slots=True)
class SqliteStore(AnswerStore):
    """A file that is made when it is first written to. There is no file beside it but the journal of the transaction
    under way.

    Every transaction is on the disk when it ends, and one that was cut off is taken back by whoever comes next.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     store = SqliteStore(Path(folder) / "sweep.sqlite")
    ...     store.add([StoredRow(b"key", "number", False, "1.5")])
    ...     store.found([b"key", b"other"])
    {b'key': StoredRow(key=b'key', kept='number', failed=False, text='1.5')}
    """

    path: Path

    @classmethod
    def fits(cls, path: str) -> bool:
        return not means_folder(path)

    @classmethod
    def at(cls, path: str | Path) -> SqliteStore:
        if Path(path).suffix == ".parquet":
            raise StoreError(f"store {path}: a store of Parquet is a folder; name one, such as {Path(path).stem}/")
        store = cls(Path(path))
        with store._writing() as database:
            database.execute(f"PRAGMA user_version = {FORM}")
        return store

    def found(self, keys: Iterable[bytes]) -> dict[bytes, StoredRow]:
        wanted, rows = list(dict.fromkeys(keys)), dict[bytes, StoredRow]()
        with self._open() as database:
            for start in range(0, len(wanted), AT_ONCE):
                some = wanted[start : start + AT_ONCE]
                marks = ",".join("?" * len(some))
                question = f"SELECT key, kept, failed, answer FROM {TABLE} WHERE key IN ({marks})"
                rows |= {
                    row[0]: StoredRow(row[0], row[1], bool(row[2]), row[3]) for row in database.execute(question, some)
                }
        return rows

    def add(self, rows: Sequence[StoredRow]) -> None:
        write = f"""INSERT INTO {TABLE} (key, kept, failed, answer) VALUES (?, ?, ?, ?)
            ON CONFLICT (key) DO UPDATE SET failed = excluded.failed, answer = excluded.answer WHERE failed"""
        with self._writing() as database:
            database.executemany(write, rows)

    def __len__(self) -> int:
        with self._open() as database:
            return int(database.execute(f"SELECT count(*) FROM {TABLE}").fetchone()[0])

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection for one purpose: none stays, so that a process can be forked or moved at any time."""
        try:
            with closing(sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)) as database:
                yield database
        except sqlite3.Error as error:
            raise StoreError(f"store {self.path}: {_why(error)}") from None

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction in a file that is one of ours, or becomes it."""
        with self._open() as database:
            database.execute("PRAGMA synchronous = FULL")
            database.execute("BEGIN IMMEDIATE")
            try:
                self._claim(database)
                yield database
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise

    def _claim(self, database: sqlite3.Connection) -> None:
        whose, form = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
        if whose == APPLICATION and form == FORM:
            return
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' LIMIT 3").fetchall()
        if whose != APPLICATION and (whose or tables):
            has = (
                f"has the tables {', '.join(name for (name,) in tables)}"
                if tables
                else "is marked as another program's"
            )
            raise StoreError(f"store {self.path}: belongs to another program ({has}); name another file")
        if form > FORM:
            raise StoreError(
                f"store {self.path}: was written by a later trainsim (form {form}, this one knows {FORM}); update "
                "trainsim, or name another file"
            )
        database.execute(CREATE)
        database.execute(f"PRAGMA application_id = {APPLICATION}")
        database.execute(f"PRAGMA user_version = {FORM}")


REASONS = {
    "SQLITE_NOTADB": "is not an SQLite database; choose another file",
    "SQLITE_CORRUPT": "is damaged; save what can be with `sqlite3 FILE .recover`, or name another file",
    "SQLITE_FULL": f"the disk is full; make room: {KEPT}",
    "SQLITE_IOERR": f"the disk refused to read or write; is it full, or a limit on the size of files reached? {KEPT}",
    "SQLITE_READONLY": "cannot be written to; give permission (to its folder too), or name another file",
    "SQLITE_BUSY": f"another process has been writing for {PATIENCE:.0f} s; wait for it, or end it: {KEPT}",
    "SQLITE_PROTOCOL": "its file system has no locks that work; put it on another one",
    "SQLITE_CANTOPEN": "cannot be opened; see whether the folder is there and may be written to",
}
"""What went wrong, and the way out."""


def _why(error: sqlite3.Error) -> str:
    name = getattr(error, "sqlite_errorname", "")
    return next((reason for start, reason in REASONS.items() if name.startswith(start)), f"{error} ({name})")
