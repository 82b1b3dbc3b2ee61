"""Charts that a person can read in a diff. ``TRAINSIM_UPDATE_GOLDEN=1 pytest tests/test_golden.py`` rewrites them."""

import os
from pathlib import Path

import pytest

from tests.runs import result
from tests.traces import Shape
from trainsim.report.chart import chart
from trainsim.report.drawn_ranks import drawn_ranks
from trainsim.report.scene import scene

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(
    ("schedule", "chunks", "latency"),
    [("gpipe", 1, 0.0), ("1f1b", 1, 0.0), ("1f1b", 1, 0.34), ("interleaved-1f1b", 2, 0.0)],
)
def test_chart(schedule, chunks, latency):
    shape = Shape(schedule=schedule, stages=4, microbatches=8, chunks=chunks, latency=latency, reduce=1.0, update=0.5)
    text = chart(result(shape), column=1 / 3 if chunks == 1 else 1 / 4)
    same_as(GOLDEN / f"{schedule}-p4-m8-v{chunks}{'-latency' if latency else ''}.txt", text)


SCENES = {
    "scene-1f1b": (Shape(stages=2, microbatches=3, tp=0.2, recompute=0.5, latency=0.1, reduce=0.7, update=0.2), None),
    "scene-1f1b-window": (Shape(stages=3, microbatches=6, recompute=0.5, latency=0.25, reduce=1.0), (4.1, 9.3)),
    "scene-interleaved": (Shape(schedule="interleaved-1f1b", stages=2, microbatches=4, chunks=2, latency=0.1), None),
}


@pytest.mark.parametrize("name", SCENES)
def test_scene(name):
    """A Gantt chart as data: lanes, boxes by look, texts."""
    shape, window = SCENES[name]
    run = result(shape)
    drawn = scene(run, drawn_ranks(run, run.pipeline), window or (0.0, run.duration), detailed=False)
    lines = [f"lane {row.stream} of rank {row.rank}: {row.bottom:.2f} to {row.top:.2f}" for row in drawn.rows]
    for lane, boxes in (("compute", drawn.compute), ("beside", drawn.beside)):
        for look in sorted(boxes):
            for left, right, bottom, top in zip(*boxes[look], strict=True):
                lines.append(f"{lane} {look}: {left:.3f} to {right:.3f} s, {bottom:.3f} to {top:.3f}")
    lines += [f"text {note.text!r} ({note.kind}): {note.left:.3f} to {note.right:.3f} s" for note in drawn.notes]
    same_as(GOLDEN / f"{name}.txt", "\n".join(lines) + "\n")


def same_as(path, text):
    """*text* is that of the file, which TRAINSIM_UPDATE_GOLDEN=1 rewrites."""
    if os.environ.get("TRAINSIM_UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.exists(), "no golden file yet: look at the one that TRAINSIM_UPDATE_GOLDEN=1 writes, then commit it"
    assert text == path.read_text()
