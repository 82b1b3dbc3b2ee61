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
            for name, mine, theirs in zip("mpse", a.task_times(rank, chain), b.task_times(rank, chain), strict=True):
                assert np.array_equal(mine, theirs), (rank, chain, "task", name)
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
    times = [trace.row_times(k) for k in range(len(trace.rows))]
    good = [np.zeros(len(t.end), bool) for t in times]
    for number, t in enumerate(times):
        for row in range(len(t.end)):
            path, at = [], (number, row)
            while at is not None and not good[at[0]][at[1]]:
                path.append(at)
                before, start = trace.cause(*at), float(times[at[0]].start[at[1]])
                if before is None:
                    assert start == 0.0, at
                else:
                    assert float(times[before[0]].end[before[1]]) == start, (at, before)
                at = before
                assert len(path) <= sum(len(t.end) for t in times), "a circle"
            for k, r in path:
                good[k][r] = True
