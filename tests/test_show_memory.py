"""What a user sees of memory: pictures, tables, the moment of the peak, and what would make a step fit."""

import json
import struct
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from shlex import split
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import trainsim as ts
from tests.runs import result
from tests.traces import Shape
from trainsim.analysis.memory import CATEGORIES, at_peak
from trainsim.analysis.passes import moment
from trainsim.cli import main
from trainsim.cli.reading import value_of
from trainsim.errors import InvalidPlan, TrainsimError
from trainsim.report import memory_page
from trainsim.report.levels import MOST, STACK, drawn, edges, stairs, thinned
from trainsim.report.memory_chart import memory_chart
from trainsim.report.memory_words import short_verdict, verdict, verdicts
from trainsim.study.trial import Change, measures
from trainsim.study.ways import MEMORY, TIME, suggestions, ways
from trainsim.study.ways.batch_size import LARGER_BATCH
from trainsim.study.what_fits import COLUMNS, ROUNDS, search, what_fits

SMALL = """
name: small
model: {name: tiny, layers: 4, hidden: 256, heads: 4, vocab: 1024, max_positions: 512}
cluster: {topology: dgx_a100, nodes: 1}
parallel: {tp: 2, pp: 2}
training: {sequence_length: 256, global_batch: 16}
"""
LLAMA = {
    "model": "llama-3-8b",
    "cluster": {"topology": "dgx_h100", "nodes": 1},
    "training": {"sequence_length": 4096, "global_batch": 8},
}
ONE_GPU: dict[str, Any] = {**LLAMA, "cluster": {"topology": "dgx_h100", "nodes": 1, "gpus_per_node": 1}}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "small.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    return "small.yaml"


@pytest.fixture(scope="module")
def fsdp() -> ts.Result:
    return ts.Scenario.from_dict({**LLAMA, "sharding": {"strategy": "fsdp"}}).run()


@pytest.fixture(scope="module")
def deep() -> ts.Result:
    """More stages than a picture has room for."""
    return result(Shape(stages=MOST + 4, microbatches=40, update=0.2), "deep")


def status(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert isinstance(ended.value.code, int)
    return ended.value.code


# Thinning

steps = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), min_size=1, max_size=60)


def stair(changes: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Times from 0 on, some of them equal, and the levels from each on."""
    times = np.concatenate([[0.0], np.cumsum([late for late, _ in changes])])
    return times, np.array([1.0, *(float(level) for _, level in changes)])


def at(times: np.ndarray, levels: np.ndarray, moments: np.ndarray) -> np.ndarray:
    return levels[np.searchsorted(times, moments, side="right") - 1]


@given(steps, st.integers(1, 12), st.floats(0, 0.9), st.floats(0.05, 1))
@settings(deadline=None, max_examples=60)
def test_a_thinned_stair_is_nowhere_below_the_truth_and_keeps_every_peak(
    changes: list[tuple[int, int]], most: int, first: float, length: float
) -> None:
    times, levels = stair(changes)
    whole = max(float(times[-1]), 1.0)
    window = (first * whole, min(first + length, 1.0) * whole)
    index, when = thinned(times, levels, window, most)
    assert 1 <= len(index) == len(when) <= most
    assert (np.diff(when) >= 0).all()
    assert when[0] <= window[0]
    moments = np.unique(np.clip(np.concatenate([times, np.linspace(*window, 97)]), *window))[:-1]
    truth, picture = at(times, levels, moments), at(when, levels[index], moments)
    assert (picture >= truth).all()
    inside = (times >= window[0]) & (times <= window[1])
    assert levels[index].max() == max([*levels[inside], *at(times, levels, np.array(window[:1]))])


@given(steps, st.integers(1, 12))
@settings(deadline=None, max_examples=60)
def test_every_column_is_as_high_as_what_happens_in_it(changes: list[tuple[int, int]], most: int) -> None:
    times, levels = stair(changes)
    whole = max(float(times[-1]), 1.0)
    index, when = thinned(times, levels, (0.0, whole), most)
    borders = [0.0, *(whole / most * k for k in range(1, most)), whole]
    for left, right in pairwise(borders):
        seen = (times >= left) & (times < right)
        held = max([*levels[seen], *at(times, levels, np.array([left]))])
        drawn_there = [*levels[index][(when >= left) & (when < right)], *at(when, levels[index], np.array([left]))]
        if right < whole:
            assert max(drawn_there) == held


@pytest.mark.parametrize("most", [7, 100, 100_000])
def test_areas_upon_each_other_add_up(fsdp: ts.Result, most: int) -> None:
    stage = fsdp.memory.fullest
    found = stairs(stage, (0.0, fsdp.duration), most)
    assert set(found.levels) == set(stage.levels)
    assert found.top.max() == pytest.approx(stage.peak)
    below, stays = np.zeros(len(found.times)), np.append(np.diff(found.times) > 0, True)
    for edge in reversed([*edges(found)]):
        below = below + found.levels[edge.category]
        assert at(edge.times, edge.level, found.times)[stays] == pytest.approx(below[stays])
        assert len(edge.times) == 1 or np.diff(edge.level).all()


def test_the_stack_has_every_category_once() -> None:
    assert sorted(STACK) == sorted(CATEGORIES)


# The moment of the peak


def test_a_moment_is_named_by_the_pass_that_runs() -> None:
    run = result(Shape(stages=2, microbatches=3, latency=0.1, update=0.5))
    table = run.timeline()
    mine = table[(table["rank"] == 0) & (table["stream"] == "compute")]
    for row in mine.itertuples():
        words = str(moment(run.lanes, 0, (row.start + row.end) / 2))
        if row.kind in ("forward", "backward"):
            assert words == f"in {row.kind} of microbatch {row.microbatch}"
        else:
            assert words == "in the update after the passes"
    assert str(moment(run.lanes, 1, 0.0)) == "at the start of the step"
    first = mine[mine["kind"] == "backward"]["start"].min()
    assert str(moment(run.lanes, 0, first - 0.01)).startswith("after forward of microbatch")


def test_the_peak_is_where_activations_are_most(fsdp: ts.Result) -> None:
    stage = fsdp.memory.fullest
    assert str(at_peak(fsdp.lanes, stage)) == "in backward of microbatch 0"
    pipeline = ts.Scenario.load("quickstart").replace({"parallel.pp": 4, "pipeline.chunks": 2}).run()
    assert "chunk" in str(at_peak(pipeline.lanes, pipeline.memory.fullest))


# Pictures


def texts(figure: Any) -> str:
    inside = [axes.get_title(loc=side) for axes in figure.axes for side in ("left", "right")]
    legends = [
        text.get_text() for legend in figure.findobj(lambda a: hasattr(a, "get_texts")) for text in legend.get_texts()
    ]
    return "\n".join([*inside, *legends, *(text.get_text() for text in figure.texts)])


def test_a_panel_per_stage_with_its_passes(fsdp: ts.Result) -> None:
    figure = fsdp.memory_chart()
    assert len(figure.axes) == 2
    said = texts(figure)
    for word in (
        "stage 0, rank 0",
        "peak",
        "in backward of microbatch 0",
        "capacity",
        "forward",
        "backward",
        "optimizer",
    ):
        assert word in said
    for category in fsdp.memory.fullest.levels:
        assert category in said


def test_of_many_stages_both_ends_are_drawn(deep: ts.Result) -> None:
    assert [stage.stage for stage in drawn(deep.memory)] == [*range(8), *range(12, 20)]
    figure = memory_chart(deep)
    assert len(figure.axes) == 2 * MOST
    assert "without 4 stages" in texts(figure)


def test_a_window_that_shows_nothing_is_refused(fsdp: ts.Result) -> None:
    assert fsdp.memory_chart(window=(0.0, fsdp.duration / 4)).axes[0].get_xlim()[1] == pytest.approx(fsdp.duration / 4)
    with pytest.raises(InvalidPlan, match="shows nothing"):
        fsdp.memory_chart(window=(1e6, 2e6))


def test_what_does_not_fit_is_hatched_and_said() -> None:
    big = result(Shape(stages=2, activation=40e9), "big")
    figure = memory_chart(big)
    assert "DOES NOT FIT" in texts(figure)
    assert [artist for axes in figure.axes for artist in axes.artists + axes.patches if artist.get_hatch()]
    low = ts.Scenario.from_dict(yaml.safe_load(SMALL)).run()
    assert low.memory.peak < low.memory.capacity / 4
    assert "above the picture" in texts(memory_chart(low))


def test_the_page_stays_small_and_shows_every_stage(deep: ts.Result, fsdp: ts.Result) -> None:
    html = memory_page.memory_charts(deep)
    assert html.count("<svg") == MOST
    assert len(html) < MOST * 20_000
    for chart in html.split("<svg")[1:]:
        areas = [path for path in chart.split("<path ") if path.startswith("fill='") and "V100" in path]
        assert areas
        assert all(path.count("V") <= memory_page.COLUMNS + 1 for path in areas)
    html = memory_page.memory_charts(fsdp)
    assert "peak" in html
    assert "gathered" in html


# The command


def test_show_memory_prints_draws_and_says_that_it_fits(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("show", "memory", small) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for words in ("fits: peak", "in forward of microbatch", "not counted", "It fits", "weights"):
        assert words in out
    assert max(map(len, out.splitlines())) <= 80
    png = Path("out/small/memory.png").read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", png[16:24])
    assert 1000 < width < 2500
    assert 300 < height < 3000


def test_show_memory_takes_changes_a_file_and_all(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("show", "memory", small, "--set", "parallel.pp=1", "--out", "x/y.svg", "--all") == 0
    out = capsys.readouterr().out
    assert "What would free memory" in out
    assert "--set training.optimizer=adam8bit" in out
    assert Path("x/y.svg").read_text().startswith("<?xml")
    assert status("show", "memory", small, "--set", "parallel.pp=1", "--out", "x/z.svg") == 0
    assert Path("x/z.svg").read_bytes() == Path("x/y.svg").read_bytes()


def test_show_memory_as_json(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("show", "memory", small, "--json", "--all") == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    run = ts.Scenario.load(small).run()
    assert found["memory"]["peak_bytes"] == run.memory.peak
    assert [set(CATEGORIES) <= set(stage) for stage in found["memory"]["per_stage"]] == [True, True]
    assert found["memory"]["per_stage"][0]["moment"] == str(at_peak(run.lanes, run.memory.per_stage[0]))
    assert len(found["ways"]) > 5
    assert err.strip() == "out/small/memory.png"
    assert status("show", "memory", small, "--json") == 0
    assert json.loads(capsys.readouterr().out)["ways"] is None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "SCENARIO"),
        (["nothing.yaml"], "no such file"),
        (["small.yaml", "--set", "parallel.tp=3"], "4 heads are not divisible by tp=3"),
        (["small.yaml", "--set", "parallel.tp"], "path=value"),
        (["small.yaml", "--out", "picture.pdf"], ".png or .svg"),
        (["small.yaml", "--out", "picture"], ".png or .svg"),
        (["small.yaml", "--out", "small.yaml/x.png"], "small.yaml"),
        (["small.yaml", "--out", "folder.png"], "folder.png"),
    ],
)
def test_wrong_words_are_one_message_and_status_2(
    small: str, words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("folder.png").mkdir()
    assert status("show", "memory", *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("trainsim: ")
    assert expected in err
    assert "Traceback" not in err


def test_run_points_to_it_where_it_does_not_fit(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    changes = ("model=gpt-22b", "training.sequence_length=2048", "training.micro_batch=8")
    words = [word for change in changes for word in ("--set", change)]
    assert status("run", small, *words) == 0
    assert f"trainsim show memory {small} {' '.join(words)}" in capsys.readouterr().out
    assert status("run", small) == 0
    assert "show memory" not in capsys.readouterr().out


# What would make it fit


@pytest.fixture(scope="module")
def one_gpu() -> Any:
    return what_fits(ts.Scenario.from_dict(ONE_GPU))


def test_an_8b_model_on_one_gpu_and_what_makes_it_fit(one_gpu: Any) -> None:
    base = ts.Scenario.from_dict(ONE_GPU)
    assert not base.run().memory.fits
    assert list(one_gpu.columns) == list(COLUMNS)
    fitting = one_gpu[one_gpu["fits"].fillna(False).astype(bool)]
    assert {"all 8 GPUs of a node", "optimizer on the CPU"} <= set(fitting["change"])
    assert not {"full recompute", "2 nodes"} & set(fitting["change"])


def test_every_row_was_run(one_gpu: Any) -> None:
    base = ts.Scenario.from_dict(ONE_GPU)
    assert one_gpu["peak_memory_bytes"].notna().sum() >= 5
    now = base.run().step_time / base.resolve().training.global_batch
    for row in one_gpu.itertuples():
        if row.peak_memory_bytes > 0:
            then = base.replace(row.changes).run()
            assert then.memory.peak == row.peak_memory_bytes
            assert then.memory.fits == row.fits
            assert then.step_time == row.step_time_s
            per_sequence = then.step_time / then.job.training.global_batch
            assert row.step_time_change == pytest.approx(per_sequence / now - 1.0, abs=1e-12)
        else:
            with pytest.raises(TrainsimError, match=r"."):
                base.replace(row.changes).run()
            assert row.error


def test_every_command_says_what_was_changed() -> None:
    base = ts.Scenario.from_dict(ONE_GPU)
    for tried in search(base, measures(base.run())).tried:
        words = split(tried.trial.command)
        said = {path: value_of(value) for path, value in (word.split("=", 1) for word in words[1::2])}
        assert said == tried.trial.changes


def test_the_best_is_first(one_gpu: Any) -> None:
    ran = one_gpu["peak_memory_bytes"].notna().tolist()
    assert ran == sorted(ran, reverse=True)
    fits = one_gpu["fits"][ran].astype(bool).tolist()
    assert fits == sorted(fits, reverse=True)
    longer = one_gpu["step_time_change"][: sum(fits)].tolist()
    assert longer == sorted(longer)


def test_pairs_are_tried_where_no_single_change_does() -> None:
    base = ts.Scenario.from_dict({**ONE_GPU, "training": {"sequence_length": 32768, "global_batch": 2}})
    found = search(base, measures(base.run()))
    assert found.fitting
    assert all(len(one.trial.parts) >= 2 for one in found.fitting)
    best = found.fitting[0]
    assert base.replace(best.trial.changes).run().memory.peak == best.ran.peak_memory
    assert len({base.replace(one.trial.changes) for one in found.tried if one.ran}) == sum(
        o.ran is not None for o in found.tried
    )


def test_small_hosts_are_helped_by_what_takes_less_of_them() -> None:
    small = {"sharding.offload.optimizer": "cpu", "cluster.hosts.memory": "64GB", "training.recompute": "full"}
    base = ts.Scenario.from_dict(LLAMA).replace({"sharding.strategy": "zero3", **small})
    found = search(base, measures(base.run()))
    result, tried = base.run(), {one.title: one for one in found.tried}
    before = result.memory
    assert before.gpus_fit
    assert not before.fits
    assert tried["nothing offloaded"].saves
    for one in (*found.fitting, *found.smaller):
        use = base.replace(one.trial.changes).run().memory
        assert use.host.peak_per_node < before.host.peak_per_node
    first, second = verdicts(before)
    assert first.startswith("fits: ")
    assert second.startswith("DOES NOT FIT: host memory ")
    assert short_verdict(before) == "host memory too small"
    assert second in texts(memory_chart(result))


def test_slack_is_not_what_does_not_fit() -> None:
    use = ts.Scenario.from_dict(LLAMA).run().memory
    between = replace(use, capacity=(use.needed + use.peak) / 2)
    assert between.fits
    assert verdict(between).startswith(f"fits barely: peak {use.peak / 2**30:.1f} GiB of ")
    assert f"({use.needed / 2**30:.1f} GiB without" in verdict(between)
    assert verdict(replace(use, capacity=use.needed * 0.99)).startswith("DOES NOT FIT")
    words = [short_verdict(replace(use, capacity=c)) for c in (use.peak, between.capacity, use.needed * 0.99)]
    assert words == ["fits", "fits barely", "does not fit"]


def test_nothing_fits_everything() -> None:
    huge = {"family": "gpt", "layers": 8, "hidden": 98304, "heads": 768, "vocab": 51200}
    base = ts.Scenario.from_dict({**ONE_GPU, "model": huge, "training": {"sequence_length": 2048}})
    found = search(base, measures(base.run()))
    assert not found.fitting
    assert found.smaller
    nearest = found.smaller[0]
    assert nearest.full == min(one.full for one in found.tried if one.ran)
    assert len(nearest.trial.parts) <= ROUNDS


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sharding.strategy": "fsdp"},
        {"parallel.pp": 4, "pipeline.chunks": 2},
        {"parallel.tp": 2, "training.micro_batch": 4, "training.global_batch": 32},
        {"parallel.dp": 8, "training.attention": "eager"},
        {"sharding.strategy": "hsdp", "sharding.shard_size": 4, "training.recompute": "selective"},
    ],
    ids=str,
)
@pytest.mark.parametrize("goal", [MEMORY, TIME])
def test_changes_can_be_said_keep_the_batch_and_are_new(changes: dict[str, Any], goal: str) -> None:
    base = ts.Scenario.from_dict(LLAMA).replace(changes)
    batch, some = base.resolve().training.global_batch, list(suggestions(base, goal))
    assert len({change.title for change in some}) == len(some) >= 6
    ran = 0
    for change in some:
        then = base.replace(change.values)
        assert then != base
        try:
            job = then.resolve()
        except TrainsimError:
            continue
        ran += 1
        grows = change.kind in ("gpus", LARGER_BATCH)
        assert job.training.global_batch == batch or (grows and job.training.global_batch % batch == 0)
    assert ran >= 3


@pytest.mark.parametrize("strategy", ["mics", "zeropp", "hsdp"])
def test_groups_are_left_behind_where_another_strategy_has_none(strategy: str) -> None:
    base = ts.Scenario.from_dict(LLAMA).replace({"sharding.strategy": strategy, "sharding.shard_size": 4})
    switched = [change for change in suggestions(base, MEMORY) if "sharding.strategy" in change.values]
    assert switched
    for change in switched:
        assert "shard_size" not in base.replace(change.values).resolve().sharding.options


@pytest.mark.parametrize("name", list(ways))
def test_every_way_has_something_to_say_somewhere(name: str) -> None:
    gallery = [
        ts.Scenario.from_dict(LLAMA).replace(changes)
        for changes in (
            {"training.micro_batch": 2, "training.global_batch": 16, "training.attention": "eager"},
            {"parallel.pp": 4, "parallel.tp": 2},
            {"cluster.gpus_per_node": 1},
            {"sharding.strategy": "fsdp", "sharding.reshard_after_forward": False},
            {"sharding.strategy": "fsdp", "training.recompute": "full"},
            {"sharding.offload.optimizer": "cpu"},
            {"training.activation_offload": "cpu"},
            {"framework": "pytorch-ddp"},
            {"model.moe": {"experts": 8, "shared_experts": 1}, "parallel.ep": 2},
            {"parallel.tp": 2, "training.loss_parallel": False},
            {"parallel.cp": 2, "training.sequence_length": 16384},
            {"what_if": [{"slow": {"rank": 1, "factor": 1.1}}]},
        )
    ]
    said = [change for base in gallery for change in ways[name].suggest(base, base.resolve())]
    assert said
    assert all(isinstance(change, Change) and change.values for change in said)


def test_a_scenario_that_fits_needs_no_pairs() -> None:
    base = ts.Scenario.from_dict(LLAMA).replace({"training.recompute": "full"})
    found = search(base, measures(base.run()))
    assert found.now.fits
    assert all(len(one.trial.parts) == 1 for one in found.tried)
    assert all(one.ran.peak_memory < found.now.peak_memory for one in found.fitting)
    assert found.useless or found.fitting
