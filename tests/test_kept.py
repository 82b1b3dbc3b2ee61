"""What one run keeps for the next one changes no bit of it."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from tests.jobs import same_spans, small
from trainsim.collectives import algorithms
from trainsim.contracts.job import Job
from trainsim.contracts.system import System
from trainsim.documents.document import _read
from trainsim.engine import run
from trainsim.fold import fold, prune, quotient
from trainsim.fold.quotient import Quotient
from trainsim.optimizers import OPTIMIZERS, load_optimizer, yardstick
from trainsim.program.lower import lower
from trainsim.program.network import Network
from trainsim.program.parts import work_out
from trainsim.simulate import simulate

JOBS: dict[str, dict[str, object]] = {
    "plain": {},
    "other order": {"parallel__order": ["tp", "cp", "ep", "pp", "dp"]},
    "two chunks": {"pipeline": {"schedule": "interleaved-1f1b", "chunks": 2}},
    "two-way": {"pipeline": {"schedule": "dualpipe"}},
    "ring": {"network__algorithm": "ring"},
    "another framework": {"framework": "deepspeed"},
    "offload": {"sharding__offload": {"optimizer": "cpu"}},
    "slow rank": {"what_if": [{"slow": {"rank": 3, "factor": 1.3}}]},
    "slow link": {"what_if": [{"slow": {"link": "node0.nic0", "factor": 0.5}}]},
    "straggler": {"what_if": [{"delay": {"rank": 3, "at": "backward", "seconds": 0.01}}]},
}


def same(a: object, b: object) -> bool:
    """Whether two values are equal field by field, arrays to the last bit."""
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b) and a.dtype == b.dtype  # type: ignore[union-attr, arg-type]
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(value, b[key]) for key, value in a.items())  # type: ignore[call-overload, index]
    if isinstance(a, tuple) and a and isinstance(a[0], np.ndarray):
        return len(a) == len(b) and all(map(same, a, b))  # type: ignore[arg-type]
    if hasattr(a, "__dataclass_fields__") and type(a).__eq__ is object.__eq__:
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a) if f.name != "system")  # type: ignore[arg-type]
    return a == b


def folded(system: System, monkeypatch: pytest.MonkeyPatch) -> Quotient:
    """Its classes, worked out anew."""
    with monkeypatch.context() as nothing:
        nothing.setattr(quotient, "FEW", 0)
        return fold(system)


@pytest.mark.parametrize("name", JOBS)
def test_communicators_are_those_that_a_first_run_would_make(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for other in JOBS:  # whatever was kept before
        lower(small(**JOBS[other]))
    kept = lower(small(**JOBS[name])).system.communicators
    monkeypatch.setattr("trainsim.program.network.FEW", 0)
    job = small(**JOBS[name])
    job.cluster.memo.clear()
    assert same(dict(lower(job).system.communicators), dict(kept))


@pytest.mark.parametrize("name", JOBS)
def test_classes_are_those_that_a_first_run_would_find(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    systems = {other: prune(lower(small(**JOBS[other])).system) for other in JOBS}
    for system in systems.values():
        fold(system)
    again = prune(lower(small(**JOBS[name], training__global_batch=32)).system)
    kept, anew = fold(again), folded(again, monkeypatch)
    assert kept.system is again
    assert same(kept, anew)
    assert same_spans(run(kept), run(anew))


def test_no_more_is_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotient, "MOST_KEPT", 2)
    monkeypatch.setattr("trainsim.program.network.MOST_KEPT", 2)
    job = small()
    job.cluster.memo.clear()
    system = prune(lower(job).system)
    for factor in (1.0, 1.1, 1.2):
        fold(replace(system, slow=system.slow * factor))
    assert len(quotient._KEPT) <= 2
    assert len(job.cluster.memo["communicators"]) <= 2
    assert all(not kept.system.programs for kept in quotient._KEPT.values())


def test_a_new_algorithm_is_weighed_though_others_were_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    job = small()
    before = Network(job)._layout
    monkeypatch.setitem(algorithms._items, "another", algorithms["ring"])
    assert Network(job)._layout != before


def test_coarse_blocks_are_worked_out_once() -> None:
    parts = work_out(small(simulation__detail="block"))
    assert parts.coarse(parts.layers[0]) is parts.coarse(parts.layers[1])


POINTS: dict[str, dict[str, object]] = JOBS | {
    "zero bubble": {"pipeline": {"schedule": "zb-h1"}},
    "planned": {"pipeline": {"schedule": "zb-v"}},
    "two stages": {"parallel__tp": 2, "parallel__pp": 2},
    "more layers first": {"pipeline": {"schedule": "1f1b", "layout": [7, 6, 6, 5]}},
    "recomputed": {"training__recompute": "full"},
    "recomputed in part": {"training__recompute": {"mode": "full", "layers": 1}},
    "larger": {"training__micro_batch": 2},
    "shared by all": {"sharding__strategy": "ddp"},
    "fetched": {"sharding__strategy": "zero3", "framework": "deepspeed", "parallel__pp": 1},
    "jitter": {"simulation__jitter": {"network": 0.1}},
    "other draw": {"simulation__jitter": {"network": 0.1}, "simulation__seed": 1},
}


@pytest.mark.parametrize("detail", ["block", pytest.param("op", marks=pytest.mark.slow)])
def test_a_point_is_what_it_is_in_a_process_that_has_run_no_other(detail: str) -> None:
    """Blocks, templates, holdings and exchanges are kept from whatever points there were before."""
    alone = {}
    for name in POINTS:
        job = point(name, detail)
        job.cluster.memo.clear()
        alone[name] = simulate(job)
    for name in reversed(POINTS):
        among_others = simulate(job := point(name, detail))
        assert among_others.estimate == alone[name].estimate
        assert among_others.trace.facts == alone[name].trace.facts
        assert among_others.trace.memory == alone[name].trace.memory
        assert same_spans(among_others.trace, alone[name].trace)
    assert 1 < len(job.cluster.memo["families"]) < len(POINTS)


def point(name: str, detail: str) -> Job:
    """A model that is found by its name is one for all points."""
    return small(**{"model": "opt-1.3b", **POINTS[name]}, simulation__detail=detail)


def test_the_yardstick_of_optimizers_is_adam_as_it_ships() -> None:
    assert yardstick() is yardstick()
    assert yardstick() == load_optimizer("adam")


def test_a_document_without_a_base_is_the_one_that_was_read() -> None:
    kept = OPTIMIZERS.find("adam")
    assert kept is OPTIMIZERS.find("adam")
    _read.cache_clear()
    fresh = OPTIMIZERS.find("adam")
    assert fresh is not kept
    assert (fresh, fresh.origin.file, fresh.origin.lines) == (kept, kept.origin.file, kept.origin.lines)
