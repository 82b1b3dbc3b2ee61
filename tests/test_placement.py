"""Where a job runs: rules that choose nodes, host lists, holes; times, bounds and folding go with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs import SMALL, same_spans, scenario
from trainsim.contracts.allocation import Allocation
from trainsim.errors import ScenarioError, TrainsimError
from trainsim.hardware.cluster import load_topology
from trainsim.hardware.host_list import host_lines, listed_gpus
from trainsim.hardware.placements import leaves_of, placements
from trainsim.program.least_time import least_seconds
from trainsim.program.parts import work_out
from trainsim.scenario.placement import placed_nodes
from trainsim.scenario.scenario import Scenario
from trainsim.simulate import simulate

FABRIC = {"topology": "dgx_a100", "nodes": 6, "fabric": "fat_tree", "nodes_per_leaf": 2, "oversubscription": 8}


def on(**cluster: Any) -> Scenario:
    """The small job, two nodes of it on three leaves."""
    return scenario(cluster={**FABRIC, **cluster})


def nodes_of(placed: Scenario) -> tuple[int, ...]:
    job = placed.resolve()
    return placed_nodes(job.allocation, job.cluster)


@pytest.mark.parametrize(
    ("cluster", "nodes"),
    [
        ({"on_nodes": 2}, (0, 1)),
        ({"on_nodes": 2, "placement": "packed"}, (0, 1)),
        ({"on_nodes": 2, "placement": "spread"}, (0, 2)),
        ({"on_nodes": 4, "placement": "spread"}, (0, 2, 4, 1)),
        ({"on_nodes": 2, "not_on_nodes": [0, 2, 3]}, (1, 4)),
        ({"on_nodes": 3, "not_on_nodes": [0, 2, 3], "placement": "spread"}, (1, 4, 5)),
        ({"not_on_nodes": [0, 5]}, (1, 2, 3, 4)),
        ({"placement": "spread"}, (0, 2, 4, 1, 3, 5)),
        ({"placement": ["node3", "node1"]}, (3, 1)),
        ({"on_nodes": [3, 1]}, (3, 1)),
    ],
    ids=str,
)
def test_which_nodes_a_job_gets(cluster: dict[str, Any], nodes: tuple[int, ...]) -> None:
    assert nodes_of(on(**cluster).replace({"training.global_batch": 48})) == nodes


def test_what_is_drawn_is_drawn_again_from_its_seed() -> None:
    drawn = {seed: nodes_of(on(on_nodes=4, placement={"random": seed})) for seed in range(8)}
    assert drawn == {seed: nodes_of(on(on_nodes=4, placement={"random": seed})) for seed in range(8)}
    assert len(set(drawn.values())) > 4
    assert nodes_of(on(on_nodes=4, placement="random")) == drawn[0]


@pytest.mark.parametrize("name", sorted(placements))
@given(st.sets(st.integers(0, 23), min_size=1), st.integers(1, 6), st.integers(0, 9))
def test_every_placement_gives_out_all_free_nodes_once(name: str, nodes: set[int], per_leaf: int, seed: int) -> None:
    free = np.array(sorted(nodes), np.int64)
    given_out = placements[name](free, free // per_leaf, seed)
    assert sorted(given_out.tolist()) == free.tolist()


@given(st.integers(1, 24), st.integers(1, 6), st.integers(1, 24))
def test_spread_fills_leaves_evenly_and_packed_fills_as_few_as_can_be(nodes: int, per_leaf: int, wanted: int) -> None:
    free = np.arange(nodes)
    leaves = free // per_leaf
    some = min(wanted, nodes)
    used = {name: np.bincount(placements[name](free, leaves, 0)[:some] // per_leaf) for name in ("spread", "packed")}
    size = np.bincount(leaves)
    left = size[: len(used["spread"])] > used["spread"]  # a leaf may be short of nodes, never of a turn
    assert not left.any() or used["spread"].max() - used["spread"][left].min() <= 1
    assert np.count_nonzero(used["packed"]) == -(-some // per_leaf)


def test_rails_of_neighbouring_nodes_are_one_set_of_leaves() -> None:
    cluster = load_topology("dgx_h100", nodes=4, fabric="rail_optimised", nodes_per_leaf=2)
    assert leaves_of(cluster.fabric, np.arange(4)).tolist() == [0, 0, 1, 1]


# -- host lists ------------------------------------------------------------------------------------------------------


def test_a_host_list_places_ranks_one_by_one(tmp_path: Path) -> None:
    lines = [f"node{node}.gpu{gpu}" for gpu in (1, 0, 5, 4) for node in (4, 1)]
    (tmp_path / "ranks.txt").write_text("# placed by hand\n" + "\n".join(lines) + "\n\n")
    (tmp_path / "job.yaml").write_text(on(placement="ranks.txt").to_yaml())
    from_file = Scenario.load(tmp_path / "job.yaml")
    assert from_file.resolve().allocation == Allocation((33, 9, 32, 8, 37, 13, 36, 12))
    assert on(placement=lines).resolve().allocation == from_file.resolve().allocation
    again = Scenario.from_dict({k: v for k, v in from_file.resolved.items() if k != "derived"})
    assert again.resolve().allocation == from_file.resolve().allocation
    before = hash(from_file)
    (tmp_path / "ranks.txt").write_text("node0\n")
    assert hash(Scenario.load(tmp_path / "job.yaml")) != before  # a study must not take the one for the other
    assert nodes_of(Scenario.load(tmp_path / "job.yaml")) == (0,)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("node0\n# a\n\nnode1\nhost7 # no\n", "line 5: 'host7' is not a place"),
        ("node0\n\nnode99\n", "line 3: there is no node99"),
        ("node0\n#\nnode0.gpu3\n", "line 3: names node0.gpu3 twice"),
    ],
)
def test_a_wrong_line_of_a_host_list_is_told_by_its_number(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "ranks.txt").write_text(text)
    (tmp_path / "job.yaml").write_text(on(placement="ranks.txt").to_yaml())
    with pytest.raises(ScenarioError, match=says):
        Scenario.load(tmp_path / "job.yaml").resolve()


def test_lines_of_a_host_list_may_be_nodes_or_gpus() -> None:
    cluster = load_topology("dgx_a100", nodes=3)
    assert listed_gpus(cluster, host_lines("node2\nnode0.gpu7 # the last\n")) == (*range(16, 24), 7)


# -- times, folding and bounds ---------------------------------------------------------------------------------------


def test_a_spread_job_pays_for_the_uplinks() -> None:
    """Two nodes of a leaf meet below it; on two leaves their gradients share uplinks of an eighth of the NICs."""
    both = [on(on_nodes=2, placement=p).replace({"parallel.tp": 8, "parallel.pp": 1}) for p in ("packed", "spread")]
    packed, spread = (simulate(placed.resolve()) for placed in both)
    assert spread.trace.duration > packed.trace.duration
    assert spread.estimate.seconds > packed.estimate.seconds


RULES = st.one_of(st.sampled_from(["packed", "spread"]), st.builds(lambda seed: {"random": seed}, st.integers(0, 1000)))
LAYOUTS: list[dict[str, Any]] = [
    {"parallel": {"tp": 2, "pp": 4}},
    {"parallel": {"tp": 4, "pp": 2}, "sharding": {"strategy": "zero1", "overlap": True}},
    {"parallel": {"tp": 2, "pp": 1}, "sharding": {"strategy": "fsdp"}},
]


@settings(max_examples=12, deadline=None)
@given(RULES, st.sampled_from(LAYOUTS), st.sets(st.integers(0, 5), max_size=3))
def test_folding_is_exact_and_bounds_hold_wherever_a_job_is(rule: Any, layout: dict[str, Any], busy: set[int]) -> None:
    placed = on(on_nodes=2, placement=rule, not_on_nodes=sorted(busy)).replace(layout)
    job = placed.resolve()
    folded = simulate(job)
    unfolded = simulate(placed.replace({"simulation.fold": False}).resolve())
    assert same_spans(folded.trace, unfolded.trace)
    assert 0 < least_seconds(work_out(job)) <= folded.trace.duration
    assert folded.estimate.seconds > 0


@settings(max_examples=8, deadline=None)
@given(st.permutations(range(48)))
def test_folding_is_exact_for_ranks_in_any_order(order: list[int]) -> None:
    placed = on(placement=[f"node{gpu // 8}.gpu{gpu % 8}" for gpu in order[:8]]).replace({"training.global_batch": 4})
    folded, unfolded = (simulate(placed.replace({"simulation.fold": fold}).resolve()) for fold in (True, False))
    assert same_spans(folded.trace, unfolded.trace)
    assert least_seconds(work_out(placed.resolve())) <= folded.trace.duration


# -- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster", "says"),
    [
        ({"on_nodes": 7}, "cluster.on_nodes = 7: the cluster has 6 nodes; ask for 1 to 6"),
        ({"on_nodes": 3, "not_on_nodes": [0, 1, 2, 4]}, "2 of 6 nodes are free; ask for 1 to 2"),
        ({"on_nodes": [1, 2], "not_on_nodes": [2]}, "node 2 is among cluster.not_on_nodes; take another one"),
        ({"not_on_nodes": [0, 1, 2, 3, 4, 5]}, "none of 6 nodes is free"),
        ({"not_on_nodes": [9]}, "there is no node 9; the nodes are 0 to 5"),
        ({"on_nodes": 2, "placement": "spred"}, "Did you mean 'spread'.*Or it is the path of a host list"),
        ({"on_nodes": 2, "placement": {"packed": 3}}, "packed is not random, so it takes no seed"),
        ({"on_nodes": 2, "placement": {"random": -1}}, "must be at least 0"),
        ({"on_nodes": 2, "placement": {"randon": 1}}, "Did you mean 'random'"),
        ({"on_nodes": 2, "placement": {}}, "expected one rule and its seed"),
        ({"on_nodes": 2, "placement": 7}, "expected packed, spread, random"),
        ({"on_nodes": [1, 2], "placement": "spread"}, "already lists the nodes"),
        ({"on_nodes": 2, "placement": ["node1"]}, "leave cluster.on_nodes out"),
        ({"placement": ["node1", "node1.gpu3"]}, "names node1.gpu3 twice; a GPU runs one rank"),
        ({"placement": ["node6"]}, "there is no node6; the nodes are node0 to node5"),
        ({"placement": ["node1.gpu8"]}, "there is no node1.gpu8; a node has the GPUs 0 to 7"),
        ({"placement": ["host1"]}, "'host1' is not a place; a line is node3"),
        ({"placement": []}, "names no node"),
        ({"placement": ["node1"], "not_on_nodes": [1]}, "node 1 is among cluster.not_on_nodes"),
        ({"on_node": 2}, "did you mean 'on_nodes'"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_is_refused_in_words(cluster: dict[str, Any], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        on(**cluster).resolve()


def test_a_host_list_of_too_few_gpus_is_told(tmp_path: Path) -> None:
    lines = [f"node0.gpu{gpu}" for gpu in range(7)]
    with pytest.raises(TrainsimError, match=r"tp 2 x pp 4 = 8 does not divide the GPUs \(the host list has 7\)"):
        on(placement=lines).resolve()
    (tmp_path / "noise").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match=r"host list .*: cannot be read"):
        on(placement=str(tmp_path / "noise")).resolve()
    with pytest.raises(ScenarioError, match=r"host list .*: cannot be read"):
        on(placement=str(tmp_path)).resolve()


def test_the_small_job_is_where_it_was() -> None:
    assert Scenario.from_dict(SMALL).resolve().allocation == Allocation()
