"""Gantt charts: what is painted is what happened, and can be read."""

import json
import re
import warnings
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from tests import test_sharding
from tests.jobs import scenario
from tests.kineto import spans_in
from tests.runs import result
from tests.traces import Shape
from trainsim.contracts.instructions import KINDS
from trainsim.errors import InvalidPlan
from trainsim.figures import legible
from trainsim.report import chrome
from trainsim.report import notes as noted
from trainsim.report.canvas import TALL, Note
from trainsim.report.chart import chart
from trainsim.report.chrome import excerpt
from trainsim.report.drawn_ranks import drawn_ranks, look_of
from trainsim.report.files import save_pictures
from trainsim.report.intervals import joined
from trainsim.report.lettering import width
from trainsim.report.scene import scene
from trainsim.report.strip import COLUMNS, ROWS, strip
from trainsim.report.style import LOOKS
from trainsim.report.windows import MOST, chosen, few_of, windows

SMALL = Shape(stages=3, microbatches=4, tp=0.2, recompute=0.5, latency=0.1, reduce=0.7, update=0.2, replicas=2)
LONG = Shape(stages=6, microbatches=96, recompute=0.5, latency=0.02, reduce=3.0, update=0.4)
DEEP = Shape(stages=72, microbatches=100, recompute=0.5, latency=0.02, reduce=3.0, update=0.4)
OWN = ("forward", "backward", "input", "weight")
SCHEDULES = ("1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "dualpipev", "dualpipe", "seq1f1b")


@pytest.fixture(scope="module")
def small():
    return result(SMALL, "small")


@pytest.fixture(scope="module")
def long():
    return result(LONG, "long")


@pytest.fixture(scope="module")
def deep():
    return result(DEEP, "deep")


@pytest.fixture(scope="module")
def dualpipev():
    changes = {"pipeline.schedule": "dualpipev", "training.global_batch": 32, "training.tp_overlap": "none"}
    return scenario().replace(changes).run()


@cache
def scheduled(name):
    chunks = {"pipeline.chunks": 2} if name == "interleaved-1f1b" else {}
    return scenario().replace({"pipeline.schedule": name, "training.global_batch": 32} | chunks).run()


# what is painted


RUNS = [*(f"sharding: {name}" for name in test_sharding.CASES), *(f"schedule: {name}" for name in SCHEDULES)]


def run_of(case):
    kind, _, name = case.partition(": ")
    return test_sharding.result(name) if kind == "sharding" else scheduled(name)


def seconds_by_look(run, rank, window):
    """What the trace says of a compute chain in a window, worked out span by span."""
    spans, labels = run.trace.spans(rank, "compute"), run.trace.labels
    length = np.clip(np.minimum(spans.end, window[1]) - np.maximum(spans.start, window[0]), 0.0, None)
    out = dict.fromkeys((*map(look_of, labels), *OWN), 0.0)
    for number, seconds in zip(spans.label.tolist(), length.tolist(), strict=True):
        out[look_of(labels[number])] += seconds
    own = sum(out.pop(look) for look in OWN)
    return out | {"own": own, "wait": window[1] - window[0] - sum(out.values()) - own}


def painted_by_look(run, rank, window):
    """The area of the boxes of a compute lane, and how many of them lie above each other anywhere."""
    drawn = scene(run, drawn_ranks(run, [rank]), window, detailed=False)
    area = {look: boxes.area / TALL for look, boxes in drawn.compute.items() if look != "chunk"}
    own = sum(area.pop(look, 0.0) for look in OWN)
    return area | {"own": own, "wait": area.pop("exposed", 0.0) + area.pop("bubble", 0.0)}


@pytest.mark.parametrize("case", RUNS)
def test_the_area_of_each_colour_is_the_time_spent_so(case):
    run = run_of(case)
    for part in ((0.0, 1.0), (0.2137, 0.581), (0.45, 0.4623), (0.93, 1.0)):
        window = (part[0] * run.duration, part[1] * run.duration)
        for rank in run.pipeline[:2]:
            truth, painted = seconds_by_look(run, rank, window), painted_by_look(run, rank, window)
            for look in truth | painted:
                thin = 0.004 * (12 if look == "own" else 1)  # bands too thin to be seen count as the pass's kernels
                error = abs(painted.get(look, 0.0) - truth.get(look, 0.0))
                assert error <= thin * (window[1] - window[0]) + 1e-12, (part, rank, look)


@pytest.mark.parametrize("case", RUNS)
def test_nothing_is_painted_over(case):
    """Boxes of a compute lane fill it: at every moment their heights sum to the lane's."""
    run = run_of(case)
    drawn = scene(run, drawn_ranks(run, run.pipeline[:1]), (0.0, run.duration), detailed=False)
    boxes = [column for look, column in drawn.compute.items() if look != "chunk"]
    left, right, bottom, top = (np.concatenate(column) for column in zip(*boxes, strict=True))
    for at in np.random.default_rng(1).uniform(0.0, run.duration, 300).tolist():
        here = np.flatnonzero((left <= at) & (at < right))
        order = here[np.argsort(bottom[here])]
        assert bottom[order[0]] == pytest.approx(-TALL, abs=0.03)
        assert top[order[-1]] == pytest.approx(0.0, abs=0.03)
        assert np.abs(top[order[:-1]] - bottom[order[1:]]).max(initial=0.0) < 0.03


@pytest.mark.parametrize("case", [case for case in RUNS if case.startswith("sharding")])
def test_what_looks_exposed_is_what_the_breakdown_calls_exposed(case):
    run = run_of(case)
    rank = run.pipeline[0]
    area = {
        look: boxes.area
        for look, boxes in scene(run, drawn_ranks(run, [rank]), (0.0, run.duration), detailed=False).compute.items()
    }
    apart = sum(area.get(look, 0.0) for look in ("copy", "other"))
    shown = sum(area.get(look, 0.0) for look in ("exposed", "dp", "gather", "offload")) + apart
    told = sum(run.breakdown[part] for part in ("dp", "offload")) + apart
    assert shown == pytest.approx(told, abs=0.01 * run.duration)


def test_communication_in_the_compute_chain_of_zero2_can_be_seen():
    run = test_sharding.result("zero2")
    drawn = scene(run, drawn_ranks(run, run.pipeline), (0.0, run.duration), detailed=False)
    spent = seconds_by_look(run, run.pipeline[0], (0.0, run.duration))
    assert spent["dp"] > 0.05 * run.duration
    tall = drawn.compute["dp"].top - drawn.compute["dp"].bottom
    assert np.sum((drawn.compute["dp"].right - drawn.compute["dp"].left)[tall == TALL]) > 0.8 * spent["dp"]


def test_pixels_are_as_the_boxes(small):
    """The shares of plain colours in a drawn lane, counted."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import to_rgb

    figure = small.gantt(ranks=[0])
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[:, :, :3].astype(int)
    axes, height = figure.axes[0], pixels.shape[0]
    (x0, low), (x1, high) = axes.transData.transform([(0.0, -TALL), (small.duration, 0.0)])
    lane = pixels[round(height - high) : round(height - low), round(x0) : round(x1)].reshape(-1, 3)
    drawn = scene(small, drawn_ranks(small, [0]), (0.0, small.duration), detailed=True).compute
    for look in ("forward", "backward", "recompute", "bubble"):
        near = np.abs(lane - np.rint(np.array(to_rgb(LOOKS[look].fill)) * 255)).max(axis=1) <= 8
        share = drawn[look].area / small.duration if look in drawn else 0.0
        assert near.mean() == pytest.approx(share, abs=0.05), look


def test_a_strip_has_the_mean_colour_of_what_happens(long):
    from matplotlib.colors import to_rgb

    image = strip(drawn_ranks(long, long.pipeline), long.duration)
    assert image.shape == (len(long.pipeline) * ROWS, COLUMNS, 3)
    for k, rank in enumerate(long.pipeline):
        spent = seconds_by_look(long, rank, (0.0, long.duration))
        passes = drawn_ranks(long, [rank])[0].passes
        own = {
            look: sum(e - s for w, s, e in zip(passes.work, passes.start, passes.end, strict=True) if w == work)
            for look, work in (("forward", "F"), ("backward", "B"))
        }
        rest = {look: spent[look] for look in ("dp", "optimizer")}
        colours = [(seconds, to_rgb(LOOKS[look].fill)) for look, seconds in (own | rest).items()]
        white = long.duration - sum(seconds for seconds, _ in colours)
        expected = sum(seconds * np.array(colour) for seconds, colour in [*colours, (white, (1.0, 1.0, 1.0))])
        assert image[k * ROWS].mean(axis=0) / 255 == pytest.approx(expected / long.duration, abs=0.01)


# boxes


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


def test_the_boxes_of_a_whole_step_are_the_passes(small):
    drawn = scene(small, drawn_ranks(small, small.pipeline), (0.0, small.step_time), detailed=False)
    forward = drawn.compute["forward"]
    assert len(forward.left) == 3 * 4
    assert np.sum(forward.right - forward.left) == pytest.approx(12 * (1 + 0.2))
    assert forward.area == pytest.approx(12)
    assert sum(boxes.area for boxes in drawn.compute.values()) == pytest.approx(3 * small.step_time)


def test_zoomed_in_every_span_is_a_box(small):
    drawn = scene(small, drawn_ranks(small, small.pipeline), (0.0, small.step_time), detailed=True)
    boxes = sum(len(some.left) for look, some in drawn.compute.items() if look not in ("bubble", "exposed"))
    boxes += sum(len(some.left) for some in drawn.beside.values())
    spans = sum(len(small.trace.spans(r, c).label) for r in small.pipeline for c in small.trace.chain_names(r))
    assert boxes == spans
    assert {row.stream for row in drawn.rows} == {"compute", "tp", "pp", "dp"}


def test_a_lane_beside_compute_shows_how_much_of_the_time_it_is_used():
    run = scenario().replace({"training.tp_overlap": "wgrad"}).run()
    table = run.timeline()
    for actor in drawn_ranks(run, run.pipeline):
        spans = actor.beside((0.0, run.duration))["tp"]["tp"]
        boxes, share = joined(spans, run.duration / 50)
        assert len(boxes.start) < len(spans.start)
        assert np.sum(share * boxes.seconds) == pytest.approx(spans.total)
        tp = table[(table["rank"] == actor.rank) & (table["stream"] == "tp")]
        assert spans.total <= (tp["end"] - tp["start"]).sum() + 1e-12


def test_gathers_are_drawn_alike_in_forward_and_backward_passes():
    """Gathers of one unit each lie apart in the forward pass as in the backward pass, where that can be seen."""
    run = test_sharding.result("fsdp2")
    actor = drawn_ranks(run, run.pipeline)[0]
    drawn = scene(run, [actor], (0.0, run.duration), detailed=False)
    gathers = actor.beside((0.0, run.duration))["dp"]["gather"]
    gaps = gathers.start[1:] - gathers.end[:-1]
    assert len(drawn.beside["gather"].left) == 1 + int((gaps > drawn.pixel).sum())


def test_two_passes_at_once_are_drawn_above_each_other(dualpipev):
    drawn = scene(dualpipev, drawn_ranks(dualpipev, dualpipev.pipeline), (0.0, dualpipev.duration), detailed=False)
    groups = [actor.groups for actor in drawn_ranks(dualpipev, dualpipev.pipeline)]
    assert sum(int(((group.forward >= 0) & (group.other >= 0)).sum()) for group in groups) > 20
    forward, backward = drawn.compute["forward"], drawn.compute["backward"]
    paired = np.isin(forward.left, backward.left)
    assert paired.sum() > 20
    for left, bottom, lane in zip(
        forward.left[paired], forward.bottom[paired], -np.floor(-forward.top[paired]), strict=True
    ):
        below = (backward.left == left) & (-np.floor(-backward.top) <= lane) & (np.abs(backward.top - bottom) < 1e-9)
        assert below.any()


def test_later_chunks_have_a_bar_and_a_name(dualpipev):
    stages = drawn_ranks(dualpipev, dualpipev.pipeline)
    drawn = scene(dualpipev, stages, (0.0, dualpipev.duration), detailed=False)
    assert len(drawn.compute["chunk"].left) >= sum(int((actor.passes.chunk == 1).sum()) for actor in stages)
    assert {"3", "3.1"} < {note.text for note in drawn.notes}
    rows = chart(dualpipev, column=dualpipev.duration / 1200).splitlines()
    assert "F4.1&B0-" in rows[-1]


def test_kernels_of_half_a_backward_look_like_it(dualpipev):
    zoomed, passes = (
        scene(dualpipev, drawn_ranks(dualpipev, dualpipev.pipeline), (0.0, dualpipev.duration), detailed=detailed)
        for detailed in (True, False)
    )
    for look in ("input", "weight"):
        assert 0 < zoomed.compute[look].area <= 1.02 * passes.compute[look].area
    assert any("&" in note.text for note in zoomed.notes)


def test_gathers_reductions_and_exposed_waits_look_different():
    run = test_sharding.result("zero3, nothing ahead")
    drawn = scene(run, drawn_ranks(run, run.pipeline), (0.0, run.step_time), detailed=False)
    assert {"gather", "dp"} <= set(drawn.beside)
    waits = drawn.compute["exposed"]
    assert (waits.top - waits.bottom == TALL).any()


# windows, lanes and numbers


def test_short_steps_are_one_panel_and_long_ones_three(small, long):
    for run, panels in ((small, 1), (long, 3)):
        parts = windows(drawn_ranks(run, run.pipeline), run.step_time, run.bubble.warmup_s, run.bubble.cooldown_s)
        assert len(parts) == panels
        assert parts[0].start == 0.0
        assert parts[-1].end == run.step_time
        assert len({round(w.end - w.start, 9) for w in parts}) == 1


def test_the_steady_state_of_a_deep_pipeline_is_zoomed_in(deep):
    stages = drawn_ranks(deep, chosen(deep))
    start, steady, end = windows(stages, deep.step_time, deep.bubble.warmup_s, deep.bubble.cooldown_s)
    assert end.end - end.start == pytest.approx(start.end - start.start)
    assert steady.end - steady.start < start.end - start.start
    assert "zoomed in" in steady.title


def test_of_many_stages_a_few_are_drawn_and_all_are_in_the_strip(deep, long):
    ranks = chosen(deep)
    assert {0, 1, 70, 71} < set(ranks)
    assert len(ranks) <= 7 < MOST
    assert chosen(long) == long.pipeline
    figure = deep.gantt()
    overview, *panels = figure.axes
    assert [label.get_text() for label in overview.get_yticklabels()] == ["stage 0", "stage 71"]
    assert "below are" in overview.get_title(loc="left")
    for axes in panels:
        assert len(axes.get_yticklabels()) == len(ranks)


def test_the_busiest_stage_is_among_those_drawn():
    slow = {"cluster.nodes": 3, "model.layers": 24, "parallel": {"tp": 1, "pp": 24, "dp": 1}}
    slow |= {"training.global_batch": 8, "what_if": [{"slow": {"rank": 13, "factor": 1.5}}]}
    run = scenario().replace(slow).run()
    assert 13 in chosen(run)


def test_ranks_that_are_asked_for_are_drawn_exactly(deep):
    figure = deep.gantt(ranks=[7, 3], window=(0.0, 30.0))
    assert [label.get_text().partition("\n")[0] for label in figure.axes[0].get_yticklabels()] == ["stage 7", "stage 3"]
    assert len(deep.gantt(ranks=range(20), window=(0.0, 30.0)).axes[0].get_yticklabels()) == 20


def numbers(count, wide, first=0):
    return [Note(k * wide, (k + 1) * wide, 0.5, str(first + k), "forward", 1.0, number=first + k) for k in range(count)]


@pytest.mark.parametrize("wide", [0.5, 1.0, 3.0, 5.0, 8.0, 12.0, 40.0])
@pytest.mark.parametrize(("count", "first"), [(12, 0), (64, 0), (30, 95), (200, 400)])
def test_numbers_are_all_there_or_evenly_spaced(count, first, wide):
    written = sorted(noted.fitted(numbers(count, wide, first), 1.0, 1.0), key=lambda words: words.note.left)
    shown = [words.note.number for words in written]
    steps = {b - a for a, b in pairwise(shown)}
    assert len(steps) <= 1
    if shown and steps != {1}:
        assert all(number % next(iter(steps), 1) == 0 for number in shown)
    if wide >= 40:
        assert shown == list(range(first, first + count))
    places = [((w.note.left + w.note.right) / 2, width(w.text, w.points) / 2) for w in written]
    assert all(a + half <= b - other for (a, half), (b, other) in pairwise(places))


def test_single_digits_alone_are_not_written():
    """Alternating passes in which 0 to 9 have room and 10 to 39 have none."""
    room = width("8", noted.SMALLEST) + noted.MARGIN + 0.2
    some = [Note(2 * k * 3.0, 2 * k * 3.0 + max(3.0, room), 0.5, str(k), "forward", 1.0, number=k) for k in range(40)]
    assert not list(noted.fitted(some, 1.0, 1.0))


def test_a_small_font_keeps_long_numbers():
    note = Note(0.0, 1.0, 0.5, "127", "forward", 1.0, number=127)
    room = width("127", noted.SMALLEST) + noted.MARGIN
    assert noted.fit(note, room + 0.1, 1.0).text == "127"
    assert noted.fit(note, room - 0.1, 1.0).text == ""


def test_texts_are_as_wide_as_their_letters():
    assert width("1", 10) < width("12", 10) < width("12 3", 10)
    assert width("12", 20) == pytest.approx(2 * width("12", 10))


# figures


def test_the_gantt_chart_can_be_drawn_and_refuses_nonsense(long):
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


@pytest.mark.parametrize("picture", ["gantt", "memory_chart"])
def test_the_legend_is_inside_the_picture_and_drawn_once(picture):
    run = scheduled("interleaved-1f1b")
    figure = getattr(run, picture)()
    figure.canvas.draw()
    assert figure.legends
    assert not set(figure.legends) & set(figure.artists)
    for legend in figure.legends:
        box = legend.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y0 >= -1


def test_the_legend_has_a_critical_path_where_it_is_drawn(long):
    def listed(figure):
        return "critical path" in {text.get_text() for legend in figure.legends for text in legend.get_texts()}

    window = (0.4 * long.duration, 0.41 * long.duration)
    on_it = {leg.stage for leg in long.critical_path.legs if leg.end > window[0] and leg.start < window[1]}
    assert listed(long.gantt(window=window))
    others = [rank for stage, rank in enumerate(long.pipeline) if stage not in on_it]
    assert others
    assert not listed(long.gantt(window=window, ranks=others))


def test_a_large_picture_is_a_small_file(deep, tmp_path):
    save_pictures(deep.gantt(), [tmp_path / "a.svg", tmp_path / "a.png"])
    assert (tmp_path / "a.svg").stat().st_size < 2e6
    first = [(tmp_path / name).read_bytes() for name in ("a.svg", "a.png")]
    save_pictures(deep.gantt(), [tmp_path / "a.svg", tmp_path / "a.png"])
    assert [(tmp_path / name).read_bytes() for name in ("a.svg", "a.png")] == first


# letters


@pytest.mark.parametrize("name", ["日本", "BLOOM 在 Jean Zay", "Größe, Île-de-France, Ωμέγα, Москва", "한국어 🚀"])
def test_no_name_draws_boxes(name, tmp_path):
    run = result(SMALL, name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for figure in (run.gantt(), run.memory_chart()):
            save_pictures(figure, [tmp_path / "a.png", tmp_path / "a.svg"])
    words = legible(name)
    assert bool(words.note) == ("\\u" in words.text)
    for letter in name:
        assert letter in words.text or f"\\u{ord(letter):04x}" in words.text


def test_letters_that_no_font_has_are_code_points(monkeypatch):
    from trainsim import figures

    monkeypatch.setattr(figures, "_family_with", lambda letters: None)
    words = legible("日本 on A100")
    assert words.text == "\\u65e5\\u672c on A100"
    assert "no font" in words.note
    monkeypatch.setattr(figures, "_family_with", lambda letters: "Noto Sans CJK JP")
    assert legible("日本") == figures.Legible("日本", ("DejaVu Sans", "Noto Sans CJK JP"), "")


def test_a_font_of_placeholders_is_no_font():
    from matplotlib.font_manager import fontManager

    from trainsim.figures import _family_with

    family = _family_with(frozenset("日本"))
    assert family is None or not re.match("Last Resort", family)
    assert any(entry.name.startswith("Last Resort") for entry in fontManager.ttflist) or family is None


# how much of a large step a trace holds


def test_a_small_trace_is_whole_and_a_large_one_an_excerpt(deep, small, tmp_path):
    assert excerpt(small).words == ""
    assert excerpt(small).ranks == small.pipeline
    size = {
        rank: sum(len(deep.trace.spans(rank, c).label) for c in deep.trace.chain_names(rank)) for rank in deep.pipeline
    }
    few = excerpt(deep, events=sum(size.values()) - 1)
    assert few.ranks == few_of(deep)
    assert few.window[1] == np.inf
    three = excerpt(deep, events=sum(size[rank] for rank in few.ranks) - 1)
    assert three.ranks == (0, few.ranks[len(few.ranks) // 2], 71)
    assert three.window[1] == np.inf
    less = excerpt(deep, events=sum(size[rank] for rank in three.ranks) // 2)
    assert less.window[1] == pytest.approx(deep.duration / 2, rel=0.01)
    assert "the first" in less.words


@pytest.mark.parametrize("ranks", [None, [0, 2]])
def test_the_trace_says_what_it_holds(small, ranks, tmp_path, monkeypatch):
    monkeypatch.setattr(chrome, "MOST_EVENTS", 60)
    document = json.loads(small.to_chrome(tmp_path / "trace.json", ranks=ranks).read_text())
    spans = spans_in(document)
    if ranks:
        assert "excerpt" not in document["otherData"]
        every = sum(len(small.trace.spans(r, c).label) for r in ranks for c in small.trace.chain_names(r))
        assert len(spans) == every
        assert {event["pid"] for event in spans} == set(ranks)
    else:
        assert document["otherData"]["excerpt"].startswith("ranks ")
        assert 0 < len(spans) <= 1.3 * 60
        until = excerpt(small).window[1]
        assert max(event["ts"] for event in spans) < (until + 3.0) * 1e6
