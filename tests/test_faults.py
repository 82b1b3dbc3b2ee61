"""A network that is not whole, and hashes that are not perfect: ways, loads, and what jobs make of them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.agreement import assert_same
from trainsim.collectives import Edges, algorithms, factor
from trainsim.collectives.pattern import collective_time, pattern
from trainsim.collectives.place import place
from trainsim.collectives.traffic import loads
from trainsim.engine import run
from trainsim.errors import InvalidPlan, InvalidTopology, ScenarioError
from trainsim.fold import fold, prune, unfolded
from trainsim.hardware import faults
from trainsim.hardware.cluster import Cluster, load_topology
from trainsim.hardware.ecmp import fullest
from trainsim.program.lower import lower
from trainsim.scenario.scenario import Scenario

RELAXED = {"deadline": None, "suppress_health_check": list(HealthCheck)}
SMALL = {"layers": 4, "hidden": 512, "heads": 8, "vocab": 1000}


def machine(**changes: Any) -> Cluster:
    """Four nodes of eight GPUs and eight NICs, two to a leaf."""
    return load_topology("dgx_h100", **{"nodes": 4, "fabric": "fat_tree", "nodes_per_leaf": 2, **changes})


def scenario(what_if: list[dict[str, Any]], **cluster: Any) -> Scenario:
    machine = {"topology": "dgx_h100", "nodes": 4, "fabric": "fat_tree", "nodes_per_leaf": 2, **cluster}
    return Scenario.from_dict(
        {
            "model": SMALL,
            "cluster": machine,
            "parallel": {"tp": 2, "pp": 2},
            "training": {"global_batch": 32, "sequence_length": 256},
            "what_if": what_if,
        }
    )


@st.composite
def broken(draw: st.DrawFn) -> Cluster:
    """A small machine with some of its network out of service, on which everybody still reaches everybody."""
    kind, routing = draw(st.sampled_from(["fat_tree", "rail_optimised"])), draw(st.sampled_from(["adaptive", "ecmp"]))
    pods = draw(st.sampled_from([{}, {"nodes_per_pod": 4, "pod_oversubscription": 2.0}]))
    hashed = {"routing_seed": draw(st.integers(0, 9)), "flows_per_pair": draw(st.integers(1, 3))}
    cluster = machine(
        nodes=8,
        fabric=kind,
        oversubscription=draw(st.sampled_from([1.0, 2.0])),
        routing=routing,
        **pods,
        **(hashed if routing == "ecmp" else {}),
    )
    for _ in range(draw(st.integers(0, 2))):
        cluster = faults.without_nic(cluster, f"node{draw(st.integers(0, 7))}.nic{draw(st.integers(0, 7))}")
    if cluster.fabric.uplinks_per_leaf > 2:
        cluster = faults.without_uplinks(cluster, f"leaf{draw(st.integers(0, 3))}", draw(st.integers(0, 1)))
    if cluster.fabric.rails > 1 and draw(st.booleans()):
        cluster = faults.without_rail(cluster, draw(st.integers(0, 7)))
    return cluster


def every_pair(cluster: Cluster) -> tuple[np.ndarray, np.ndarray]:
    src, dst = np.divmod(np.arange(cluster.ranks**2), cluster.ranks)
    return src[src != dst], dst[src != dst]


def ends(cluster: Cluster, link: int) -> tuple[str, str]:
    src, dst = cluster.link_name(link).split(">")
    node = src.partition(".")[0]
    return src, f"{node}.{dst}" if node.startswith("node") and not dst.startswith("leaf") else dst


@settings(max_examples=25, **RELAXED)
@given(broken(), st.data())
def test_ways_join_up_and_take_nothing_that_is_out_of_service(cluster: Cluster, data: st.DataObject) -> None:
    rank = st.integers(0, cluster.ranks - 1)
    a, b = data.draw(rank), data.draw(rank)
    flow = data.draw(st.integers(0, cluster.flows_per_pair - 1))
    way = [ends(cluster, link) for link in cluster.routes(np.array([a]), np.array([b]), flow)[1].tolist()]
    failed = {f"node{node}.nic{nic}" for node, nic in cluster.failed_nics}
    assert not failed & {end for link in way for end in link}
    for (_, before), (after, _) in pairwise(way):
        stem = before.split(".port")[0].rstrip("0123456789")
        assert before.split(".port")[0] == after.split(".port")[0] or stem in ("spine", "core", "pod"), way
    if a != b:
        gpus = [f"node{r // 8}.gpu{r % 8}" for r in (a, b)]
        assert [way[0][0], way[-1][1]] == gpus


@settings(max_examples=25, **RELAXED)
@given(broken())
def test_bytes_are_conserved_on_the_links(cluster: Cluster) -> None:
    """What ranks send leaves through NICs, and what goes up from leaves comes down, whatever the ways."""
    src, dst = every_pair(cluster)
    share = np.random.default_rng(0).random(len(src))
    _, link, load = loads(cluster, Edges(np.zeros(len(src), np.int64), src, dst, share))
    on = dict(zip(map(cluster.link_name, link.tolist()), load.tolist(), strict=True))
    far = cluster.crosses_network(src, dst)
    out = sum(x for name, x in on.items() if name.startswith("node") and ">leaf" in name)
    into = sum(x for name, x in on.items() if name.startswith("leaf") and ">node" in name)
    assert out == pytest.approx(share[far].sum()) == pytest.approx(into)
    up, down = (sum(x for name, x in on.items() if which(name)) for which in (is_up, is_down))
    leaves = cluster.fabric.leaf_of(
        *(np.array(x) for x in zip(*map(nic_at(cluster), range(cluster.ranks)), strict=True))
    )
    crossing = leaves[src[far]] != leaves[dst[far]]
    assert up == pytest.approx(share[far][crossing].sum()) == pytest.approx(down)


def is_up(name: str) -> bool:
    return name.startswith("leaf") and ">spine" in name


def is_down(name: str) -> bool:
    return name.startswith("spine")


def nic_at(cluster: Cluster) -> Any:
    return lambda rank: (rank // 8, int(cluster.nic_of(np.array([rank]))[0]))


@settings(max_examples=25, **RELAXED)
@given(broken(), st.sampled_from(["all_reduce", "all_gather", "all_to_all", "broadcast"]), st.data())
def test_no_link_is_above_its_capacity_and_faster_links_never_hurt(
    cluster: Cluster, operation: str, data: st.DataObject
) -> None:
    size = data.draw(st.integers(2, 12))
    ranks = data.draw(st.lists(st.integers(0, 63), min_size=size, max_size=size, unique=True))
    alone = pattern(cluster, operation, np.array([ranks]))
    assert alone.use_amount.max(initial=0.0) <= 1 + 1e-12
    rates = cluster.bandwidth.copy()
    chosen = data.draw(st.integers(0, len(rates) - 1))
    rates[chosen] *= 1.5
    for algorithm in algorithms:
        fits = algorithms[algorithm].fits
        if operation in algorithms[algorithm].operations and (
            fits is None or fits(place(cluster, np.array([ranks]))).all()
        ):
            kw = {"algorithm": algorithm}
            now = pattern(cluster, operation, np.array([ranks]), **kw)
            faster = pattern(cluster, operation, np.array([ranks]), bandwidth=rates, **kw)
            assert faster.seconds(0, 1e8)[0] <= now.seconds(0, 1e8)[0] * (1 + 1e-12)


@settings(max_examples=15, **RELAXED)
@given(st.integers(0, 7), st.integers(0, 3), st.sampled_from([1.0, 2.0]))
def test_one_more_uplink_that_fails_is_never_faster(count: int, leaf: int, oversubscription: float) -> None:
    cluster = machine(nodes=8, oversubscription=oversubscription)
    seconds = []
    for k in range(count):
        some = faults.without_uplinks(cluster, f"leaf{leaf}", k)
        seconds.append(collective_time(some, "all_to_all", range(64), 1e9))
        share = (
            some.bandwidth[some.find_links(f"leaf{leaf}>spine")]
            / cluster.bandwidth[some.find_links(f"leaf{leaf}>spine")]
        )
        assert share == pytest.approx(1 - k / cluster.fabric.uplinks_per_leaf)
    assert seconds == sorted(seconds)


def test_nothing_that_fails_is_the_same_machine() -> None:
    cluster = machine()
    assert faults.without_uplinks(cluster, "leaf0", 0) is cluster
    broken = faults.without_rail(machine(fabric="rail_optimised"), 3)
    assert faults.whole(broken) == machine(fabric="rail_optimised")
    assert not faults.is_whole(broken)


def test_a_gpu_without_its_nic_takes_the_next_one_over_the_gpu_that_has_it() -> None:
    cluster = faults.without_nic(machine(), "node1.nic7")
    assert cluster.nic_of(np.arange(8, 16)).tolist() == [0, 1, 2, 3, 4, 5, 6, 4]  # the next one of its socket
    names = [cluster.link_name(i) for i in cluster.routes(np.array([15]), np.array([0]))[1].tolist()]
    assert names[:4] == ["node1.gpu7>nvswitch", "node1.nvswitch>gpu4", "node1.gpu4>pcie4", "node1.pcie4>nic4"]
    assert faults.rerouted(cluster) == ("node1 without nic7: gpu7 uses nic4 over NVLink and gpu4, shared with gpu4",)
    neighbour = faults.without_nic(load_topology("dgx_a100", nodes=2), "node0.nic0")
    names = [neighbour.link_name(i) for i in neighbour.routes(np.array([0]), np.array([8]))[1].tolist()]
    assert names[:2] == ["node0.gpu0>pcie0", "node0.pcie0>nic1"]  # on the same switch: no GPU is needed


def test_a_failed_rail_is_half_of_the_rate_where_two_gpus_have_one_nic() -> None:
    cluster = machine(fabric="rail_optimised", nodes_per_leaf=4)
    whole = pattern(cluster, "all_gather", np.arange(32), algorithm="ring").bandwidth[0]
    left = pattern(faults.without_rail(cluster, 3), "all_gather", np.arange(32), algorithm="ring").bandwidth[0]
    nic = cluster.bandwidth[cluster.find_links("node0.nic4>leaf4")[0]]
    assert left == pytest.approx(4 * nic)  # a rail has an eighth of the bytes, and one NIC has two rails
    assert whole > left


def test_a_failed_spine_takes_its_part_of_every_leaf() -> None:
    cluster = machine(nodes=8)  # 4 leaves of 16 uplinks, 2 spines
    assert cluster.fabric.spine_count == 2
    left = faults.without_spine(cluster, "spine1")
    ratio = left.bandwidth / cluster.bandwidth
    above = left.nodes * left.links_per_node
    assert (ratio[:above] == 1).all()
    assert ratio[above:] == pytest.approx(0.5)
    with pytest.raises(InvalidTopology, match="it is unclear which leaves"):
        faults.without_spine(machine(nodes=64, fabric="rail_optimised", oversubscription=2.0), "spine0")


def test_who_is_cut_off_is_refused_by_name() -> None:
    with pytest.raises(InvalidPlan, match=r"what_if\.0\.fail: 2 nodes \(0, 1\) cannot reach the others"):
        scenario([{"fail": {"leaf": "leaf0"}}]).resolve()
    with pytest.raises(InvalidPlan, match=r"2 nodes \(2, 3\) cannot reach the others: leaf1 has no uplink left"):
        scenario([{"fail": {"uplink": "leaf1", "count": 16}}]).resolve()
    scenario([{"fail": {"leaf": "leaf0"}}], on_nodes=[2, 3]).resolve()  # nobody is there
    for wrong in ({"leaf": "leaf7"}, {"rail": 0}, {"spine": "spine9"}, {"uplink": "leaf0", "count": 17}):
        with pytest.raises(ScenarioError, match=r"what_if\.0\.fail"):
            scenario([{"fail": wrong}]).resolve()


@pytest.mark.parametrize(("flows", "uplinks"), [(1, 4), (8, 8), (8, 4), (3, 16)])
def test_collisions_are_those_of_balls_in_bins(flows: int, uplinks: int) -> None:
    """The mean over seeds of the fullest uplink is the closed form, within four standard errors."""
    fullest_of = []
    for seed in range(300):
        cluster = machine(nodes=2, nodes_per_leaf=1, oversubscription=8 / uplinks, routing="ecmp", routing_seed=seed)
        src = np.arange(flows)
        _, link = cluster.routes(src, src + 8)
        up = link[[is_up(cluster.link_name(i)) for i in link.tolist()]]
        fullest_of.append(int(np.bincount(up).max()))
    error = np.std(fullest_of) / len(fullest_of) ** 0.5
    assert np.mean(fullest_of) == pytest.approx(fullest(flows, uplinks), abs=4 * error + 1e-9)


def test_the_fullest_uplink_in_closed_form_is_that_of_all_ways_to_hash() -> None:
    for flows, uplinks in ((3, 2), (4, 3), (5, 2)):
        ways = np.stack(np.unravel_index(np.arange(uplinks**flows), [uplinks] * flows), axis=1)
        mean = np.mean([np.bincount(way).max() for way in ways])
        assert fullest(flows, uplinks) == pytest.approx(mean)


def test_one_seed_is_one_network_and_more_flows_collide_less() -> None:
    def rates(seed: int, flows: int) -> float:
        cluster = machine(nodes=4, nodes_per_leaf=1, routing="ecmp", routing_seed=seed, flows_per_pair=flows)
        return float(pattern(cluster, "all_gather", np.arange(32)).bandwidth[0])

    assert rates(3, 1) == rates(3, 1)
    one, many = ([rates(seed, flows) for seed in range(30)] for flows in (1, 16))
    even = pattern(machine(nodes=4, nodes_per_leaf=1), "all_gather", np.arange(32)).bandwidth[0]
    assert len(set(one)) > 1
    assert np.mean(one) < np.mean(many) < even * (1 + 1e-12)


@settings(max_examples=8, **RELAXED)
@given(
    st.sampled_from(
        [[], [{"nic": "node1.nic2"}], [{"uplink": "leaf0", "count": 3}], [{"nic": "node0.nic1"}, {"nic": "node3.nic1"}]]
    ),
    st.sampled_from([{}, {"routing": "ecmp", "routing_seed": 2}, {"routing": "ecmp", "flows_per_pair": 4}]),
    st.sampled_from([1.0, 4.0]),
)
def test_folded_is_unfolded_on_a_broken_network(
    failing: list[dict[str, Any]], routing: dict[str, Any], oversubscription: float
) -> None:
    job = scenario([{"fail": one} for one in failing], oversubscription=oversubscription, **routing).resolve()
    system = lower(job).system
    assert_same(run(fold(prune(system))), run(unfolded(system), merge=False))


def test_a_broken_network_is_slower_and_the_result_says_what_was_rerouted() -> None:
    large = {"model": {**SMALL, "hidden": 4096, "vocab": 64000}}
    before, after = (scenario(what).replace(large).run() for what in ([], [{"fail": {"nic": "node1.nic2"}}]))
    assert after.step_time > before.step_time
    nothing = scenario([{"fail": {"uplink": "leaf0", "count": 0}}]).replace(large)
    assert nothing.run().step_time == before.step_time
    assert "gpu2 uses nic3 over NVLink and gpu3" in after.scenario["derived"]["what_if.rerouted.0"]


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "all_to_all", "shift"])
def test_many_flows_of_a_pair_carry_what_one_does(operation: str) -> None:
    cluster = machine(routing="ecmp", flows_per_pair=5)
    placed = place(cluster, np.arange(32))
    for name in algorithms:
        if operation in algorithms[name].operations and name != "nvls":
            edges = algorithms[name].edges(operation, placed)
            _, link, load = loads(cluster, edges)
            sent = edges.share[cluster.crosses_network(edges.src, edges.dst)].sum()
            nics = [cluster.link_name(i).startswith("node") and ">leaf" in cluster.link_name(i) for i in link.tolist()]
            assert load[nics].sum() == pytest.approx(sent)
            assert factor(operation, 32) > 0


def test_the_result_tells_who_suffers_and_the_step_on_the_whole_network() -> None:
    large = {"model": {**SMALL, "hidden": 4096, "vocab": 64000}}
    before = scenario([]).replace(large).run()
    result = scenario([{"fail": {"nic": "node1.nic2"}}]).replace(large).run()
    assert before.network_faults is None
    found = result.network_faults
    assert found is not None
    assert found.before_s == before.step_time
    assert found.step_time_s == result.step_time
    worst = found.slowed[0]
    assert worst.slowdown > 1
    assert [one.slowdown for one in found.slowed] == sorted((one.slowdown for one in found.slowed), reverse=True)
    assert {10, 11} & set(worst.ranks)  # those of node 1 that share a NIC now
    assert result.to_dict()["network_faults"]["rerouted"] == list(found.rerouted)
    late = scenario([{"flap": {"link": "node0", "from": 0.0, "until": 1.0}}]).run().network_faults
    assert late is not None
    assert late.before_s < 1.0 < late.step_time_s
    assert not late.slowed  # while it is there it is as fast as ever


def test_what_changes_nothing_is_told() -> None:
    idle: list[dict[str, Any]] = [
        {"fail": {"uplink": "leaf0", "count": 0}},
        {"slow": {"nic": "node0.nic0", "factor": 1.0}},
        {"delay": {"rank": 0, "seconds": 0}},
        {"flap": {"link": "leaf0", "from": 500, "until": 501}},
    ]
    quiet, run = scenario([]).run(), scenario(idle, background={"load": 0}).run()
    assert run.step_time == quiet.step_time
    derived = {key: words for key, words in run.scenario["derived"].items() if "without effect" in words}
    told = {"what_if.0.fail.count", "what_if.1.slow.factor", "what_if.2.delay.seconds", "cluster.background.load"}
    assert told <= set(derived)
    (late,) = set(run.warnings) - set(quiet.warnings)
    assert late.startswith("what_if: leaf0 flaps from 500 s on, after the end of the run")
    early: list[dict[str, Any]] = [{"flap": {"link": "leaf0", "from": 0, "until": 1, "factor": 0.5}}]
    assert not any("flaps" in words for words in scenario(early).run().warnings)


@pytest.mark.parametrize(("nodes", "told"), [(1, True), (2, False)])
def test_switches_that_add_are_idle_with_one_node(nodes: int, told: bool) -> None:
    resolved = scenario([], sharp=True, on_nodes=nodes).replace({"training.global_batch": 8}).resolved
    assert ("cluster.sharp" in resolved["derived"]) is told
