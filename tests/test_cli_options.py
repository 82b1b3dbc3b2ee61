"""Options of the command line: what is written where, and what the help says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tests.test_cli import SMALL, status
from trainsim.cli.commands import app
from trainsim.cli.examples import EXAMPLES
from trainsim.cli.listing import KINDS, described
from trainsim.cli.reading import load
from trainsim.cli.writing import default_folder, slug
from trainsim.report.files import FILES, USUAL

ALL = {FILES[kind] for kind in USUAL}


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "small.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    return "small.yaml"


def written(folder: str) -> set[str]:
    return {file.name for file in Path(folder).iterdir()}


@pytest.mark.parametrize(
    "kinds",
    [("result",), ("gantt",), ("svg",), ("trace",), ("kineto",), ("report",), ("report", "result"), tuple(FILES)],
)
def test_only_the_files_that_are_asked_for_are_written(small: str, kinds: tuple[str, ...]) -> None:
    assert status("run", small, "--files", ",".join(kinds)) == 0
    assert written("out/small") == {FILES[kind] for kind in kinds}


@pytest.mark.parametrize("words", [("--files", "none"), ("--no-files",), ("--json",), ("--json", "--files", "none")])
def test_nothing_is_written_where_nothing_is_asked_for(small: str, words: tuple[str, ...]) -> None:
    assert status("run", small, *words) == 0
    assert not Path("out").exists()


@pytest.mark.parametrize("words", [("--out", "here"), ("--out", "here", "--files", "result")])
def test_json_writes_what_is_asked_for(small: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert status("run", small, "--json", *words) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == json.loads(Path("here/result.json").read_text())
    assert "here/result.json" in err
    assert written("here") == (ALL if len(words) == 2 else {"result.json"})


def test_the_whole_trace_can_be_asked_for(small: str) -> None:
    assert status("run", small, "--files", "whole-trace") == 0
    assert written("out/small") == {"trace.json.gz"}


@pytest.mark.parametrize(
    ("files", "events", "said"),
    [("trace", 60, True), ("whole-trace", 60, False), ("result", 60, False), ("trace", 10**9, False)],
)
def test_the_terminal_says_when_the_trace_is_an_excerpt(
    small: str, files: str, events: int, said: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("trainsim.report.chrome.MOST_EVENTS", events)
    assert status("run", small, "--files", files) == 0
    assert ("The trace holds an excerpt: ranks" in " ".join(capsys.readouterr().out.split())) is said


def test_a_variant_never_overwrites_another(small: str) -> None:
    for words in ([], ["--set", "parallel.tp=1"], ["--set", "parallel.tp=4", "--set", "parallel.pp=1"]):
        assert status("run", small, "--files", "result", *words) == 0
    folders = {"small", "small__parallel.tp=1", "small__parallel.pp=1__parallel.tp=4"}
    assert {folder.name for folder in Path("out").iterdir()} == folders
    steps = {json.loads(Path(f"out/{folder}/result.json").read_text())["step_time_s"] for folder in folders}
    assert len(steps) == 3


def test_out_wins(small: str) -> None:
    assert status("run", small, "--files", "result", "--set", "parallel.tp=1", "--out", "mine") == 0
    assert written("mine") == {"result.json"}
    assert not Path("out").exists()


def test_the_order_of_changes_does_not_matter_and_long_names_stay_apart() -> None:
    from trainsim import Scenario

    base = Scenario.load("quickstart")
    assert default_folder(base, ["a=1", "b=2"]) == default_folder(base, ["b=2", "a=1"])
    long = [slug("x" * 200 + end) for end in "ab"]
    assert long[0] != long[1]
    assert all(len(name) <= 120 for name in long)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--files", "gant"], "'gantt'"),
        (["--files", ","], "result, gantt, svg, links, trace, kineto, report"),
        (["--files", "none,gantt"], "none"),
        (["--no-files", "--out", "x"], "leave out"),
        (["--no-files", "--files", "gantt"], "leave out"),
    ],
)
def test_wrong_files_are_one_message(
    small: str, words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status("run", small, *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert expected in err


def commands() -> dict[str, Any]:
    """Every command and group by its words."""
    found: dict[str, Any] = {}

    def walk(command: Any, words: str) -> None:
        found[words] = command
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{words} {name}".strip())

    walk(typer.main.get_command(app), "")
    return found


@pytest.mark.parametrize("words", commands())
@pytest.mark.parametrize("columns", ["80", "120"])
def test_help_is_whole(
    words: str, columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No sentence is cut, no line too long, and every option says what it does."""
    monkeypatch.setenv("COLUMNS", columns)
    assert status(*words.split(), "--help") == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= int(columns)
    cut = re.sub(r"Usage:[^\n]*|\S*(,|\[C)\.\.\.", "", text)  # what can be repeated has dots of its own
    assert "..." not in cut
    for option in commands()[words].params:
        assert option.help, f"{words} {option.name}"


def test_every_example_of_the_help_can_be_read() -> None:
    known = commands()
    for command, examples in EXAMPLES.items():
        assert command in known
        for example in examples:
            _, *rest = example.split()
            here: Any = known[""]
            while rest and rest[0] in getattr(here, "commands", {}):
                here = here.commands[rest.pop(0)]
            if rest or not getattr(here, "no_args_is_help", False):
                assert here.make_context("trainsim", rest).params


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_is_listed_with_a_line_about_it(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("list", kind, "--json") == 0
    about = json.loads(capsys.readouterr().out)
    assert about
    assert all(about.values()), [name for name, words in about.items() if not words]
    assert len(set(about.values())) == len(about), "each line is about its own"
    assert status("list", kind) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert all(any(line.startswith(name) for line in out.splitlines()) for name in about)
    assert not re.search(r"[*`]\w+[*`]", out), "markup of a docstring"


def test_list_without_a_kind_names_the_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("list") == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()] == list(KINDS)


SHOWN = {
    "gpu": ("gpus", 3), "framework": ("frameworks", 3), "optimizer": ("optimizers", 7), "model": ("models", 3),
    "scenario": ("scenarios", 3), "schedule": ("schedules", 40), "network": ("networks", 9), "kernels": ("kernels", 3),
}  # fmt: skip
"""What can be shown -> the kind that lists it, and of how many names it is tried."""


@pytest.mark.parametrize(
    ("what", "name"), [(w, n) for w, (kind, most) in SHOWN.items() for n in list(described(kind))[:most]]
)
def test_everything_can_be_shown_with_its_source(what: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--stages", "4", "--microbatches", "8"] if what == "schedule" else []
    assert status("show", what, name, *words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    assert what == "scenario" or "ource" in out


def test_a_schedule_is_drawn_and_its_numbers_are_those_of_the_replay(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("show", "schedule", "gpipe", "--stages", "2", "--microbatches", "2") == 0
    out = capsys.readouterr().out
    assert "F0  F1" in out or "F0--F1" in out
    assert "33.3% of the makespan" in out
    assert "2, 2 microbatches" in out


def test_a_long_schedule_shows_both_its_ends(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("show", "schedule", "1f1b", "--stages", "8", "--microbatches", "32") == 0
    charts = [line for line in capsys.readouterr().out.splitlines() if " ~ " in line]
    assert len(charts) == 8
    assert charts[0].strip().startswith("0 F0F1")
    assert charts[0].strip().endswith("B31-")


OWN = {  # what can be shown -> what a file of one's own is based on, what it changes, and what must be shown of both
    "gpu": ("h100-sxm5-80gb", "memory: 95GiB", ("95GiB", "tdp", "3350GB/s", "ours, October")),
    "framework": ("torchtitan", "host: {step_seconds: 5ms}", ("5ms", "products", "ours, October")),
    "optimizer": ("adam", "foreach_bytes: 12", ("12", "matrices", "ours, October")),
    "model": ("llama-3-8b", "layers: 8", ("8", "14336")),
    "topology": ("dgx_h100", "fabric: {nodes_per_leaf: 16}", ("nvlink4", "ours, October")),
    "network": ("efa", "network_hop: 30us", ("30us", "1.9e-05", "ours, October")),
    "kernels": ("hopper", "sustained: {gemm: 0.8}", ("0.8", "flash3", "ours, October")),
}


@pytest.mark.parametrize("what", OWN)
def test_a_file_on_top_of_another_is_shown_whole(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    base, change, words = OWN[what]
    Path("mine.yaml").write_text(f"base: {base}\nsource: ours, October\n{change}\n")
    assert status("show", what, "mine.yaml") == 0
    out = capsys.readouterr().out
    assert all(word in out for word in words)


def test_a_gpu_without_measured_kernels_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("show", "gpu", "l40s") == 0
    assert "No kernels were measured on l40s" in capsys.readouterr().out
    assert status("show", "gpu", "a100-sxm4-80gb") == 0
    assert "No kernels were measured" not in capsys.readouterr().out


@pytest.mark.parametrize("file", ["chart", "chart.foo", "small.yaml"])
@pytest.mark.parametrize(
    "words",
    [
        ("compare", "small.yaml", "--grid", "parallel.tp=1,2"),
        ("show", "topology", "dgx_h100"),
        ("show", "schedule", "1f1b", "--stages", "2"),
    ],
)
def test_a_picture_that_cannot_be_is_refused_before_any_work(
    words: tuple[str, ...], file: str, small: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(*words, "--out", file) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "ending" in printed.err
    assert ".svg" in printed.err
    assert [entry.name for entry in Path().iterdir()] == [small]
    assert Path(small).read_text() == SMALL


def test_a_refused_sweep_leaves_no_empty_table(small: str) -> None:
    assert status("sweep", small, "--grid", "parallel.tp=1", "--csv", "table.csv", "--workers", "0") == 2
    assert not Path("table.csv").exists()


@pytest.mark.parametrize("kind", ["topology", "model", "gpu", "framework", "optimizer", "network", "kernels"])
def test_show_refuses_a_file_that_is_no_such_thing(kind: str, small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("show", kind, small) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("trainsim: ")


def test_a_change_of_a_part_may_follow_that_of_its_whole() -> None:
    scenario = load("small.yaml", ["parallel={pp: 2}", "parallel.tp=1"])
    assert (scenario.resolved["parallel"]["tp"], scenario.resolved["parallel"]["pp"]) == (1, 2)
