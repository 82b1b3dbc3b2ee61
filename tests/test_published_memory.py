"""Peak memory against measurements of public sources: every fourth case here, all of them in ``benchmarks.memory``."""

from __future__ import annotations

import statistics

import pytest

from benchmarks.memory import Outcome, cases, predict, scenario, table, verdicts
from trainsim.errors import TrainsimError

ROWS = cases()
BOUNDS = {  # source -> (median, worst) of the errors, as parts of one
    "bigscience": (0.08, 0.13),
    "bigscience-v100": (0.15, 0.3),
    "simumax": (0.02, 0.03),
    "dlperf": (0.12, 0.15),
    "torchtitan": (0.06, 0.3),
    "mlperf": (0.15, 0.3),
}


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return [predict(row) for row in ROWS[::4]]


@pytest.mark.parametrize("source", BOUNDS)
def test_median_and_worst_by_source(outcomes: list[Outcome], source: str) -> None:
    found = [o.error for o in outcomes if o.group == source and not o.refused and o.measured]
    if not found:
        assert all(o.refused for o in outcomes if o.group == source)
        return
    median, worst = BOUNDS[source]
    assert statistics.median(map(abs, found)) < median
    assert max(map(abs, found)) < worst


@pytest.mark.parametrize("row", [r for r in ROWS if r["case"].startswith("simumax")], ids=lambda r: r["case"])
def test_what_the_allocator_counted(row: dict[str, str]) -> None:
    """Megatron-LM with Transformer Engine: states, activations, working memory and cached weight gradients are all."""
    outcome = predict(row)
    if outcome.refused:
        pytest.skip(outcome.refused)
    assert abs(outcome.error) < (0.005 if row["measures"] == "allocated" else 0.04)


def test_what_did_not_fit() -> None:
    """Nothing that ran out of memory is predicted to leave more than a tenth of it."""
    failed = [row for row in ROWS if row["measures"] == "oom"]
    assert failed
    for row in failed:
        assert predict(row).predicted > 0.9 * float(row["capacity"])


def test_what_ran_fits(outcomes: list[Outcome]) -> None:
    assert all(o.fits for o in outcomes if o.measured and not o.refused)


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r["case"])
def test_every_case_is_a_scenario(row: dict[str, str]) -> None:
    """Each has its source, and says what was measured; what it asks for is simulated, or refused with a reason."""
    assert len(row["source"]) > 20
    assert row["measures"] in ("allocated", "reserved", "smi", "oom")
    assert bool(row["bytes"]) == (row["measures"] != "oom")
    try:
        job = scenario(row).resolve()
    except TrainsimError as refused:
        assert "not simulated yet" in str(refused)
    else:
        assert job.parallel.ranks == int(row["tp"]) * int(row["pp"]) * int(row["dp"]) * int(row["cp"])


def test_tables() -> None:
    found = [
        Outcome(name="a-1", measures="smi", measured=100.0, predicted=110.0),
        Outcome(name="a-2", measures="smi", measured=100.0, predicted=80.0),
        Outcome(name="a-3", measures="oom", measured=None, predicted=90.0, fits=False),
        Outcome(name="a-4", measures="smi", measured=100.0, refused="not yet"),
    ]
    header, line = table(found)
    assert line.split() == ["a", "smi", "2", "15.0%", "10.0%", "-5.0%", "-20.0%"]
    assert list(verdicts(found)) == [
        "ran: 2, of which 2 are predicted to fit",
        "did not fit: 1, of which 1 are predicted not to",
    ]
    assert header.split()[0] == "source"
