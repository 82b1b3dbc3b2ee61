"""The runner of studies: one answer per trial, whatever happens to it, whoever runs it and in whatever order."""

import sys
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Future
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trainsim.errors
from trainsim.errors import Deadlock, ScenarioError, TrainsimError, UnknownName
from trainsim.result.result import Result
from trainsim.scenario.named import content
from trainsim.scenario.scenario import Scenario
from trainsim.study import attempt as attempts
from trainsim.study import batches
from trainsim.study import runner as runners
from trainsim.study.attempt import Prepared, attempt
from trainsim.study.backends import backends
from trainsim.study.batches import Pool, in_batches
from trainsim.study.runner import Runner
from trainsim.study.trial import NOT_RUN, Change, Failure, Trial, measures
from trainsim.study.work import StudyWork

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
    from trainsim.study.faster_parts import PARTS, Faster

    faster = [Trial(base=BASE, name=name, job_change=Faster(name)) for name in PARTS]
    plain, *others = Runner(keep=step, workers=1).run([trial(), *faster], "test")
    assert min(other.value for other in others) < plain.value
    assert len({other.value for other in others}) > 2


@settings(max_examples=50, deadline=None)
@given(
    dies=st.sets(st.integers(0, 11), max_size=3),
    order=st.permutations(range(6)),
    all_at_once=st.booleans(),
    speed=st.sampled_from([1e-4, 0.1, 10.0]),
)
def test_neither_the_order_nor_a_death_of_processes_matters(
    dies: set[int], order: list[int], all_at_once: bool, speed: float
) -> None:
    """Processes answer in any order; one that is killed takes with it all that is under way, or its own batch."""
    todo = [Prepared(BASE, str(n), None, str(n), n) for n in range(12)]
    pool = FakePool(dies, order, all_at_once, speed)
    found = list(in_batches(Pool(submit=pool.submit, workers=2, stop=lambda: None), StudyWork(todo=todo, keep=step)))
    answers = dict(found)
    assert len(found) == len(answers) == len(todo)
    assert {int(task.name) for task, answer in answers.items() if isinstance(answer, Failure)} == dies
    assert all(answers[task] == f"answer {task.name}" for task in todo if int(task.name) not in dies)
    assert all(answer.of_the_moment for answer in answers.values() if isinstance(answer, Failure))


class FakePool:
    """Processes that answer when somebody waits: one batch at a time, in an order of their own."""

    def __init__(self, dies: set[int], order: list[int], all_at_once: bool, speed: float):
        self.dies, self.order, self.all_at_once, self.speed = dies, order, all_at_once, speed
        self.open: list[tuple[Future[Any], Any]] = []

    def submit(self, function: Any, batch: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.open.append((future, batch))
        if len(self.open) == 4 or len(batch.tasks) == 1:
            self.answer()
        return future

    def answer(self) -> None:
        """What is under way ends, one way or the other."""
        under_way, self.open = self.open, []
        under_way = [under_way[k] for k in self.order if k < len(under_way)]
        dying = [bool({int(task.content) for task in batch.tasks} & self.dies) for _, batch in under_way]
        for (future, batch), dead in zip(under_way, dying, strict=True):
            if dead or (self.all_at_once and any(dying)):
                future.set_exception(BrokenExecutor("a worker was killed"))
            else:
                answers = [f"answer {task.content}" for task in batch.tasks]
                future.set_result((answers, self.speed * len(answers)))


def test_batches_grow_with_what_a_point_takes_and_shrink_at_the_end() -> None:
    sizes: list[int] = []

    def submit(function: Any, batch: Any) -> Future[Any]:
        sizes.append(len(batch.tasks))
        future: Future[Any] = Future()
        future.set_result((["answer"] * len(batch.tasks), 0.01 * len(batch.tasks)))
        return future

    todo = [Prepared(BASE, str(n), None, str(n), n) for n in range(500)]
    assert (
        len(list(in_batches(Pool(submit=submit, workers=2, stop=lambda: None), StudyWork(todo=todo, keep=step)))) == 500
    )
    assert sizes[0] == 1
    assert max(sizes) == int(batches.BATCH / 0.01)
    assert sizes[-1] == 1
    assert len(sizes) < 60


def test_what_shares_a_machine_and_a_model_stays_together() -> None:
    trials = [trial(cluster__nodes=nodes, parallel__tp=tp) for tp in (1, 2) for nodes in (1, 2)]
    tasks = [attempts.prepared(one) for one in trials]
    ordered = batches.grouped([task for task in tasks if isinstance(task, Prepared)])
    assert [task.scenario.spec.cluster.nodes for task in ordered] == [1, 1, 2, 2]
    assert [task.scenario.spec.parallel.tp for task in ordered] == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("workers", "starting", "handed_over"), [(None, 0.0, 3), (None, 1e9, 0), (1, 0.0, 0), (2, 1e9, 4)]
)
def test_processes_start_where_they_pay_or_are_asked_for(
    workers: int | None, starting: float, handed_over: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a number of processes the first trial shows how long one takes."""
    given: list[Prepared] = []

    def elsewhere(work: StudyWork[Any]) -> Iterator[tuple[Prepared, Any]]:
        given.extend(work.todo)
        yield from ((prepared, attempt(prepared.task, work.keep)) for prepared in work.todo)

    monkeypatch.setitem(backends._discover(), "processes", elsewhere)
    monkeypatch.setattr(runners, "STARTING", starting)
    trials = [trial(training__global_batch=batch) for batch in (8, 16, 32, 64)]
    outcomes = Runner(keep=step, workers=workers).run(trials, "test")
    assert len(given) == handed_over
    steps = [outcome.value for outcome in outcomes]
    assert steps == sorted(steps)
    assert None not in steps


def test_an_unknown_backend_is_refused_with_the_nearest() -> None:
    for name in ("proceses", "proceses://here"):
        with pytest.raises(UnknownName, match="Did you mean 'processes'"):
            Runner(keep=step, backend=name)
    for name, word in (("serial://host", "no address"), ("processes://host", "no address")):
        with pytest.raises(ScenarioError, match=word):
            Runner(keep=step, backend=name).run([trial()], "test")
    with pytest.raises(ScenarioError, match="workers=2"):
        Runner(keep=step, backend="serial", workers=2).run([trial()], "test")


@pytest.mark.parametrize(("name", "library"), [("dask", "distributed"), ("ray", "ray")])
def test_a_library_that_is_missing_is_named_with_how_to_install_it(
    name: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ScenarioError, match=rf"{library}.*pip install 'trainsim\[{name}\]'"):
        Runner(keep=step, backend=name).run([trial()], "test")


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "library"), [("processes", "joblib"), ("dask", "distributed"), ("ray", "ray")])
def test_every_backend_gives_what_this_process_gives(backend: str, library: str) -> None:
    pytest.importorskip(library)
    trials = [
        trial(parallel__tp=tp, parallel__pp=pp, training__global_batch=b)
        for tp in (1, 2, 3)
        for pp in (1, 2)
        for b in (8, 32)
    ]
    here = Runner(keep=measures, backend="serial").run(trials, "test")
    assert Runner(keep=measures, backend=backend, workers=2, progress=False).run(trials, "test") == here


def test_a_file_that_changes_while_a_sweep_runs_is_no_answer(tmp_path: Path) -> None:
    """What was prepared and what was run would be two things."""
    import yaml

    from trainsim.hardware.topology import TOPOLOGIES

    file = tmp_path / "mine.yaml"
    text = TOPOLOGIES.path("dgx_a100").read_text()
    file.write_text(text)
    base = BASE.replace({"cluster.topology": str(file)})
    task = attempts.prepared(Trial(base=base))
    assert isinstance(task, Prepared)
    assert isinstance(attempt(task.task, step), float)
    file.write_text(yaml.safe_dump({**yaml.safe_load(text), "description": "changed"}))
    assert attempt(task.task, step) == attempts.CHANGED
    file.write_text("gpus: no machine")
    assert attempt(task.task, step) == attempts.CHANGED


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

    monkeypatch.setattr("trainsim.study.attempt.content", counted)
    outcomes = Runner(keep=step, workers=1).run([trial(parallel__tp=tp) for tp in (1, 2, 1)], "test")
    assert len(read) == 3
    assert outcomes[0].value == outcomes[2].value


def test_interrupts_are_left_to_the_one_who_hands_out_the_work() -> None:
    import signal
    import subprocess
    from threading import Thread

    from trainsim.study.interrupts import children_ignore_interrupts

    before = signal.getsignal(signal.SIGINT)
    asks = [sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"]
    with children_ignore_interrupts():
        assert subprocess.check_output(asks, text=True).strip() == "True"
    assert signal.getsignal(signal.SIGINT) == before
    went: list[bool] = []

    def elsewhere() -> None:
        with children_ignore_interrupts():
            went.append(True)

    thread = Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert went
