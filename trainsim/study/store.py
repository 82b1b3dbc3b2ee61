"""What a store of answers is: what was run once is not run again, by whoever asks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from trainsim.errors import TrainsimError


class StoreError(TrainsimError):
    """Make room or give permission, or name another place, as the message says."""


class StoredRow(NamedTuple):
    """An answer as it is stored: of which ``kept`` form, whether it ``failed``, and its ``text``."""

    key: bytes
    kept: str
    failed: bool
    text: str


class AnswerStore(ABC):
    """Answers on a disk, by key. Several processes may use a store at once, of several machines too.

    What ``add`` has written stays, even if the process or the machine dies the moment after; what was cut off is as if
    it had not begun. Nothing is ever forgotten: answers of other versions stay, under keys that nobody asks for. Each
    method raises StoreError for a store that cannot be used, with the reason and the way out.
    """

    path: Path

    @classmethod
    @abstractmethod
    def fits(cls, path: str) -> bool:
        """Whether *path*, as the user wrote it, means a store of this kind."""

    @classmethod
    @abstractmethod
    def at(cls, path: str | Path) -> AnswerStore:
        """The store at *path*, which is made if there is none, looked at and tried before any work is done."""

    @abstractmethod
    def found(self, keys: Iterable[bytes]) -> dict[bytes, StoredRow]:
        """The stored rows of *keys*, by key."""

    @abstractmethod
    def add(self, rows: Sequence[StoredRow]) -> None:
        """Write *rows* down, all or none. A key that is there keeps its answer, but for a failure, whose words may have
        been of another place."""

    @abstractmethod
    def __len__(self) -> int:
        """How many keys have an answer."""


KEPT = "what was stored before is kept, and the same command goes on from there"
"""What is true after any error."""
