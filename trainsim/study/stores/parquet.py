"""A folder of answers: files of Parquet, each written once."""

from __future__ import annotations

import errno
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

from trainsim.study.answer_files import FORM, DatedRow, RowPlace, level_of, places_in, rows_in, write_rows
from trainsim.study.store import KEPT, AnswerStore, StoredRow, StoreError
from trainsim.study.stores import means_folder, store_kinds
from trainsim.study.whole_files import put, remove_abandoned

MARK = "_trainsim.json"
"""The file that says what the folder is; programs that read a folder of Parquet pass over names that begin so."""
MERGED = 16
"""As many files of one level become one of the next, so that a row is written a few times and files stay few."""
HIGHEST = 3
"""The level of files that are not merged any more, so that none becomes larger than memory."""
TRIES = 20
"""How often files may be merged by others in the moment in which they are read."""


@store_kinds.register("parquet")
class ParquetStore(AnswerStore):
    """A folder in which each ``add`` writes a file of its own, so that no writer waits for another and no locks are
    needed; whoever has written the sixteenth of a size merges them. A file is removed only when another has all of it,
    on the disk. ``pandas.read_parquet`` reads the folder; a row may be there twice for a moment, or if a process was
    killed while it merged.

    What is in a file does not change, so each is looked into once: the object remembers which key is where.

    >>> from importlib.util import find_spec
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     if find_spec("pyarrow"):  # it is not installed with everything else
    ...         store = ParquetStore.at(f"{folder}/answers/")
    ...         store.add([StoredRow(b"key", "number", False, "1.5")])
    ...         assert store.found([b"key", b"other"])[b"key"].text == "1.5"
    """

    def __init__(self, path: Path):
        self.path = path
        self._places: dict[bytes, RowPlace] = {}
        self._known: frozenset[Path] = frozenset()

    @classmethod
    def fits(cls, path: str) -> bool:
        return means_folder(path)

    @classmethod
    def at(cls, path: str | Path) -> ParquetStore:
        folder = Path(path)
        if folder.is_file():
            raise StoreError(f"store {path}: {folder} is a file; name a folder, or leave out the / at the end")
        if find_spec("pyarrow") is None:
            raise StoreError(
                f"store {path}: a folder of Parquet needs pyarrow: pip install 'trainsim[parquet]'; or name a file, "
                f"such as {folder / 'sweep.sqlite' if folder.is_dir() else folder.with_suffix('.sqlite')}"
            )
        store = cls(folder)
        with store._in_words():
            _claim(folder)
            remove_abandoned(folder)
        store._look()
        return store

    def found(self, keys: Iterable[bytes]) -> dict[bytes, StoredRow]:
        wanted = list(dict.fromkeys(keys))
        for _ in range(TRIES):
            self._look()
            with self._in_words(), suppress(FileNotFoundError):  # else somebody has merged files meanwhile
                return dict(self._read(wanted))
            self._known, self._places = frozenset(), {}
        raise self._fleeting()

    def add(self, rows: Sequence[StoredRow]) -> None:
        if rows:
            now = time.time_ns() // 1000
            with self._in_words():
                write_rows(_best(DatedRow(row, now) for row in rows), self.path, level=0)
                for level in range(HIGHEST):
                    self._merge(level)

    def __len__(self) -> int:
        self._look()
        return len(self._places)

    def _look(self) -> None:
        """Look into the files that have come, until none goes meanwhile."""
        with self._in_words():
            for _ in range(TRIES):
                files = _files(self.path)
                with suppress(FileNotFoundError):
                    for file in files:
                        self._look_into(file)
                    if files == _files(self.path):
                        self._known = frozenset(files)
                        return
        raise self._fleeting()

    def _look_into(self, file: Path) -> None:
        """Files of a higher level come later: they have what others had, which may go at any time."""
        if file in self._known:
            return
        for key, place in places_in(file):
            before = self._places.get(key)
            if before is None or place.rank >= before.rank:
                self._places[key] = place
        self._known |= {file}

    def _read(self, wanted: Iterable[bytes]) -> Iterator[tuple[bytes, StoredRow]]:
        places = {key: self._places[key] for key in wanted if key in self._places}
        groups: dict[Path, set[int]] = defaultdict(set)
        for place in places.values():
            groups[place.file].add(place.group)
        for file, some in groups.items():
            for row, _ in rows_in(file, sorted(some)):
                if row.key in places and places[row.key].file == file:
                    yield row.key, row

    def _merge(self, level: int) -> None:
        """Make one file of those of a *level*, if there are enough."""
        files = [file for file in _files(self.path) if level_of(file.name) == level]
        if len(files) < MERGED:
            return
        with suppress(FileNotFoundError):  # somebody else was quicker
            write_rows(_best(row for file in files for row in rows_in(file)), self.path, level=level + 1)
            for file in files:
                with suppress(FileNotFoundError):
                    file.unlink()

    def _fleeting(self) -> StoreError:
        return StoreError(f"store {self.path}: its files go while they are read; who removes them?")

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        """What the system refuses as a StoreError."""
        try:
            yield
        except FileNotFoundError as error:
            if self.path.is_dir():
                raise
            raise StoreError(f"store {self.path}: the folder is gone ({error.strerror})") from None
        except OSError as error:
            reason = REASONS.get(error.errno or 0, f"{error.strerror or error}; {KEPT}")
            raise StoreError(f"store {self.path}: {reason}") from None


_FULL = f"the disk is full; make room: {KEPT}"
_CLOSED = "cannot be written to; give permission (to the folder too), or name another folder"
REASONS = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: f"the disk refused so large a file; is a limit on the size of files reached? {KEPT}",
    errno.EIO: f"the disk refused to read or write; {KEPT}",
    errno.EACCES: _CLOSED,
    errno.EPERM: _CLOSED,
    errno.EROFS: _CLOSED,
}
"""What went wrong, and the way out."""


def _best(rows: Iterable[DatedRow]) -> Iterator[DatedRow]:
    """One row per key: the one that counts."""
    for _, same in groupby(sorted(rows), key=lambda each: each.row.key):
        yield max(same, key=lambda each: each.rank)


def _files(folder: Path) -> list[Path]:
    """The files of answers, those of lower levels first."""
    names = [entry.name for entry in os.scandir(folder) if level_of(entry.name) is not None]
    return [folder / name for name in sorted(names)]


def _claim(folder: Path) -> None:
    """Make *folder* one of ours, if it is empty or not there yet. Raises StoreError for one of something else."""
    folder.mkdir(exist_ok=True)
    others = sorted(entry.name for entry in os.scandir(folder) if not entry.name.startswith("."))
    mark = folder / MARK
    if mark.exists():
        form = _form_in(mark)
        if form > FORM:
            raise StoreError(
                f"store {folder}: was written by a later trainsim (form {form}, this one knows {FORM}); update "
                "trainsim, or name another folder"
            )
    elif others:
        has = ", ".join(others[:3])
        raise StoreError(
            f"store {folder}: is a folder of something else (it has {has}); name an empty or a new folder, or a file "
            f"in it, such as {folder / 'sweep.sqlite'}"
        )
    put(json.dumps({"holds": "answers of trainsim", "form": FORM}).encode(), mark)  # the same, or it fails now


def _form_in(mark: Path) -> int:
    try:
        form = json.loads(mark.read_bytes())["form"]
    except (ValueError, KeyError, TypeError):
        form = None
    if isinstance(form, bool) or not isinstance(form, int):
        raise StoreError(
            f"store {mark.parent}: its file {mark.name} is damaged; remove that file if the others are answers of "
            "trainsim, or name another folder"
        )
    return form
