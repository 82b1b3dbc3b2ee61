"""Pictures and files: what is drawn is what happened."""

import gzip
import io
import json
import re
from itertools import pairwise

import numpy as np
import pytest

from tests.runs import result
from tests.traces import Shape
from trainsim.contracts.instructions import KINDS
from trainsim.errors import InvalidPlan
from trainsim.report.chart import chart
from trainsim.report.glyphs import width
from trainsim.report.panel import _fit
from trainsim.report.scene import Note, actors, joined, scene
from trainsim.report.style import LOOKS
from trainsim.report.text import summary
from trainsim.report.windows import windows

SMALL = Shape(stages=3, microbatches=4, tp=0.2, recompute=0.5, latency=0.1, reduce=0.7, update=0.2, replicas=2)
LONG = Shape(stages=6, microbatches=96, recompute=0.5, latency=0.02, reduce=3.0, update=0.4)


@pytest.fixture(scope="module")
def small():
    return result(SMALL, "small")


@pytest.fixture(scope="module")
def long():
    return result(LONG, "long")


def printed(renderable, columns=80):
    from rich.console import Console

    console = Console(width=columns, no_color=True, force_terminal=False, file=io.StringIO())
    console.print(renderable)
    return console.file.getvalue()


def test_every_kind_has_a_look_and_neighbours_differ_in_grey():
    assert set(KINDS) < set(LOOKS)

    def lightness(kind):
        red, green, blue = (int(LOOKS[kind].fill[k : k + 2], 16) / 255 for k in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    shades = sorted(
        lightness(kind) for kind in ("forward", "input", "backward", "weight", "recompute", "optimizer", "bubble")
    )
    assert min(b - a for a, b in pairwise(shades)) > 0.08
    assert all(LOOKS[kind].hatch for kind in ("tp", "cp", "ep", "pp", "dp", "offload"))


def test_the_summary_is_read_in_80_columns_without_colour(small):
    text = printed(summary(small))
    assert max(map(len, text.splitlines())) <= 80
    order = ["step time", "Where the time goes", "Memory\n", "Pipeline bubble", "Who waits for whom"]
    assert [text.index(word) for word in order] == sorted(text.index(word) for word in order)
    assert "gradients from stage 1" in text


@pytest.mark.parametrize("columns", [80, 100])
def test_no_number_stands_apart_from_its_unit(small, columns):
    text = printed(summary(small), columns)
    assert "…" not in text
    assert not [line for line in text.splitlines() if re.match(r"\s*(GiB|MiB|s|ms|%)\b", line)]


def test_waiting_is_told_from_communication(small):
    text = " ".join(printed(summary(small)).split())
    assert "of which at the end of the step" in text
    assert "of the longest span from a rank's first pass to its last" in text
    assert "Megatron-LM's formula" in text


def test_a_model_that_does_not_fit_is_named_by_stage_and_part():
    big = result(Shape(stages=2, activation=40e9))
    text = " ".join(printed(summary(big)).split())
    assert "DOES NOT FIT" in text
    assert "rank 0 of stage 0 needs" in text
    assert "the largest part is activations" in text
    assert not big.memory.fits


def test_comparison_as_text(small):
    other = result(Shape(stages=3, microbatches=4, tp=0.1), "other", {"parallel": {"tp": 2}})
    text = " ".join(printed(other - small).split())
    assert "shorter" in text
    assert "parallel None {'tp': 2}" in text


def test_short_steps_are_one_panel_and_long_ones_three(small, long):
    for run, panels in ((small, 1), (long, 3)):
        found = windows(actors(run, run.pipeline), run.step_time, run.bubble.warmup_s, run.bubble.cooldown_s)
        assert len(found) == panels
        assert found[0].start == 0.0
        assert found[-1].end == run.step_time
        assert len({round(w.end - w.start, 9) for w in found}) == 1


def test_the_boxes_of_a_whole_step_are_the_passes(small):
    one = scene(small, actors(small, small.pipeline), (0.0, small.step_time), detailed=False)
    forward = one.boxes["forward"]
    assert len(forward.left) == 3 * 4
    assert np.sum(forward.right - forward.left) == pytest.approx(12 * (1 + 0.2))
    idle = one.boxes["bubble"]
    spent = sum(np.sum(one.boxes[k].right - one.boxes[k].left) for k in ("forward", "backward", "dp", "optimizer"))
    assert spent + np.sum(idle.right - idle.left) == pytest.approx(3 * small.step_time)


def test_zoomed_in_every_span_is_a_box(small):
    one = scene(small, actors(small, small.pipeline), (0.0, small.step_time), detailed=True)
    kernels = sum(len(one.boxes[k].left) for k in one.boxes if k not in ("bubble", "exposed"))
    spans = sum(len(small.trace.spans(r, c).label) for r in small.pipeline for c in small.trace.chain_names(r))
    assert kernels == spans
    assert {row.stream for row in one.rows} == {"compute", "tp", "pp", "dp"}


def test_a_lane_beside_compute_shows_how_much_of_the_time_it_is_used():
    from tests.jobs import scenario

    run = scenario().replace({"training.tp_overlap": "wgrad"}).run()
    table = run.timeline()
    for stage in actors(run, run.pipeline):
        start, end = stage.beside["tp"]["tp"]
        left, right, share = joined(start, end, run.duration / 50)
        assert len(left) < len(start)
        assert np.sum(share * (right - left)) == pytest.approx(np.sum(end - start))
        tp = table[(table["rank"] == stage.rank) & (table["stream"] == "tp")]
        assert np.sum(end - start) <= (tp["end"] - tp["start"]).sum() + 1e-12


def test_the_legend_has_a_critical_path_where_it_is_drawn(long):
    def listed(figure):
        return "critical path" in {text.get_text() for legend in figure.legends for text in legend.get_texts()}

    window = (0.4 * long.duration, 0.41 * long.duration)
    on_it = {leg.stage for leg in long.critical_path.legs if leg.end > window[0] and leg.start < window[1]}
    assert listed(long.gantt(window=window))
    others = [rank for stage, rank in enumerate(long.pipeline) if stage not in on_it]
    assert others
    assert not listed(long.gantt(window=window, ranks=others))


def test_a_small_font_keeps_long_numbers():
    note = Note(0.0, 1.0, 0.5, "127", "forward", 1.0)
    assert _fit(note, width("127", 4.3) + 0.1, 9.5)[0] == "127"
    assert _fit(note, width("127", 4.3) - 0.1, 9.5)[0] == ""


def test_the_gantt_chart_can_be_drawn_and_refuses_nonsense(long, tmp_path):
    figure = long.gantt()
    assert len(figure.axes) == 4  # an overview and three windows
    assert long.name in {text.get_text() for text in figure.texts}
    assert len(long.gantt(window=(0.0, 12.0)).axes) == 1
    with pytest.raises(InvalidPlan, match="shows nothing"):
        long.gantt(window=(1e6, 2e6))
    with pytest.raises(InvalidPlan, match="rank 99 does not exist"):
        long.gantt(ranks=[99])
    with pytest.raises(InvalidPlan, match="1 was simulated"):
        long.gantt(steps=2)


def test_texts_are_as_wide_as_their_letters():
    assert width("1", 10) < width("12", 10) < width("12 3", 10)
    assert width("12", 20) == pytest.approx(2 * width("12", 10))


def test_the_chrome_trace_has_every_span_and_no_overlap(small, tmp_path):
    path = small.to_chrome(tmp_path / "trace.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    ranks = small.pipeline
    expected = sum(len(small.trace.spans(r, c).label) for r in ranks for c in small.trace.chain_names(r))
    assert len(spans) == expected
    threads = {}
    for e in spans:
        threads.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    for times in threads.values():
        times.sort()
        assert all(a[1] <= b[0] + 0.01 for a, b in pairwise(times))
    names = [e for e in events if e["name"] == "process_name"]
    assert [e["args"]["name"] for e in names] == [f"stage {k} · rank {r}" for k, r in enumerate(ranks)]
    assert {e["args"]["layer"] for e in spans} == {-1, 0, 1}
    starts, ends = ({e["id"] for e in events if e["ph"] == ph} for ph in "sf")
    assert starts == ends != set()


def test_no_two_threads_of_a_process_have_one_name(dualpipev, small, tmp_path):
    from tests.jobs import scenario

    for run in (small, dualpipev, scenario().run()):
        events = json.loads(run.to_chrome(tmp_path / "trace.json").read_text())["traceEvents"]
        names = [(e["pid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"]
        assert len(set(names)) == len(names)


def test_a_chrome_trace_without_compression_is_the_same(small, tmp_path):
    packed = gzip.decompress(small.to_chrome(tmp_path / "a.json.gz").read_bytes())
    assert small.to_chrome(tmp_path / "a.json").read_bytes() == packed


def test_the_page_needs_nothing_else(small, tmp_path):
    text = small.to_html(tmp_path / "report.html").read_text()
    assert "http" not in text.replace("http-equiv", "")
    assert "<script" not in text
    for word in ("Where the time goes", "Memory over time", "Who waits for whom", "data:image/png;base64,"):
        assert word in text


def test_a_run_leaves_five_files(small, tmp_path):
    paths = small.save(tmp_path / "out")
    assert [p.name for p in paths] == ["result.json", "gantt.png", "gantt.svg", "trace.json.gz", "report.html"]
    assert all(p.stat().st_size > 1000 for p in paths)
    first = [p.read_bytes() for p in paths]
    assert [p.read_bytes() for p in result(SMALL, "small").save(tmp_path / "out")] == first


@pytest.fixture(scope="module")
def dualpipev():
    from tests.jobs import scenario

    changes = {"pipeline.schedule": "dualpipev", "training.global_batch": 32, "training.tp_overlap": "none"}
    return scenario().replace(changes).run()


def test_two_passes_at_once_are_drawn_above_each_other(dualpipev):
    one = scene(dualpipev, actors(dualpipev, dualpipev.pipeline), (0.0, dualpipev.duration), detailed=False)
    heights = {
        kind: one.boxes[kind].top - one.boxes[kind].bottom for kind in ("forward", "backward", "input", "weight")
    }
    for kind in ("forward", "backward"):
        assert set(np.round(heights[kind], 6)) == {0.5, 1.0}
    assert set(np.round([*heights["input"], *heights["weight"]], 6)) == {1.0}
    assert len(heights["input"]) == len(heights["weight"])
    assert len(heights["forward"]) == 4 * 2 * 16


def test_later_chunks_have_a_bar_and_a_name(dualpipev):
    stages = actors(dualpipev, dualpipev.pipeline)
    one = scene(dualpipev, stages, (0.0, dualpipev.duration), detailed=False)
    assert len(one.boxes["chunk"].left) == sum(int((stage.slots.chunk == 1).sum()) for stage in stages)
    assert {"3", "3.1"} < {note.text for note in one.notes}
    rows = chart(dualpipev, column=dualpipev.duration / 1200).splitlines()
    assert "F4.1&B0-" in rows[-1]


def test_kernels_of_half_a_backward_look_like_it(dualpipev):
    zoomed = scene(dualpipev, actors(dualpipev, dualpipev.pipeline), (0.0, dualpipev.duration), detailed=True)
    passes = scene(dualpipev, actors(dualpipev, dualpipev.pipeline), (0.0, dualpipev.duration), detailed=False)
    for kind in ("input", "weight"):
        drawn = np.sum(zoomed.boxes[kind].right - zoomed.boxes[kind].left)
        assert 0 < drawn <= np.sum(passes.boxes[kind].right - passes.boxes[kind].left) + 1e-9
    assert any("&" in note.text for note in zoomed.notes)


def test_gathers_reductions_and_exposed_waits_look_different():
    from tests.test_sharding import result

    run = result("zero3, nothing ahead")
    one = scene(run, actors(run, run.pipeline), (0.0, run.step_time), detailed=False)
    assert {"gather", "dp", "exposed"} <= set(one.boxes)
    lane = next(row for row in one.rows if row.stream == "dp")
    for kind in ("gather", "dp"):
        beside = one.boxes[kind].bottom == lane.bottom
        assert beside.any()
    waits = one.boxes["exposed"]
    assert (waits.top - waits.bottom == 1.0).all()
