"""Schedules without a flush on real layers: updates between passes, versions of weights, no bubble in the period."""

from __future__ import annotations

import pytest

from tests.jobs import run_small, same_spans, scenario, small
from trainsim.contracts.groups import WORLD
from trainsim.contracts.instructions import EARLY, Kernel, Meet, Program
from trainsim.engine import run
from trainsim.fold import fold, prune, unfolded
from trainsim.program.lower import lower
from trainsim.result.result import Result

ASYNCHRONOUS = ("pipedream", "pipedream-2bw")
EVEN = {  # four stages that differ little, one replica, messages that cost next to nothing
    "cluster.nodes": 1,
    "parallel.tp": 2,
    "sharding.strategy": "ddp",
    "training.global_batch": 8,
    "training.sequence_length": 2048,
    "model.vocab": 1024,
    "model.hidden": 4096,
    "model.ffn_hidden": 11008,
    "model.heads": 32,
}


def program(rank: int, **changes: object) -> Program:
    return lower(small(sharding__strategy="ddp", **changes)).system.programs[rank]


def works(one: Program) -> list[str]:
    return [task.template.work for task in one.chains["compute"]]


def even(name: str, **changes: object) -> Result:
    return scenario().replace({**EVEN, "pipeline.schedule": name, "simulation.steps": 3, **changes}).run()


def test_every_backward_is_followed_by_an_update() -> None:
    done = works(program(1, pipeline__schedule="pipedream", simulation__steps=2))
    assert done.count("B") == done.count(EARLY) + done.count("update") == 16
    assert done.count("update") == 2
    assert all(done[k + 1] in (EARLY, "update") for k, work in enumerate(done) if work == "B")
    assert done[-1] == "update"


def test_gradients_add_up_over_a_step_of_2bw() -> None:
    done = works(program(0, pipeline__schedule="pipedream-2bw", simulation__steps=2))
    assert done.count(EARLY) == 0
    assert [k for k, work in enumerate(done) if work == "update"] == [done.index("update"), len(done) - 1]
    before = done[: done.index("update")]
    assert (before.count("F"), before.count("B")) == (11, 8)  # three microbatches of the next step are in flight


@pytest.mark.parametrize(("name", "versions"), [("pipedream", [4, 3, 2, 1]), ("pipedream-2bw", [2] * 4)])
def test_weights_are_held_once_per_version(name: str, versions: list[int]) -> None:
    for rank, held in enumerate(versions):
        usual, mine = (program(rank, pipeline__schedule=schedule).memory for schedule in ("1f1b", name))
        assert mine.weights == held * usual.weights
        assert (mine.gradients, mine.optimizer) == (usual.gradients, usual.optimizer)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(("name", "times"), [("pipedream", 16), ("pipedream-2bw", 2)])
def test_each_update_has_its_reduction_and_no_norm(name: str, times: int, overlap: bool) -> None:
    changes = {"simulation__steps": 2, "sharding__overlap": overlap}
    usual, mine = (
        [
            i
            for tasks in program(0, pipeline__schedule=schedule, **changes).chains.values()
            for task in tasks
            for i in task.template.instructions
        ]
        for schedule in ("1f1b", name)
    )
    reduced, often = (
        sum(i.nbytes for i in some if isinstance(i, Meet) and i.name.startswith("reduce")) for some in (usual, mine)
    )
    assert often == reduced / 2 * times
    assert not any(isinstance(i, Meet) and i.communicator == WORLD for i in mine)
    assert sum(isinstance(i, Kernel) and i.name == "optimizer" for i in mine) == times


CASES = {
    "plain": {},
    "overlapped": {"sharding__overlap": True},
    "exposed": {"sharding__overlap": False},
    "blocking": {"pipeline__p2p": "blocking"},
    "steps": {"simulation__steps": 3},
    "tied": {"model__tied_embeddings": True, "simulation__steps": 2},
    "block detail": {"simulation__detail": "block"},
    "straggler": {"what_if": [{"slow": {"rank": 3, "factor": 1.3}}]},
    "delay": {"what_if": [{"delay": {"rank": 6, "at": "optimizer", "seconds": 0.01}}]},
    "one stage": {"parallel__pp": 1},
}


@pytest.mark.parametrize("name", ASYNCHRONOUS)
@pytest.mark.parametrize("case", CASES)
def test_folding_changes_no_bit(case: str, name: str) -> None:
    plan = lower(small(pipeline__schedule=name, sharding__strategy="ddp", **CASES[case]))
    assert same_spans(run(fold(prune(plan.system))), run(unfolded(plan.system), merge=False))


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_the_period_has_no_bubble(name: str) -> None:
    """A step later everything is m times F + B (and the updates) of the slowest stage later."""
    result, flushed = even(name), even("1f1b")
    estimate = result.simulation.estimate.parts
    assert result.period == pytest.approx(estimate["steady"] + estimate["dp"] + estimate["update"], rel=0.02)
    assert result.bubble.period_fraction < 0.1 < 0.2 < flushed.bubble.period_fraction
    assert result.step_time == pytest.approx(result.simulation.estimate.seconds, rel=0.03)


def test_many_updates_cost_more_than_one() -> None:
    assert even("pipedream").period > even("pipedream-2bw").period
    assert even("pipedream-2bw").period < even("1f1b").period


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_the_closed_form_is_near(name: str) -> None:
    simulation = run_small(pipeline__schedule=name, sharding__strategy="ddp")
    assert simulation.estimate.seconds == pytest.approx(simulation.trace.duration, rel=0.05)


def test_replicas_are_whole_unless_told() -> None:
    values = scenario(pipeline__schedule="pipedream", sharding__strategy=None)
    assert values.resolve().sharding.strategy == "ddp"
