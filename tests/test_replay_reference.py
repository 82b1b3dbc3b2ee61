"""Replay against the recorded tables: makespans, activations, blocking messages, uneven stages, gradients ready."""

from __future__ import annotations

from functools import lru_cache

import pytest

from tests.reference_orders import by_file, cells, named, recorded, small_first, table
from trainsim.replaying import replay, schedule

TIMINGS = {
    "unit": (1.0, 1.0, 1.0),
    "eq": (1.0, 0.5, 0.5),
    "skew": (1.0, 1.2, 0.8),
    "attn": (1.0, 1.4, 0.6),
    "recomp": (1.0, 2.0, 1.0),
}
"""F, I, W of a chunk by the name of the timing; a suffix is its latency or what an overlapped pair takes."""


def exact(text):
    """A number of the table: to 1e-9, unless it was rounded to the digits that it has."""
    digits = len(text.partition(".")[2])
    return pytest.approx(float(text), rel=1e-9, abs=5.1e-7 if digits == 6 else 5.1e-5 if digits == 4 else 1e-9)


def rounded(text):
    """A fraction of the table, rounded to six digits."""
    return pytest.approx(float(text), rel=0, abs=5.1e-7)


def times_of(row):
    scale = 1 / int(recorded()[row["file"]]["v"]) if row["time_scale"] == "device" else 1.0
    forward, input_gradient, weight_gradient = (t * scale for t in TIMINGS[row["timing"].split("_")[0]])
    pair = float(row["tFB_overlap"]) if row["tFB_overlap"] else None
    return forward, input_gradient, weight_gradient, float(row["tcomm"]), pair


@lru_cache(maxsize=64)
def replayed(order, times):
    """Frameworks share orders, so that many rows of the table are one replay."""
    file = next(name for name, row in recorded().items() if row["order"] == order)
    forward, input_gradient, weight_gradient, p2p, pair = times
    return replay(
        cells(file),
        forward=forward,
        input_gradient=input_gradient,
        weight_gradient=weight_gradient,
        p2p=p2p,
        overlapped=pair,
    )


def steps(file):
    for row in by_file("makespans")[file]:
        yield row, replayed(recorded()[file]["order"], times_of(row))


def counts(text):
    return tuple(map(int, text.split(";")))


@pytest.mark.parametrize("file", small_first(recorded(), 36))
def test_recorded_makespans(file):
    for row, step in steps(file):
        assert step.makespan == exact(row["makespan"])
        assert max(step.busy) == exact(row["work_per_rank_max"])
        assert step.bubble.fraction == rounded(row["bubble_fraction"])
        assert step.bubble.span_fraction == rounded(row["bubble_span"])
        assert step.in_flight == counts(row["inflight_full"])
        assert step.in_flight_input == counts(row["inflight_input"])
        assert step.pending_weight_gradients == int(row["max_pending_W"])
        assert step.warmup == counts(row["warmup_F_before_first_B"])


@pytest.mark.parametrize("file", small_first(recorded(), 24))
def test_recorded_periods(file):
    for row, step in steps(file):
        if row["period_no_barrier"]:  # some of the longest orders have none
            assert step.period == exact(row["period_no_barrier"])
            assert step.bubble.period_fraction == rounded(row["bubble_period"])


NAMES = {"1f1b_megatron": "1f1b", "interleaved_nooverlap_megatron": "interleaved-1f1b", "deepspeed_train": "deepspeed"}


@pytest.mark.parametrize("file", small_first(by_file("makespans_blocking_p2p"), 64))
def test_recorded_makespans_with_blocking_messages(file):
    for row in by_file("makespans_blocking_p2p")[file]:
        order = schedule(NAMES.get(row["schedule"], row["schedule"]), int(row["p"]), int(row["m"]), int(row["v"]))
        for mode in ("blocking", "async"):
            expected = row[f"makespan_{mode}"]
            if not expected:
                continue
            step = replay(
                order,
                forward=float(row["tF"]),
                input_gradient=float(row["tB_input"]),
                weight_gradient=float(row["tW"]),
                p2p=float(row["tcomm"]),
                p2p_mode=mode,
            )
            assert step.makespan == exact(expected)
            if mode == "blocking":
                assert step.bubble.fraction == rounded(row["bubble_fraction_blocking"])


def device_units(file):
    """(Order, time of a pass of a chunk if one of all layers of a rank takes 1, slices of a microbatch)."""
    name, numbers = named(file)
    slices = numbers["group"] if name == "seq1f1b" else 1
    return schedule(name, **numbers), 1 / slices / (1 if name == "dualpipe" else numbers["chunks"]), slices


@pytest.mark.parametrize("file", small_first(by_file("makespans_uneven"), 64))
def test_recorded_makespans_of_uneven_stages(file):
    order, alone, slices = device_units(file)
    stages = replay(order).order.chain
    for row in by_file("makespans_uneven")[file]:
        times = [alone] * stages
        times[0] += float(row["extra_first"]) / slices
        times[-1] += float(row["extra_last"]) / slices
        step = replay(order, forward=times, input_gradient=times, weight_gradient=times, p2p=0)
        assert step.makespan == exact(row["makespan"])
        assert max(step.busy) == exact(row["work_max_rank"])
        assert step.bubble.fraction == pytest.approx(float(row["bubble_fraction"]), abs=5.1e-5)


@pytest.mark.parametrize("file", by_file("grad_ready"))
def test_recorded_windows_of_gradients(file):
    order, alone, _ = device_units(file)
    step = replay(order, forward=alone, input_gradient=alone, weight_gradient=alone, p2p=0)
    rows = by_file("grad_ready")[file]
    assert sorted(int(row["stage"]) for row in rows) == list(range(step.order.stages))
    for row in rows:
        window = step.windows[int(row["stage"])]
        assert window.rank == int(row["rank"])
        assert window.first_use == exact(row["t_first_use"])
        assert window.gradient_ready == exact(row["t_grad_ready"])
        assert window.slack == exact(row["slack_after_grad_ready"])
        assert step.makespan == exact(row["makespan"])
        assert step.ends[window.rank][-1] == exact(row["rank_last_op_end"])


def test_no_row_is_left_out():
    assert [len(table(name)) for name in ("makespans", "makespans_blocking_p2p", "makespans_uneven", "grad_ready")] == [
        4344, 324, 380, 792
    ]  # fmt: skip
    assert set(by_file("makespans")) == set(recorded())
