"""Groups as values: who belongs to which, that parts make up the whole, and that no two values share a name."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.jobs import small
from trainsim.analysis.hops import Hops
from trainsim.collectives import algorithms
from trainsim.collectives.place import place
from trainsim.contracts.groups import (
    ALL_AXES,
    ALONE,
    MODEL,
    REPLICAS,
    STAGES,
    TENSOR,
    WORLD,
    Across,
    Ends,
    Group,
    Messages,
    Peers,
    Queue,
    Within,
)
from trainsim.contracts.job import Job
from trainsim.program.lower import lower
from trainsim.program.network import Network

GROUPS = (TENSOR, REPLICAS, STAGES, MODEL, WORLD, ALONE, Group(("cp",)), Group(("dp",)), Group(("tp", "cp")))
LAYOUTS = (
    {"tp": 2, "pp": 2, "dp": 4, "cp": 1},
    {"tp": 2, "pp": 2, "dp": 2, "cp": 2},
    {"tp": 1, "pp": 4, "dp": 2, "cp": 2, "order": ("pp", "dp", "tp", "cp", "ep")},
    {"tp": 4, "pp": 1, "dp": 4, "cp": 1, "order": ("dp", "tp", "cp", "ep", "pp")},
)


def network(**degrees: Any) -> Network:
    job = small()
    return Network(replace(job, parallel=replace(job.parallel, **degrees)))


@pytest.mark.parametrize("group", GROUPS, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: str(list(layout.values())))
def test_every_rank_is_in_exactly_one_group(layout: dict[str, Any], group: Group) -> None:
    made = network(**layout)
    members = made.members(group)
    assert sorted(members.ravel().tolist()) == list(range(made.job.parallel.ranks))
    assert members.shape[1] == made.size(group) == np.prod([layout.get(axis, 1) for axis in group.axes], dtype=int)


@pytest.mark.parametrize("group", GROUPS, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: str(list(layout.values())))
def test_members_differ_along_the_axes_of_their_group_alone(layout: dict[str, Any], group: Group) -> None:
    made = network(**layout)
    for axis, coordinate in made.mesh.coordinates(made.members(group)).items():
        differs = bool((coordinate != coordinate[:, :1]).any())
        assert differs == (axis in group.axes and made.mesh.size(axis) > 1)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_ranks_within_and_ranks_across_make_up_the_whole(size: int) -> None:
    """Every member meets every other one by one step within and one across, and nobody twice."""
    made = network(tp=2, pp=2, dp=4)
    whole, within, across = (made.members(REPLICAS.only(p)) for p in (None, Within(size), Across(size)))
    assert within.shape[1] * across.shape[1] == whole.shape[1]
    assert made.size(REPLICAS.only(Within(size))) == within.shape[1]
    assert made.size(REPLICAS.only(Across(size))) == across.shape[1]
    on_the_way = [(a, other) for row in within.tolist() for a, other in product(row, row)]
    met = {(a, c) for a, other in on_the_way for c in across[(across == other).any(axis=1)][0].tolist()}
    assert met == {(int(a), int(b)) for row in whole for a, b in product(row, row)}
    assert (np.diff(within, axis=1) > 0).all()


@pytest.mark.parametrize("name", ["chimera", "dualpipe"])
def test_two_way_pipelines_join_a_rank_and_its_mirror_image(name: str) -> None:
    made = Network(small(pipeline__schedule=name, pipeline__chunks=2, training__global_batch=32))
    stage = made.mesh.coordinates(made.members(REPLICAS))["pp"]
    assert (np.sort(stage, axis=1)[:, [0, -1]].sum(axis=1) == made.mesh.size("pp") - 1).all()
    assert made.size(REPLICAS) == made.members(REPLICAS).shape[1]
    assert sorted(made.members(REPLICAS).ravel().tolist()) == list(range(made.job.parallel.ranks))


def test_the_ends_of_a_pipeline() -> None:
    made = network(tp=2, pp=4, dp=2)
    assert (made.mesh.coordinates(made.members(STAGES.only(Ends())))["pp"] == [0, 3]).all()
    assert (made.mesh.coordinates(made.members(STAGES.only(Ends(2))))["pp"] == [0, 2]).all()
    assert made.size(STAGES.only(Ends())) == 2
    assert network(tp=4, pp=1, dp=4).size(STAGES.only(Ends())) == 1


@pytest.mark.parametrize("chunks", [1, 2])
def test_messages_go_to_the_next_stage_and_gradients_back(chunks: int) -> None:
    job = small(parallel={"tp": 2, "pp": 4, "order": ["tp", "cp", "ep", "dp", "pp"]}, pipeline__chunks=chunks,
                pipeline__schedule="interleaved-1f1b" if chunks > 1 else "1f1b")  # fmt: skip
    made = Network(job)
    for carries, distance in product(("forward", "backward", "control"), (1, -1)):
        stage = made.mesh.coordinates(made.members(Messages(carries, distance)))["pp"]
        assert ((stage[:, 1] - stage[:, 0]) % 4 == distance % 4).all()
        assert len(stage) == job.parallel.ranks * (1 if chunks > 1 else 3 / 4)  # chunks go round


def every_value() -> list[Peers]:
    parts = (None, Within(2), Within(4), Across(2), Ends(), Ends(1), Ends(2))
    axes = [tuple(a for a, there in zip(ALL_AXES, mask, strict=True) if there) for mask in product((0, 1), repeat=4)]
    groups = [Group(a, queue, part) for a in axes for queue in Queue for part in parts]
    ways = [Messages(carries, d) for carries in ("forward", "backward", "control", "pp") for d in (1, -1)]
    return [*groups, *ways]


def test_no_two_values_share_a_name() -> None:
    """Communicators are sorted by their names, so that the order of everything is the same in every run."""
    values = every_value()
    assert len({str(value) for value in values}) == len(values)


def test_a_queue_changes_the_communicator_and_not_its_ranks() -> None:
    made = network(tp=2, pp=2, dp=4)
    for group in GROUPS:
        for queue in Queue:
            assert group.on(queue).on(Queue.COMPUTE) == group
            assert made.members(group.on(queue)) is made.members(group)


def test_collectives_beside_the_compute_chain_take_a_part_of_the_gpu() -> None:
    """What compute itself waits for, copies and messages leave SMs and HBM alone; all others hold SMs."""
    job: Job = small(training__tp_overlap="wgrad", parallel__sequence_parallel=True)
    system = lower(job).system
    beside = {peers: isinstance(peers, Group) and peers.beside for peers in system.communicators}
    assert {TENSOR.on(Queue.OVERLAP), REPLICAS.on(Queue.DATA)} <= {peers for peers, so in beside.items() if so}
    assert {TENSOR, REPLICAS} <= {peers for peers, so in beside.items() if not so}
    for peers, communicator in system.communicators.items():
        for p in communicator.patterns.values():
            assert bool((p.use_resource >= job.cluster.links).any()) == beside[peers]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: str(list(layout.values())))
@pytest.mark.parametrize("operation", ["all_to_all", "all_gather"])
@pytest.mark.parametrize("group", [REPLICAS, TENSOR, STAGES, REPLICAS.only(Across(2))], ids=str)
def test_bytes_between_nodes_are_those_of_the_traffic(layout: dict[str, Any], operation: str, group: Group) -> None:
    """Counted edge by edge over the algorithm's traffic, not from the layout of ranks."""
    made = network(**layout)
    cluster, members = made.job.cluster, made.members(group)
    name = "direct" if operation == "all_to_all" else "ring"
    size, crossing = Hops(cluster, made)(group, operation)
    assert size == members.shape[1] == made.size(group)
    if size > 1:
        edges = algorithms[name].edges(operation, place(cluster, members))
        between = edges.share[edges.src // 8 != edges.dst // 8].sum()
        assert crossing == pytest.approx(between / members.size)
