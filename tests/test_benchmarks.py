"""The benchmark measures what it says and knows every target; how quick things are is not judged here."""

import re
import sys
from collections.abc import Mapping

import pytest

from benchmarks import sharding, zeropp
from benchmarks.commands import used
from benchmarks.engine import CASES
from benchmarks.inside import PARTS, SCENARIOS
from benchmarks.table import ENGINE, RUNS, Row, _engine_target, line, markdown
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
    assert markdown([row], "a machine", "Preliminary.").splitlines()[-1].endswith(f"| {measured:.3g} s | {verdict} |")


@pytest.mark.parametrize("name", [*(run.scenario for run in RUNS), *SCENARIOS])
def test_scenarios_ship(name: str) -> None:
    Scenario.load(name)


def test_every_engine_target_has_cases() -> None:
    targets = {_engine_target(case.name) for case in CASES["base"]}
    assert {*ENGINE.values(), None} == targets
    assert set(PARTS) == {"closed_form", "engine"}


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
