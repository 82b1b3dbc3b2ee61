"""Closed forms of idle time, activations and latency, over ranks, microbatches, chunks and the times of passes.

The unit is a pass of a chunk; without latency unless the test is about it.
"""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trainsim.replaying import replay, schedule

law = settings(deadline=None, max_examples=8)
ranks = st.integers(2, 7)
many = st.integers(1, 16)
chunks = st.integers(2, 4)
halves = st.integers(0, 8).map(lambda k: k / 2)
durations = st.tuples(st.integers(1, 8).map(lambda k: k / 2), halves, halves)


def idle(order, times=(1.0, 1.0, 1.0), **more):
    """Idle time of the busiest rank."""
    forward, input_gradient, weight_gradient = times
    step = replay(
        order,
        forward=forward,
        input_gradient=input_gradient,
        weight_gradient=weight_gradient,
        **{"p2p": 0.0, **more},
    )
    return step, step.makespan - max(step.busy)


def latency(order, c=0.0625):
    """How much longer everything takes, in messages, when one takes *c*."""
    return (replay(order, p2p=c).makespan - replay(order, p2p=0.0).makespan) / c


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("gpipe", lambda p, m, r: m),
        ("1f1b", lambda p, m, r: min(p - r, m)),
        ("deepspeed", lambda p, m, r: min(p - r, m)),
        ("eager-1f1b", lambda p, m, r: min(2 * (p - 1 - r) + 1, m)),
    ],
)
@law
@given(p=ranks, m=many, times=durations)
def test_one_chunk_with_whole_backwards(name, peak, p, m, times):
    step, lost = idle(schedule(name, p, m), times)
    assert lost == pytest.approx((p - 1) * sum(times), abs=1e-9)
    assert step.in_flight == tuple(peak(p, m, r) for r in range(p))


@law
@given(p=ranks, m=many, times=durations)
def test_one_chunk_with_the_input_gradient_first(p, m, times):
    assume(times[2] <= min(times[:2]))
    step, lost = idle(schedule("1f1b-split", p, m), times)
    assert lost == pytest.approx((p - 1) * (times[0] + times[1]), abs=1e-9)
    assert step.in_flight == tuple(min(p - r, m) for r in range(p))


@law
@given(p=ranks, rounds=st.integers(1, 3), v=chunks, times=durations)
def test_interleaved(p, rounds, v, times):
    m = rounds * p
    step, lost = idle(schedule("interleaved-1f1b", p, m, v), times)
    assert lost == pytest.approx((p - 1) * sum(times), abs=1e-9)
    assert step.in_flight == tuple(min(2 * (p - 1 - r) + (v - 1) * p + 1, m * v) for r in range(p))
    shorter, same = idle(schedule("interleaved-1f1b-x1", p, m, v), times)
    assert same == pytest.approx(lost, abs=1e-9)
    assert shorter.in_flight == tuple(min(p * v - r, m * v) for r in range(p))
    more, alike = idle(schedule("interleaved-1f1b-overlap", p, m, v), times)
    assert alike == pytest.approx(lost, abs=1e-9)
    assert more.in_flight == tuple(min(2 * (p - 1 - r) + (v - 1) * p + 2, m * v) for r in range(p))


@law
@given(p=ranks, extra=st.integers(0, 6), v=chunks, times=durations)
def test_breadth_first(p, extra, v, times):
    m = p + extra
    for name in ("looped-bfs", "looped-bfs-ascending"):
        step, lost = idle(schedule(name, p, m, v), times)
        assert lost == pytest.approx((p - 1) * sum(times), abs=1e-9)
        assert step.in_flight == (m * v,) * p


@law
@given(p=ranks, extra=st.integers(1, 8), times=durations)
def test_zb_h1(p, extra, times):
    forward, input_gradient, weight_gradient = times
    assume(weight_gradient <= input_gradient and weight_gradient <= forward)
    step, lost = idle(schedule("zb-h1", p, p + extra), times)
    assert lost == pytest.approx((p - 1) * (forward + input_gradient - weight_gradient), abs=1e-9)
    assert step.in_flight == (p,) * p
    assert step.in_flight_input == tuple(p - r for r in range(p))


@law
@given(p=ranks, rounds=st.integers(1, 3), v=chunks)
def test_interleaved_zero_bubble(p, rounds, v):
    step, lost = idle(schedule("interleaved-zb", p, rounds * p, v))
    assert lost == pytest.approx(p - 1)
    assert step.in_flight_input == tuple(min(p * v - r, rounds * p * v) for r in range(p))
    assert max(step.in_flight) <= p * v


@law
@given(p=st.integers(2, 6), extra=st.integers(0, 6))
def test_zero_bubbles_between_steps(p, extra):
    for name, m in (("zb-h2", 2 * p + extra), ("zb-v", 2 * p + extra), ("zb-v-greedy", 2 * p + extra)):
        step, lost = idle(schedule(name, p, m))
        assert step.bubble.span_fraction == pytest.approx(0, abs=1e-9)
        assert step.bubble.period_fraction == pytest.approx(0, abs=1e-9)
        assert lost == pytest.approx(p - 1)
        assert max(step.in_flight) <= 2 * p
    order = schedule("zb-h2", p, 2 * p + extra)
    if p >= 4:
        assert replay(order).warmup == tuple(2 * (p - r) - 1 for r in range(p))


@pytest.mark.parametrize("p", [4, 8, 12])
def test_controllable_memory(p):
    m = 3 * p
    half, lost = idle(schedule("v-half", p, m))
    assert lost == pytest.approx(3 * p - 7)
    assert max(half.in_flight) == p + 2
    least, lost = idle(schedule("v-min", p, m))
    assert lost == pytest.approx(4 * p - 5 if p % 3 else 4 * p - 7)
    assert max(least.in_flight) == 2 * ((p + 4) // 3)
    whole = replay(schedule("1f1b-v", p, m), p2p=0)
    assert max(whole.in_flight) == 3 * p // 2


@law
@given(half=st.integers(1, 3), extra=st.integers(0, 4), pair=st.sampled_from([None, 2.5]))
def test_dualpipe(half, extra, pair):
    p, m = 2 * half, 4 * half + 2 * extra
    step, lost = idle(schedule("dualpipe", p, m))
    assert lost == pytest.approx((half - 1) * (3 + 2 - 3))
    assert step.in_flight == (p + 1,) * p
    folded, same = idle(schedule("dualpipev", half, m // 2))
    assert same == pytest.approx(lost)
    assert folded.in_flight == (2 * half + 1,) * half
    both = [
        idle(schedule(name, n, k), overlapped=pair)[0].makespan
        for name, n, k in (("dualpipe", p, m), ("dualpipev", half, m // 2))
    ]
    assert both[0] == pytest.approx(both[1])  # cut in half


@law
@given(half=st.integers(1, 4), blocks=st.integers(1, 3))
def test_chimera(half, blocks):
    p = 2 * half
    step, lost = idle(schedule("chimera", p, blocks * p), (1.0, 0.5, 0.5))
    assert lost == pytest.approx(p - 2)
    assert step.in_flight == tuple(half + 1 + min(r, p - 1 - r) for r in range(p))
    longer, _ = idle(schedule("chimera", p, blocks * p), (1.0, 1.0, 1.0))
    assert longer.makespan == pytest.approx(blocks * (3 * p + p - 2) + (p - 2))


@pytest.mark.parametrize("p", [2, 3, 4, 6])
def test_hanayo_with_one_wave_is_chimera_cut_in_half(p):
    step, lost = idle(schedule("hanayo", p, p, 2))
    assert lost == pytest.approx(4 * (p - 1))
    assert step.bubble.fraction == pytest.approx((2 * p - 2) / (3 * p + 2 * p - 2))
    whole = replay(schedule("chimera", 2 * p, 2 * p), p2p=0)
    assert whole.makespan == pytest.approx(step.makespan)


@law
@given(p=ranks, m=st.integers(1, 6), k=st.integers(1, 4), times=durations)
def test_slices(p, m, k, times):
    step, lost = idle(schedule("seq1f1b", p, m, group=k), times)
    assert lost == pytest.approx((p - 1) * sum(times), abs=1e-9)
    assert step.in_flight == tuple(min(p - 1 - r + k, m * k) for r in range(p))
    step, lost = idle(schedule("terapipe", p, m, group=k), times)
    assert lost == pytest.approx((p - 1) * sum(times), abs=1e-9)
    assert step.in_flight == (m * k,) * p


@law
@given(p=ranks, rounds=st.integers(1, 3), v=st.integers(2, 3), times=durations)
def test_interleaved_with_the_input_gradient_first(p, rounds, v, times):
    assume(times[2] <= min(times[:2]))
    step, less = idle(schedule("interleaved-1f1b-split", p, rounds * p, v), times)
    assert less == pytest.approx((p - 1) * (times[0] + times[1]), abs=1e-9)
    assert step.in_flight == replay(schedule("interleaved-1f1b", p, rounds * p, v)).in_flight
    step, lost = idle(schedule("gis", p, rounds * p, v, group=p), times)
    assert lost == pytest.approx((p - 1) * (times[0] + times[1]), abs=1e-9)
    assert step.in_flight == tuple(p * v - r for r in range(p))


@law
@given(p=ranks, m=st.integers(2, 16))
def test_latency_that_is_paid_for_every_microbatch(p, m):
    q, s = divmod(m - 1, p)
    assert latency(schedule("1f1b", p, m)) == pytest.approx(2 * (p - 1) * q + 2 * max(s, 1) + 2 * (p - 2))
    assert latency(schedule("gpipe", p, m)) == pytest.approx(2 * (p - 1))
    assert latency(schedule("eager-1f1b", p, m)) == pytest.approx(2 * (p - 1))
    assert latency(schedule("terapipe", p, m, group=2)) == pytest.approx(2 * (p - 1))


@law
@given(p=ranks, rounds=st.integers(2, 3), v=st.integers(2, 3))
def test_latency_that_is_paid_once(p, rounds, v):
    assert latency(schedule("interleaved-1f1b", p, rounds * p, v)) == pytest.approx(2 * (p * v - 1))
    assert latency(schedule("looped-bfs", p, p, v)) == pytest.approx(2 * (p * v - 1))
    assert latency(schedule("looped-bfs", p, 2 * p, v)) == pytest.approx(2 * (p - 1))
    assert latency(schedule("gis", p, rounds * p, v, group=p)) == pytest.approx((v + 1) * p - 2)


@law
@given(p=st.integers(4, 7), extra=st.integers(0, 8))
def test_latency_of_blocking_messages(p, extra):
    m, c = 2 * p + extra, 0.0625

    def cost(name, ranks, microbatches, chunks=None):
        order = schedule(name, ranks, microbatches, chunks)
        blocked, free = (
            replay(order, p2p=c, p2p_mode="blocking").makespan,
            replay(order, p2p=0.0, p2p_mode="async").makespan,
        )
        return (blocked - free) / c

    assert cost("1f1b", p, m) == pytest.approx(2 * m + 2 * p - 5)
    assert cost("deepspeed", p, m) == pytest.approx(4 * m + 2 * (p - 4))
    assert cost("interleaved-1f1b", p, 2 * p, 2) == pytest.approx(2 * 2 * p + 3 * p - 3)
    assert cost("dualpipev", p, m) == pytest.approx(2 * m + 4 * p - 5)
    assert cost("dualpipe", 2 * (p // 2), 2 * m) == pytest.approx(2 * m + 4 * (p // 2) - 4)
