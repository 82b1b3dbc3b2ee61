"""Folding: the partition is the coarsest equitable one, stragglers split only what they must, pruning is sound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.steps import STEPS, step
from tests.test_engine_random import systems
from tests.workload import FORWARD, Hardware, Job, build, pairs, rings
from trainsim.contracts.groups import TENSOR
from trainsim.contracts.instructions import Kernel, Meet, Program, Send, Task, Template
from trainsim.engine import run
from trainsim.fold import fold, prune, unfolded
from trainsim.fold.graph import graph_of
from trainsim.fold.refine import refine

RELAXED = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def slow_refinement(colour, a, b, label):
    """Colour refinement with sorted tuples: no hashes, no work list."""
    colour = list(colour)
    while True:
        around = [[] for _ in colour]
        for x, y, t in zip(a, b, label, strict=True):
            around[x].append((t, 0, colour[y]))
            around[y].append((t, 1, colour[x]))
        seen = {}
        new = [seen.setdefault((c, tuple(sorted(n))), len(seen)) for c, n in zip(colour, around, strict=True)]
        if len(set(new)) == len(set(colour)):
            return colour
        colour = new


def same_partition(one, other):
    return len(set(zip(one, other, strict=True))) == len(set(one)) == len(set(other))


@settings(max_examples=150, **RELAXED)
@given(systems())
def test_refinement_finds_the_coarsest_equitable_partition_of_a_system(system):
    g = graph_of(system)
    fast, _ = refine(g.colour, g.a, g.b, g.label)
    assert same_partition(fast.tolist(), slow_refinement(*(x.tolist() for x in (g.colour, g.a, g.b, g.label))))


@st.composite
def graphs(draw):
    nodes = draw(st.integers(1, 14))
    node, few = st.integers(0, nodes - 1), st.integers(0, 2)
    edges = draw(st.lists(st.tuples(node, node, draw(st.sampled_from([few, st.just(0)]))), max_size=30))
    colour = draw(st.lists(few, min_size=nodes, max_size=nodes))
    a, b, label = (np.array([e[k] for e in edges], np.int64) for k in range(3))
    return np.array(colour), a, b, label


@settings(max_examples=300, **RELAXED)
@given(graphs())
def test_refinement_finds_the_coarsest_equitable_partition_of_any_graph(graph):
    fast, _ = refine(*graph)
    assert same_partition(fast.tolist(), slow_refinement(*(x.tolist() for x in graph)))


def test_neighbours_of_the_first_colour_over_the_first_label_count():
    a, b = np.array([0, 1, 1]), np.array([2, 2, 3])
    colour, _ = refine(np.array([1, 1, 0, 0]), a, b, np.zeros(3, np.int64))
    assert colour[0] != colour[1]


def test_a_long_path_needs_many_rounds_and_gets_them():
    n = 200
    colour, rounds = refine(np.zeros(n, np.int64), np.arange(n - 1), np.arange(1, n), np.zeros(n - 1, np.int64))
    assert len(set(colour.tolist())) == n  # edges have a direction: no two places are alike
    assert rounds < n


@pytest.mark.parametrize("name", STEPS)
def test_members_of_a_class_meet_and_load_alike(name):
    q = fold(prune(step(name)))
    s = q.system
    assert np.array_equal(q.rank_class[q.representative], np.arange(q.classes))
    for column in (s.program_of, s.slow):
        assert all(len(set(column[q.rank_class == c].tolist())) == 1 for c in range(q.classes))
    for (communicator, label), mine in q.group_of.items():
        group = s.communicators[communicator].group_of[label]
        assert np.array_equal(group >= 0, mine[q.rank_class] >= 0)
    posts = {port: column[column >= 0].tolist() for port, column in q.group_of.items() if port[1] == 0}
    for k, g in enumerate(q.groups):
        assert g.posters == posts[g.communicator, 0].count(k)


def test_a_straggler_splits_only_what_it_must():
    job = Job(tp=4, pp=4, dp=8, microbatches=2, layers=(1,) * 4)
    assert fold(prune(build(job))).classes <= 8  # stages, by whether a message leaves the node
    one = fold(prune(build(replace(job, slow={0: 1.1}))))
    # Per stage: the straggler's pipeline and the others, each by the straggler's place in the TP group or another.
    assert one.classes <= 16 * 2
    two = fold(prune(build(replace(job, slow={0: 1.1, 4: 1.1}))))
    assert two.classes <= 2 * one.classes
    assert unfolded(build(job)).classes == job.ranks


def kernels(sm, hbm=0.0):
    return tuple(Kernel(f"k{x}", "forward", 1e-3, x, hbm) for x in sm)


def compute_only(chains, communicators=None, ranks=2):
    programs = [Program(chains={n: (Task(Template("F", 0, tuple(i)), 0),) for n, i in chains.items()})]
    return Hardware(ranks=ranks).system(programs, np.zeros(ranks, np.int64), communicators or {})


def test_kernels_of_one_chain_never_fill_the_gpu():
    pruned = prune(compute_only({"compute": kernels([1.0, 0.5], 0.9)}))
    assert (pruned.sm == -1).all()
    assert (pruned.hbm == -1).all()
    pruned = prune(compute_only({"compute": kernels([0.6]), "other": kernels([0.3])}))
    assert (pruned.sm == -1).all()
    pruned = prune(compute_only({"compute": kernels([0.6]), "other": kernels([0.5])}))
    assert (pruned.sm >= 0).all()
    assert (pruned.hbm == -1).all()


def test_collectives_of_the_compute_chain_never_meet_its_kernels():
    group = rings(Hardware(ranks=2), np.array([[0, 1]]), sm=0.2, operations=("all_gather", "reduce_scatter"))
    meets = [Meet("m", "tp", TENSOR, operation, 1e6) for operation in ("all_gather", "reduce_scatter")]
    alone = prune(compute_only({"compute": [*kernels([1.0]), *meets]}, {TENSOR: group}))
    assert (alone.sm == -1).all()
    assert all(len(p.use_group) == 0 for p in alone.communicators[TENSOR].patterns.values())
    beside = prune(compute_only({"compute": kernels([1.0]), "tp": meets}, {TENSOR: group}))
    assert (beside.sm >= 0).all()
    assert all(p.use_hold.all() for p in beside.communicators[TENSOR].patterns.values())  # ports are never full


def test_messages_may_be_in_flight_together():
    message = pairs(Hardware(ranks=2), np.array([0, 1]), np.array([1, 0]))
    send = Send("m", "pp", FORWARD, 1e6, "in")
    for instructions, kept in (
        ([send], 0),  # one message fits
        ([send, send], 4),  # two do not
        ([Send("m", "pp", FORWARD, 1e6, "in", blocking=True)] * 2, 0),  # one after the other
    ):
        pruned = prune(compute_only({"compute": instructions}, {FORWARD: message}))
        assert len(pruned.communicators[FORWARD].patterns["send"].use_group) == kept


def test_a_port_that_messages_and_collectives_use_stays():
    hardware = Hardware(ranks=2)
    c = {TENSOR: rings(hardware, np.array([[0, 1]])), FORWARD: pairs(hardware, np.array([0, 1]), np.array([1, 0]))}
    both = [Send("m", "pp", FORWARD, 1e6, "in"), Meet("m", "tp", TENSOR, "all_reduce", 1e6)]
    pruned = prune(compute_only({"compute": both}, c))
    assert len(pruned.communicators[TENSOR].patterns["all_reduce"].use_group) == 4


@pytest.mark.parametrize("name", STEPS)
def test_what_never_shares_has_no_marks(name):
    """Pruning that leaves nothing to share makes every row a plain one."""
    pruned = prune(step(name))
    trace = run(fold(pruned))
    if not any(len(p.use_group) for c in pruned.communicators.values() for p in c.patterns.values()):
        assert not any(record.marks for record in trace.records)


@pytest.mark.parametrize("column", ["factor", "bandwidth", "latency", "ramp"])
def test_groups_that_differ_in_one_constant_are_told_apart(column):
    meet = Meet("m", "tp", TENSOR, "all_reduce", 1e6)
    group = rings(Hardware(ranks=4), np.array([[0, 1], [2, 3]]))
    alike = compute_only({"compute": [*kernels([1.0]), meet]}, {TENSOR: group}, ranks=4)
    assert fold(alike).classes == 1
    usual = group.patterns["all_reduce"]
    other = replace(usual, **{column: getattr(usual, column) * [1.0, 2.0] + [0.0, 1e-6]})
    odd = replace(alike, communicators={TENSOR: replace(group, patterns={"all_reduce": other})})
    assert fold(odd).classes == 2
    assert [one.group for one in fold(odd).groups] == [0, 1]
