"""The runner of studies: one answer per trial, whatever happens to it, whoever runs it and in whatever order."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trainsim.errors
from trainsim.errors import Deadlock, ScenarioError, TrainsimError, UnknownName
from trainsim.result.result import Result
from trainsim.scenario.named import content
from trainsim.scenario.scenario import Scenario
from trainsim.study import runner as runners
from trainsim.study.runner import Prepared, Runner
from trainsim.study.trial import NOT_RUN, Change, Failure, Trial, measures

BASE = Scenario.from_dict(
    {
        "model": {"name": "tiny", "layers": 4, "hidden": 256, "heads": 4, "vocab": 1000, "max_positions": 512},
        "cluster": {"topology": "dgx_a100", "nodes": 1},
        "training": {"sequence_length": 256, "global_batch": 32},
    }
)
ERRORS = [
    kind
    for kind in vars(trainsim.errors).values()
    if isinstance(kind, type) and issubclass(kind, TrainsimError) and kind is not UnknownName
]


def trial(**values: Any) -> Trial:
    paths = {path.replace("__", "."): value for path, value in values.items()}
    return Trial(base=BASE, parts=(Change(title=str(values), values=paths),))


def step(result: Result) -> float:
    return result.step_time


def test_a_value_is_that_of_the_scenario_run_by_hand() -> None:
    (outcome,) = Runner(keep=measures, workers=1).run([trial(parallel__tp=2, parallel__pp=2)], "test")
    result = BASE.replace({"parallel.tp": 2, "parallel.pp": 2}).run()
    assert outcome.value == measures(result)
    assert outcome.value.step_time == result.step_time
    assert outcome.value.peak_memory == result.memory.peak
    assert outcome.failure is None


@pytest.mark.parametrize("kind", [*ERRORS, ZeroDivisionError, MemoryError], ids=lambda kind: kind.__name__)
def test_whatever_a_run_raises_is_its_failure(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Scenario) -> Any:
        if self.spec.parallel.tp == 2:
            raise kind("the message")
        return original(self)

    original = Scenario.run
    monkeypatch.setattr(Scenario, "run", broken)
    ran, failed = Runner(keep=step, workers=1).run([trial(parallel__tp=1), trial(parallel__tp=2)], "test")
    assert ran.value
    assert failed.value is None
    assert "the message" in failed.failure.message
    assert failed.failure.message.startswith("the" if issubclass(kind, TrainsimError) else kind.__name__)


def test_changes_that_cannot_be_made_are_failures_without_the_place() -> None:
    outcomes = Runner(keep=step, workers=1).run([trial(parallel__tp="x"), trial(parallel__tpp=1)], "test")
    assert [outcome.failure.reason.partition(":")[0] for outcome in outcomes] == ["parallel.tp = 'x'", "parallel.tpp"]


def test_a_reason_is_one_line_and_names_no_file() -> None:
    base = Scenario.load("quickstart")
    for values in ({"parallel.tp": 3}, {"parallel.tp": "x", "parallel.pp": "y"}, {"training.global_batch": 3}):
        (outcome,) = Runner(keep=step).run([Trial(base=base, parts=(Change(title="", values=values),))], "test")
        assert outcome.failure.reason.partition(" ")[0] in (*values, "parallel.tp")
        assert "\n" not in outcome.failure.reason
        assert "yaml" not in outcome.failure.reason
    stuck = Deadlock("nothing goes on:", ["a waits for b", "b waits for a"])
    assert (stuck.reason, str(stuck).count("\n")) == ("nothing goes on", 2)


def test_what_says_the_same_is_run_once() -> None:
    seen: list[float] = []

    def keep(result: Result) -> float:
        seen.append(result.step_time)
        return result.step_time

    runner = Runner(keep=keep, workers=1)
    twice = [trial(parallel__tp=2), trial(), trial(parallel__tp=2), trial(parallel__tp=2, parallel__pp=1)]
    first = [outcome.value for outcome in runner.run(twice, "test")]
    assert len(seen) == 2
    assert [outcome.value for outcome in runner.run(twice, "test")] == first
    assert len(seen) == 2
    assert first[0] == first[2] == first[3] != first[1]


def test_an_altered_job_is_not_taken_for_the_plain_one() -> None:
    from trainsim.study.faster_parts import FASTER_PARTS

    faster = [Trial(base=BASE, name=part.title, job_change=part.faster) for part in FASTER_PARTS.values()]
    plain, *others = Runner(keep=step, workers=1).run([trial(), *faster], "test")
    assert min(other.value for other in others) < plain.value
    assert len({other.value for other in others}) > 2


@settings(max_examples=25, deadline=None)
@given(order=st.permutations(range(5)), dies=st.sets(st.integers(0, 4), max_size=2), data=st.data())
def test_neither_the_order_nor_a_death_of_processes_matters(
    order: list[int], dies: set[int], data: st.DataObject
) -> None:
    """Processes answer in any order; one that is killed takes all that is under way with it, and its point is lost."""
    todo = [Prepared(BASE, "", None, str(n), n) for n in range(5)]
    killed: set[int] = set()

    def parallel(tasks: dict[int, Prepared], keep: object, workers: object) -> Iterator[tuple[int, Any]]:
        for number in sorted(tasks, key=order.index):
            if number in dies - killed:
                killed.add(number)
                raise RuntimeError("a worker was killed")
            yield number, f"answer {number}"

    def alone(task: Prepared, keep: object, before: object) -> Any:
        killed.add(int(task.name))
        return Failure("died", "died") if int(task.name) in dies else f"answer {task.name}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runners, "_parallel", parallel)
        patch.setattr(runners, "_alone", alone)
        answers = dict(runners._in_processes(todo, step, 2))
    assert set(answers) == set(todo)
    lost = {int(task.name) for task, answer in answers.items() if isinstance(answer, Failure)}
    assert lost <= dies
    assert all(answers[task] == f"answer {task.name}" for task in todo if int(task.name) not in lost)


@pytest.mark.parametrize(
    ("workers", "starting", "handed_over"), [(None, 0.0, 3), (None, 1e9, 0), (1, 0.0, 0), (2, 1e9, 4)]
)
def test_processes_start_where_they_pay_or_are_asked_for(
    workers: int | None, starting: float, handed_over: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a number of processes the first trial shows how long one takes."""
    given: list[Prepared] = []

    def in_processes(todo: list[Prepared], keep: Any, workers: int | None) -> Iterator[tuple[Prepared, Any]]:
        given.extend(todo)
        yield from ((task, runners.attempt(task, keep)) for task in todo)

    monkeypatch.setattr(runners, "_in_processes", in_processes)
    monkeypatch.setattr(runners, "STARTING", starting)
    trials = [trial(training__global_batch=batch) for batch in (8, 16, 32, 64)]
    outcomes = Runner(keep=step, workers=workers).run(trials, "test")
    assert len(given) == handed_over
    steps = [outcome.value for outcome in outcomes]
    assert steps == sorted(steps)
    assert None not in steps


@pytest.mark.slow
def test_processes_give_what_this_one_gives() -> None:
    trials = [trial(parallel__tp=tp, parallel__pp=pp) for tp in (1, 2, 3) for pp in (1, 2)]
    here, there = (Runner(keep=measures, workers=n).run(trials, "test") for n in (1, 2))
    assert here == there


@pytest.mark.slow
def test_a_process_that_dies_costs_its_trial_only() -> None:
    trials = [trial(parallel__tp=tp) for tp in (1, 2, 4)]
    outcomes = Runner(keep=die_of_two, workers=2).run(trials, "test")
    assert [outcome.value is None for outcome in outcomes] == [False, True, False]
    assert "died" in outcomes[1].failure.reason


def die_of_two(result: Result) -> float:
    """A process that the system kills in the middle of its work."""
    import os

    if result.job.parallel.tp == 2:
        os._exit(9)
    return result.step_time


def test_an_interrupt_keeps_what_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Scenario) -> Any:
        if self.spec.parallel.tp == 2:
            raise KeyboardInterrupt
        return original(self)

    original = Scenario.run
    monkeypatch.setattr(Scenario, "run", interrupted)
    runner = Runner(keep=step, workers=1)
    outcomes = runner.run([trial(parallel__tp=tp) for tp in (1, 2, 4, 3)], "test")
    assert runner.interrupted
    assert [outcome.failure == NOT_RUN for outcome in outcomes] == [False, True, True, True]
    assert outcomes[0].value


@pytest.mark.parametrize("workers", [0, -1, True, 1.5])
def test_workers_are_one_or_more(workers: Any) -> None:
    with pytest.raises(ScenarioError, match="workers"):
        Runner(keep=step, workers=workers)


def test_what_a_scenario_says_is_read_once_to_compare_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []

    def counted(*scenario: Any) -> str:
        read.append(scenario)
        return content(*scenario)

    monkeypatch.setattr("trainsim.study.runner.content", counted)
    outcomes = Runner(keep=step, workers=1).run([trial(parallel__tp=tp) for tp in (1, 2, 1)], "test")
    assert len(read) == 3
    assert outcomes[0].value == outcomes[2].value
