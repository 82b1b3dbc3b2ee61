"""Ranks on other GPUs than those of their own numbers: half a cluster, broken nodes, several jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.jobs import same_spans, scenario, small
from trainsim.contracts.allocation import Allocation
from trainsim.contracts.groups import REPLICAS, TENSOR
from trainsim.contracts.job import Job
from trainsim.errors import InvalidPlan, ScenarioError
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario
from trainsim.simulate import simulate

DRIVES = {"optimizer": "cpu"}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "overlapped": {"sharding": {"strategy": "zero1", "overlap": True}, "framework": "megatron-core"},
    "sharded": {"sharding": {"strategy": "fsdp"}, "parallel": {"tp": 2, "pp": 1}},
    "offloaded": {"sharding": {"strategy": "zero2", "offload": DRIVES}, "parallel": {"tp": 1, "pp": 1}},
    "blocking": {"pipeline__p2p": "blocking"},
}


def placed(nodes: int, on: list[int] | None, **changes: Any) -> Job:
    """The small job on some nodes of a larger cluster."""
    cluster = {"topology": "dgx_a100", "nodes": nodes, "nodes_per_leaf": 4, **({"on_nodes": on} if on else {})}
    return small(cluster=cluster, **changes)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("on", [[2, 3], [0, 2], [3, 1]], ids=str)
def test_nodes_that_are_alike_take_equally_long(case: str, on: list[int]) -> None:
    """Moved by whole nodes, or over nodes that others have, a step is the same to the last bit."""
    alone, elsewhere = (simulate(job) for job in (placed(2, None, **CASES[case]), placed(4, on, **CASES[case])))
    assert same_spans(alone.trace, elsewhere.trace)
    assert alone.estimate == elsewhere.estimate
    said, same = (Result(simulation=s, scenario={}).to_dict() for s in (alone, elsewhere))
    assert {key for key in said if said[key] != same[key]} <= {
        "simulation",
        "links",
    }  # events and wall time of the simulation; names of links


def test_the_identity_is_the_same_as_no_allocation() -> None:
    job = small()
    named = replace(job, allocation=Allocation(tuple(range(job.parallel.ranks))))
    assert same_spans(simulate(job).trace, simulate(named).trace)


@pytest.mark.parametrize("missing", [1, 3])
def test_a_gpu_that_is_missing_costs_what_its_neighbours_cannot_do(missing: int) -> None:
    """With a GPU of the first node broken, some pairs of ranks lie in two nodes and their collectives take longer."""
    whole = placed(3, [0, 1])
    gpus = [gpu for gpu in range(24) if gpu != missing][:16]
    slow, quick = simulate(replace(whole, allocation=Allocation(tuple(gpus)))), simulate(whole)
    assert slow.trace.duration > quick.trace.duration
    network = slow.plan.parts.network
    pairs = whole.cluster.node_of(network.gpu_of(network.members(TENSOR)))
    assert (pairs[:, 0] != pairs[:, 1]).sum() == 2  # GPUs 7 and 8, 15 and 16
    assert slow.plan.parts.network.crowded_seconds(REPLICAS, "all_reduce", 1e8) > 0


def test_folding_is_exact_where_the_allocation_breaks_the_symmetry() -> None:
    job = placed(4, [0, 2])
    gpus = (0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17)
    odd = replace(job, allocation=Allocation(gpus))
    assert same_spans(simulate(odd).trace, simulate(replace(odd, fold=False)).trace)


def test_every_rank_has_a_gpu_and_every_gpu_its_rank() -> None:
    there = Allocation.of_nodes([3, 0], gpus_per_node=4)
    ranks = np.arange(8)
    assert (there.rank_of(there.gpu_of(ranks)) == ranks).all()
    assert there.gpu_of(np.array([[0], [4]])).tolist() == [[12], [0]]
    assert there.rank_of(np.array([-1, 4, 99])).tolist() == [-1, -1, -1]
    assert Allocation().rank_of(ranks) is ranks
    assert (there.ranks(16), Allocation().ranks(16)) == (8, 16)
    with pytest.raises(InvalidPlan, match="GPU 5 is twice"):
        Allocation((0, 5, 5))


def test_what_goes_wrong_goes_wrong_where_the_job_is() -> None:
    slow = {"what_if": [{"slow": {"node": 3, "factor": 1.5}}]}
    assert placed(4, [2, 3], **slow).what_if[0].ranks == tuple(range(8, 16))  # type: ignore[union-attr]
    named = {"what_if": [{"slow": {"gpu": "node2.gpu5", "factor": 1.5}}]}
    assert placed(4, [2, 3], **named).what_if[0].ranks == (5,)  # type: ignore[union-attr]
    with pytest.raises(ScenarioError, match=r"the job does not run on node 0; it has the nodes \[2, 3\]"):
        placed(4, [2, 3], what_if=[{"slow": {"node": 0, "factor": 1.5}}])
    with pytest.raises(ScenarioError, match=r"there are 16 ranks, 0 to 15"):
        placed(4, [2, 3], what_if=[{"slow": {"rank": 16, "factor": 1.5}}])


@pytest.mark.parametrize(
    ("on", "says"),
    [
        ([4], r"cluster.on_nodes = \[4\]: there is no node 4; the nodes are 0 to 3"),
        ([1, 1], r"names a node twice"),
        ([], "names no node"),
    ],
)
def test_nodes_that_are_not_there_are_refused(on: list[int], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        small(cluster={"topology": "dgx_a100", "nodes": 4, "on_nodes": on})


def test_a_placed_scenario_is_written_so_that_it_can_be_run_again() -> None:
    written = scenario(cluster={"topology": "dgx_a100", "nodes": 4, "on_nodes": [2, 3]})
    again = Scenario.from_dict({k: v for k, v in written.resolved.items() if k != "derived"})
    assert again.resolve().allocation == written.resolve().allocation == Allocation.of_nodes([2, 3], 8)
