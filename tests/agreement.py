"""Compare traces with each other, to the last bit, and with the oracle."""

from __future__ import annotations

import numpy as np

from tests.oracle import simulate


def assert_same(a, b, *, operations=None):
    """Every span of every rank is the same in both traces: ``==``, not nearly."""
    assert len(a.rank_class) == len(b.rank_class)
    done = set()
    for rank, pair in enumerate(zip(a.rank_class.tolist(), b.rank_class.tolist(), strict=True)):
        if pair in done:
            continue
        done.add(pair)
        assert sorted(a.chain_names(rank)) == sorted(b.chain_names(rank))
        for chain in a.chain_names(rank):
            x, y = a.spans(rank, chain), b.spans(rank, chain)
            assert [a.labels[k] for k in x.label] == [b.labels[k] for k in y.label], (rank, chain)
            for name in ("microbatch", "posted", "start", "end"):
                mine, theirs = getattr(x, name), getattr(y, name)
                assert np.array_equal(mine, theirs), (rank, chain, name, float(np.abs(mine - theirs).max()))
            numbers = (trace.number[int(trace.rank_class[rank]), chain] for trace in (a, b))
            for mine, theirs in zip(*(t.task_times(k) for t, k in zip((a, b), numbers, strict=True)), strict=True):
                assert np.array_equal(mine, theirs), (rank, chain, "task")
    assert a.duration == b.duration


def distance(system, trace):
    """The largest relative difference of any time from the oracle's."""
    plain = simulate(system)
    assert plain is not None, "the oracle deadlocks"
    gap = 0.0
    for (rank, chain), rows in plain.items():
        spans = trace.spans(rank, chain)
        assert [row[0] for row in rows] == [trace.labels[k].name for k in spans.label], (rank, chain)
        assert [row[1] for row in rows] == spans.microbatch.tolist()
        for k, mine in ((2, spans.posted), (3, spans.start), (4, spans.end)):
            theirs = np.array([row[k] for row in rows])
            gap = max(gap, float(np.max(np.abs(mine - theirs) / np.maximum(theirs, 1e-3))))
    return gap


def assert_contiguous(trace):
    """Following causes back from any row leads to the start of the step without a hole, in finite steps."""
    rows = [trace.rows(k) for k in range(len(trace.chains))]
    start, end, cause = (np.concatenate([getattr(r, name) for r in rows]) for name in ("start", "end", "cause"))
    first = set(trace.offset[:-1].tolist())
    good = np.zeros(len(start), bool)
    for row in range(len(start)):
        path, at = [], row
        while at >= 0 and not good[at]:
            path.append(at)
            before = int(cause[at]) if cause[at] >= 0 or at in first else at - 1
            if before < 0:
                assert start[at] == 0.0, at
            else:
                assert end[before] == start[at], (at, before)
            at = before
            assert len(path) <= len(start), "a circle"
        good[path] = True
