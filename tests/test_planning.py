"""The planner: its best is the best of all, what it does not run cannot be better, and what it says can be run."""

from __future__ import annotations

import io
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

import trainsim as ts
from trainsim.cli import app
from trainsim.errors import ScenarioError, TrainsimError, UnknownName
from trainsim.scenario.scenario import Scenario
from trainsim.study.planning.bounding import bounded, job_of, roots
from trainsim.study.planning.layout import Layout
from trainsim.study.planning.objectives import objectives
from trainsim.study.planning.own import own_layout, with_batch
from trainsim.study.planning.plan import Question, plan_for
from trainsim.study.planning.search import planned, search
from trainsim.study.planning.sizing import size_for
from trainsim.study.planning.space import AXES, space_of
from trainsim.study.runner import Runner

SMALL: dict[str, Any] = {
    "model": {"family": "llama", "layers": 8, "hidden": 2048, "heads": 16, "ffn_hidden": 5504, "vocab": 32000,
              "max_positions": 4096},
    "cluster": {"topology": "dgx_a100", "nodes": 2, "gpus_per_node": 4},
    "framework": "megatron-core",
    "training": {"global_batch": 32, "sequence_length": 2048},
}  # fmt: skip
FEW = {
    "training.micro_batch": [1, 2],
    "training.recompute": ["none", "full"],
    "pipeline.chunks": [2],
    "parallel.sequence_parallel": [True],
}


def small(**changes: Any) -> Scenario:
    return Scenario.from_dict(SMALL).replace({key.replace("__", "."): value for key, value in changes.items()})


def asked(**given: Any) -> Question:
    return Question(**{"grid": FEW, "runner": serial(), "progress": False, **given})


def serial() -> Runner[Any]:
    return Runner(keep=planned, workers=1, progress=False)


@pytest.mark.parametrize("objective", list(objectives))
@pytest.mark.parametrize("tight", [False, True])
def test_the_best_is_the_best_of_all(objective: str, tight: bool) -> None:
    """Every layout of a small space is run: none that fits beats the plan's first, whatever was not run."""
    base = small(simulation__detail="block", **({"cluster__gpu": "a100-sxm4-40gb"} if tight else {}))
    if tight:
        base = base.replace({"model.layers": 24, "model.hidden": 4096, "model.heads": 32, "model.ffn_hidden": 11008})
    layouts = list(space_of(base, FEW))
    score = objectives[objective].of
    every = []
    for layout in layouts:
        try:
            result = base.replace(layout.changes(base)).run()
        except TrainsimError:
            continue
        if result.memory.fits:
            every.append(score(planned(result).measured))
    found = plan_for(base, asked(objective=objective))
    assert score(found.best.ran.measured) == min(every)
    assert found.run < len(layouts)
    assert found.layouts == found.run + found.slower + found.too_large + sum(found.refused.values())


@pytest.mark.parametrize("base", ["quickstart", "bloom_3d", "llama3_405b_16k", "mixtral_8x7b", "deepseek_v3", "hsdp"])
def test_the_jobs_of_a_root_are_those_of_their_scenarios(base: str) -> None:
    """What the search derives by itself is what resolving the whole scenario gives, and so are the bounds."""
    scenario = Scenario.load(base).replace({"simulation.detail": "block"})
    rng = random.Random(base)
    checked = 0
    for root in rng.sample(every := roots(space_of(scenario)), min(4, len(every))):
        job = None
        for layout in rng.sample(root, min(4, len(root))):
            try:
                whole = scenario.replace(layout.changes(scenario)).resolve()
                job = job or whole
                assert replace(job_of(job, layout), name="") == replace(whole, name=""), layout.title
            except TrainsimError:
                continue
            alone, among = bounded(scenario, [layout])[0], bounded(scenario, [root[0], layout])[1]
            assert (alone.seconds, alone.fits) == (among.seconds, among.fits)
            checked += 1
    assert checked


@pytest.mark.parametrize("base", ["quickstart", "bloom_3d", "mixtral_8x7b"])
def test_layouts_use_all_gpus_and_the_whole_batch(base: str) -> None:
    space = space_of(Scenario.load(base))
    layouts = list(space)
    assert len(layouts) == len(set(map(repr, layouts)))
    for layout in layouts:
        assert layout.tp * layout.cp * layout.pp * layout.dp == space.gpus
        assert layout.microbatches * layout.micro_batch * layout.dp == space.global_batch


@pytest.mark.parametrize("base", ["quickstart", "bloom_3d", "llama3_405b_16k", "deepseek_v3", "hsdp", "mixtral_8x7b"])
def test_a_scenario_s_own_layout_changes_nothing(base: str) -> None:
    scenario = Scenario.load(base)
    job = scenario.resolve()
    again = scenario.replace(own_layout(scenario, job).changes(scenario)).resolve()
    assert replace(again, name="") == replace(job, name="")


def test_ends_of_a_pipeline_without_layers_are_in_the_space() -> None:
    """126 layers, embedding and head are 128 virtual stages of one each: Llama 3 405B with pp 16 and 8 chunks."""
    space = space_of(Scenario.load("llama3_405b_16k"), {"parallel.tp": [8], "parallel.pp": [16]})
    assert 8 in {layout.chunks for layout in space}


def test_the_same_plan_twice() -> None:
    one, two = (plan_for(small(), asked()).to_dict() for _ in range(2))
    assert one == two


def test_axes_that_are_kept_have_the_scenario_s_values() -> None:
    base = small(parallel__tp=2, training__micro_batch=2, training__recompute="full")
    space = space_of(base, keep=list(AXES))
    (layout,) = space
    assert (layout.tp, layout.pp, layout.dp, layout.micro_batch, layout.recompute) == (2, 1, 4, 2, "full")
    with pytest.raises(ScenarioError, match=r"did you mean .parallel\.tp"):
        space_of(base, keep=["paralel.tp"])


def test_any_field_can_be_an_axis() -> None:
    cards = ["a100-sxm4-80gb", "a100-sxm4-40gb"]
    found = plan_for(small(), asked(grid={**FEW, "cluster.gpu": cards}, top=40))
    assert {dict(choice.layout.others)["cluster.gpu"] for choice in found.choices} == set(cards)


def test_nothing_fits_says_what_is_missing() -> None:
    base = small(model="llama-3.1-405b")
    found = plan_for(base, asked())
    assert not found.choices
    assert "GiB or more, of" in found.nothing
    with pytest.raises(ScenarioError, match="none of the"):
        ts.plan(base, grid=FEW, workers=1, progress=False)


@pytest.mark.parametrize("top", [0, -1, 1.5, True])
def test_a_list_of_no_length_is_refused(top: Any) -> None:
    with pytest.raises(ScenarioError, match="1 or more"):
        ts.plan(small(), top=top)


def test_an_unknown_objective_is_refused() -> None:
    with pytest.raises(UnknownName, match="memory"):
        ts.plan(small(), objective="memry")


def test_an_interrupt_keeps_the_best_so_far() -> None:
    """Ctrl-C in the midst of the runs: what was run is listed, and told to be a part."""
    base = small(simulation__detail="block")
    runner, layouts = serial(), list(space_of(base, FEW))
    usual, calls = runner.run_under, []

    def stopping(advance: Any, trials: Any) -> Any:
        calls.append(len(trials))
        outcomes = usual(advance, trials)
        runner.interrupted = len(calls) == 3
        return outcomes

    runner.run_under = stopping  # type: ignore[method-assign]
    found = search(base, layouts, objective=objectives["time"], runner=runner, top=20, progress=False)
    assert found.interrupted
    assert len(found.tried) == sum(calls)
    assert found.best


def test_an_interrupt_of_the_bounds_says_nothing_of_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*given: Any) -> Any:
        yield from bounded(*given[:1], roots(given[1])[0])
        raise KeyboardInterrupt

    monkeypatch.setattr("trainsim.study.planning.search._all_bounds", stopped)
    found = plan_for(small(), asked())
    assert found.interrupted
    assert found.nothing == "interrupted before any layout that fits was run"
    told = printed(found)
    assert "were not reached" in told
    assert "No layout" not in told
    assert "cannot be the best" not in told


def printed(found: Any) -> str:
    console = Console(width=200, no_color=True, file=io.StringIO())
    console.print(found)
    return str(console.file.getvalue())


def test_a_batch_that_nobody_gave_is_told() -> None:
    data = {key: value for key, value in SMALL.items() if key != "training"}
    found = plan_for(Scenario.from_dict(data), asked(top=1))
    assert "4M tokens" in found.assumed[0]
    assert found.best.layout.global_batch == 2048


def test_a_batch_that_nobody_gave_divides_by_the_gpus() -> None:
    """So that every number of replicas is in the space, and the scenario as it is can be run."""
    data = {key: value for key, value in SMALL.items() if key != "training"}
    base, _ = with_batch(Scenario.from_dict(data).replace({"cluster.nodes": 3}))
    assert base.resolve().training.global_batch == 1536
    assert 12 in {layout.dp for layout in space_of(base, FEW)}


@pytest.fixture
def scenario_file(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(small().to_yaml())
    return file


GRID = [word for path, values in FEW.items() for word in ("--grid", f"{path}={','.join(map(str, values)).lower()}")]


def test_the_command_writes_scenarios_that_run_as_promised(scenario_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "plan"
    done = CliRunner().invoke(app, ["plan", str(scenario_file), "--top", "3", "--out", str(out), *GRID])
    assert done.exit_code == 0, done.output
    assert "Best layouts: least time per step" in done.output
    assert (out / "plan.png").stat().st_size > 10_000
    table = [line.split(",")[0] for line in (out / "plan.csv").read_text().splitlines()]
    assert len(table) == 4
    best = ts.Scenario.load(out / "layout_1.yaml").run()
    expected = plan_for(small(), asked()).best.ran.measured
    assert best.step_time == expected.step_time


def test_the_command_prints_json_and_writes_nothing(scenario_file: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["plan", str(scenario_file), "--json", "--top", "2", *GRID])
    data = json.loads(done.stdout)
    assert len(data["choices"]) == 2
    assert data["choices"][0]["over_best"] == 0.0
    assert not (tmp_path / "out").exists()


def test_a_plan_of_a_config_json(tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816,
        "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 32000,
        "max_position_embeddings": 2048, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    }  # fmt: skip
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    words = ["plan", str(file), "--set", "cluster.topology=dgx_a100", "--set", "cluster.nodes=1", "--no-files", *GRID]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "about 4M tokens" in " ".join(done.output.split())


def test_days_and_cost_are_listed(scenario_file: Path) -> None:
    words = ["plan", str(scenario_file), "--tokens", "1B", "--price", "2", "--json", "--top", "1", *GRID]
    (choice,) = json.loads(CliRunner().invoke(app, words).stdout)["choices"]
    assert choice["cost"] == pytest.approx(choice["days"] * 24 * 8 * 2)


def test_the_smallest_machine_that_is_quick_enough() -> None:
    """Twice the GPUs are less than twice as fast, so the answer is a machine beside which a smaller one is too slow."""
    base = small(training__tokens="100B", simulation__detail="block", cluster__price_per_gpu_hour=2.0)
    one = plan_for(base.replace({"cluster.nodes": 1}), asked(top=1)).best.ran.measured
    assert one.days is not None
    sizing = size_for(base, asked(), days=one.days / 3, most=32)
    assert sizing.answer is not None
    smaller = [size for size in sizing.sizes if size.nodes < sizing.answer.nodes]
    assert [size.nodes for size in sizing.sizes] == [1, 2, 3, 4]
    assert smaller
    assert not any(map(sizing.serves, smaller))
    assert sizing.answer.plan.base.spec.training.global_batch == 32
    data = sizing.to_dict()
    assert data["answer"]["gpus"] == sizing.answer.gpus


def test_no_machine_is_quick_enough() -> None:
    sizing = size_for(small(training__tokens="100B", simulation__detail="block"), asked(), days=1e-3, most=8)
    assert sizing.answer is None
    assert [size.gpus for size in sizing.sizes] == [4, 8]


@pytest.mark.parametrize(
    ("changes", "given", "words"),
    [
        ({}, {"days": 30, "most": 64}, "tokens"),
        ({"training__tokens": "1B"}, {"days": 0, "most": 64}, "days=0"),
        ({"training__tokens": "1B"}, {"days": float("nan"), "most": 64}, "days=nan"),
        ({"training__tokens": "1B"}, {"days": 30, "most": 3}, "max_gpus=3: expected 4 or more"),
        ({"training__tokens": "1B"}, {"days": 30, "most": 10**9}, "max_gpus=1000000000: .* 2097152 GPUs at most"),
    ],
)
def test_a_size_that_cannot_be_asked_for(changes: dict[str, Any], given: dict[str, Any], words: str) -> None:
    with pytest.raises(TrainsimError, match=words):
        size_for(small(**changes), asked(), **given)


@pytest.mark.parametrize("top", [1, 3])
def test_the_machine_that_is_found_has_as_many_layouts_as_asked_for(scenario_file: Path, top: int) -> None:
    words = ["plan", str(scenario_file), "--tokens", "1B", "--days", "30", "--max-gpus", "1e1", "--top", str(top)]
    answer = json.loads(CliRunner().invoke(app, [*words, "--json", *GRID]).stdout)["answer"]
    assert len(answer["choices"]) == top
    assert answer["best"] == answer["choices"][0]
    alone = plan_for(small(training__tokens="1B", cluster__nodes=1), asked(top=top)).to_dict()["choices"]
    assert [choice["layout"] for choice in answer["choices"]] == [choice["layout"] for choice in alone]
    told = CliRunner().invoke(app, [*words, *GRID]).output
    assert ("Best layouts of 4 GPUs" in told) == (top > 1)


@pytest.mark.parametrize("gpus", ["64.5", "many", "-8", "1e400"])
def test_gpus_are_a_whole_number(scenario_file: Path, gpus: str) -> None:
    done = CliRunner().invoke(app, ["plan", str(scenario_file), "--tokens", "1B", "--days", "1", "--max-gpus", gpus])
    assert "expected a whole number" in str(done.exception)


@pytest.mark.parametrize("nodes", [1, 2])
def test_one_job_is_listed_once(nodes: int) -> None:
    """Where one node has all replicas, HSDP is FSDP by another name; over two nodes it is not."""
    base = small(framework="pytorch-fsdp2", cluster__nodes=nodes, simulation__detail="block")
    grid = {"parallel.tp": [1], "parallel.pp": [1], "training.micro_batch": [1], "training.recompute": ["none"]}
    bounds = [b for root in roots(space_of(base, grid)) for b in bounded(base, root)]
    assert {b.layout.sharding: b.sharing for b in bounds}["hsdp"] == ("fsdp" if nodes == 1 else "hsdp")
    found = plan_for(base, Question(grid=grid, runner=serial(), progress=False))
    listed = {choice.layout.sharding: choice.ran for choice in found.choices}
    assert ("hsdp" in listed) == (nodes == 2)
    alone = plan_for(base, Question(grid={**grid, "sharding.strategy": ["hsdp"]}, runner=serial(), progress=False))
    assert (alone.best.ran == listed["fsdp"]) == (nodes == 1)


def test_reasons_that_differ_in_numbers_only_are_one_line() -> None:
    base = small(model__moe={"experts": 4, "top_k": 2}, simulation__detail="block")
    grid = {**FEW, "parallel.pp": [1], "parallel.sequence_parallel": [True, False]}
    found = plan_for(base, asked(grid=grid, top=1))
    assert len(found.refused) > 1
    told = " ".join(printed(found).split())
    assert f"{sum(found.refused.values())} x parallel.sequence_parallel: experts with tp=2 or 4 need it" in told


@pytest.mark.parametrize("words", [["--days", "30"], ["--max-gpus", "64"]])
def test_half_a_question_is_refused(scenario_file: Path, words: list[str]) -> None:
    done = CliRunner().invoke(app, ["plan", str(scenario_file), *words])
    assert "add --" in str(done.exception)


def test_a_layout_that_the_machine_has_no_room_for_is_told() -> None:
    """The scenario's own degrees do not divide the GPUs: the plan goes on, and says why they are not compared."""
    found = plan_for(small(parallel__tp=4, parallel__pp=8), asked(top=1))
    assert found.now is None
    assert "does not divide the GPUs" in found.not_now
    assert found.choices


def test_layouts_say_what_they_are() -> None:
    layout = Layout(
        tp=2, pp=2, dp=2, micro_batch=1, global_batch=8, schedule="1f1b", sequence_parallel=True,
        recompute={"mode": "full", "layers": 1}, offload="cpu",
    )  # fmt: skip
    order = "micro-batch 1, 1f1b, full recompute of 1 layer a stage"
    assert layout.title == f"tp2 pp2 dp2 sp, {order}, zero1, cpu optimizer"


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ({"parallel.tp": ["x"]}, "parallel.tp = 'x': expected a whole number"),
        ({"parallel.tp": [0]}, "parallel.tp = 0: must be at least 1"),
        ({"parallel.ep": [0]}, "parallel.ep = 0"),
        ({"training.micro_batch": [1, 0]}, "training.micro_batch = 0"),
        ({"training.micro_batch": [None]}, "training.micro_batch = null"),
        ({"pipeline.chunks": ["x"]}, "pipeline.chunks = 'x'"),
        ({"parallel.tp": 2}, "parallel.tp: expected a list"),
        ({"parallel.tp": []}, "parallel.tp: expected a list"),
        ({"pipeline.schedule": "1f1b"}, "pipeline.schedule: expected a list"),
        ({"foo.bar": [1]}, "foo.bar: unknown key"),
        ({"cluster.nodes": [2, 4]}, "cluster.nodes = 4: 16 GPUs instead of 8.*--set cluster.nodes=4"),
        ({"training.global_batch": [64]}, "64 sequences per step instead of 32"),
        ({"training.sequence_length": [1024]}, "1,024 tokens per sequence instead of 2,048"),
        ({"model.layers": [4]}, "4 layers instead of 8"),
        ({"training.gradient_accumulation": [2]}, "follows from the sequences per step.*--set training.global_batch"),
        ({"simulation.detail": ["op", "block"]}, "lists in the scenario's own detail"),
        ({"simulation.steps": [1, 2]}, "which --set changes"),
        ({"parallel": [{"tp": 2}]}, "a plan searches parallel.tp, .* in it"),
        ({"training.recompute.layers": [1, 2]}, "give whole values of that"),
    ],
)
def test_values_that_an_axis_cannot_have(grid: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        ts.plan(small(), grid=grid, workers=1, progress=False)


def test_an_axis_has_values_or_is_kept() -> None:
    with pytest.raises(ScenarioError, match=r"keep parallel\.tp: has values of its own"):
        space_of(small(), {"parallel.tp": [2]}, ["parallel.tp"])


def test_numbers_are_read_as_a_scenario_reads_them() -> None:
    assert space_of(small(), {"training.micro_batch": ["2"]}).axes["training.micro_batch"] == [2]


def test_replicas_are_an_axis() -> None:
    assert {layout.dp for layout in space_of(small(), {**FEW, "parallel.dp": [2, 4]})} == {2, 4}
    assert {layout.dp for layout in space_of(small(parallel__tp=4), FEW, ["parallel.dp"])} == {2}


@pytest.mark.parametrize(
    ("schedule", "chunks", "field", "value"),
    [("1f1b", 1, "layout", [6, 2]), ("1f1b", 1, "layout", [2, 6]), ("interleaved-1f1b", 2, "group", 4)],
)
def test_fields_of_the_pipeline_are_those_of_the_bounded_job(
    schedule: str, chunks: int, field: str, value: Any
) -> None:
    """Somebody gives a field that layouts have a usual value of: bounds are those of the value that is run."""
    grid = {
        **FEW, "parallel.pp": [2], "pipeline.schedule": [schedule], "pipeline.chunks": [chunks],
        f"pipeline.{field}": [value],
    }  # fmt: skip
    base = small()
    for root in roots(space_of(base, grid)):
        job = base.replace(root[0].changes(base)).resolve()
        for layout in root:
            assert job_of(job, layout) == base.replace(layout.changes(base)).resolve()


def test_the_scenario_as_it_is_compares_by_the_objective() -> None:
    found = plan_for(small(), asked(objective="memory", top=1))
    assert found.now is not None
    measured = found.now.ran.measured
    assert measured.needed_memory == pytest.approx((1 + found.now.over_best) * found.best.ran.measured.needed_memory)
    told = printed(found)
    assert f"{found.now.over_best:+.1%}" in told
    assert "lower bound on memory too high" in told


def test_a_size_writes_no_files(scenario_file: Path, tmp_path: Path) -> None:
    words = ["plan", str(scenario_file), "--tokens", "1B", "--days", "30", "--max-gpus", "8", "--out", str(tmp_path)]
    assert "leave out one" in str(CliRunner().invoke(app, words).exception)


@pytest.mark.slow
def test_a_plan_beside_a_sweep_in_processes() -> None:
    """Both want processes, and one program has them once: bounds, runs and a sweep give what they give alone."""
    sweep = {"training.micro_batch": [1, 2, 4]}
    alone = ts.plan(small(), grid=FEW, top=3, workers=1, progress=False)
    ts.sweep(small(), sweep, workers=2, progress=False)
    beside = ts.plan(small(), grid=FEW, top=3, workers=2, progress=False)
    ts.sweep(small(), sweep, workers=2, progress=False)
    pd.testing.assert_frame_equal(alone, beside)
