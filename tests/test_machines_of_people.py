"""Machines that people have: shipped topologies, GPUs with links of their own, numbers of GPUs, constants by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trainsim.cli.listing import described
from trainsim.collectives.pattern import collective_time
from trainsim.documents.origin import Origin
from trainsim.errors import TrainsimError
from trainsim.hardware.cluster import load_topology, topology_names
from trainsim.hardware.collective_constants import COLLECTIVE_CONSTANTS, collective_constant_names, load_collectives
from trainsim.hardware.constants import collective_defaults
from trainsim.hardware.gpu import gpu_names, load_gpu
from trainsim.scenario.scenario import Scenario

GIB = 2**30
PLAIN: dict[str, Any] = {
    "model": {"family": "gpt", "layers": 4, "hidden": 1024, "heads": 16, "vocab": 50000},
    "cluster": {"topology": "dgx_h100"},
    "training": {"sequence_length": 1024, "global_batch": 64},
}


def plain(**cluster: Any) -> Scenario:
    return Scenario.from_dict(PLAIN).replace({f"cluster.{key}": value for key, value in cluster.items()})


def busbw(topology: object, nodes: int, nbytes: float, *, algorithm: str = "auto", **fields: Any) -> float:
    """Bus bandwidth of an all-reduce over all GPUs, GB/s, as nccl-tests counts it."""
    cluster = load_topology(topology, nodes=nodes, **fields)  # type: ignore[arg-type]
    seconds = collective_time(cluster, "all_reduce", range(cluster.ranks), nbytes, algorithm=algorithm)
    return 2 * (cluster.ranks - 1) / cluster.ranks * nbytes / seconds / 1e9


# -- links of a GPU ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["in the scenario", "in a topology", "the shipped file"])
def test_eight_h800_reduce_as_measured(way: str) -> None:
    """215 GB/s (NVIDIA/nccl issue 1374), not the 468 of an H100: their links are half as wide, and multicast stays."""
    topology, fields = {
        "in the scenario": ("dgx_h100", {"gpu": "h800-sxm5-80gb"}),
        "in a topology": ({"base": "dgx_h100", "gpu": "h800-sxm5-80gb"}, {}),
        "the shipped file": ("dgx_h800", {}),
    }[way]
    assert busbw(topology, 1, GIB, **fields) == pytest.approx(215, rel=0.06)
    assert busbw("dgx_h100", 1, GIB) > 2 * 215
    assert load_topology("dgx_h800").nvls


def test_links_written_beside_the_gpu_win() -> None:
    cluster = load_topology("dgx_h100", gpu="h800-sxm5-80gb", nvlink_bandwidth="300GB/s")
    assert cluster.nvlink_bandwidth == pytest.approx(300e9)
    inside = {"base": "dgx_h100", "gpu": "h800-sxm5-80gb", "nvlink_bandwidth": "100GB/s"}
    assert load_topology(inside).nvlink_bandwidth == pytest.approx(100e9)
    cables = [{"from": "gpu[*]", "to": "nvswitch[0-3]", "kind": "nvlink4", "lanes": 4},
              {"from": "gpu[*]", "to": "pcie[0-7]", "pattern": "blocks", "kind": "pcie5"}]  # fmt: skip
    cabled = load_topology({"base": "dgx_h100", "gpu": "h800-sxm5-80gb", "node": {"links": cables}})
    assert cabled.nvlink_bandwidth == pytest.approx(400e9)


def test_the_same_gpu_changes_no_link() -> None:
    for name in topology_names():
        usual = load_topology(name)
        assert load_topology(name, gpu=usual.gpu.name).node == usual.node, name


def test_a_part_of_a_mesh_keeps_the_links_that_are_there() -> None:
    """Two of four fully joined V100 have two links, whatever the GPU has in all."""
    two, others = (load_topology("jean_zay_v100", gpus_per_node=2, gpu=f"v100-sxm2-{gb}gb") for gb in (16, 32))
    assert two.nvlink_bandwidth == others.nvlink_bandwidth == 50e9


@pytest.mark.parametrize("gpu", [name for name in gpu_names() if not load_gpu(name).nvlink_bandwidth])
def test_a_gpu_without_nvlink_is_refused_where_gpus_are_joined_by_it(gpu: str) -> None:
    with pytest.raises(TrainsimError, match=r"cluster\.gpu.*no NVLink.*pcie_box or pcie_4gpu") as caught:
        plain(gpu=gpu).resolve()
    assert {"pcie_box", "pcie_4gpu"} <= set(topology_names())
    assert "nvlink_bandwidth: 50GB/s" in str(caught.value)
    assert load_topology("dgx_h100", gpu=gpu, nvlink_bandwidth="50GB/s").nvlink_bandwidth == pytest.approx(50e9)
    assert load_topology("dgx_h100", gpu=gpu, gpus_per_node=1).gpu.name == gpu
    assert load_topology("pcie_box", gpu=gpu).gpu.name == gpu


def test_older_gpus_do_not_use_switches_that_add_up() -> None:
    assert not load_topology("dgx_h100", gpu="a100-sxm4-80gb").nvls
    assert load_topology("dgx_a100", nvls=True, gpu="h100-sxm5-80gb").nvls


# -- how many GPUs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "topology", "nodes", "each"),
    [(32, "dgx_h100", 4, 8), (8, "dgx_h100", 1, 8), (4, "dgx_h100", 1, 4), (1, "dgx_h100", 1, 1),
     (16, "gb200_nvl72", 1, 16), (144, "gb200_nvl72", 2, 72), (6, "gh200", 6, 1)],
)  # fmt: skip
def test_gpus_in_all_are_nodes_or_a_part_of_one(gpus: int, topology: str, nodes: int, each: int) -> None:
    scenario = plain(topology=topology, gpus=gpus, nodes=None).replace({"training.global_batch": 4 * gpus})
    job = scenario.resolve()
    assert (job.cluster.nodes, job.cluster.gpus_per_node, job.parallel.dp) == (nodes, each, gpus)
    assert job.cluster == load_topology(topology, nodes=nodes, **({} if each > gpus else {"gpus_per_node": each}))
    told = scenario.resolved["derived"]
    assert ("cluster.gpus_per_node" in told) == (each == gpus and load_topology(topology).gpus_per_node > gpus)
    assert Scenario.from_dict(scenario.resolved).resolve() == job


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        ({"gpus": 20}, "20 GPUs do not fill whole nodes of 8; 16 or 24 would"),
        ({"gpus": 16, "nodes": 4}, r"16 GPUs are 2 nodes of 8, and cluster.nodes says 4.*gpus=32"),
        ({"gpus": 4, "nodes": 2}, "leave nodes out for a part of one node"),
        ({"gpus": 2, "gpus_per_node": 4}, "leave gpus_per_node out"),
        ({"gpus": 12, "gpus_per_node": 8}, "8 or 16 would"),
        ({"gpus": 0}, "gpus"),
        ({"gpus": "many"}, "whole number"),
    ],
)
def test_gpus_that_do_not_add_up_are_refused_with_the_way_out(cluster: dict[str, Any], told: str) -> None:
    with pytest.raises(TrainsimError, match=told) as caught:
        plain(**cluster).resolve()
    assert "cluster.gpus" in str(caught.value)


def test_agreeing_numbers_agree() -> None:
    assert plain(gpus=16, nodes=2).resolve() == plain(nodes=2).resolve()
    assert plain(gpus=8, gpus_per_node=4).resolve().cluster == load_topology("dgx_h100", nodes=2, gpus_per_node=4)
    assert plain(gpus=4, nodes=1).resolve().cluster.gpus_per_node == 4


# -- constants of collectives --------------------------------------------------------------------------------------

NETWORKS = ("infiniband", "roce", "efa", "efa-v1", "tcpxo", "omnipath")


def test_the_usual_constants_are_those_of_infiniband() -> None:
    named = load_collectives("infiniband")
    assert named == {key: collective_defaults()[key] for key in named}
    assert plain(collectives="infiniband", nodes=2).resolve() == plain(nodes=2).resolve()


def test_networks_say_the_same_things() -> None:
    """So that one in the place of another leaves nothing of it."""
    assert {frozenset(load_collectives(name)) for name in NETWORKS} == {frozenset(load_collectives("infiniband"))}
    assert set(collective_constant_names()) == {*NETWORKS, "pcie"}
    assert all(COLLECTIVE_CONSTANTS.find(name).data["source"] for name in collective_constant_names())


def test_a_name_a_path_a_mapping_with_a_base_and_a_few_of_them(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text("base: efa\nnetwork_hop: 30us\n")
    by_name, by_path = plain(nodes=2, collectives="efa"), plain(nodes=2, collectives=str(tmp_path / "ours.yaml"))
    in_place = plain(nodes=2, collectives={"base": "efa", "network_hop": "30us"})
    few = plain(nodes=2, collectives={"network_hop": "30us"})
    hop = {id(s): s.resolve().cluster.constants for s in (by_name, by_path, in_place, few)}
    assert hop[id(by_name)]["network_hop"] == 23e-6
    assert hop[id(by_path)] == hop[id(in_place)]
    assert hop[id(in_place)]["ring_network_step"] == 19e-6
    assert hop[id(few)]["ring_network_step"] == collective_defaults()["ring_network_step"]
    assert [hop[id(s)]["network_hop"] for s in (by_path, in_place, few)] == pytest.approx([30e-6] * 3)
    for scenario in (by_name, by_path, in_place, few):
        assert Scenario.from_dict(scenario.resolved).resolve() == scenario.resolve()
    assert by_name.replace({"cluster.collectives.network_hop": "30us"}).resolve() == in_place.resolve()


def test_a_topology_names_constants_too(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text("base: tcpxo\nsource: ours\n")
    (tmp_path / "box.yaml").write_text("base: dgx_h100\ncollectives: ./net.yaml\n")
    there = load_topology(str(tmp_path / "box.yaml"))
    assert there.constants["network_hop"] == 47e-6
    over = load_topology(str(tmp_path / "box.yaml"), collectives={"network_hop": 1e-6})
    assert (over.constants["network_hop"], over.constants["ring_network_step"]) == (1e-6, 42e-6)


@pytest.mark.parametrize(
    ("constants", "told"),
    [
        ("efaa", "Did you mean 'efa'"),
        ({"base": "efa", "network_hopp": 1}, "unknown key 'network_hopp'"),
        ({"base": "efa", "network_hop": "2GB"}, "not a time"),
        ({"network_hop": "-1us"}, "network_hop"),
        ("./nowhere.yaml", "no such file"),
    ],
)
def test_wrong_constants_are_refused_in_words(constants: object, told: str) -> None:
    with pytest.raises(TrainsimError, match=told) as caught:
        plain(collectives=constants).resolve()
    assert "cluster.collectives" in str(caught.value)


def test_a_wrong_name_in_a_topology_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "box.yaml").write_text("base: dgx_h100\nsource: ours\ncollectives: efaa\n")
    with pytest.raises(TrainsimError, match=r"box.yaml:3: collectives.*efa"):
        load_topology(str(tmp_path / "box.yaml"))
    with pytest.raises(TrainsimError, match="Did you mean"):
        load_collectives("infinibandd", origin=Origin())


# -- shipped machines ----------------------------------------------------------------------------------------------

MEASURED = {  # nccl-tests and RCCL logs: (topology, nodes, bytes, algorithm) -> GB/s of an all-reduce's bus bandwidth
    ("aws_p4de", 2, 2 * GIB, "auto"): 78.3,  # aws-samples/awsome-distributed-training
    ("aws_p5", 1, 16 * GIB, "auto"): 483.1,  # the same
    ("aws_p5en", 4, 4 * GIB, "ring"): 364.9,  # stas00/ml-engineering, network
    ("aws_p5en", 1, 8 * GIB, "auto"): 473.1,
    ("aws_p6_b200", 4, 16 * GIB, "auto"): 381.8,
    ("gcp_a3_mega", 2, 8 * GIB, "auto"): 339.0,  # lessizzmore/create-a3mega-ztan-fork
    ("azure_ndv4", 2, 8 * GIB, "auto"): 187.7,  # Azure's ML tutorial
    ("azure_ndv5", 4, 8 * GIB, "auto"): 324.5,  # NVIDIA/nccl-tests issue 309
    ("oci_a100", 2, 8 * GIB, "auto"): 189.6,  # oracle-quickstart/oci-hpc-oke
    ("mi300x_8gpu", 1, 4 * GIB, "auto"): 312.9,  # stas00/ml-engineering, network
    ("dgx_h200", 1, 16 * GIB, "auto"): 480.0,
    ("rtx4090_4gpu", 1, GIB, "auto"): 25.3,  # 4 RTX 4090 whose driver lets them read each other
    ("rtx5090_4gpu", 1, 8 * GIB, "auto"): 35.0,  # NVIDIA/nccl issue 1639
}


@pytest.mark.parametrize("case", MEASURED)
def test_large_all_reduces_take_as_long_as_measured(case: tuple[str, int, int, str]) -> None:
    topology, nodes, nbytes, algorithm = case
    assert busbw(topology, nodes, nbytes, algorithm=algorithm) == pytest.approx(MEASURED[case], rel=0.13)


@pytest.mark.parametrize(
    ("topology", "nbytes", "seconds"),
    [("aws_p4de", 512, 162.3e-6), ("aws_p5", 8, 72e-6), ("gcp_a3_mega", 8, 127e-6), ("azure_ndv4", 1024, 40.2e-6)],
)
def test_small_all_reduces_of_two_nodes_take_as_long_as_measured(topology: str, nbytes: int, seconds: float) -> None:
    cluster = load_topology(topology, nodes=2)
    assert collective_time(cluster, "all_reduce", range(16), nbytes) == pytest.approx(seconds, rel=0.26)


def test_every_machine_is_listed_with_a_line_of_its_own() -> None:
    lines = described("topologies")
    assert set(lines) == set(topology_names())
    assert len(set(lines.values())) == len(lines)
    assert all(20 < len(line) < 140 for line in lines.values())


def test_two_gpus_a_node_and_a_rack_of_grace_hopper() -> None:
    single, rack = load_topology("gh200", nodes=4), load_topology("gh200_nvl32")
    assert (single.ranks, single.nvlink_bandwidth) == (4, 0)
    assert (rack.ranks, rack.nvlink_bandwidth) == (32, 450e9)
    assert load_topology("gh200_nvl32", gpus_per_node=2).node.count("host") == 2


def test_a_job_runs_on_every_machine() -> None:
    """Two layers on two GPUs of each."""
    for name in topology_names():
        cluster = {"topology": name, "gpus": 2 if load_topology(name).gpus_per_node > 1 else 1}
        precision = "bf16" if "bf16" in load_topology(name).gpu.flops else "fp16"
        training = {"sequence_length": 512, "global_batch": 4, "precision": precision}
        document = {**PLAIN, "cluster": cluster, "training": training}
        assert Scenario.from_dict(document).run().step_time > 0, name
        assert yaml.safe_dump(document)
