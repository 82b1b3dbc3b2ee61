"""The store of a sweep: what is in it is not run again, and what stands there is what would come of running it."""

from __future__ import annotations

import errno
import json
import math
import os
import random
import shutil
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
from trainsim.study import code, saved, whole_files
from trainsim.study.attempt import Prepared, prepared
from trainsim.study.faster_parts import PARTS, Faster
from trainsim.study.kept import form_of
from trainsim.study.key import key_of
from trainsim.study.runner import Runner
from trainsim.study.store import StoredRow, StoreError
from trainsim.study.stores import parquet, sqlite, store_at, store_kinds
from trainsim.study.stores.parquet import ParquetStore
from trainsim.study.stores.sqlite import SqliteStore
from trainsim.study.trial import Failure, Trial, measures
from trainsim.validation.scoring import replayed

PLACES = {"sqlite": "a.sqlite", "parquet": "answers"}


@pytest.fixture(params=sorted(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where a store of each kind goes."""
    if request.param == "parquet":
        pytest.importorskip("pyarrow")
    return tmp_path / PLACES[request.param]


def is_file(place: Path) -> bool:
    """Whether the store at *place* is a file, and else a folder."""
    return bool(place.suffix)


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


def test_what_is_stored_is_not_run_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ts.sweep(BASE, GRID, workers=1)
    assert ts.sweep(BASE, GRID, workers=1, store=place).equals(plain)
    monkeypatch.setattr(Scenario, "run", None)
    again = ts.sweep(BASE, GRID, workers=1, store=str(place))
    assert again.equals(plain)
    assert again["error"].notna().sum() == 2
    assert (plain.attrs["found"], again.attrs["found"]) == (0, 8)


def test_a_larger_sweep_goes_on_from_a_smaller_one(place: Path) -> None:
    ts.sweep(BASE, {"parallel.tp": [1, 2]}, workers=1, store=place)
    runner = Runner(keep=measures, workers=1, store=place)
    runner.run([Trial(base=BASE.replace({"parallel.tp": tp})) for tp in (1, 2, 4)], "test")
    assert runner.found == 2
    assert len(store_at(place)) == 3


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
    with pytest.raises(ts.TrainsimError, match="not a function of trainsim"):
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


def test_a_changed_file_is_run_anew(tmp_path: Path, place: Path) -> None:
    file, kept = own_machine(tmp_path), place
    base = BASE.replace({"cluster.topology": str(file)})
    before = ts.sweep(base, {"parallel.tp": [2]}, store=kept)["step_time_s"][0]
    own_machine(tmp_path, gpu="h100-sxm5-80gb")
    after = ts.sweep(base, {"parallel.tp": [2]}, store=kept)["step_time_s"][0]
    assert after != before
    assert after == ts.sweep(base, {"parallel.tp": [2]})["step_time_s"][0]
    own_machine(tmp_path)
    runner = Runner(keep=measures, workers=1, store=kept)
    runner.run([Trial(base=base.replace({"parallel.tp": 2}))], "test")
    assert (runner.found, len(store_at(kept))) == (1, 2)


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


def test_a_store_of_other_code_is_kept_and_not_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ts.sweep(BASE, GRID, workers=1, store=place)
    monkeypatch.setattr(saved, "code_digest", lambda: "a later version")
    runner = Runner(keep=measures, workers=1, store=place)
    runner.run([Trial(base=BASE)], "test")
    assert (runner.found, len(store_at(place))) == (0, 9)


@pytest.mark.parametrize("error", [MemoryError, OSError, RecursionError])
def test_what_fails_of_the_moment_is_no_answer(
    error: type[Exception], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Scenario) -> Any:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Scenario, "run", broken)
        assert ts.sweep(BASE, {"parallel.tp": [1]}, workers=1, store=place)["error"].notna().all()
    assert len(store_at(place)) == 0
    assert ts.sweep(BASE, {"parallel.tp": [1]}, workers=1, store=place)["error"].isna().all()


def test_words_of_a_failure_hold_where_they_were_said(tmp_path: Path, place: Path) -> None:
    """A message names a file and a line: who writes the same elsewhere gets words of his own."""
    said = []
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(yaml.safe_dump({**SAYS, "parallel": {"tp": 3}}))
        base = Scenario.load(tmp_path / name)
        for _ in range(2):
            runner = Runner(keep=measures, workers=1, store=place)
            (outcome,) = runner.run([Trial(base=base)], "test")
            assert isinstance(outcome.failure, Failure)
            said.append((runner.found, outcome.failure.message.partition(":")[0]))
    a, b = str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")
    assert said == [(0, a), (1, a), (0, b), (1, b)]


def test_an_interrupt_stores_what_is_finished(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Scenario) -> Any:
        if self.spec.parallel.tp == 2:
            raise KeyboardInterrupt
        return original(self)

    original = Scenario.run
    monkeypatch.setattr(Scenario, "run", interrupted)
    frame = ts.sweep(BASE, {"parallel.tp": [1, 2, 4]}, workers=1, store=place)
    assert frame.attrs["interrupted"]
    assert len(store_at(place)) == 1


def test_a_key_keeps_its_answer_and_a_failure_the_last_words(place: Path) -> None:
    kept = store_at(place)
    said: list[StoredRow] = [
        StoredRow(b"k", "n", failed, text) for failed, text in ((True, "a"), (True, "b"), (False, "1"), (True, "c"))
    ]
    seen = []
    for row in said:
        kept.add([row])
        seen.append(store_at(place).found([b"k"])[b"k"].text)
        assert kept.found([b"k"]) == store_at(place).found([b"k"])
    assert seen == ["a", "b", "1", "1"]
    kept.add([])
    kept.add([StoredRow(b"two", "n", True, "no"), StoredRow(b"two", "n", False, "2")])
    assert (kept.found([b"two", b"two"])[b"two"].text, len(kept)) == ("2", 2)


ADDED = st.lists(st.lists(st.tuples(st.integers(0, 30), st.booleans(), st.text(max_size=3)), max_size=4), max_size=60)


@settings(deadline=None, max_examples=25)
@given(added=ADDED, names=st.randoms())
def test_both_kinds_answer_alike(added: list[Any], names: random.Random, tmp_path_factory: Any) -> None:
    """Whatever is added in whatever order; an answer is one for good, so its text goes with its key."""
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("alike")
    both = [store_at(folder / name) for name in PLACES.values()]
    for batch in added:
        rows = [StoredRow(b"%d" % k, "n", failed, text if failed else str(k)) for k, failed, text in batch]
        rows = list({row.key: row for row in rows}.values())
        for one in both:
            one.add(rows)
        time.sleep(1e-6)  # a store tells the last words of a failure by the clock
        if names.random() < 0.2:
            keys = [b"%d" % k for k in range(31)]
            assert both[0].found(keys) == both[1].found(keys)
            assert len(both[0]) == len(both[1])
    keys = [b"%d" % k for k in range(31)]
    assert both[0].found(keys) == both[1].found(keys) == store_at(folder / PLACES["parquet"]).found(keys)


# ------------------------------------------------------------------------------------------------ which kind it is


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.sqlite", "sqlite"), ("a.db", "sqlite"), ("plain", "sqlite"),
        ("answers", "parquet"), ("answers/", "parquet"), ("v1.2/", "parquet"), ("dotted.dir", "parquet"),
    ],
)  # fmt: skip
def test_the_path_says_which_kind_it_is(name: str, kind: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "plain").touch()
    (tmp_path / "dotted.dir").mkdir()
    path = f"{tmp_path}/{name}"
    assert [key for key, store in store_kinds.items() if store.fits(path)] == [kind]
    for _ in range(2):
        assert type(store_at(path)) is store_kinds[kind]


def test_one_file_of_parquet_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"a store of Parquet is a folder; name one, such as a/"):
        store_at(tmp_path / "a.parquet")
    assert not list(tmp_path.iterdir())


def test_a_folder_without_the_library_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "find_spec", lambda name: None)
    with pytest.raises(
        StoreError, match=r"pip install 'trainsim\[parquet\]'; or name a file, such as .*answers\.sqlite"
    ):
        store_at(tmp_path / "answers")
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------------ files that are none


def a_folder_of_files(path: Path) -> None:
    path.mkdir()
    (path / "notes.txt").write_text("mine")


def text(path: Path) -> None:
    path.write_text("point,step\n" * 200)


def of_another_program(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE customers (name)")


def marked_by_another_program(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA application_id = 7")


def later(path: Path) -> None:
    SqliteStore.at(path)
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {sqlite.FORM + 1}")


def later_folder(path: Path) -> None:
    ParquetStore.at(path)
    (path / parquet.MARK).write_text('{"form": 2}')


def damaged_mark(path: Path) -> None:
    ParquetStore.at(path)
    (path / parquet.MARK).write_text("form")


def damaged_answers(path: Path) -> None:
    ParquetStore.at(path).add([StoredRow(b"k", "n", False, "1")])
    (answers,) = path.glob("*.parquet")
    answers.write_bytes(answers.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (a_folder_of_files, r"is a folder of something else \(it has notes\.txt\); name an empty"),
        (text, "is not an SQLite database"),
        (of_another_program, r"belongs to another program \(has the tables customers\)"),
        (marked_by_another_program, "belongs to another program"),
        (later, "written by a later trainsim .* update trainsim, or name another file"),
        (later_folder, "written by a later trainsim .* update trainsim, or name another folder"),
        (damaged_mark, r"_trainsim\.json is damaged; remove that file"),
        (damaged_answers, r"answers-1-0-\w+\.parquet is damaged; remove that file"),
    ],
)
def test_what_is_no_store_is_refused_before_anything_is_run(make: Any, words: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    file = tmp_path / "it.store"
    make(file)
    before = contents(file)
    with pytest.raises(StoreError, match=words) as raised:
        ts.sweep(BASE, GRID, store=file)
    assert str(file) in str(raised.value)
    assert contents(file) == before


def contents(place: Path) -> dict[str, bytes]:
    """What is in the file, or in those of the folder."""
    return {each.name: each.read_bytes() for each in (place.iterdir() if place.is_dir() else [place])}


def test_a_folder_that_is_not_there_and_a_value_that_is_no_path(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite").touch()
    for what, words in (
        (tmp_path / "no" / "a.sqlite", "there is no folder"),
        (f"{tmp_path}/no/answers/", "there is no folder"),
        (f"{tmp_path}/a.sqlite/", "is a file; name a folder"),
        (3, "expected the"),
        ("", "expected the"),
    ):
        with pytest.raises(StoreError, match=words):
            store_at(what)  # type: ignore[arg-type]


def test_an_older_form_stays_as_it_is_beside_the_new(tmp_path: Path) -> None:
    file = tmp_path / "old.sqlite"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE answers_0 (key)")
        database.execute("INSERT INTO answers_0 VALUES (1)")
        database.execute(f"PRAGMA application_id = {sqlite.APPLICATION}")
    ts.sweep(BASE, {"parallel.tp": [1]}, workers=1, store=file)
    assert len(SqliteStore(file)) == 1
    with sqlite3.connect(file) as database:
        assert database.execute("SELECT * FROM answers_0").fetchall() == [(1,)]


def test_files_of_an_older_form_stay_as_they_are(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    folder = tmp_path / "answers"
    folder.mkdir()
    old = folder / f"answers-0-0-{'0' * 32}.parquet"
    old.write_bytes(b"older")
    (folder / parquet.MARK).write_text('{"form": 0}')
    ts.sweep(BASE, {"parallel.tp": [1]}, workers=1, store=folder)
    assert len(ParquetStore.at(folder)) == 1
    assert old.read_bytes() == b"older"


def test_an_empty_file_or_folder_becomes_a_store(place: Path) -> None:
    place.touch() if is_file(place) else place.mkdir()
    store_at(place).add([StoredRow(b"k", "n", False, "1")])
    assert len(store_at(place)) == 1


MANY_ROWS = [StoredRow(str(k).encode(), "n", False, random.Random(k).randbytes(250).hex()) for k in range(100)]


def test_a_full_disk_is_said_and_loses_nothing_that_was_stored(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = store_at(place)
    kept.add([StoredRow(b"first", "n", False, "1")])
    connect = sqlite3.connect

    def small(*words: Any, **options: Any) -> sqlite3.Connection:
        database = connect(*words, **options)
        database.execute("PRAGMA max_page_count = 3")
        return database

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sqlite.sqlite3, "connect", small)
    monkeypatch.setattr(whole_files.os, "fsync", full)
    with pytest.raises(StoreError, match=rf"{place.name}: the disk is full; make room"):
        kept.add(MANY_ROWS)
    monkeypatch.undo()
    assert list(kept.found([b"first", b"1"])) == [b"first"]
    assert not list(place.parent.rglob(f"{whole_files.UNFINISHED}*"))


LIMITED = """
import resource, sys
sys.path.insert(0, sys.argv[2])
from tests.test_store import MANY_ROWS
from trainsim.study.store import StoredRow, StoreError
from trainsim.study.stores import store_at
kept = store_at(sys.argv[1])
kept.add([StoredRow(b"first", "n", False, "1")])
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
try:
    kept.add(MANY_ROWS)
except StoreError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
"""


def test_a_limit_on_the_size_of_files_too(place: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, str(place), ROOT], capture_output=True, text=True)
    assert "the disk" in done.stdout, done.stderr
    assert list(store_at(place).found([b"first", b"1"])) == [b"first"]


def test_a_place_that_may_not_be_written_to_is_said(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_at(place)
    connect = sqlite3.connect

    def read_only(path: Path, **options: Any) -> sqlite3.Connection:
        return connect(f"file:{path}?mode=ro", uri=True, **options)

    def refused(before: Path, after: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(sqlite.sqlite3, "connect", read_only)
    monkeypatch.setattr(whole_files.os, "replace", refused)
    with pytest.raises(StoreError, match="cannot be written to; give permission"):
        store_at(place)


def test_a_folder_that_is_removed_is_said(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    kept = store_at(tmp_path / "answers")
    shutil.rmtree(tmp_path / "answers")
    for use in (lambda: kept.found([b"k"]), lambda: kept.add([StoredRow(b"k", "n", False, "1")])):
        with pytest.raises(StoreError, match="the folder is gone"):
            use()


def test_who_writes_too_long_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = SqliteStore.at(tmp_path / "a.sqlite")
    monkeypatch.setattr(sqlite, "PATIENCE", 0.05)
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


def started(place: Path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SWEEPS, str(place), ROOT, *words])


def kill_until_done(place: Path, kills: int, draw: random.Random, *words: str) -> None:
    """Start the sweep again and again, killed at any moment of its work; at last it may finish."""
    before: set[bytes] = set()
    for _ in range(kills):
        sweeping = started(place, *words)
        began = time.monotonic()
        while not place.exists() and time.monotonic() - began < 60:
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 1.5))
        sweeping.send_signal(signal.SIGKILL)
        sweeping.wait()
        there = set(keys_in(place))
        assert before <= there
        assert len(there) == len(keys_in(place)) or not is_file(place)
        before = there
    assert started(place, *words).wait() == 0


def keys_in(place: Path) -> list[bytes]:
    """Every key that is there, in each file in which it is; read without the store."""
    if not is_file(place):
        import pyarrow.parquet as pq

        return [key for file in place.glob("*.parquet") for key in pq.read_table(file)["key"].to_pylist()]
    with sqlite3.connect(place, timeout=60) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        try:
            return [row[0] for row in database.execute(f"SELECT key FROM {sqlite.TABLE}")]
        except sqlite3.OperationalError:  # killed before there was a table
            return []


def judge(place: Path) -> None:
    """Every point is there once, and the table is that of a sweep without a store."""
    points = math.prod(map(len, MANY.values()))
    assert len(set(keys_in(place))) == points
    assert len(keys_in(place)) == points or not is_file(place)
    stored = ts.sweep(BASE, MANY, workers=1, store=place, progress=False)
    assert stored.equals(ts.sweep(BASE, MANY, workers=1, progress=False))


def test_kills_lose_nothing_that_was_stored(place: Path) -> None:
    kill_until_done(place, 3, random.Random(1), "few")
    assert len(set(keys_in(place))) == math.prod(map(len, FEW.values()))


@pytest.mark.slow
def test_a_hundred_kills_lose_nothing_that_was_stored(place: Path) -> None:
    kill_until_done(place, 100, random.Random(2))
    judge(place)


@pytest.mark.slow
def test_two_writers_lose_nothing_and_write_nothing_twice(place: Path) -> None:
    both = [started(place), started(place)]
    assert [one.wait() for one in both] == [0, 0]
    judge(place)


WRITES = """
import sys
from trainsim.study.store import StoredRow
from trainsim.study.stores import store_at
kept = store_at(sys.argv[1])
for k in range(0, 2000, 10):
    kept.add([StoredRow(str(k + i).encode(), "n", False, str(k + i)) for i in range(10)])
    assert set(kept.found([str(i).encode() for i in range(k + 10)])) == {str(i).encode() for i in range(k + 10)}
"""


def test_two_processes_write_and_read_at_once(place: Path) -> None:
    both = [subprocess.Popen([sys.executable, "-c", WRITES, str(place)]) for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    rows = store_at(place).found(str(k).encode() for k in range(2000))
    assert [rows[str(k).encode()].text for k in range(2000)] == [str(k) for k in range(2000)]
    assert len(store_at(place)) == 2000


MERGES = """
import sys
from trainsim.study.store import StoredRow
from trainsim.study.stores import store_at
kept = store_at(sys.argv[1])
for k in range(int(sys.argv[2]), 100000):
    kept.add([StoredRow(str(k).encode(), "n", False, str(k))])
    print(k, flush=True)
"""


def test_a_kill_while_files_are_merged_loses_nothing(tmp_path: Path) -> None:
    """What was printed was stored before."""
    pytest.importorskip("pyarrow")
    folder, draw, after = tmp_path / "answers", random.Random(3), 0
    for _ in range(6):
        writing = subprocess.Popen(
            [sys.executable, "-c", MERGES, str(folder), str(after)], stdout=subprocess.PIPE, text=True
        )
        assert writing.stdout
        seen = [writing.stdout.readline()]
        time.sleep(draw.uniform(0.05, 0.4))
        writing.send_signal(signal.SIGKILL)
        after = int((seen + writing.stdout.readlines())[-1]) + 1
        writing.wait()
        keys = {str(k).encode() for k in range(after)}
        assert keys <= set(keys_in(folder))
        assert set(store_at(folder).found(keys)) == keys
    assert len(list(folder.glob("*.parquet"))) < 4 * parquet.MERGED < after


def test_files_stay_few_and_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    written = []
    original = parquet.write_rows

    def counted(rows: Any, folder: Path, *, level: int) -> Path:
        written.append(len(rows := list(rows)))
        return original(rows, folder, level=level)

    monkeypatch.setattr(parquet, "write_rows", counted)
    kept, count = store_at(tmp_path / "answers"), 600
    for k in range(count):
        kept.add([StoredRow(b"%d" % k, "n", False, str(k))])
    files = list((tmp_path / "answers").glob("*.parquet"))
    assert len(files) <= 4 * parquet.MERGED
    assert sum(written) < 3.5 * count
    assert len(kept) == count
    monkeypatch.setattr(parquet, "places_in", None)
    assert len(kept.found([b"%d" % k for k in range(count)])) == count


def test_what_a_killed_process_had_begun_is_removed_after_an_hour(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    folder = tmp_path / "answers"
    store_at(folder)
    parts = [folder / f"{whole_files.UNFINISHED}{name}" for name in ("old", "new")]
    for part in parts:
        part.write_bytes(b"begun")
    os.utime(parts[0], (0, time.time() - whole_files.ABANDONED - 60))
    store_at(folder)
    assert [part.exists() for part in parts] == [False, True]


@settings(deadline=None, max_examples=40)
@given(where=st.floats(0, 1, exclude_max=True), changed=st.integers(1, 255), seen=st.booleans())
def test_a_damaged_file_is_never_believed(where: float, changed: int, seen: bool, tmp_path_factory: Any) -> None:
    """Whether it was damaged before it was looked into or after, what comes is right or an error in words."""
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("damaged") / "answers"
    kept = store_at(folder)
    kept.add(MANY_ROWS)
    if seen:
        assert len(kept) == len(MANY_ROWS)
    (file,) = folder.glob("*.parquet")
    content = bytearray(file.read_bytes())
    content[int(where * len(content))] ^= changed
    file.write_bytes(content)
    try:
        assert kept.found(row.key for row in MANY_ROWS) == {row.key: row for row in MANY_ROWS}
        assert seen
    except StoreError as error:
        assert f"{file.name} is damaged; remove that file" in str(error)
    file.unlink()
    assert len(store_at(folder)) == 0


def test_pandas_reads_a_folder(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import pandas as pd

    ts.sweep(BASE, GRID, workers=1, store=tmp_path / "answers")
    table = pd.read_parquet(tmp_path / "answers")
    assert len(table) == 8
    assert table["failed"].sum() == 2
    assert (pd.Timestamp.now(tz="UTC") - table["made"]).max() < pd.Timedelta(minutes=10)


# --------------------------------------------------------------------------------------------------------- the commands


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "small.yaml").write_text(BASE.to_yaml())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["a.sqlite", "answers/", "answers"])
def test_the_command_says_how_many_points_were_there(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    words = ["sweep", "small.yaml", "--grid", "parallel.tp=1,2,3", "--store", name, "--json"]
    outs = []
    for count in (0, 3):
        assert status(*words) == 0
        out, err = capsys.readouterr()
        assert f"{count} of 3 points were in {name}" in err
        outs.append(out)
    assert outs[0] == outs[1]


def test_other_studies_take_a_store_too(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["explain", "small.yaml"], ["show", "memory", "small.yaml", "--all"]):
        first, second = ([status(*words, "--json", "--store", "a.sqlite"), capsys.readouterr().out] for _ in range(2))
        assert first == second
        assert first[0] == 0
    assert len(store_at(here / "a.sqlite")) > 10


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
