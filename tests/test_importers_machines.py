"""Machines and networks from files of other tools: what they become, what is refused, and the way back."""

from __future__ import annotations

import json
import time
from functools import cache
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import trainsim as ts
from tests.importing import CASES, mutations, survives
from tests.test_cli import status
from trainsim.errors import ScenarioError, TrainsimError
from trainsim.hardware.cluster import Cluster, load_topology, topology_names
from trainsim.hardware.graph_files import WRITERS, graph_text
from trainsim.importers.imported import Imported
from trainsim.importers.importing import import_config, import_sources
from trainsim.importers.source import Source
from trainsim.importers.topology.chosen import ring_rate
from trainsim.importers.topology.hostlists import hosts
from trainsim.importers.topology.likeness import differences
from trainsim.importers.topology.safe_xml import read_xml
from trainsim.units import parse_bandwidth

MACHINES = ("nccl-topology", "nccl-graph", "nvidia-smi", "rocm-smi", "slurm", "ibnetdiscover", "graphml", "node-link")
FILES = [path for name in MACHINES for path in sorted((CASES / name).glob("*/*")) if path.name != "expected.yaml"]
DUMP = CASES / "nccl-topology" / "a100_dump" / "topo.xml"
GIVEN = CASES / "nccl-topology" / "given_file" / "topo.xml"
CUBE = CASES / "nvidia-smi" / "v100_cube" / "topo.txt"
CONF = CASES / "slurm" / "two_levels" / "topology.conf"
RAILS = CASES / "ibnetdiscover" / "rails" / "ib.txt"


def read(text: str, name: str, changes: dict[str, object] | None = None, kind: str = "") -> Imported:
    return import_sources([Source(shown=name, text=text)], changes, kind=kind)


def cables(cluster: Cluster) -> set[tuple[frozenset[str], str, float, float, float]]:
    return {(frozenset((c.a, c.b)), c.kind, c.bandwidth, c.reachable, c.latency) for c in cluster.node.cables}


# what files become


def test_a_dump_of_nccl_is_the_machine_that_ships() -> None:
    cluster = import_config(DUMP).cluster
    assert differences(cluster, load_topology("dgx_a100")) == []
    assert cluster.links_per_node == load_topology("dgx_a100").links_per_node - 3 * 8  # less the drives
    assert cluster.nics_per_node == 8
    assert sum("slower" in remark.words for remark in import_config(DUMP).warnings) == 1


@pytest.mark.parametrize(("gpu", "name"), [("a100-sxm4-40gb", "azure_ndv4"), ("h100-sxm5-80gb", "azure_ndv5")])
def test_a_file_that_nccl_is_given_becomes_the_board_of_its_gpu_and_says_so(gpu: str, name: str) -> None:
    rate = load_topology(name).fabric.nic_bandwidth
    imported = import_config(GIVEN, {"cluster.gpu": gpu, "cluster.nic_bandwidth": rate})
    assert differences(imported.cluster, load_topology(name)) == []
    assert any("the file names none" in remark.words for remark in imported.defaults)
    assert imported.cluster.nvls == load_topology(name).nvls


def test_a_gpu_of_no_known_board_gets_no_nvlink_and_that_is_told() -> None:
    imported = import_config(GIVEN, {"cluster.gpu": "l40s", "cluster.nic_bandwidth": "200Gbps"})
    assert imported.cluster.nvlink_bandwidth == 0
    assert any(remark.key == "NVLinks" and remark.words.startswith("none") for remark in imported.defaults)


def test_gpus_are_in_the_order_of_cuda_not_of_the_file() -> None:
    nic = import_config(DUMP).cluster.routed.nic
    pairs = {frozenset(np.flatnonzero(nic // 2 == k).tolist()) for k in range(4)}
    assert pairs == {frozenset({0, 1}), frozenset({2, 3}), frozenset({4, 5}), frozenset({6, 7})}


def test_a_matrix_of_a_cube_mesh_has_the_links_and_rings_of_the_dgx1_that_ships() -> None:
    changes = {"cluster.gpu": "v100-sxm2-32gb", "cluster.nic_bandwidth": "100Gbps"}
    here, there = import_config(CUBE, changes).cluster, load_topology("dgx1_v100")
    nvlinks = [{c for c in cables(one) if c[1] == "nvlink2"} for one in (here, there)]
    assert nvlinks[0] == nvlinks[1]
    assert differences(here, there) == []
    assert ring_rate(here) == pytest.approx(ring_rate(there))


def test_the_generation_of_links_is_that_of_the_gpu() -> None:
    text = (CASES / "nvidia-smi" / "h100_nics" / "topo.txt").read_text()
    for gpu, rate in (("h100-sxm5-80gb", 450e9), ("b200-sxm", 900e9)):
        cluster = read(text, "topo.txt", {"cluster.gpu": gpu, "cluster.nic_bandwidth": "400Gbps"}).cluster
        assert cluster.nvlink_bandwidth == pytest.approx(rate)


def test_what_nccl_chose_is_held_against_the_rings_found_here() -> None:
    folder = CASES / "nccl-graph" / "mesh_and_rings"
    told = {remark.key: remark.words for remark in import_config([folder / "topo.xml", folder / "graph.xml"]).compared}
    assert told["rings"].startswith("2 different rings there, 3 here, 2 of them the same")
    assert told["NICs"].startswith("the same NIC for all")
    assert told["rates"].startswith("60 GB/s")


def test_a_graph_of_nccl_alone_describes_no_machine() -> None:
    imported = import_config(CASES / "nccl-graph" / "mesh_and_rings" / "graph.xml")
    assert not imported.scenario
    assert imported.compared == ()


def test_rails_oversubscription_and_ports_of_an_infiniband_network() -> None:
    fabric = import_config(RAILS, {"cluster.topology.base": "dgx_h100"}).cluster.fabric
    assert (fabric.kind, fabric.nodes, fabric.nodes_per_leaf, fabric.oversubscription) == ("rail_optimised", 8, 4, 2.0)


def test_a_cable_that_stands_twice_counts_once() -> None:
    once = "\n".join(line for line in RAILS.read_text().splitlines() if not line.startswith("[1](") or "S-" not in line)
    both = [read(text, "ib.txt").scenario["cluster"]["topology"]["fabric"] for text in (once, RAILS.read_text())]
    assert both[0] == both[1]


def test_a_node_and_a_network_combine() -> None:
    changes = {"cluster.gpu": "h100-sxm5-80gb"}
    imported = import_config([GIVEN, RAILS], changes)
    assert imported.missing == {}
    assert imported.cluster.nodes == 8
    assert imported.cluster.fabric.nic_bandwidth == parse_bandwidth("400Gbps")
    assert any(remark.key == "NICs" and "2 of 400 Gb/s" in remark.words for remark in imported.compared)


def test_slurms_leaves_under_a_machine_that_ships() -> None:
    imported = import_config(CONF, {"cluster.topology.base": "dgx_h100", "cluster.oversubscription": 2})
    fabric = imported.cluster.fabric
    assert (fabric.kind, fabric.nodes, fabric.leaves, fabric.oversubscription) == ("fat_tree", 44, 3, 2.0)
    assert not any("rates" in remark.words for remark in imported.defaults)


@pytest.mark.parametrize(
    ("sizes", "expected", "told"),
    [
        ((8, 8, 8), 8, ""),
        ((8, 4, 8), 8, "2 of 8, 1 of 4"),
        ((8, 7, 6, 6), 8, "1 of 8, 1 of 7, 2 of 6"),
        ((60, 2, 2, 2), None, "1 of 60, 3 of 2"),
    ],
)
def test_leaves_of_unequal_size_are_told(sizes: tuple[int, ...], expected: int | None, told: str) -> None:
    text = (
        "\n".join(f"SwitchName=s{k} Nodes=n{k}x[1-{size}]" for k, size in enumerate(sizes))
        + "\nSwitchName=t Switches=s[0-9]\n"
    )
    imported = read(text, "topology.conf", {"cluster.topology.base": "dgx_a100"})
    words = " ".join(remark.words for remark in (*imported.warnings, *imported.defaults))
    assert told in words
    if expected is None:
        assert "cluster.nodes_per_leaf" in imported.missing
        again = read(text, "topology.conf", {"cluster.topology.base": "dgx_a100", "cluster.nodes_per_leaf": 20})
        assert again.cluster.fabric.nodes_per_leaf == 20
    else:
        assert imported.cluster.fabric.nodes_per_leaf == expected


# what is refused


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.xml", '<!DOCTYPE a [<!ENTITY b "bb">]><system version="1">&b;</system>', r"x.xml:1: a document type"),
        ("x.xml", '<!DOCTYPE system SYSTEM "file:///etc/passwd"><system/>', "a document type"),
        ("x.xml", "<system>&bomb;</system>", "not valid XML: undefined entity"),
        ("x.xml", "<system>" + "<pci>" * 100 + "</pci>" * 100 + "</system>", "too many or too deeply nested"),
        ("x.xml", "<system><cpu></system>", "x.xml:1: not valid XML: mismatched tag"),
        ("x.xml", "<system version='1'/>", "has no <cpu>"),
        ("x.xml", "<system><cpu numaid='0'><pci busid='1'/></cpu></system>", "PCI devices without class"),
        ("x.xml", "<graphs/>", "no <graph> in a <graphs>"),
        ("x.txt", "\tGPU0\tGPU1\nGPU0\t X \tNV1\n", "no row for GPU1; the matrix was cut"),
        ("x.txt", "\tGPU0\tGPU1\nGPU0\t X \tNODENODE\nGPU1\tNODE\t X \n", "is the file complete"),
        ("x.txt", "\tGPU0\tGPU1\nGPU0\t X \tNV1\nGPU1\tNV2\t X \n", "GPU0 says NV1 of GPU1, which says NV2"),
        ("x.txt", "\tGPU0\tGPU1\nGPU0\t X \tFOO\nGPU1\tFOO\t X\n", "x.txt:2: 'FOO' in the row .*X, NV#, PIX"),
        ("x.txt", "\tGPU0\nGPU0\t X \n\tGPU0\nGPU0\t X \n", "a second matrix"),
        ("topology.conf", "SwitchName=a Nodes=n[3-1]\n", "topology.conf:1: .*counts down"),
        ("topology.conf", "SwitchName=a Nodes=n[1-99999999]\n", "more than 1048576 hosts"),
        ("topology.conf", "SwitchName=a Switches=b\n", "no switch has Nodes="),
        ("topology.conf", "SwitchName=a Switches=b\nSwitchName=b Switches=a\nSwitchName=c Nodes=n", "themselves: a, b"),
        ("ib.txt", 'Switch 1 "S-1"\n[1] "H-2"[1] # "a mlx5_0" lid 1\n', "ib.txt:2: a port without its rate"),
        ("g.json", '{"nodes": [{"id": "a", "kind": "tpu"}], "edges": []}', "its kind is 'tpu'; it is one of gpu"),
        ("g.json", '{"nodes": [{"id": "gpu0"}], "edges": [{"source": "gpu0", "target": "x"}]}', "not a node of"),
        ("g.graphml", "<graphml><graph/><graph/></graphml>", "holds 2 graphs"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_the_reason(name: str, text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        read(text, name)


def test_nodes_of_a_graph_that_differ_are_refused_with_where() -> None:
    graph = json.loads((CASES / "node-link" / "own_network" / "cluster.json").read_text())
    graph["links"][0]["lanes"] = 6
    with pytest.raises(ScenarioError, match=r"node 1 differs from node 0: see gpu0"):
        read(json.dumps(graph), "g.json")


def test_large_and_deep_files_are_read_or_refused_soon() -> None:
    switches = (
        "\n".join(f"SwitchName=s{k} Switches=s{k + 1} " for k in range(20_000)) + "\nSwitchName=s20000 Nodes=n[1-9]"
    )
    chain = read(switches, "topology.conf", {"cluster.topology.base": "dgx_a100"})
    assert chain.scenario["cluster"]["topology"]["nodes"] == 9
    start = time.process_time()
    with pytest.raises(ScenarioError, match="above themselves"):
        read(switches.replace("Nodes=n[1-9]", "Switches=s0") + "\nSwitchName=z Nodes=a", "topology.conf")
    with pytest.raises(ScenarioError, match="too many or too deeply"):
        read_xml("<a>" + "<b/>" * 200_000 + "</a>", file="x.xml")
    assert time.process_time() - start < 5.0


# property tests


@given(st.sampled_from(FILES), st.integers(0, 10**9))
@settings(deadline=None, max_examples=120)
def test_damaged_files_are_read_or_refused_in_words(path: Path, seed: int) -> None:
    for text in mutations(path.read_text(), 1, seed):
        assert survives(Source(shown=path.name, text=text), text, [])


@given(st.text(alphabet="abn[]-,0123456789", max_size=24))
@settings(deadline=None)
def test_lists_of_hosts_are_expanded_or_refused_in_words(text: str) -> None:
    try:
        names = hosts(text)
    except ScenarioError:
        return
    assert names
    assert all(set("[],") & set(name) == set() for name in names)


@cache
def machine(name: str) -> Cluster:
    return load_topology(name, nodes=2 if load_topology(name).has_network and "nvl" not in name else None)


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("name", topology_names())
def test_a_graph_read_back_is_the_same_machine(name: str, suffix: str) -> None:
    before = machine(name)
    after = read(graph_text(before, suffix), f"x{suffix}").cluster
    assert cables(after) == cables(before)
    for field in ("name", "description", "source", "gpu", "nodes", "fabric", "nvls", "constants", "reserved_memory"):
        assert getattr(after, field) == getattr(before, field), field
    assert (after.node.host, after.node.drive) == (before.node.host, before.node.drive)
    assert dict(after.node.complexes) == dict(before.node.complexes)
    assert after.routed.nic.tolist() == before.routed.nic.tolist()
    ranks = range(before.gpus_per_node)
    if before.gpus_per_node > 1:
        times = [ts.collective_time(one, "all_reduce", ranks=ranks, nbytes="64MiB") for one in (before, after)]
        assert times[0] == times[1]


def test_networkx_reads_what_is_written(tmp_path: Path) -> None:
    cluster = load_topology("dgx_h100", nodes=2)
    (tmp_path / "x.graphml").write_text(graph_text(cluster, ".graphml"))
    graph = nx.read_graphml(tmp_path / "x.graphml")
    assert set(graph.nodes) == set(cluster.graph.nodes)
    assert graph.edges["node0.gpu0", "node0.nvswitch0"]["bandwidth"] == 125e9
    again = nx.node_link_graph(json.loads(graph_text(cluster, ".json")), edges="edges")
    assert set(again.edges) == set(cluster.graph.edges)


def test_leaves_of_a_graph_without_attributes_are_found() -> None:
    data = json.loads(graph_text(load_topology("dgx_a100", nodes=40), ".json"))
    data["graph"] = {"gpu": "a100-sxm4-80gb"}
    fabric = read(json.dumps(data), "x.json").cluster.fabric
    assert (fabric.kind, fabric.nodes, fabric.nodes_per_leaf) == ("rail_optimised", 40, 20)
    assert fabric.oversubscription == pytest.approx(1.0)


# whole commands


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "topo.xml").write_text(DUMP.read_text())
    (tmp_path / "ib.txt").write_text(RAILS.read_text())
    (tmp_path / "config.json").write_text(json.dumps({
        "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
        "num_attention_heads": 4, "vocab_size": 1000}))  # fmt: skip
    return tmp_path


def test_import_writes_a_topology_that_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("import", "topo.xml", "-o", "my_node.yaml") == 0
    out, _ = capsys.readouterr()
    assert "Topology" in out
    assert "like it in all that is compared" in " ".join(out.split())
    assert yaml.safe_load((folder / "my_node.yaml").read_text())["gpus_per_node"] == 8
    cluster = ts.topology("my_node.yaml", nodes=2)
    assert cluster.ranks == 16
    assert cables(cluster) == cables(import_config("topo.xml").cluster)
    command = ("run", "config.json", "--set", "cluster.topology=my_node.yaml", "--set", "cluster.gpus=8", "--no-files")
    assert status(*command) == 0
    assert status("run", "config.json", "--set", "cluster.topology=topo.xml", "--set", "cluster.gpus=8") == 2
    assert "`trainsim import topo.xml -o node.yaml` converts it to a topology" in capsys.readouterr().err


def test_a_gpu_may_come_with_the_scenario_where_the_topology_has_none(folder: Path) -> None:
    topology = yaml.safe_load((import_config("topo.xml")).to_yaml())
    gpu = topology.pop("gpu", "a100-sxm4-80gb")
    rate = topology["node"]["nics"].pop("bandwidth")
    (folder / "node.yaml").write_text(yaml.safe_dump(topology))
    given = {"cluster.topology": "node.yaml", "cluster.gpu": gpu, "cluster.nic_bandwidth": rate, "cluster.nodes": 2}
    base = ts.Scenario.from_dict({"model": "gpt2-xl", "cluster": {"topology": "dgx_a100"}})
    assert base.replace(given).resolve().cluster.gpu.name == gpu
    with pytest.raises(ScenarioError, match="gpu: 'gpu' is missing"):
        base.replace({"cluster.topology": "node.yaml", "cluster.nic_bandwidth": rate}).resolve()


def test_a_job_and_a_machine_run_together(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("run", "config.json", "topo.xml", "ib.txt", "--set", "cluster.nodes=2", "--no-files") == 0
    assert "contradicted: ib.txt: NICs: 2 of 400 Gb/s on each node there, 8 of 200" in capsys.readouterr().err
    assert status("run", "config.json", "topo.xml", "--no-files") == 0
    assert "assumed: cluster.topology.fabric.kind = single_switch" in capsys.readouterr().err


def test_a_machine_alone_is_no_job(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("run", "topo.xml") != 0
    assert "a machine and no job" in capsys.readouterr().err


def test_a_file_of_another_tool_is_a_topology_by_its_path(folder: Path) -> None:
    assert ts.topology("topo.xml", nodes=2, nic_bandwidth="100Gbps").fabric.nic_bandwidth == 12.5e9
    assert ts.topology(folder / "topo.xml", gpus_per_node=4).ranks == 4
    with pytest.raises(TrainsimError, match=r"cluster.topology.base"):
        ts.topology("ib.txt")


@pytest.mark.parametrize("name", ["x.graphml", "x.json"])
def test_show_writes_a_graph_that_import_reads(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("show", "topology", "dgx1_v100", "--nodes", "2", "--out", name) == 0
    assert f"Written: {name}" in capsys.readouterr().out
    assert status("import", name, "-o", "again.yaml", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["missing"] == {}
    assert told["compared"]
    assert cables(ts.topology("again.yaml")) == cables(load_topology("dgx1_v100"))


def test_a_graph_too_large_for_a_file_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("show", "topology", "dgx_h100", "--nodes", "100000", "--out", "x.json") != 0
    assert "use fewer (--nodes)" in capsys.readouterr().err
    assert not (folder / "x.json").exists()
