"""Ctrl-C reaches every process of a terminal; what becomes of the work is for the one to say who handed it out."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread


def ignore_interrupts() -> None:
    """Leave Ctrl-C to others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def children_ignore_interrupts() -> Iterator[None]:
    """Processes that are started meanwhile leave Ctrl-C to this one, which takes it again afterwards."""
    if current_thread() is not main_thread():  # which alone may say so
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
