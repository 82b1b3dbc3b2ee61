"""The engine on systems that nobody chose: folded or not, with marks or not, pruned or not, and against the oracle."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.agreement import assert_contiguous, assert_same, distance
from tests.oracle import CLOSE, fair_rates
from tests.workload import Hardware, Job, build, pairs, rings
from trainsim.contracts.exact import grains
from trainsim.contracts.groups import Group, Messages
from trainsim.contracts.instructions import Kernel, Meet, Program, Send, Signal, Task, Template, Wait
from trainsim.engine import run
from trainsim.engine.fairshare import FLOOR, Use, max_min
from trainsim.fold import fold, prune, unfolded

RELAXED = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def pick(*values):
    return st.sampled_from(values)


jobs = st.builds(
    Job,
    tp=pick(1, 2),
    pp=pick(2, 3),
    dp=pick(2, 4),
    microbatches=st.integers(1, 4),
    layers=st.tuples(*[st.integers(1, 2)] * 3),
    buckets=st.integers(1, 3),
    order=pick("tp dp pp", "tp pp dp", "pp tp dp", "dp pp tp"),
    activation=pick(50e6, 37e6, 400e6, 0.0),
    gradients=pick(1e8, 5e8),
    recompute=st.just(False),
    sequence_parallel=st.booleans(),
    zero1=st.booleans(),
    norm=st.booleans(),
    blocking=st.booleans(),
    p2p_sm=pick(0.0, 0.07),
    dp_sm=pick(0.0, 0.15, 0.4),
    slow=st.dictionaries(st.integers(0, 3), pick(1.1, 1.5), max_size=2),
)
machines = st.fixed_dictionaries(
    {
        "gpus_per_node": pick(2, 4, 8),
        "gpus_per_nic": pick(1, 2),
        "slow_nic": st.dictionaries(st.integers(0, 1), pick(0.3, 0.8), max_size=1),
        "ramp": pick(0.0, 1e-4),
    }
)


@st.composite
def orders(draw, ranks):
    """An order of the ranks: regular ones, which fold, and arbitrary ones."""
    size = draw(st.sampled_from([k for k in (1, 2, 3, 4, 6) if ranks % k == 0]))
    regular = pick(np.arange(ranks), np.arange(ranks).reshape(-1, ranks // size).T.ravel())
    return size, draw(regular | st.permutations(range(ranks)).map(np.array))


@st.composite
def programs(draw, collectives, messages, shared_chains):
    """A few chains: compute, one per communicator or all of them in compute, and messages from anywhere."""
    milliseconds = st.integers(1, 5).map(lambda k: k * 1e-3)
    kernel = st.builds(Kernel, st.just("k"), st.just("forward"), milliseconds, pick(0.5, 1.0), pick(0.0, 0.4, 0.8))
    main = draw(st.lists(kernel, min_size=1, max_size=3))
    chains, after = {}, []
    for name in collectives:
        meet = Meet(
            name,
            "dp",
            Group((name,)),
            draw(pick("all_reduce", "all_gather")),
            draw(pick(3e7, 1e8)),
            exposed=draw(pick(1.0, 0.6)),
        )
        if name in shared_chains:
            main.insert(draw(st.integers(0, len(main))), meet)
        else:
            first = (Wait("go", draw(pick(None, 0))),) if draw(st.booleans()) else ()
            last = (Signal(f"done {name}"),) if draw(st.booleans()) else ()
            chains[name] = tuple(Task(Template("C", 0, (*first, meet, *last)), m) for m in range(3))
            if last:
                after.append(Wait(f"done {name}", draw(pick(None, 0))))
    for name in messages:
        blocking = draw(st.booleans())
        send = Send(name, "pp", Messages(name, 1), draw(pick(2e7, 3e8)), f"in {name}", blocking=blocking)
        main.insert(draw(st.integers(0, len(main))), send)
        if draw(st.booleans()):
            later = Kernel("later", "other", 1e-3, 0.3)
            chains[f"{name} in"] = tuple(Task(Template("R", 0, (Wait(f"in {name}"), later)), m) for m in range(3))
    main.insert(draw(st.integers(0, len(main))), Signal("go"))
    for wait in after:  # what a side chain has done by then is over: the tasks in between may be quiet
        main.insert(draw(st.integers(main.index(Signal("go")) + 1, len(main))), wait)
    return Program(chains={"compute": tuple(Task(Template("F", 0, tuple(main)), m) for m in range(3)), **chains})


@st.composite
def systems(draw):
    """Random groups over random ranks and nodes: no mesh, no pipeline, just structure."""
    ranks = draw(st.integers(2, 12))
    hardware = Hardware(ranks=ranks, gpus_per_node=draw(pick(1, 2, 3)), gpus_per_nic=draw(pick(1, 2)), nvlink=60e9)
    communicators = {}
    collectives = draw(pick(("a",), ("a", "b"), ("a", "b", "c")))
    for name in collectives:
        size, order = draw(orders(ranks))
        communicators[Group((name,))] = rings(
            hardware, order.reshape(-1, size), operations=("all_reduce", "all_gather"), sm=draw(pick(0.0, 0.2))
        )
    messages = draw(pick((), ("m",), ("m", "n")))
    for name in messages:
        _, order = draw(orders(ranks))
        communicators[Messages(name, 1)] = pairs(hardware, order, np.roll(order, 1), sm=draw(pick(0.0, 0.1)))
    shared = draw(st.sets(st.sampled_from(collectives)))
    kinds = [draw(programs(collectives, messages, shared))]
    program_of = np.zeros(ranks, np.int64)
    if draw(st.booleans()):  # a program that differs in its kernels only, so that nothing is posted in another order
        kinds.append(
            Program(
                chains={
                    n: tuple(Task(_faster(t.template), t.microbatch) for t in c) for n, c in kinds[0].chains.items()
                }
            )
        )
        program_of[draw(st.integers(0, ranks - 1)) :] = 1
    return hardware.system(kinds, program_of, communicators, draw(pick({}, {0: 1.3})))


def _faster(template):
    return Template(
        "F",
        0,
        tuple(
            Kernel(i.name, i.kind, i.seconds / 2, i.sm, i.hbm) if isinstance(i, Kernel) else i
            for i in template.instructions
        ),
    )


def variants(system):
    """The same step by every way there is."""
    pruned = prune(system)
    yield run(unfolded(system), merge=False)
    yield run(fold(pruned))
    yield run(fold(system))
    yield run(fold(pruned), merge=False)
    yield run(unfolded(pruned))


@settings(max_examples=25, **RELAXED)
@given(jobs, machines)
def test_jobs(job, machine):
    system = build(job, Hardware(ranks=job.ranks, **machine))
    plain, *others = variants(system)
    for other in others:
        assert_same(other, plain)
        assert_contiguous(other)


@settings(max_examples=15, **RELAXED)
@given(jobs, machines)
def test_jobs_against_the_oracle(job, machine):
    system = build(job, Hardware(ranks=job.ranks, **machine))
    assert distance(system, run(fold(prune(system)))) < 1e-7


@settings(max_examples=70, **RELAXED)
@given(systems())
def test_arbitrary_systems(system):
    plain, *others = variants(system)
    for other in others:
        assert_same(other, plain)
        assert_contiguous(other)


@settings(max_examples=60, **RELAXED)
@given(systems())
def test_arbitrary_systems_against_the_oracle(system):
    assert distance(system, run(fold(prune(system)))) < 1e-7


shares = st.dictionaries(st.integers(0, 4), st.integers(1, 20).map(lambda k: grains(k / 16)), max_size=3)


@settings(max_examples=300, **RELAXED)
@given(st.lists(st.tuples(shares, shares), min_size=1, max_size=7))
def test_rates_are_max_min_fair(activities):
    rates = max_min([Use(tuple(loads.items()), tuple(holds.items())) for loads, holds in activities])
    free = {r: max(1.0 - sum(h.get(r, 0.0) for _, h in activities), FLOOR) for r in range(5)}
    taken = {r: sum(a[0].get(r, 0.0) * rate for a, rate in zip(activities, rates, strict=True)) for r in range(5)}
    assert all(taken[r] <= free[r] * (1 + 1e-9) for r in range(5))  # no resource gives more than it has
    for (loads, _), rate in zip(activities, rates, strict=True):
        assert 0 < rate <= 1
        # Nobody can get more: its top is reached, or somewhere full nobody who uses it gets more than it does.
        assert rate == 1 or any(
            taken[r] >= free[r] * (1 - 1e-9)
            and all(other <= rate * (1 + 1e-9) for (a, _), other in zip(activities, rates, strict=True) if r in a)
            for r in loads
        )
    assert np.allclose(rates, fair_rates(activities), rtol=1e-9, atol=CLOSE)


@settings(max_examples=100, **RELAXED)
@given(st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=6), min_size=1, max_size=4))
def test_a_busy_gpu_loses_no_work(chains):
    """However kernels that fill the GPU overlap, it is done when their seconds add up."""
    program = Program(
        chains={
            f"chain {k}": (Task(Template("F", 0, tuple(Kernel("k", "forward", x * 1e-3) for x in sizes)), 0),)
            for k, sizes in enumerate(chains)
        }
    )
    trace = run(fold(prune(Hardware(ranks=1).system([program], [0], {}))))
    assert abs(trace.duration - sum(map(sum, chains)) * 1e-3) < 1e-9


@settings(max_examples=50, **RELAXED)
@given(st.permutations(range(5)))
def test_a_rate_does_not_depend_on_an_order(order):
    uses = [Use(((0, grains(0.3 * k + 0.1)), (1, grains(1 / (k + 1)))), ((k % 2, grains(0.07)),)) for k in range(5)]
    rates = max_min(uses)
    assert max_min([uses[k] for k in order]) == [rates[k] for k in order]
