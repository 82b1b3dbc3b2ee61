"""Commands that are ended while processes work for them: the status says how, and nobody stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from time import monotonic, sleep

import pytest

PATIENCE = 30.0
WORKERS = 2


def processes(group: int) -> list[tuple[int, str]]:
    """(Process, command) of each process of a group that is alive."""
    listed = subprocess.check_output(["ps", "-ww", "-eo", "pid=,pgid=,stat=,args="], text=True).splitlines()
    rows = [line.split(maxsplit=3) for line in listed]
    return [(int(pid), words) for pid, its, state, words in rows if int(its) == group and "Z" not in state]


def workers(group: int) -> list[int]:
    return [pid for pid, words in processes(group) if "LokyProcess" in words]


def waited(until: Callable[[], bool]) -> bool:
    end = monotonic() + PATIENCE
    while not until() and monotonic() < end:
        sleep(0.1)
    return until()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ended", "status", "says"),
    [
        (lambda group: os.kill(group, signal.SIGTERM), 143, "trainsim: terminated"),
        (lambda group: os.killpg(group, signal.SIGTERM), 143, "trainsim: terminated"),
        (lambda group: os.killpg(group, signal.SIGINT), 130, "trainsim: interrupted"),
        (lambda group: os.kill(workers(group)[0], signal.SIGKILL), 2, "trainsim: a worker process died"),
        (lambda group: os.kill(group, signal.SIGKILL), -signal.SIGKILL, ""),
    ],
    ids=["terminated", "all terminated", "interrupted", "a worker killed", "killed"],
)
def test_a_plan_that_is_ended_leaves_nobody_behind(ended: Callable[[int], None], status: int, says: str) -> None:
    words = [sys.executable, "-m", "trainsim", "plan", "deepseek_v3", "--workers", str(WORKERS), "--no-files"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a child would ignore what this one ignores
    plan = subprocess.Popen(words, stdout=-1, stderr=-1, text=True, start_new_session=True)
    signal.signal(signal.SIGINT, before)
    try:
        assert waited(lambda: len(workers(plan.pid)) == WORKERS)
        sleep(1.0)
        ended(plan.pid)
        assert plan.wait(PATIENCE) == status
        assert waited(lambda: not processes(plan.pid)), processes(plan.pid)
        told = plan.communicate()[1]
        if status > 0:  # who is killed cannot tidy up, and Python's own warnings say so
            assert told.startswith(says)
            assert len(told.splitlines()) == 1
    finally:
        for pid, _ in processes(plan.pid):
            os.kill(pid, signal.SIGKILL)
