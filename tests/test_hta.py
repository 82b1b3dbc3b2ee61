"""HolisticTraceAnalysis reads our traces and finds the numbers that we have. It is run where it is installed: here, or
by the interpreter that ``TRAINSIM_HTA_PYTHON`` names."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.jobs import scenario
from tests.kineto import idle_breakdown, kind_of, on_gpu, temporal_breakdown, times
from tests.test_kineto import JOBS, written

SCRIPT = Path(__file__).parent / "tools" / "hta.py"
INTERPRETER = os.environ.get("TRAINSIM_HTA_PYTHON") or (sys.executable if importlib.util.find_spec("hta") else "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not INTERPRETER,
        reason="HolisticTraceAnalysis is not installed: pip install 'trainsim[interop]', or name an interpreter that "
        "has it in TRAINSIM_HTA_PYTHON",
    ),
]


def told_by_hta(folder: Path) -> dict[str, Any]:
    """Its tables of the traces in *folder*."""
    done = subprocess.run(
        [INTERPRETER, "-P", str(SCRIPT), str(folder)], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    tables: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return tables


@pytest.fixture(scope="module", params=JOBS)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[int, Any], dict[str, Any]]:
    folder = tmp_path_factory.mktemp("traces")
    documents = written(scenario().replace(JOBS[request.param]).run(), folder)
    return documents, told_by_hta(folder)


def test_it_reads_every_rank(both):
    documents, tables = both
    assert {row["rank"] for row in tables["temporal"]} == set(documents)


def test_temporal_breakdown(both):
    documents, tables = both
    for row in tables["temporal"]:
        ours = temporal_breakdown(documents[row["rank"]])
        for name, part in (
            ("idle", "idle"),
            ("compute", "compute"),
            ("non_compute", "non_compute"),
            ("kernel", "total"),
        ):
            assert row[f"{name}_time(us)"] == pytest.approx(ours[part] / 1e3, abs=0.01), name


def test_overlap_of_communication_and_computation(both):
    documents, tables = both
    for row in tables["overlap"]:
        hidden = temporal_breakdown(documents[row["rank"]])["hidden"]
        assert row["comp_comm_overlap_pctg"] == pytest.approx(100 * hidden, abs=0.0051)


def test_idle_time(both):
    """Waiting for the host, and for others: gaps of no length count for nothing."""
    documents, tables = both
    for rank, document in documents.items():
        ours = idle_breakdown(document)
        theirs: dict[tuple[int, str], float] = {}
        for row in tables["idle"]:
            if row["rank"] == rank:
                key = row["stream"], "host_wait" if row["idle_category"] == "host_wait" else "other"
                theirs[key] = theirs.get(key, 0.0) + row["idle_time"]
        for key in {*ours, *theirs}:
            assert theirs.get(key, 0.0) == pytest.approx(ours.get(key, 0) / 1e3, abs=0.03), key


def test_kernels_of_each_name(both):
    documents, tables = both
    for rank, document in documents.items():
        ours: dict[str, list[int]] = {}
        for event in on_gpu(document):
            start, end = times(event)
            ours.setdefault(event["name"], []).append(end - start)
        theirs = {row["name"]: row for row in tables["names"] if row["rank"] == rank}
        assert set(theirs) == set(ours)
        for name, row in theirs.items():
            assert row["sum (us)"] == pytest.approx(sum(ours[name]) / 1e3, abs=0.01)
            assert row["kernel_type"] == kind_of(name).upper()
