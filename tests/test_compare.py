"""Runs side by side: the numbers are those of the runs, and the figure has them on one axis."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

import trainsim as ts
from tests.jobs import scenario
from tests.test_cli import status
from tests.test_explain import SMALL
from tests.test_report import printed
from trainsim.errors import InvalidPlan, ScenarioError
from trainsim.study.compare import compare
from trainsim.units import format_bytes

SCHEDULES = ("1f1b", "zb-h1", "dualpipev")


@pytest.fixture(scope="module")
def some():
    return compare(
        scenario().replace({"pipeline.schedule": name, "training.global_batch": 32, "training.tp_overlap": "none"})
        for name in SCHEDULES
    )


def test_the_columns_are_the_numbers_of_the_runs(some):
    assert len(some) == 3
    for column, result in zip(some.columns, some, strict=True):
        assert (column.step_time, column.mfu) == (result.step_time, result.mfu)
        assert (column.bubble_fraction, column.span_fraction) == (result.bubble.fraction, result.bubble.span_fraction)
        assert column.p2p == result.communication["pp"].bytes_per_rank
        assert column.dp == result.communication["dp"].bytes_per_rank
        assert column.memory_peak == result.memory.peak
        assert max(column.activations) == max(stage.most_activations for stage in result.memory.per_stage)
    assert some.columns[0].in_flight == (4, 3, 2, 1)
    assert some.columns[2].in_flight[0] == 2 * 4 + 1  # DualPipeV keeps 2p + 1 chunks
    assert [column.schedule for column in some.columns] == list(SCHEDULES)
    assert list(some.table["step_time_s"]) == [result.step_time for result in some]


def test_the_differences_are_those_of_two_results(some):
    for difference, result in zip(some.differences, some.results[1:], strict=True):
        two = result - some[0]
        assert (difference.seconds, difference.breakdown) == (two.seconds, two.breakdown)
        assert difference.before == some.names[0]


def test_runs_of_one_name_are_told_apart_by_what_differs(some):
    assert some.names == ("1f1b, chunks 1", "zb-h1, chunks 1", "dualpipev, chunks 2")
    same = compare([some[0], some[0]])
    assert same.names == ("small (1)", "small (2)")
    assert same.differences[0].seconds == 0.0


def test_names_results_and_scenarios_can_be_mixed(some):
    mixed = ts.compare(["quickstart", some[0]])
    assert mixed.names == ("Llama-3-8B on one DGX H100", "small")
    for few in ([], ["quickstart"], "quickstart"):
        with pytest.raises(ScenarioError, match="two or more"):
            compare(few)


def test_the_charts_share_one_axis(some):
    longest = max(result.duration for result in some)
    figure = some.gantt()
    assert len(figure.axes) == 3
    assert {axes.get_xlim() for axes in figure.axes} == {(0.0, longest)}
    assert [axes.get_title(loc="left") for axes in figure.axes] == list(some.names)
    near = some.gantt(window=(0.0, longest / 3))
    assert {axes.get_xlim()[1] for axes in near.axes} == {longest / 3}
    with pytest.raises(InvalidPlan, match="shows nothing"):
        some.gantt(window=(2 * longest, 3 * longest))


def test_long_runs_are_strips():
    long = [scenario().replace({"pipeline.schedule": name, "training.global_batch": 512}) for name in ("1f1b", "gpipe")]
    figure = compare(long).gantt()
    assert all(axes.images for axes in figure.axes)


def test_it_reads_in_80_columns(some):
    from rich.console import Console

    console = Console(width=80, no_color=True, force_terminal=False, file=io.StringIO())
    console.print(some)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    row = next(line for line in lines if "dualpipev, chunks 2" in line)
    assert "…" not in row
    assert row.split()[3:5] == [f"{some[2].step_time * 1e3:.2f}", "ms"]
    assert "dualpipev" in some._repr_html_()
    assert "dualpipev" in repr(some)


def test_the_command(tmp_path, monkeypatch, capsys):
    (tmp_path / "small.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    words = ["compare", "small.yaml", "--grid", "pipeline.schedule=1f1b,zb-h1,zb-v", "--out", "charts/all.svg"]
    assert status(*words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert [out.count(name) > 0 for name in ("1f1b", "zb-h1", "zb-v")] == [True] * 3
    assert "zb-v" in out.split("Side by side")[1]
    assert Path("charts/all.svg").stat().st_size > 10_000
    assert status(*words, "--json") == 0
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert "charts/all.svg" in err
    assert [run["schedule"] for run in data["runs"]] == ["1f1b", "zb-h1", "zb-v"]
    assert len(data["differences"]) == 2
    assert data["differences"][0]["difference_s"] == pytest.approx(
        data["runs"][1]["step_time_s"] - data["runs"][0]["step_time_s"]
    )


def test_one_run_is_no_comparison(tmp_path, monkeypatch, capsys):
    (tmp_path / "small.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    assert status("compare", "small.yaml") == 2
    assert "A B" in capsys.readouterr().err


def test_without_a_pipeline_the_table_says_what_replicas_are_sent() -> None:
    base = ts.Scenario.from_dict(
        {"model": "llama-3-8b", "cluster": {"topology": "dgx_a100", "nodes": 1}, "training": {"global_batch": 8}}
    )
    some = ts.compare([base.replace({"sharding.strategy": name}) for name in ("ddp", "zero3")])
    text = " ".join(printed(some).split())
    assert "to other replicas" in text
    assert all(format_bytes(column.dp) in text and column.dp > 0 for column in some.columns)
    assert (" no " in text) == (not all(column.fits for column in some.columns))
    assert not some.columns[0].fits


@pytest.mark.parametrize(
    ("seconds", "fraction", "words"),
    [(-4.67, 0.006, "a larger part of a shorter pipeline"), (4.67, -0.006, "a smaller part of a longer pipeline"),
     (-4.67, -0.006, None), (4.67, 0.006, None)],
)  # fmt: skip
def test_a_bubble_that_is_shorter_and_yet_a_larger_part_is_told(seconds, fraction, words, some):
    change = replace(
        some.differences[0],
        breakdown={**some.differences[0].breakdown, "bubble": seconds},
        bubble_before=0.132,
        bubble_after=0.132 + fraction,
    )
    said = change.words("bubble")
    assert (words in said) if words else ("yet" not in said)
    assert change.words("compute") == some.differences[0].words("compute")


def test_what_cannot_be_run_is_told_beside_what_can():
    runs = compare([scenario(), scenario().replace({"parallel.tp": 3}), scenario(parallel__pp=2)])
    assert len(runs) == 2
    assert [outcome.trial.changes for outcome in runs.refused] == [{}]
    text = printed(runs)
    assert "Not run" in text
    assert "tp=3" in text
    with pytest.raises(ScenarioError, match="none could be run"):
        compare([scenario().replace({"parallel.tp": n}) for n in (3, 5)])


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "small.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


GRID = ["--grid", "pipeline.schedule=1f1b,zb-h1,zb-v"]


@pytest.mark.parametrize("options", [("--store", "a.sqlite"), ("--workers", "2"), ("--backend", "serial")])
def test_stored_runs_and_those_of_processes_give_the_same_words(options, here, capsys):
    assert status("compare", "small.yaml", *GRID, "--json") == 0
    plain = capsys.readouterr().out
    for count in (0, 3):
        assert status("compare", "small.yaml", *GRID, "--json", *options) == 0
        out, err = capsys.readouterr()
        assert out == plain
        assert ("store" not in options[0]) or f"{count} of 3 runs were in a.sqlite" in err
    shown = []
    for words in ([], options):
        assert status("compare", "small.yaml", *GRID, *words) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]


def test_names_are_those_of_who_asks_not_of_who_stored(here):
    base = ts.Scenario.load("small.yaml")
    runs = [base.replace({"name": "mine", "training.global_batch": batch}) for batch in (16, 32)]
    compare(runs, store="a.sqlite")
    yours = [run.replace({"name": f"yours {k}"}) for k, run in enumerate(runs)]
    stored, plain = compare(yours, store="a.sqlite"), compare(yours)
    assert stored.found == 2
    assert stored.names == ("yours 0", "yours 1")
    assert stored.to_dict() == plain.to_dict()
    assert plain.differences[0].changes == (plain[1] - plain[0]).changes


def test_results_and_scenarios_mix_with_a_store_too(some, here):
    mixed = compare([some[0], "small.yaml"], store="a.sqlite")
    assert mixed.columns[0].step_time == some[0].step_time
    assert mixed.columns[1].step_time == ts.Scenario.load("small.yaml").run().step_time


def test_numbers_alone_have_no_charts(here, capsys):
    runs = compare(["small.yaml", "small.yaml"], workers=1)
    assert len(runs) == 2
    assert "Side by side" in runs._repr_html_()
    for use in (runs.gantt, lambda: runs[0], lambda: list(runs)):
        with pytest.raises(ScenarioError, match="numbers only"):
            use()
    assert status("compare", "small.yaml", *GRID, "--out", "a.svg", "--store", "a.sqlite") == 2
    assert "--store a.sqlite gives numbers only; leave out one of the two" in capsys.readouterr().err
    assert not Path("a.sqlite").exists()


def test_what_cannot_be_run_is_told_from_a_store_too(here):
    bad = ts.Scenario.load("small.yaml").replace({"parallel.tp": 7})
    for found in (0, 2):
        runs = compare(["small.yaml", bad], store="a.sqlite")
        assert (runs.found, len(runs), len(runs.refused)) == (found, 1, 1)
    with pytest.raises(ScenarioError, match="none could be run"):
        compare([bad, bad], store="a.sqlite")
