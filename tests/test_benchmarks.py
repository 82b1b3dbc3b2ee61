"""The benchmark measures what it says and knows every target; how quick things are is not judged here."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks import cliffs, phases, sharding, zeropp
from benchmarks.checkouts import HERE, checkout
from benchmarks.commands import used
from benchmarks.engine import CASES
from benchmarks.inside import GRID, PARTS, POINT, SCENARIOS
from benchmarks.page import page
from benchmarks.table import ENGINE, RUNS, Row, _engine_target, line, others, table
from trainsim.scenario.scenario import Scenario

MEGABYTE = 1e6
NEARLY = 0.05  # a page need not be written again for every small change of a cost


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_a_process_is_measured_with_those_that_it_starts() -> None:
    busy = "import time\nwhile time.process_time() < 0.2: pass"
    alone = used(python(busy))
    assert 0.2 <= alone.cpu <= alone.wall * 1.5
    child = used(python(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"))
    assert child.cpu >= 0.2


def test_memory_is_the_most_that_was_held() -> None:
    held = used(python(f"x = b'x' * {int(500 * MEGABYTE)}; del x")).memory
    assert 500 * MEGABYTE < held < 560 * MEGABYTE


def test_a_command_that_fails_says_its_last_words() -> None:
    with pytest.raises(RuntimeError, match=r"exit 3[\s\S]*no such luck"):
        used(python("import sys; print('no such luck', file=sys.stderr); sys.exit(3)"))


@pytest.mark.parametrize(
    ("measured", "target", "verdict"),
    [(1.0, 2.0, "met"), (2.0, 2.0, "met"), (3.0, 2.0, "missed by 50%"), (9.0, None, "")],
)
def test_verdicts(measured: float, target: float | None, verdict: str) -> None:
    row = Row(what="it", measured=measured, unit="s", target=target)
    assert row.verdict == verdict
    assert line(row).rstrip().endswith(verdict or "s")
    assert table([row])[-1].endswith(f"| {measured:.3g} s | {verdict} |")


@pytest.mark.parametrize("name", [*(run.scenario for run in RUNS), *SCENARIOS, *phases.SCENARIOS])
def test_scenarios_ship(name: str) -> None:
    Scenario.load(name)


def test_every_scenario_that_ships_is_measured() -> None:
    assert {*others(), *(run.scenario for run in RUNS)} == {file.stem for file in (HERE / "scenarios").iterdir()}


def test_phases_are_those_of_the_whole_command() -> None:
    (found,) = phases.measure(["quickstart"], repeat=1)
    assert all(found.now[phase] > 0 for phase in ("start, imports", "scenario", "engine", "charts", "trace", "page"))
    assert sum(found.now[phase] for phase in phases.ALL[:-1]) == pytest.approx(found.now[phases.TOTAL])
    assert len(phases.table([found])) == 2 + len(phases.ALL)


def test_a_commit_that_is_not_there_is_said(tmp_path: Path) -> None:
    assert checkout(str(HERE), tmp_path) == HERE
    with pytest.raises(RuntimeError, match="no folder and no commit"):
        checkout("no-such-commit", tmp_path)


@pytest.mark.parametrize("cliff", cliffs.CLIFFS, ids=lambda cliff: cliff.name)
def test_cliffs_are_two_jobs(cliff: cliffs.Cliff) -> None:
    base = Scenario.from_dict(cliffs.nested(cliffs.BASE))
    special, plain = (base.replace(changes).resolve() for changes in (cliff.special, cliff.plain))
    assert special != plain


def test_a_cliff_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cliffs, "REPEAT", 1)
    few = {"training.global_batch": 8}
    found = cliffs.measure(cliffs.Cliff(name="TP overlap", special={**cliffs.WGRAD, **few}, plain=few))
    assert found.ratio == found.special / found.plain > 0
    assert cliffs.table([found])[-1].startswith("| TP overlap |")


def test_a_point_of_a_sweep_can_run() -> None:
    for changes in ({path: values[k] for path, values in GRID.items()} for k in (0, -1)):
        Scenario.from_dict(POINT).replace(changes).resolve()


def test_the_page_has_all_tables() -> None:
    before = dict.fromkeys(phases.ALL, 2.0)
    text = page(
        [Row(what="it", measured=1.0, unit="s", target=2.0)],
        [phases.Phases(scenario="quickstart", now=dict.fromkeys(phases.ALL, 1.0), before=before)],
        [cliffs.Found(name="overlap", special=9.0, plain=2.0, limit=3.0)],
        where="a machine", before="abc", note="Preliminary.",
    )  # fmt: skip
    for words in ("Preliminary.", "| it | ≤ 2 s | 1 s | met |", "2.00 → 1.00 (0.50)", "| 4.50 | ≤ 3 | missed by 50% |"):
        assert words in text


def test_every_engine_target_has_cases() -> None:
    targets = {_engine_target(case.name) for case in CASES["base"]}
    assert {*ENGINE.values(), None} == targets
    assert set(PARTS) == {"closed_form", "engine", "point"}


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def same(row: str, text: str, *, names: int) -> None:
    """The page has the row: its first cells word by word, the numbers nearly."""
    new = cells(row)
    (old,) = [found for found in map(cells, text.splitlines()) if found[:names] == new[:names]]
    assert len(old) == len(new)
    for before, now in zip(old[names:], new[names:], strict=True):
        wanted, found = ([float(number) for number in re.findall(r"[\d.]*\d", cell)] for cell in (before, now))
        assert found == pytest.approx(wanted, rel=NEARLY, abs=2.0 * now.endswith("%"))


@pytest.mark.parametrize(
    ("model", "tokens", "nics"), [("18B", 1024, 1), ("18B", 2048, 2), ("138B", 2048, 8)], ids=lambda value: str(value)
)
def test_the_page_about_zeropp_is_up_to_date(model: str, tokens: int, nics: int) -> None:
    points = {(model, tokens, nics, variant): zeropp.point(model, tokens, nics, variant) for variant in zeropp.VARIANTS}
    same(zeropp.row(points, model, tokens, nics), zeropp.PAGE.read_text(encoding="utf-8"), names=2)


@pytest.mark.parametrize("case", sharding.CASES[4:12:3], ids=lambda case: case[0])
def test_the_page_about_sharding_is_up_to_date(case: tuple[str, str, Mapping[str, object]]) -> None:
    same(sharding.row(*case), sharding.PAGE.read_text(encoding="utf-8"), names=2)


def test_tables_are_put_into_the_page() -> None:
    text = "a\n<!-- one -->\nold\n<!-- end -->\n<!-- two -->\n<!-- end -->\nb"
    assert zeropp.insert(text, "one", ["| new |"]) == (
        "a\n<!-- one -->\n\n| new |\n\n<!-- end -->\n<!-- two -->\n<!-- end -->\nb"
    )
