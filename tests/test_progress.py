"""Progress: shown where somebody looks, and only if it takes more than a moment."""

import io
import sys
import threading
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.jobs import small
from trainsim.report import progress
from trainsim.report.long_runs import why_long
from trainsim.report.progress import bar, rate, remaining, working


def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Standard error as a terminal. (No fixture: pytest sets standard error anew between fixtures and test.)"""
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return stream


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """What the cell of a notebook without ipywidgets would show, picture by picture."""
    shown: list[dict[str, str]] = []

    def display(data: dict[str, str], **_: Any) -> Any:
        shown.append(data)
        return SimpleNamespace(update=lambda data, **_: shown.append(data))

    interactive = ModuleType("IPython")
    interactive.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    interactive.display = SimpleNamespace(display=display)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", interactive)
    monkeypatch.setattr(progress, "A_MOMENT", 0.0)
    monkeypatch.setattr(progress, "REFRESH", 0.0)
    return shown


def test_a_terminal_sees_how_many_are_done_how_fast_and_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    with bar("sweep", 3) as advance:
        for _ in range(3):
            time.sleep(0.01)
            advance()
    out = stream.getvalue()
    assert "sweep" in out
    assert "3/3" in out
    assert "/s" in out


def test_a_file_sees_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with bar("sweep", 2) as advance:
        advance()
    monkeypatch.setattr(progress, "A_MOMENT", 0.0)
    with working("run") as phase:
        phase("simulating")
        time.sleep(0.02)
    assert capsys.readouterr() == ("", "")


def test_a_notebook_sees_a_bar_without_widgets(cell: list[dict[str, str]]) -> None:
    with bar("sweep", 4) as advance:
        for _ in range(4):
            advance()
    assert [picture["text/plain"].partition(",")[0] for picture in cell[:-1]] == [f"sweep {n}/4" for n in (1, 2, 3, 4)]
    assert "<progress value='2' max='4'>" in cell[1]["text/html"]
    assert set(cell[-1].values()) == {""}  # it leaves nothing behind


def test_a_notebook_sees_nothing_of_what_is_quick_or_not_wanted(
    cell: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with bar("sweep", 1, wanted=False) as advance:
        advance()
    monkeypatch.setattr(progress, "A_MOMENT", 60.0)
    with bar("sweep", 1) as advance:
        advance()
    with working("a job") as phase:
        phase("simulating")
    assert cell == []


@pytest.mark.parametrize(("moment", "seen"), [(0.0, True), (60.0, False)])
def test_work_is_shown_after_a_moment(moment: float, seen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    monkeypatch.setattr(progress, "A_MOMENT", moment)
    with working("a job") as phase:
        phase("simulating")
        time.sleep(0.4)
    assert ("a job: simulating" in stream.getvalue()) == seen


def test_an_error_ends_the_spinner(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal(monkeypatch)

    def fails() -> None:
        with working("a job"):
            time.sleep(0.05)
            raise ZeroDivisionError

    monkeypatch.setattr(progress, "A_MOMENT", 0.0)
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        fails()
    deadline = time.monotonic() + 5.0  # rich tells its thread to end and does not wait for it
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


def test_what_was_known_says_nothing_of_how_fast_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress, "perf_counter", lambda: clock[0])
    pace = progress.Pace(1000)
    clock[0] = 5.0  # looked up
    for _ in range(400):
        pace.advance(known=True)
    assert pace.words() == ""
    for _ in range(100):
        clock[0] += 0.1
        pace.advance()
    assert pace.words() == "10.0/s, 50 s left"


def test_words_of_rate_and_rest_agree() -> None:
    assert rate(30, 10.0) == "3.0/s"
    assert remaining(30, 60, 10.0) == "10 s left"
    assert remaining(60, 60, 10.0) == "0 s left"


def test_a_run_says_its_phases_in_order() -> None:
    from tests.jobs import scenario

    phases: list[str] = []
    told = scenario().run(phases.append)
    assert phases == ["planning", "folding", "simulating"]
    assert told.step_time == scenario().run().step_time


@pytest.mark.parametrize("watched", [True, False])
def test_who_waits_long_is_told_why_once(
    watched: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = terminal(monkeypatch) if watched else None
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    with working("run", lambda: "because [it] is large") as phase:
        phase("simulating")
        time.sleep(0.1)
    out = stream.getvalue() if stream else capsys.readouterr().err
    assert out.count("because [it] is large") == 1


def test_who_does_not_wait_is_told_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with working("run", lambda: "because it is large"):
        time.sleep(0.02)
    assert capsys.readouterr() == ("", "")


def test_the_reason_names_what_is_large_and_fields_that_make_it_smaller() -> None:
    assert why_long(small()) == (
        "This will take a while: 8 microbatches through 8 layers, kernel by kernel. Faster: simulation.detail: block."
    )
    long = why_long(small(training__global_batch=20000, simulation={"detail": "block", "fold": False, "steps": 3}))
    assert "10,000 microbatches of 3 steps each through 8 layers, on each of 16 ranks separately" in long
    assert all(word in long for word in ("simulation.fold", "simulation.steps", "training.global_batch"))
    assert "simulation.detail" not in long
