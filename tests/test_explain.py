"""What would make a step shorter: losses add up, and every saving is that of a run."""

import io
import json
from dataclasses import replace
from shlex import split

import pytest

from tests.jobs import scenario
from tests.test_cli import status
from tests.test_steps import EVEN
from trainsim.cli.reading import value_of
from trainsim.simulate import simulate
from trainsim.study.explain import explain
from trainsim.study.faster_parts import PARTS, Faster
from trainsim.study.losses import losses
from trainsim.study.stragglers import straggler
from trainsim.study.ways.batch_size import LARGER_BATCH

UNEVEN = {**EVEN, "pipeline.layout": [2, 3, 2, 1], "training.global_batch": 16}
STRAGGLER = [{"slow": {"rank": 3, "factor": 1.3}}, {"delay": {"rank": 0, "at": "backward", "seconds": 0.01}}]


def uneven():
    return scenario().replace(UNEVEN)


@pytest.fixture(scope="module")
def explained():
    return explain(uneven())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        UNEVEN,
        {"what_if": STRAGGLER},
        {"pipeline.schedule": "zb-v", "training.global_batch": 32},
        {"pipeline.schedule": "dualpipe", "training.global_batch": 32, "simulation.detail": "block"},
        {"pipeline.p2p": "blocking", "simulation.steps": 2},
        {"parallel.pp": 1, "pipeline.layout": None},
    ],
    ids=lambda changes: ",".join(changes) or "plain",
)
def test_losses_add_up_to_what_is_not_work(changes):
    simulation = simulate(scenario().replace(changes).resolve())
    one = losses(simulation)
    assert sum(one.causes.values()) == pytest.approx(one.lost, abs=1e-12)
    assert one.work + one.lost == pytest.approx(simulation.trace.duration / simulation.job.steps)
    assert one.causes["schedule"] >= -1e-9
    assert ("stragglers" in one.causes) == bool(simulation.job.what_if)


def test_an_even_pipeline_loses_the_fill_and_drain_of_the_formula():
    """1F1B: idle over work is (p - 1) / m, once stages are equal and messages and collectives take no time."""
    result = scenario().replace(EVEN).run()
    one = losses(result.simulation)
    passes = one.work - result.breakdown["optimizer"] - result.breakdown["other"]
    assert one.causes["schedule"] / passes == pytest.approx(3 / result.job.training.microbatches, rel=0.01)


def test_each_cause_is_named_for_what_it_is():
    plain, other = losses(simulate(scenario().replace(EVEN).resolve())), {}
    for name, changes in {
        "imbalance": {"pipeline.layout": [1, 3, 2, 2]},
        "communication": {"training.tp_overlap": "none"},
        "stragglers": {"what_if": STRAGGLER[:1]},
    }.items():
        other[name] = losses(simulate(scenario().replace({**EVEN, **changes}).resolve()))
    assert other["imbalance"].causes["imbalance"] > 5 * abs(plain.causes["imbalance"])
    assert other["communication"].causes["communication"] > plain.causes["communication"]
    assert other["stragglers"].causes["stragglers"] > 0.1 * plain.step


def test_every_saving_is_the_difference_of_two_runs(explained):
    base = uneven().replace({"simulation.detail": "block"})
    before = base.run()
    assert explained.step == before.step_time
    for option in explained.options:
        if option.changes:
            after = base.replace(option.changes).run()
            same = before.job.training.global_batch / after.job.training.global_batch
            assert option.saves == before.step_time - after.step_time * same
            assert option.then.peak_memory == after.memory.peak
    assert list(explained.options) == sorted(explained.options, key=lambda option: -option.saves)


def test_every_command_says_what_was_changed(explained):
    for saving in explained.options:
        words = split(saving.command)
        assert words[::2] == ["--set"] * len(saving.changes)
        assert {path: value_of(value) for path, value in (word.split("=", 1) for word in words[1::2])} == saving.changes


def test_what_fits_and_trains_as_now_comes_first(explained):
    """Whatever a change saves: first what fits, of it first what leaves the training alone; then what saves most."""
    plain = next(saving for saving in explained.options if saving.kind == "schedule")
    kinds = [(fits, kind, part) for part in (0.4, 0.3) for fits in (False, True) for kind in (LARGER_BATCH, "batch")]
    options = [
        replace(plain, kind=kind, saves=part * explained.step, then=replace(plain.then, fits=fits))
        for fits, kind, part in kinds
    ]
    order = [(o.fits, o.kind, o.saves / explained.step) for o in replace(explained, options=tuple(options)).actions]
    assert order == [
        (fits, kind, pytest.approx(part))
        for fits in (True, False)
        for kind in ("batch", LARGER_BATCH)
        for part in (0.4, 0.3)
    ]


def test_what_people_change_is_among_what_is_tried():
    two_nodes = {"cluster.nodes": 2, "sharding.strategy": "zero1"}
    old = {"training.attention": "eager", "training.recompute": "full"}
    one = explain(scenario().replace({**EVEN, **two_nodes, **old}))
    tried = {*(saving.title for saving in one.options), *one.refused}
    wanted = {"tp 1", "tp 4", "pp 2", "pp 8", "ZeRO-2", "flash2 attention", "no recompute", "micro batch 2"}
    assert wanted <= tried
    assert {saving.title for saving in one.actions} >= {"flash2 attention", "no recompute"}


def test_a_larger_batch_is_compared_for_as_many_tokens(explained):
    (larger,) = (saving for saving in explained.options if not saving.same_training)
    base = uneven().replace({"simulation.detail": "block"})
    batch, step = base.resolve().training.global_batch, base.replace(larger.changes).run().step_time
    assert larger.changes == {"training.global_batch": 2 * batch}
    assert larger.saves == pytest.approx(explained.step - step / 2)
    assert 0 < larger.saves < explained.step  # its step is longer, and yet it saves
    assert "for the same number of tokens" in explained.sentence(larger)


def test_the_slow_stage_and_the_layer_to_move_are_named(explained):
    best = next(option for option in explained.actions if option.kind == "layers")
    text = explained.sentence(best)
    assert text.startswith("stage 1 is ")
    assert "slower than average because it has 3 layers, 2 on average" in text
    assert "one layer moved to stage 3 would save" in text
    assert best.changes["pipeline.layout"] == [2, 2, 2, 2]


def test_a_head_that_needs_several_layers_moved_is_levelled():
    heavy = {"model.vocab": 128000, "model.layers": 16, "training.global_batch": 8, "pipeline.layout": None}
    one = explain(scenario().replace(heavy))
    assert one.slowest.stage == 3
    assert one.slowest.reason == "of the head"
    most = max((option for option in one.options if option.kind == "layers"), key=lambda option: option.saves)
    assert sum(most.changes["pipeline.layout"]) == 16
    assert most.changes["pipeline.layout"][3] < 3


def test_what_cannot_run_is_refused_with_its_reason():
    one = explain(scenario().replace({"model.layers": 4, "training.global_batch": 16, "pipeline.layout": None}))
    assert any("chunks" in title for title in one.refused)
    assert all(reason for reason in one.refused.values())


def test_twice_the_network_is_what_the_scenario_with_twice_the_network_gives():
    base = scenario().replace({"cluster.nic_bandwidth": "200Gbps", "training.global_batch": 16})
    twice = base.replace({"cluster.nic_bandwidth": "400Gbps"})
    assert simulate(Faster("network")(base.resolve())).trace.duration == twice.run().duration


@pytest.mark.parametrize("factor", [1.0, 1.1, 2.0])
@pytest.mark.parametrize("name", PARTS)
def test_a_faster_resource_never_makes_the_work_longer(name, factor):
    job = scenario().replace({"training.global_batch": 16, "framework": "megatron-deepspeed-2022"}).resolve()
    then, now = simulate(Faster(name, factor)(job)).trace.duration, simulate(job).trace.duration
    assert then == now if factor == 1.0 else then <= now * (1 + 1e-9)


def test_ten_per_cent_of_each_part_is_what_the_changed_job_takes(explained):
    before = uneven().replace({"simulation.detail": "block"}).resolve()
    now = simulate(before).trace.duration
    titles = {PARTS[name].title: name for name in PARTS}
    little = {titles[s.title]: s for s in explained.sensitivities if s.title in titles}
    missing = {"storage", *(("network", "latency") if before.cluster.nodes == 1 else ())}
    assert set(little) == set(PARTS) - missing
    for name, saving in little.items():
        assert saving.saves == pytest.approx(now - simulate(Faster(name, 1.1)(before)).trace.duration)
        assert saving.factor == 1.1
    twice = {saving.title: saving.saves for saving in explained.resources}
    assert all(saving.saves <= twice[saving.title] + 1e-9 for saving in little.values())


def test_one_gpu_slower_costs_and_one_layer_moved_saves(explained):
    (slower,) = (s for s in explained.sensitivities if s.kind == "straggler")
    assert slower.title.startswith("one GPU (rank ")
    assert slower.title.endswith("10 % slower")
    assert slower.saves < 0
    (moved,) = (s for s in explained.sensitivities if s.kind == "layers")
    assert moved.title.startswith("one layer moved")
    assert list(explained.sensitivities) == sorted(explained.sensitivities, key=lambda s: -s.saves)


@pytest.mark.parametrize("jitter", [False, True])
def test_the_slowest_gpu_faster_saves(jitter):
    changes = {"simulation.jitter": 0.05} if jitter else {"what_if": STRAGGLER[:1]}
    base = scenario().replace({**EVEN, **changes, "simulation.detail": "block"})
    title, paced = straggler(base.resolve(), 0, 1.1)
    assert title.startswith("the slowest GPU")
    if not jitter:
        assert paced.ranks == (3,)
    assert simulate(paced(base.resolve())).trace.duration < simulate(base.resolve()).trace.duration


def test_it_reads_in_80_columns(explained):
    from rich.console import Console

    console = Console(width=80, no_color=True, force_terminal=False, file=io.StringIO())
    console.print(explained)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    order = ["are lost", "What would help most", "1. ", "twice as fast", "Critical path"]
    assert [text.index(word) for word in order] == sorted(text.index(word) for word in order)
    assert "…" not in text
    assert "--set pipeline.layout=[2,2,2,2]" in text
    assert "would save" in str(explained)
    assert "are lost" in explained._repr_html_()


SMALL = """
name: small
model: {name: tiny, layers: 8, hidden: 1024, heads: 16, vocab: 16000, max_positions: 512}
cluster: {topology: dgx_a100, nodes: 1}
parallel: {tp: 2, pp: 4}
training: {sequence_length: 512, global_batch: 8}
"""


def test_the_command(tmp_path, monkeypatch, capsys):
    (tmp_path / "small.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    assert status("explain", "small.yaml") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "because of the head" in " ".join(out.split())
    assert status("explain", "small.yaml", "--json", "--set", "training.global_batch=16") == 0
    data = json.loads(capsys.readouterr().out)
    assert set(data) == {
        "name", "step_time_s", "fits", "losses", "slowest_stage", "options", "sensitivities", "refused",
        "critical_path",
    }  # fmt: skip
    assert sum(data["losses"]["causes_s"].values()) == pytest.approx(data["losses"]["lost_s"])
    assert {option["kind"] for option in data["options"]} >= {"layers", "resource", "schedule", "batch", "parallel"}
    assert status("explain", "small.yaml", "--set", "parallel.tp=3") == 2
    assert "tp" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bloom_3d", "korthikanti_175b_selective"])
def test_what_is_advised_first_fits_and_trains_as_now(name):
    best = explain(name).actions[0]
    assert best.fits
    assert best.same_training


@pytest.mark.slow
def test_bloom_is_explained_in_seconds():
    import time

    began = time.perf_counter()
    one = explain("bloom_3d")
    assert time.perf_counter() - began < 30
    assert one.losses.causes["schedule"] / one.losses.work == pytest.approx(11 / 128, rel=0.02)
    flash = next(saving for saving in one.actions if saving.title == "flash2 attention")
    assert flash.saves / one.step == pytest.approx(0.055, abs=0.005)


def test_explain_says_what_repairing_a_slow_node_and_a_failed_nic_would_save() -> None:
    """Each repair is a run without that entry alone; mended together they cost what the whole machine takes."""
    whole = scenario().replace({"cluster.topology": "dgx_a100", "cluster.nodes": 2, "simulation.detail": "block"})
    slow, fail = {"slow": {"node": 1, "factor": 1.2}}, {"fail": {"nic": "node0.nic0"}}
    broken = explain(whole.replace({"what_if": [slow, fail]}), workers=1, progress=False)
    repairs = {option.title: option for option in broken.options if option.kind == "repair"}
    assert set(repairs) == {"repair node 1", "repair node0.nic0", "repair all 2 parts of what_if"}
    for title, left in (
        ("repair node 1", [fail]),
        ("repair node0.nic0", [slow]),
        ("repair all 2 parts of what_if", []),
    ):
        alone = whole.replace({"what_if": left}).run()
        assert repairs[title].saves == pytest.approx(broken.step - alone.step_time)
    assert repairs["repair node 1"].saves > 0.05 * broken.step
