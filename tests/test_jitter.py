"""What is drawn at random: laws of the draws, and that nothing counts twice."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_cli import status
from trainsim.contracts.job import Jitter
from trainsim.costs.spread import STREAMS, drawn, gpu_spread
from trainsim.errors import NotBuilt, ScenarioError
from trainsim.fold import fold, prune
from trainsim.program.jitter import kept_of_links, slow_gpus
from trainsim.program.lower import lower
from trainsim.report.long_runs import long_by_jitter
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario

MODEL = {"family": "gpt", "layers": 2, "hidden": 4096, "heads": 32, "vocab": 8192}
EACH: list[dict[str, Any]] = [{"gpu": 0.02}, {"network": 0.1}, {"kernel": 0.05}]


def scenario(
    *, nodes: int = 2, gpus: int = 4, pp: int = 1, tp: int = 1, batch: int = 32, **simulation: Any
) -> Scenario:
    return Scenario.from_dict(
        {
            "model": MODEL,
            "cluster": {"topology": "dgx_a100", "nodes": nodes, "gpus_per_node": gpus},
            "parallel": {"pp": pp, "tp": tp},
            "training": {"sequence_length": 2048, "micro_batch": 4, "global_batch": batch},
            "simulation": simulation,
        }
    )


def run(**keys: Any) -> Result:
    return scenario(**keys).run()


@given(st.sampled_from(STREAMS), st.integers(0, 99), st.integers(1, 50), st.floats(0, 0.5))
@settings(deadline=None, max_examples=30)
def test_draws_are_positive_begin_alike_and_follow_the_seed(what: str, seed: int, count: int, deviation: float) -> None:
    many = drawn(what, 50, deviation=deviation, seed=seed)
    assert (many > 0).all()
    assert (drawn(what, count, deviation=deviation, seed=seed) == many[:count]).all()
    assert deviation < 1e-6 or (drawn(what, 50, deviation=deviation, seed=seed + 1) != many).any()


def test_draws_have_the_deviation_that_is_asked_for() -> None:
    logs = np.log(drawn("kernel", 100_000, deviation=0.05, seed=0))
    assert logs.std() == pytest.approx(0.05, rel=0.02)
    assert abs(logs.mean()) < 0.001


@pytest.mark.parametrize("jitter", EACH, ids=str)
def test_folded_is_unfolded_and_a_seed_is_a_machine(jitter: dict[str, Any]) -> None:
    steps = [run(jitter=jitter, seed=seed, fold=fold).step_time for seed, fold in ((1, True), (1, False), (2, True))]
    assert steps[0] == steps[1] != steps[2]


def test_nothing_is_drawn_unless_asked_for() -> None:
    """Jitter of 0 is one kind of GPU: its kernels do not carry the average of the slowest either."""
    usual, alike = lower(scenario().resolve()), lower(scenario(jitter=0).resolve())
    kernels = [
        sum(i.seconds for t, _ in lowered.system.programs[0].chains["compute"] for i in t.instructions if i_is_gpu(i))
        for lowered in (usual, alike)
    ]
    assert kernels[0] == pytest.approx(gpu_spread(8) * kernels[1])
    assert (alike.system.slow == 1).all()


def i_is_gpu(instruction: object) -> bool:
    return getattr(instruction, "kind", "host") in ("forward", "backward") and hasattr(instruction, "seconds")


def test_over_many_seeds_draws_cost_what_the_average_does() -> None:
    """Never counted twice: 8 replicas that wait for each other, with the deviation that the average has."""
    keys: dict[str, Any] = {"nodes": 1, "gpus": 8, "batch": 32, "detail": "block"}
    usual, alike = run(**keys).step_time, run(**keys, jitter=0).step_time
    mean = fmean(run(**keys, jitter=0.0142, seed=seed).step_time for seed in range(40))
    assert usual / alike - 1 == pytest.approx(gpu_spread(8) - 1, rel=0.2)  # all but the collectives
    assert mean / alike - 1 == pytest.approx(usual / alike - 1, rel=0.15)


def test_draws_of_gpus_belong_to_the_gpus() -> None:
    job = scenario(jitter=0.02, seed=5).resolve()
    slow = slow_gpus(job)
    assert len(set(slow)) == 8
    assert (lower(job).system.slow == slow).all()
    assert (slow_gpus(scenario(nodes=1, jitter=0.02, seed=5).resolve()) == slow[:4]).all()


def test_links_only_get_slower_and_those_of_a_node_stay() -> None:
    job = scenario(jitter={"network": 0.2}).resolve()
    kept, network = kept_of_links(job), job.cluster.is_network
    assert (kept[~network] == 1).all()
    assert (kept[network] < 1).all()
    assert run(jitter={"network": 0.2}).step_time > run().step_time


def test_each_run_of_a_kernel_takes_a_time_of_its_own() -> None:
    system = lower(scenario(jitter={"kernel": 0.05}).resolve()).system
    assert len(system.programs) == 8
    forwards = [task.template for task in system.programs[0].chains["compute"] if task.template.work == "F"]
    first = [template.instructions[0] for template in forwards]
    assert len({getattr(i, "seconds", None) for i in first}) == len(forwards)
    mean = fmean(run(nodes=1, gpus=1, batch=16, jitter={"kernel": 0.05}, seed=seed).step_time for seed in range(8))
    assert mean == pytest.approx(run(nodes=1, gpus=1, batch=16).step_time, rel=0.01)


def test_what_is_drawn_is_told_and_read_again() -> None:
    result = run(jitter={"gpu": 0.02, "network": 0.1}, seed=4)
    resolved = result.scenario
    assert resolved["simulation"]["jitter"] == {"gpu": 0.02, "network": 0.1, "kernel": 0.0}
    assert "instead of 1.020" in resolved["derived"]["simulation.jitter"]
    assert "one by one" in resolved["derived"]["simulation.jitter"]
    assert Scenario.from_dict(resolved).run().step_time == result.step_time


def test_a_seed_without_jitter_has_no_effect_and_says_so() -> None:
    alone = run(seed=3)
    assert "simulation.jitter would be" in alone.scenario["derived"]["simulation.seed"]
    assert alone.step_time == run().step_time
    assert "simulation.seed" not in run(jitter=0.01, seed=3).scenario["derived"]


@pytest.mark.parametrize("jitter", [-0.1, 0.6, {"gpus": 0.1}, "much", True, {"network": float("nan")}], ids=str)
def test_what_cannot_be_drawn_is_refused(jitter: Any) -> None:
    with pytest.raises(ScenarioError, match="jitter"):
        scenario(jitter=jitter)


def test_too_many_kernels_are_refused_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainsim.program.jitter.MOST_KERNELS", 100)
    with pytest.raises(NotBuilt, match="detail: block"):
        run(jitter={"kernel": 0.05})


def test_stragglers_are_what_is_drawn() -> None:
    """What explain loses to stragglers is the step less that of equal GPUs."""
    from trainsim.study.losses import losses

    keys: dict[str, Any] = {"detail": "block", "jitter": 0.02, "seed": 1}
    found = losses(run(**keys).simulation)
    assert found.causes["stragglers"] == pytest.approx(
        run(**keys).step_time - run(detail="block", jitter=0).step_time, abs=1e-9
    )
    assert Jitter() != Jitter(gpu=0.0)


@pytest.mark.parametrize("value", ["nan", True, [0.1]])
def test_what_is_no_deviation_is_told_what_would_be(value: object) -> None:
    with pytest.raises(ScenarioError, match=r"expected a number, such as 0\.015, or a mapping of gpu, network, kernel"):
        scenario(jitter=value)


def large(**simulation: Any) -> Scenario:
    return scenario(nodes=128, gpus=8, pp=2, tp=8, batch=512, detail="block", **simulation)


def test_many_gpus_that_draw_are_told_of_before_they_run() -> None:
    job = large(jitter=0.015, seed=3).resolve()
    told = long_by_jitter(job)
    assert told is not None
    paces = slow_gpus(job)
    assert "1,024 of 1,024 GPUs are simulated one by one" in told
    assert len(np.unique(paces)) == 1024
    assert f"rank: {int(paces.argmax())}, factor: {paces.max():.4f}" in told
    assert "cluster.nodes" in told
    links = long_by_jitter(large(jitter={"network": 0.1}).resolve())
    assert links is not None
    assert "links draw differently" in links
    assert "slowest GPU" not in links
    for short in (large(), large(jitter=0), scenario(jitter=0.015)):
        assert long_by_jitter(short.resolve()) is None


def test_every_gpu_that_draws_is_a_class_of_its_own() -> None:
    system = prune(lower(scenario(nodes=4, gpus=8, tp=4, pp=2, jitter=0.015).resolve()).system)
    assert fold(system).classes == 32


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("pp", "tp"), [(1, 1), (1, 4), (4, 2)])
def test_the_slowest_gpu_alone_makes_nearly_the_same_step(pp: int, tp: int, seed: int) -> None:
    keys: dict[str, Any] = {"nodes": 4, "gpus": 8, "pp": pp, "tp": tp, "batch": 256, "detail": "block"}
    drawn_run = scenario(**keys, jitter=0.015, seed=seed)
    paces = slow_gpus(drawn_run.resolve())
    slow = {"rank": int(paces.argmax()), "factor": float(paces.max())}
    alone = scenario(**keys, jitter=0).replace({"what_if": [{"slow": slow}]})
    assert alone.run().step_time == pytest.approx(drawn_run.run().step_time, rel=0.012)


def test_commands_say_it_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "many.yaml").write_text(large(jitter=0.015).to_yaml())
    monkeypatch.chdir(tmp_path)

    def stopped(*words: Any) -> Any:
        assert "1,024 of 1,024 GPUs" in capsys.readouterr().err
        raise ScenarioError("told before")

    monkeypatch.setattr(Scenario, "run", stopped)
    assert status("run", "many.yaml", "--no-files", "--json") == 2
    assert status("explain", "many.yaml", "--workers", "1") == 2
    assert status("sweep", "many.yaml", "--grid", "training.micro_batch=1,2", "--workers", "1") == 2
