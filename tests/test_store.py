"""The store of a sweep: what is in it is not run again, and what stands there is what would come of running it."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import trainsim as ts
from tests.test_cli import status
from trainsim.hardware.topology import TOPOLOGIES
from trainsim.scenario.scenario import Scenario
from trainsim.study import code, saved, store
from trainsim.study.attempt import Prepared, prepared
from trainsim.study.faster_parts import PARTS, Faster
from trainsim.study.kept import form_of
from trainsim.study.key import key_of
from trainsim.study.runner import Runner
from trainsim.study.store import AnswerStore, StoredRow, StoreError
from trainsim.study.trial import Failure, Trial, measures
from trainsim.validation.scoring import replayed

SAYS: dict[str, Any] = {
    "model": {"name": "tiny", "layers": 4, "hidden": 256, "heads": 4, "vocab": 1000, "max_positions": 512},
    "cluster": {"topology": "dgx_a100", "nodes": 1},
    "training": {"sequence_length": 256, "global_batch": 32},
}
BASE = Scenario.from_dict(SAYS)
GRID = {"parallel.tp": [1, 2, 3, 4], "training.global_batch": [8, 32]}


def key(scenario: Scenario, **other: Any) -> bytes | None:
    task = prepared(Trial(base=scenario, **other), stored=True)
    assert isinstance(task, Prepared)
    return key_of(task, kept="measures", code="code")


def own_machine(folder: Path, file: str = "mine.yaml", **changes: Any) -> Path:
    """A topology file of one's own in *folder*."""
    folder.mkdir(exist_ok=True)
    data = yaml.safe_load(TOPOLOGIES.path("dgx_a100").read_text())
    (folder / file).write_text(yaml.safe_dump({**data, **changes}))
    return folder / file


def test_what_is_stored_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "sweep.sqlite"
    plain = ts.sweep(BASE, GRID, workers=1)
    assert ts.sweep(BASE, GRID, workers=1, store=file).equals(plain)
    monkeypatch.setattr(Scenario, "run", None)
    again = ts.sweep(BASE, GRID, workers=1, store=str(file))
    assert again.equals(plain)
    assert again["error"].notna().sum() == 2
    assert (plain.attrs["found"], again.attrs["found"]) == (0, 8)


def test_a_larger_sweep_goes_on_from_a_smaller_one(tmp_path: Path) -> None:
    file = tmp_path / "sweep.sqlite"
    ts.sweep(BASE, {"parallel.tp": [1, 2]}, workers=1, store=file)
    runner = Runner(keep=measures, workers=1, store=file)
    runner.run([Trial(base=BASE.replace({"parallel.tp": tp})) for tp in (1, 2, 4)], "test")
    assert runner.found == 2
    assert len(AnswerStore(file)) == 3


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


@given(
    step_time=NUMBERS,
    peak_memory=NUMBERS,
    days=st.none() | NUMBERS,
    complaint=st.text(),
    fits=st.booleans(),
    gpus=st.integers(),
)
def test_what_is_kept_comes_back_to_the_last_bit(**values: Any) -> None:
    form = form_of(measures)
    kept = replace(MEASURED, **values)
    text = form.written(kept)
    assert text is not None
    back = form.read(text)
    for name, value in values.items():
        there = getattr(back, name)
        assert type(there) is type(value)
        assert there == value or (math.isnan(there) and math.isnan(value))
        assert not isinstance(value, float) or math.copysign(1, there) == math.copysign(1, value) or math.isnan(value)


MEASURED = measures(BASE.run())


def test_parts_of_published_runs_come_back_too() -> None:
    form, kept = form_of(replayed), replayed(BASE.run())
    text = form.written(kept)
    assert text is not None
    assert form.read(text) == kept


def test_what_has_no_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ts.TrainsimError, match="no function of trainsim"):
        Runner(keep=lambda result: result.step_time, store=tmp_path / "a.sqlite")


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "parallel.tp": st.sampled_from([1, 2, 4]),
        "parallel.pp": st.sampled_from([1, 2]),
        "training.global_batch": st.sampled_from([8, 16, 32]),
        "training.precision": st.sampled_from(["bf16", "fp16"]),
        "cluster.nodes": st.sampled_from([1, 2]),
        "name": st.sampled_from(["a", "b"]),
        "simulation.seed": st.sampled_from([0, 1]),
    },
)


@settings(deadline=None, max_examples=60)
@given(one=CHANGES, two=CHANGES)
def test_equal_content_has_an_equal_key_and_other_content_another(one: dict[str, Any], two: dict[str, Any]) -> None:
    first, second = BASE.replace(one), BASE.replace(two)
    alike = first.replace({"name": "x"}) == second.replace({"name": "x"})
    assert (key(first) == key(second)) == alike


def test_names_and_paths_do_not_matter_and_contents_do(tmp_path: Path) -> None:
    files = [
        own_machine(tmp_path / "a"),
        own_machine(tmp_path / "b", "other.yaml"),
        own_machine(tmp_path / "a", "more.yaml", name="my own", description="in the cellar"),
    ]
    keys = {key(BASE.replace({"cluster.topology": str(file)})) for file in files}
    assert len(keys) == 1
    assert None not in keys
    for changes in ({"gpus_per_node": 4}, {"gpu": "h100-sxm5-80gb"}):
        own_machine(tmp_path / "a", **changes)
        keys.add(key(BASE.replace({"cluster.topology": str(files[0])})))
    assert len(keys) == 3
    named = [BASE.replace({"name": name, "model.name": name}) for name in ("one", "two")]
    assert key(named[0]) == key(named[1]) == key(BASE)


def test_a_file_that_cannot_be_read_has_no_key(tmp_path: Path) -> None:
    """What is wrong with it may be another thing the next time."""
    file = own_machine(tmp_path)
    base = BASE.replace({"cluster.topology": str(file)})
    file.write_text("[")
    assert key(base) is None


def test_a_changed_file_is_run_anew(tmp_path: Path) -> None:
    file, kept = own_machine(tmp_path), tmp_path / "sweep.sqlite"
    base = BASE.replace({"cluster.topology": str(file)})
    before = ts.sweep(base, {"parallel.tp": [2]}, store=kept)["step_time_s"][0]
    own_machine(tmp_path, gpu="h100-sxm5-80gb")
    after = ts.sweep(base, {"parallel.tp": [2]}, store=kept)["step_time_s"][0]
    assert after != before
    assert after == ts.sweep(base, {"parallel.tp": [2]})["step_time_s"][0]
    own_machine(tmp_path)
    runner = Runner(keep=measures, workers=1, store=kept)
    runner.run([Trial(base=base.replace({"parallel.tp": 2}))], "test")
    assert (runner.found, len(AnswerStore(kept))) == (1, 2)


def test_a_schedule_file_counts_by_what_it_says(tmp_path: Path) -> None:
    texts = {"a.csv": "0F0,1F0,0B0,1B0\n", "b.csv": "0F0,1F0,0B0,1B0\n", "c.csv": "0F0,0B0,1F0,1B0\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    keys = [key(BASE.replace({"pipeline.schedule": str(tmp_path / name)})) for name in texts]
    assert keys[0] == keys[1] != keys[2]


def test_changes_of_the_job_count_by_their_name() -> None:
    keys = {key(BASE, job_change=Faster(name, factor)) for name in PARTS for factor in (1.1, 2.0)}
    assert None not in keys
    assert len({*keys, key(BASE)}) == 2 * len(PARTS) + 1
    assert key(BASE, job_change=lambda job: job) is None


def test_other_code_another_version_and_other_data_have_other_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = {code.code_digest()}
    for version in ("0.0.1", "0.0.2"):
        monkeypatch.setattr(code, "_versions", lambda version=version: version)
        digests.add(code.code_digest())
    assert len(digests) == 3
    (tmp_path / "a.yaml").write_text("a: 1")
    (tmp_path / "a.py").write_text("a = 1")
    monkeypatch.setattr(code, "_places", lambda: [("x", tmp_path)])
    first = code.code_digest()
    (tmp_path / "a.yaml").write_text("a: 22")
    second = code.code_digest()
    (tmp_path / "a.yaml").write_text("a: 1")
    assert first == code.code_digest() != second
    code._code.cache_clear()
    try:
        third = code.code_digest()
        (tmp_path / "a.py").write_text("a = 2")
        assert code.code_digest() == third  # this process has imported the one before
        code._code.cache_clear()
        assert code.code_digest() != third
    finally:
        code._code.cache_clear()


def test_a_store_of_other_code_is_kept_and_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "sweep.sqlite"
    ts.sweep(BASE, GRID, workers=1, store=file)
    monkeypatch.setattr(saved, "code_digest", lambda: "a later version")
    runner = Runner(keep=measures, workers=1, store=file)
    runner.run([Trial(base=BASE)], "test")
    assert (runner.found, len(AnswerStore(file))) == (0, 9)


@pytest.mark.parametrize("error", [MemoryError, OSError, RecursionError])
def test_what_fails_of_the_moment_is_no_answer(
    error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sweep.sqlite"

    def broken(self: Scenario) -> Any:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Scenario, "run", broken)
        assert ts.sweep(BASE, {"parallel.tp": [1]}, workers=1, store=file)["error"].notna().all()
    assert len(AnswerStore(file)) == 0
    assert ts.sweep(BASE, {"parallel.tp": [1]}, workers=1, store=file)["error"].isna().all()


def test_words_of_a_failure_hold_where_they_were_said(tmp_path: Path) -> None:
    """A message names a file and a line: who writes the same elsewhere gets words of his own."""
    said = []
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(yaml.safe_dump({**SAYS, "parallel": {"tp": 3}}))
        base = Scenario.load(tmp_path / name)
        for _ in range(2):
            runner = Runner(keep=measures, workers=1, store=tmp_path / "sweep.sqlite")
            (outcome,) = runner.run([Trial(base=base)], "test")
            assert isinstance(outcome.failure, Failure)
            said.append((runner.found, outcome.failure.message.partition(":")[0]))
    a, b = str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")
    assert said == [(0, a), (1, a), (0, b), (1, b)]


def test_an_interrupt_stores_what_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Scenario) -> Any:
        if self.spec.parallel.tp == 2:
            raise KeyboardInterrupt
        return original(self)

    original = Scenario.run
    monkeypatch.setattr(Scenario, "run", interrupted)
    frame = ts.sweep(BASE, {"parallel.tp": [1, 2, 4]}, workers=1, store=tmp_path / "a.sqlite")
    assert frame.attrs["interrupted"]
    assert len(AnswerStore(tmp_path / "a.sqlite")) == 1


# ------------------------------------------------------------------------------------------------ files that are none


def a_folder(path: Path) -> None:
    path.mkdir()


def text(path: Path) -> None:
    path.write_text("point,step\n" * 200)


def of_another_program(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE customers (name)")


def marked_by_another_program(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA application_id = 7")


def later(path: Path) -> None:
    AnswerStore.at(path)
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {store.FORM + 1}")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (a_folder, "is a folder; name a file in it"),
        (text, "is no database of SQLite"),
        (of_another_program, r"belongs to another program \(has the tables customers\)"),
        (marked_by_another_program, "belongs to another program"),
        (later, "written by a later trainsim .* update trainsim, or name another file"),
    ],
)
def test_what_is_no_store_is_refused_before_anything_is_run(make: Any, words: str, tmp_path: Path) -> None:
    file = tmp_path / "it.sqlite"
    make(file)
    before = file.read_bytes() if file.is_file() else b""
    with pytest.raises(StoreError, match=words) as raised:
        ts.sweep(BASE, GRID, store=file)
    assert str(file) in str(raised.value)
    assert not file.is_file() or file.read_bytes() == before


def test_a_folder_that_is_not_there_and_a_value_that_is_no_path(tmp_path: Path) -> None:
    for what, words in (
        (tmp_path / "no" / "a.sqlite", "there is no folder"),
        ("new/", "is a folder"),
        (3, "wants the"),
    ):
        with pytest.raises(StoreError, match=words):
            AnswerStore.at(what)  # type: ignore[arg-type]


def test_an_older_form_stays_as_it_is_beside_the_new(tmp_path: Path) -> None:
    file = tmp_path / "old.sqlite"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE answers_0 (key)")
        database.execute("INSERT INTO answers_0 VALUES (1)")
        database.execute(f"PRAGMA application_id = {store.APPLICATION}")
    ts.sweep(BASE, {"parallel.tp": [1]}, workers=1, store=file)
    assert len(AnswerStore(file)) == 1
    with sqlite3.connect(file) as database:
        assert database.execute("SELECT * FROM answers_0").fetchall() == [(1,)]


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite").touch()
    AnswerStore.at(tmp_path / "a.sqlite").add([StoredRow(b"k", "n", False, "1")])
    assert len(AnswerStore(tmp_path / "a.sqlite")) == 1


def test_a_full_disk_is_said_and_loses_nothing_that_was_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = AnswerStore.at(tmp_path / "a.sqlite")
    kept.add([StoredRow(b"first", "n", False, "1")])
    connect = sqlite3.connect

    def small(*words: Any, **options: Any) -> sqlite3.Connection:
        database = connect(*words, **options)
        database.execute("PRAGMA max_page_count = 3")
        return database

    monkeypatch.setattr(store.sqlite3, "connect", small)
    with pytest.raises(StoreError, match=r"a\.sqlite: the disk is full; make room"):
        kept.add([StoredRow(str(k).encode(), "n", False, "x" * 500) for k in range(100)])
    assert list(kept.found([b"first", b"1"])) == [b"first"]


LIMITED = """
import resource, sys
from pathlib import Path
from trainsim.study.store import AnswerStore, StoredRow, StoreError
kept = AnswerStore.at(sys.argv[1])
kept.add([StoredRow(b"first", "n", False, "1")])
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
try:
    kept.add([StoredRow(str(k).encode(), "n", False, "x" * 500) for k in range(100)])
except StoreError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
"""


def test_a_limit_on_the_size_of_files_too(tmp_path: Path) -> None:
    file = tmp_path / "a.sqlite"
    done = subprocess.run([sys.executable, "-c", LIMITED, str(file)], capture_output=True, text=True)
    assert "the disk" in done.stdout, done.stderr
    assert list(AnswerStore(file).found([b"first", b"1"])) == [b"first"]


def test_a_file_that_may_not_be_written_to_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    AnswerStore.at(tmp_path / "a.sqlite")
    connect = sqlite3.connect

    def read_only(path: Path, **options: Any) -> sqlite3.Connection:
        return connect(f"file:{path}?mode=ro", uri=True, **options)

    monkeypatch.setattr(store.sqlite3, "connect", read_only)
    with pytest.raises(StoreError, match="cannot be written to; give permission"):
        AnswerStore.at(tmp_path / "a.sqlite")


def test_who_writes_too_long_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = AnswerStore.at(tmp_path / "a.sqlite")
    monkeypatch.setattr(store, "PATIENCE", 0.05)
    other = sqlite3.connect(tmp_path / "a.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="another process has been writing"):
        kept.add([StoredRow(b"k", "n", False, "1")])
    other.close()
    kept.add([StoredRow(b"k", "n", False, "1")])


# ------------------------------------------------------------------------------------------- kills, and several writers

SWEEPS = """
import sys
sys.path.insert(0, sys.argv[2])
from tests.test_store import BASE, FEW, MANY
import trainsim as ts
ts.sweep(BASE, FEW if "few" in sys.argv else MANY, workers=1, store=sys.argv[1], progress=False)
"""
MANY = {"parallel.tp": [1, 2, 3, 4], "training.global_batch": [8, 16, 32], "simulation.seed": list(range(16))}
FEW = {**MANY, "simulation.seed": [0, 1, 2]}
ROOT = str(Path(__file__).parents[1])


def started(file: Path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SWEEPS, str(file), ROOT, *words])


def kill_until_done(file: Path, kills: int, draw: random.Random, *words: str) -> None:
    """Start the sweep again and again, killed at any moment of its work; at last it may finish."""
    before: set[bytes] = set()
    for _ in range(kills):
        sweeping = started(file, *words)
        began = time.monotonic()
        while not file.exists() and time.monotonic() - began < 60:
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 1.5))
        sweeping.send_signal(signal.SIGKILL)
        sweeping.wait()
        there = set(keys_in(file))
        assert before <= there
        assert len(there) == len(keys_in(file))
        before = there
    assert started(file, *words).wait() == 0


def keys_in(file: Path) -> list[bytes]:
    with sqlite3.connect(file, timeout=60) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        try:
            return [row[0] for row in database.execute(f"SELECT key FROM {store.TABLE}")]
        except sqlite3.OperationalError:  # killed before there was a table
            return []


def judge(file: Path) -> None:
    """Every point is there once, and the table is that of a sweep without a store."""
    points = math.prod(map(len, MANY.values()))
    assert len(keys_in(file)) == points
    stored = ts.sweep(BASE, MANY, workers=1, store=file, progress=False)
    assert stored.equals(ts.sweep(BASE, MANY, workers=1, progress=False))


def test_kills_lose_nothing_that_was_stored(tmp_path: Path) -> None:
    kill_until_done(tmp_path / "a.sqlite", 3, random.Random(1), "few")
    assert len(keys_in(tmp_path / "a.sqlite")) == math.prod(map(len, FEW.values()))


@pytest.mark.slow
def test_a_hundred_kills_lose_nothing_that_was_stored(tmp_path: Path) -> None:
    kill_until_done(tmp_path / "a.sqlite", 100, random.Random(2))
    judge(tmp_path / "a.sqlite")


@pytest.mark.slow
def test_two_writers_lose_nothing_and_write_nothing_twice(tmp_path: Path) -> None:
    file = tmp_path / "a.sqlite"
    both = [started(file), started(file)]
    assert [one.wait() for one in both] == [0, 0]
    judge(file)


WRITES = """
import sys
from trainsim.study.store import StoredRow, AnswerStore
kept = AnswerStore.at(sys.argv[1])
for k in range(0, 200, 10):
    kept.add([StoredRow(str(k + i).encode(), "n", False, str(k + i)) for i in range(10)])
"""


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    file = tmp_path / "a.sqlite"
    both = [subprocess.Popen([sys.executable, "-c", WRITES, str(file)]) for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    rows = AnswerStore(file).found(str(k).encode() for k in range(200))
    assert [rows[str(k).encode()].text for k in range(200)] == [str(k) for k in range(200)]
    assert len(AnswerStore(file)) == 200


# --------------------------------------------------------------------------------------------------------- the commands


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "small.yaml").write_text(BASE.to_yaml())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_says_how_many_points_were_there(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "small.yaml", "--grid", "parallel.tp=1,2,3", "--store", "a.sqlite", "--json"]
    outs = []
    for count in (0, 3):
        assert status(*words) == 0
        out, err = capsys.readouterr()
        assert f"{count} of 3 points were in a.sqlite" in err
        outs.append(out)
    assert outs[0] == outs[1]


def test_other_studies_take_a_store_too(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["explain", "small.yaml"], ["show", "memory", "small.yaml", "--all"]):
        first, second = ([status(*words, "--json", "--store", "a.sqlite"), capsys.readouterr().out] for _ in range(2))
        assert first == second
        assert first[0] == 0
    assert len(AnswerStore(here / "a.sqlite")) > 10


@pytest.mark.parametrize("words", [("--store", "."), ("--backend", "procesess"), ("--backend", "dask://localhost:1x")])
def test_wrong_words_are_one_line(words: tuple[str, ...], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("sweep", "small.yaml", "--grid", "parallel.tp=1,2", *words) == 2
    assert capsys.readouterr().err.startswith("trainsim: ")


def test_a_table_of_parquet(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "small.yaml", "--grid", "parallel.tp=1,2", "--parquet", "a.parquet"]
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: None)
        assert status(*words) == 2
        assert "trainsim[parquet]" in capsys.readouterr().err
    pytest.importorskip("pyarrow")
    import pandas as pd

    assert status(*words, "--grid", "training.recompute=none,{mode: full}") == 0
    table = pd.read_parquet("a.parquet")
    assert (
        table["step_time_s"].tolist()
        == ts.sweep(BASE, {"parallel.tp": [1, 2], "training.recompute": ["none", {"mode": "full"}]}, workers=1)[
            "step_time_s"
        ].tolist()
    )
    assert set(table["training.recompute"]) == {"none", "{'mode': 'full'}"}


def _listens() -> None:
    """Processes that a shell has put into the background ignore the signal, and so would those that they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_in_a_terminal_keeps_what_is_finished(workers: int, here: Path) -> None:
    """The signal goes to the whole group of processes, as a terminal sends it."""
    words = [
        "sweep",
        "small.yaml",
        "--grid",
        "parallel.tp=1,2,4",
        "--grid",
        f"simulation.seed={','.join(map(str, range(800)))}",
    ]
    sweeping = subprocess.Popen(
        [sys.executable, "-m", "trainsim", *words, "--store", "a.sqlite", "--workers", str(workers), "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, text=True, preexec_fn=_listens,
    )  # fmt: skip
    began = time.monotonic()
    while time.monotonic() - began < 60 and not (Path("a.sqlite").exists() and len(keys_in(Path("a.sqlite"))) > 20):
        time.sleep(0.1)
    os.killpg(sweeping.pid, signal.SIGINT)
    out, err = sweeping.communicate(timeout=60)
    assert sweeping.returncode == 130, err
    assert "Traceback" not in err
    assert "interrupted" in err
    ran = sum(row["error"] is None for row in json.loads(out)["rows"])
    assert 20 < ran < 2400
    assert len(keys_in(Path("a.sqlite"))) == ran
