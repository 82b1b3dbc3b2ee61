"""
Where answers are stored, one file per kind of store. The path says which kind it is.

A kind is a subclass of ``AnswerStore``, whose ``fits`` looks at the path. No path fits two of them, and nothing about
an answer may depend on where it was stored.
"""

from __future__ import annotations

from pathlib import Path

from trainsim.registry import Registry
from trainsim.study.store import AnswerStore, StoreError

store_kinds: Registry[type[AnswerStore]] = Registry("kind of store", __name__)


def store_at(path: str | Path | AnswerStore) -> AnswerStore:
    """The store at *path*, looked at and tried before any work is done; it is made if there is none.

    Raises StoreError for what cannot be one, with the reason and the way out.

    >>> list(store_kinds)
    ['parquet', 'sqlite']
    >>> store_at(3)
    Traceback (most recent call last):
    trainsim.study.store.StoreError: store=3: expected the path of a file (sweep.sqlite) or of a folder (answers/)
    """
    if isinstance(path, AnswerStore):
        return path
    if not isinstance(path, str | Path) or not str(path):
        raise StoreError(f"store={path!r}: expected the path of a file (sweep.sqlite) or of a folder (answers/)")
    kind = next(kind for kind in store_kinds.values() if kind.fits(str(path)))
    if not Path(path).absolute().parent.is_dir():
        raise StoreError(f"store {path}: there is no folder {Path(path).parent}; make it first")
    return kind.at(path)


def means_folder(path: str) -> bool:
    """Whether *path* is that of a folder: it is one, ends as one, or has no ending and is no file yet.

    >>> means_folder("new/"), means_folder("new"), means_folder("new.sqlite"), means_folder(".")
    (True, True, False, True)
    """
    there = Path(path)
    return path.endswith("/") or there.is_dir() or not (there.suffix or there.is_file())
