"""Charts that a person can read in a diff. ``TRAINSIM_UPDATE_GOLDEN=1 pytest tests/test_golden.py`` rewrites them."""

import os
from pathlib import Path

import pytest

from tests.runs import result
from tests.traces import Shape
from trainsim.report.chart import chart

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(
    ("schedule", "chunks", "latency"),
    [("gpipe", 1, 0.0), ("1f1b", 1, 0.0), ("1f1b", 1, 0.34), ("interleaved-1f1b", 2, 0.0)],
)
def test_chart(schedule, chunks, latency):
    shape = Shape(schedule=schedule, stages=4, microbatches=8, chunks=chunks, latency=latency, reduce=1.0, update=0.5)
    text = chart(result(shape), column=1 / 3 if chunks == 1 else 1 / 4)
    path = GOLDEN / f"{schedule}-p4-m8-v{chunks}{'-latency' if latency else ''}.txt"
    if os.environ.get("TRAINSIM_UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.exists(), "no golden chart yet: look at the one that TRAINSIM_UPDATE_GOLDEN=1 writes, then commit it"
    assert text == path.read_text()
