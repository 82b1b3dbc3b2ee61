"""Replay: recorded makespans, closed forms, the longest path as oracle, and what is refused."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.longest_path import longest_path
from trainsim.errors import Deadlock, InvalidPlan
from trainsim.replaying import replay, schedule
from trainsim.schedules.cells import parse_order


@pytest.mark.parametrize(("p", "m"), [(2, 2), (4, 4), (4, 12), (8, 3), (8, 24), (12, 128)])
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_bubble_of_gpipe_and_1f1b(name, p, m):
    step = replay(schedule(name, p, m), forward=1.0, input_gradient=1.5, weight_gradient=0.5, p2p=0)
    assert step.bubble.fraction == pytest.approx((p - 1) / (m + p - 1), rel=1e-9)
    assert step.idle_over_ideal == pytest.approx((p - 1) / m, rel=1e-9)
    assert step.in_flight == tuple(m if name == "gpipe" else min(p - r, m) for r in range(p))


@pytest.mark.parametrize(("p", "m", "v"), [(2, 2, 2), (4, 8, 2), (4, 12, 3), (8, 24, 3), (12, 36, 2)])
def test_bubble_of_interleaved(p, m, v):
    step = replay(schedule("interleaved-1f1b", p, m, v), p2p=0)
    assert step.bubble.fraction == pytest.approx((p - 1) / (v * m + p - 1), rel=1e-9)
    assert step.in_flight == tuple(min(2 * (p - 1 - r) + (v - 1) * p + 1, m * v) for r in range(p))


@pytest.mark.parametrize(("p", "m"), [(3, 3), (4, 4), (4, 14), (8, 24)])
def test_latency_of_1f1b_grows_with_the_microbatches(p, m):
    q, s = divmod(m - 1, p)
    alone, far = (replay(schedule("1f1b", p, m), p2p=c).makespan for c in (0.0, 0.01))
    assert far - alone == pytest.approx(0.01 * (2 * (p - 1) * q + 2 * s + 2 * (p - 2)), rel=1e-6)


@pytest.mark.parametrize(("p", "m"), [(2, 5), (4, 8), (8, 9)])
def test_latency_of_gpipe_is_paid_once_each_way(p, m):
    assert replay(schedule("gpipe", p, m), p2p=0.25).makespan == 3 * (m + p - 1) + 2 * (p - 1) * 0.25


names = st.sampled_from([("gpipe", 1), ("1f1b", 1), ("interleaved-1f1b", 2), ("interleaved-1f1b", 3)])
duration = st.floats(0, 1e3, allow_subnormal=False).map(lambda x: round(x, 3))


@settings(deadline=None, max_examples=40)
@given(names, st.integers(1, 5), st.integers(1, 9), st.tuples(duration, duration, duration, duration))
def test_replay_is_the_longest_path(name, ranks, microbatches, times):
    order = schedule(name[0], ranks, microbatches, name[1])
    forward, input_gradient, weight_gradient, p2p = times
    step = replay(order, forward=forward, input_gradient=input_gradient, weight_gradient=weight_gradient, p2p=p2p)
    expected = longest_path(
        parse_order(order), forward=forward, backward=input_gradient + weight_gradient, weight=weight_gradient, p2p=p2p
    )
    scale = max(1e-3, max(end for row in expected for _, end in row))
    for rank, row in enumerate(expected):
        assert step.starts[rank] == pytest.approx([start for start, _ in row], rel=1e-9, abs=1e-9 * scale)
        assert step.ends[rank] == pytest.approx([end for _, end in row], rel=1e-9, abs=1e-9 * scale)


SPLIT = [["0F0", "0F1", "0I0", "0W0", "0I1", "0W1"], ["1F0", "1I0", "1F1", "1I1", "1W0", "1W1"]]
BOTTOM_OF_A_V = [
    ["0F0", "0F1", "3F0", "3B0", "0B0", "3F1", "3B1", "0B1"],
    ["1F0", "2F0", "1F1", "2F1", "2B0", "1B0", "2B1", "1B1"],
]
PAIRED = [["0F0", "0F1", "0F2", "0B0", "0B1", "0B2"], ["1F0", "(1F1;1B0)OVERLAP_F_B", "(1F2;1B1)OVERLAP_F_B", "1B2"]]


@pytest.mark.parametrize("order", [SPLIT, BOTTOM_OF_A_V, PAIRED])
@pytest.mark.parametrize("overlapped", [None, 2.25])
def test_split_backwards_other_placements_and_pairs(order, overlapped):
    step = replay(order, forward=1, input_gradient=1.25, weight_gradient=0.5, p2p=0.125, overlapped=overlapped)
    expected = longest_path(parse_order(order), forward=1, backward=1.75, weight=0.5, p2p=0.125, overlapped=overlapped)
    assert [tuple(span[2:]) for span in step.spans] == [span for row in expected for span in row]
    assert [span.cell for span in step.spans] == [cell for row in order for cell in row]


def test_a_weight_gradient_ends_what_its_forward_holds():
    assert replay(SPLIT).in_flight == (2, 2)
    assert replay(PAIRED).in_flight == (3, 2)


def test_messages_on_one_rank_are_free():
    assert replay([["0F0", "1F0", "1B0", "0B0"]], p2p=100).makespan == 6


def test_times_of_any_size():
    small = replay(schedule("1f1b", 4, 8), forward=1e-9, input_gradient=1e-9, weight_gradient=1e-9, p2p=0)
    large = replay(schedule("1f1b", 4, 8), forward=1e9, input_gradient=1e9, weight_gradient=1e9, p2p=0)
    assert small.makespan == pytest.approx(33e-9, rel=1e-9)
    assert large.makespan == pytest.approx(33e9, rel=1e-9)
    assert replay([["0F0", "0B0"]], forward=0, input_gradient=0, weight_gradient=0).bubble.fraction == 0.0


def test_a_rank_without_cells_is_idle():
    step = replay([["0F0", "0B0"], []])
    assert step.bubble.fraction == 0.5
    assert step.in_flight == (1, 0)


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ([], "needs a cell"),
        ([[]], "needs a cell"),
        ("0F0", "a list of cells per rank"),
        (None, "a list of cells per rank"),
        (["0F0", "0B0"], "a rank's row is a list of cells"),
        ([[1, 2]], "a rank's row is a list of cells"),
        ([["0X0"]], "'0X0' is not a cell"),
        ([["999999999F0", "999999999B0"]], "'999999999F0' is not a cell"),
        ([["0F0", "0B0"], ["0F1", "0B1"]], "stage 0 is on rank 0"),
        ([["0F0", "0B0", "2F0", "2B0"]], "no rank has stage 1"),
        ([["0F0", "0B0", "0F0"]], "0F0 is twice"),
        ([["0F1", "0B1"]], "0F0 is missing"),
        ([["0F0"]], "with nothing; it needs 0B0"),
        ([["0F0", "0B0", "0I0", "0W0"]], "with B and I and W"),
        ([["0F0", "0I0"]], "with I; it needs 0B0, or 0I0 and 0W0"),
        ([["0B0", "0F0"]], "0B0 comes before 0F0"),
        ([["0F0", "0W0", "0I0"]], "0W0 comes before 0I0"),
    ],
)
def test_refused_orders(order, says):
    with pytest.raises(InvalidPlan) as refusal:
        replay(order)
    assert says in str(refusal.value)


def test_an_order_that_waits_for_itself_is_a_deadlock():
    with pytest.raises(Deadlock):
        replay([["0F0", "0B0", "0F1", "0B1"], ["1F1", "1B1", "1F0", "1B0"]])


TWO_WAYS = [["0F0", "3F1", "3B1", "0B0"], ["2F1", "1F0", "1B0", "2B1"]]


def test_two_way_pipelines_are_two_chains():
    step = replay(TWO_WAYS, p2p=0.5)
    assert step.makespan == 7.0
    assert step.order.two_way
    with pytest.raises(InvalidPlan, match=r"3F1 is missing"):
        replay([["0F0", "3B1", "0B0"], ["2F1", "1F0", "1B0", "2B1"]])


def test_deadlocks_of_blocking_messages_say_who_waits_for_whom():
    with pytest.raises(Deadlock, match=r"rank 0 after 0F3 waits for rank 1 to receive the activation 3 of stage 0"):
        replay(schedule("zb-v", 4, 8), p2p_mode="blocking")


def test_messages_of_an_order_are_recognised():
    for name in ("dualpipe", "dualpipev"):
        order = schedule(name, 4, 8)
        known = replay([list(row) for row in order], p2p_mode="blocking")
        assert known.makespan == replay(order, p2p_mode="blocking").makespan
    bare = [list(row) for row in schedule("deepspeed", 4, 8)]
    assert (
        replay(bare, p2p_mode="deepspeed").makespan == replay(schedule("deepspeed", 4, 8), p2p_mode="blocking").makespan
    )
    assert replay(bare, p2p_mode="blocking").makespan < replay(bare, p2p_mode="deepspeed").makespan
    changed = schedule("deepspeed", 2, 2)
    changed[0][:] = ["0F0", "0B0", "0F1", "0B1"]
    slow = replay(changed, p2p_mode="blocking")
    assert slow.order.texts[0] == tuple(changed[0])
    assert slow.rows == replay([list(row) for row in changed], p2p_mode="blocking").rows
    with pytest.raises(InvalidPlan, match="this is another"):
        replay(schedule("gpipe", 4, 8), p2p_mode="deepspeed")
    with pytest.raises(InvalidPlan, match="loop, a V, a wave or both ways"):
        replay([["0F0", "1F0", "1B0", "0B0"], ["2F0", "3F0", "3B0", "2B0"]][::-1], p2p_mode="blocking")
    with pytest.raises(InvalidPlan, match="'sync'"):
        replay(schedule("1f1b", 2, 2), p2p_mode="sync")


def test_the_period_of_blocking_messages_is_that_of_many_steps():
    step = replay(schedule("1f1b", 4, 8), p2p=0.25, p2p_mode="blocking")
    assert 24.0 < step.period <= step.makespan


def test_times_may_differ_by_stage():
    step = replay(
        [["0F0", "0B0"], ["1F0", "1B0"]], forward=[1, 2], input_gradient=[0.5, 3], weight_gradient=0.25, p2p=0
    )
    assert [span.end - span.start for span in step.spans] == [1, 0.75, 2, 3.25]
    with pytest.raises(InvalidPlan, match="forward has 3 times, but the order has 2 stages"):
        replay([["0F0", "0B0"], ["1F0", "1B0"]], forward=[1, 2, 3])
    with pytest.raises(InvalidPlan, match=r"weight_gradient\[1\] is a time"):
        replay([["0F0", "0B0"], ["1F0", "1B0"]], weight_gradient=[1, -1])


def test_slices_go_forward_in_turn_and_back_the_other_way_round():
    order = [["0F0", "0F1", "0B0", "0B1"]]
    assert replay(order).makespan == 6
    with pytest.raises(InvalidPlan, match="0B0 comes before 0B1 on its rank; with causal attention"):
        replay(order, slices=2)
    with pytest.raises(InvalidPlan, match="not a whole number"):
        replay(schedule("seq1f1b", 2, 2, group=3), slices=4)


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "1", None, True])
@pytest.mark.parametrize("name", ["forward", "input_gradient", "weight_gradient", "p2p"])
def test_refused_times(name, value):
    with pytest.raises(InvalidPlan, match=name):
        replay([["0F0", "0B0"]], **{name: value})


def test_any_order_of_the_ranks_own_cells_ends_or_deadlocks():
    shuffle = random.Random(7).shuffle
    for _ in range(60):
        order = schedule("1f1b", 3, 4)
        for row in order:
            forwards = [c for c in row if "F" in c]
            shuffle(forwards)
            position = iter(forwards)
            row[:] = [next(position) if "F" in c else c for c in row]
        try:
            step = replay(order, p2p=0.5)
        except (InvalidPlan, Deadlock):
            continue
        parsed = parse_order(order)
        assert step.makespan == max(e for row in longest_path(parsed, forward=1, backward=2, p2p=0.5) for _, e in row)


def test_replay_is_fast():
    order = schedule("1f1b", 12, 128)
    best = 1.0
    for _ in range(5):
        begin = time.process_time()
        replay(order)
        best = min(best, time.process_time() - begin)
    assert best < 0.1  # 0.04 s on an idle core
