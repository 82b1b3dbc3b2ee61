"""Under what an answer is stored: everything that it depends on, and nothing else, as one digest."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from trainsim.documents.document import canonical
from trainsim.study.attempt import Prepared
from trainsim.study.kept import name_of


def key_of(prepared: Prepared, *, kept: str, code: str) -> bytes | None:
    """The SHA-256 of what the scenario and the files that it names say, of how its job is changed, of what is *kept* of
    the result, and of the *code* (``code_digest``). What scenarios and files are called, and where they lie, is no part
    of it. None for a trial without such a key: a change of the job that is no function of trainsim, or a file that
    cannot be read.
    """
    change = name_of(prepared.job_change) if prepared.job_change else ""
    if change is None or prepared.meaning is None:
        return None
    return sha256("\0".join((code, kept, change, prepared.meaning)).encode()).digest()


def place_of(prepared: Prepared) -> str:
    """Where the words of a failure hold, which may name files, lines and what things are called."""
    origin = prepared.scenario.origin
    lines = canonical([[list(key), line] for key, line in origin.lines.items()])
    words = (prepared.content, prepared.name, str(Path(origin.folder)), origin.file, lines)
    return sha256("\0".join(words).encode()).hexdigest()
