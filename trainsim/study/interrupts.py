"""Ctrl-C reaches every process of a terminal; what becomes of the work is for the one to say who handed it out."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread, current_thread, main_thread
from time import sleep

LOOKS = 0.5
"""Seconds between two looks of a worker at whether the process that started it is still there."""


def serve(parent: int) -> None:
    """Begin to work for the process *parent*, which started this one: leave Ctrl-C and SIGTERM, which a whole group of
    processes gets, to that one, and end when it has ended, however that was."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        sleep(LOOKS)
    os._exit(1)


@contextmanager
def signals_later() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait meanwhile, and for good in processes that are started meanwhile: those are not through
    with their imports when the signal comes that is for this one."""
    if not hasattr(signal, "pthread_sigmask"):  # as on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
