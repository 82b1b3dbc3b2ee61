"""What particular machines and fabrics must look like: published counts, the cube mesh, overrides, pictures."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest

from trainsim.errors import InvalidTopology, UnknownName
from trainsim.hardware.cluster import Cluster, load_topology, topology_names
from trainsim.hardware.constants import collective_defaults
from trainsim.hardware.draw import describe, draw


def names(cluster: Cluster, src: int, dst: int) -> list[str]:
    return [cluster.link_name(i) for i in cluster.routes(np.array([src]), np.array([dst]))[1]]


def test_a_message_over_a_switch_and_over_the_rails() -> None:
    cluster = load_topology("dgx_a100", nodes=21)
    assert names(cluster, 0, 5) == ["node0.gpu0>nvswitch", "node0.nvswitch>gpu5"]
    out = ["node0.gpu0>pcie0", "node0.pcie0>nic0", "node0.nic0>leaf0"]
    assert names(cluster, 0, 8) == [*out, "leaf0>node1.nic0", "node1.nic0>pcie0", "node1.pcie0>gpu0"]
    assert names(cluster, 0, 9)[3:5] == ["leaf0>spine", "spine>leaf1"]  # another rail
    assert names(cluster, 0, 160)[3:6] == ["leaf0>spine", "spine>leaf8", "leaf8>node20.nic0"]  # another unit


def test_bloom_s_machine_shares_a_nic_between_two_gpus() -> None:
    cluster = load_topology("jean_zay_a100", nodes=48)
    assert cluster.ranks == 384
    assert cluster.nic_of(np.arange(8)).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    nic = cluster.find_links("node3.nic0>leaf0")
    assert cluster.line_rate[nic].tolist() == [12.5e9]
    assert cluster.bandwidth[nic].tolist() == [pytest.approx(12.5e9 * 0.30)]
    assert cluster.constants["network_hop"] == 8e-6
    assert cluster.constants["ring_step"] == collective_defaults()["ring_step"]
    assert cluster.owner_of[nic].tolist() == [-1]
    assert cluster.owner_of[cluster.find_links("node3.gpu1>nvswitch")].tolist() == [25]


@pytest.mark.parametrize(
    ("name", "nodes", "leaves", "spines"),
    [("dgx_h100", 128, 32, 16), ("dgx_b200", 64, 16, 8), ("dgx_b200", 128, 32, 16), ("dgx_b200", 256, 64, 32)],
)
def test_superpods_have_the_switches_of_their_reference_architecture(
    name: str, nodes: int, leaves: int, spines: int
) -> None:
    fabric = load_topology(name, nodes=nodes).fabric
    assert (fabric.leaves, fabric.spine_count) == (leaves, spines)


def test_the_cube_mesh_of_a_dgx1() -> None:
    """`nvidia-smi topo -m` of a DGX-1V: NV1, NV2 and SYS (over PCIe)."""
    matrix = ["X1122...", "1X21.2..", "12X2..1.", "212X...1", "2...X112", ".2..1X21", "..1.12X2", "...1212X"]
    cluster = load_topology("dgx1_v100", nodes=1)
    for a, row in enumerate(matrix):
        for b, lanes in enumerate(row):
            if lanes in "12":
                (link,) = cluster.routes(np.array([a]), np.array([b]))[1].tolist()
                assert cluster.line_rate[link] == int(lanes) * 25e9
            elif lanes == ".":
                assert names(cluster, a, b)[0] == f"node0.gpu{a}>pcie{a // 2}"


def test_rings_of_the_cube_mesh_use_every_link_once() -> None:
    cluster = load_topology("dgx1_v100", nodes=2)
    rings = cluster.rings(np.arange(8, 16))
    assert sum(share for _, share in rings) == pytest.approx(1.0)
    used = np.zeros(cluster.links)
    for order, share in rings:
        assert sorted(order.tolist()) == list(range(8, 16))
        used[cluster.routes(order, np.roll(order, -1))[1]] += share
    full = used[used > 0] / cluster.line_rate[used > 0]
    assert (used > 0).sum() == 32  # 16 cables, both ways
    assert full == pytest.approx(full[0])
    assert 1 / full[0] == pytest.approx(150e9)  # all six links of a GPU together
    assert cluster.ring_order(np.arange(8)).tolist() == [0, 3, 2, 1, 5, 6, 7, 4]


@pytest.mark.parametrize("members", [[0, 1, 2, 3], [0, 3], [0, 5, 6], [4, 5, 6, 7], [7, 2, 0, 5, 1]])
def test_rings_of_a_part_of_the_mesh(members: list[int]) -> None:
    for order, share in load_topology("dgx1_v100").rings(np.array(members)):
        assert sorted(order.tolist()) == sorted(members)
        assert share > 0


MESHES = ("dgx1_v100", "jean_zay_v100", "polaris", "mi300x_8gpu", "mi325x_8gpu")


@pytest.mark.parametrize("name", [n for n in topology_names() if n not in MESHES and not n.startswith("gh200")])
def test_on_a_switch_the_order_is_as_given(name: str) -> None:
    cluster = load_topology(name)
    members = np.array([3, 1, 2])
    assert cluster.ring_order(members).tolist() == [3, 1, 2]
    assert len(cluster.rings(members)) == 1


def test_pods_are_joined_by_a_core_that_is_oversubscribed() -> None:
    cluster = load_topology("meta_h100_roce", nodes=1024)
    assert (cluster.fabric.pods, cluster.fabric.leaves) == (3, 512)
    way = names(cluster, 0, 8 * 384)
    assert way[3:7] == ["leaf0>spine", "pod0>core", "core>pod1", "spine>leaf192"]
    assert "core" not in "".join(names(cluster, 0, 8 * 383))
    up = cluster.find_links("pod0>core")[0]
    assert cluster.line_rate[up] == pytest.approx(3072 * 50e9 / 7)
    assert set(cluster.find_links("core").tolist()) == set(range(cluster.links - 6, cluster.links))
    assert cluster.graph.nodes["core"]["kind"] == "core"


def test_a_rack_is_one_domain() -> None:
    cluster = load_topology("gb200_nvl72", nodes=2)
    assert cluster.domain_of(np.array([0, 71, 72])).tolist() == [0, 0, 1]
    assert names(cluster, 3, 70) == ["node0.gpu3>nvswitch", "node0.nvswitch>gpu70"]
    assert cluster.nvls


@pytest.mark.parametrize("name", ["gb200_nvl72", "gb300_nvl72"])
@pytest.mark.parametrize("gpus", [1, 2, 4, 6, 8, 16, 64, 70, 72])
@pytest.mark.parametrize("said", [False, True])
def test_a_part_of_a_rack_has_the_boards_of_its_gpus(name: str, gpus: int, said: bool) -> None:
    """Every GPU keeps a NIC of its own; hosts and drives of boards without a GPU are not there."""
    boards = -(-gpus // 2)
    cluster = load_topology(name, nodes=2, gpus_per_node=gpus, **({"nics_per_node": gpus} if said else {}))
    assert cluster.nic_of(np.arange(gpus)).tolist() == list(range(gpus))
    counts = (cluster.node.count("host"), cluster.node.count("nvme"), cluster.node.count("nvswitch"))
    assert counts == (boards, 2 * boards, 18)
    assert cluster.nics_per_node == (gpus if said else 2 * boards)
    whole = load_topology(name, nodes=2)
    assert cluster.node.nvlink_bandwidth == whole.node.nvlink_bandwidth
    way = cluster.routes(np.array([0]), np.array([gpus]))[1]
    assert min(cluster.bandwidth[way]) == pytest.approx(0.96 * whole.fabric.nic_bandwidth)


def test_nics_of_a_gb300_are_twice_as_fast() -> None:
    fabrics = [load_topology(name).fabric for name in ("gb200_nvl72", "gb300_nvl72")]
    assert [fabric.nic_bandwidth for fabric in fabrics] == [50e9, 100e9]


def test_what_if_overrides() -> None:
    base = load_topology("dgx_a100", nodes=4)
    assert base.gpus == base.ranks == 32
    few = load_topology("dgx_a100", nodes=4, overrides={"gpus_per_node": 4})
    assert (few.ranks, few.node.count("nic"), few.node.count("gpu")) == (16, 8, 4)
    one = load_topology("dgx_a100", nodes=1, overrides={"gpus_per_node": 1})
    assert one.routes(np.array([0]), np.array([0]))[1].size == 0
    shared = load_topology("dgx_a100", nodes=4, overrides={"nics_per_node": 4, "nic_bandwidth": "400Gbps"})
    assert shared.nic_of(np.arange(8)).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert shared.line_rate[shared.find_links("node0.nic0>leaf0")].tolist() == [50e9]
    bonded = load_topology("dgx_a100", nodes=4, overrides={"nics_per_node": 16})
    assert bonded.line_rate[bonded.find_links("node0.nic0>leaf0")].tolist() == [50e9]
    thin = load_topology("dgx_a100", nodes=4, overrides={"oversubscription": 4})
    ratio = thin.line_rate[thin.find_links("leaf0>spine")] * 4 / base.line_rate[base.find_links("leaf0>spine")]
    assert ratio.tolist() == [1.0]
    assert load_topology("dgx_a100", overrides={"gpu": "h100-sxm5-80gb"}).gpu.name == "h100-sxm5-80gb"
    flat = load_topology("dgx_a100", nodes=4, overrides={"fabric": "single_switch"})
    assert flat.fabric.leaves == 1
    own = load_topology("dgx_a100", nodes=4, overrides={"collectives": {"ramp": "20us"}})
    assert own.constants["ramp"] == pytest.approx(20e-6)


def test_names_that_nobody_has() -> None:
    cluster = load_topology("dgx_a100", nodes=4)
    for name in ("node4", "node0.nic8", "node0.gpu0>gpu1", "leaf99", "spine9", "node0.nvswitch0", "", "x>y"):
        with pytest.raises(UnknownName, match="link or device"):
            cluster.find_links(name)
    with pytest.raises(UnknownName, match=r"Did you mean 'node0\.nic7'"):
        cluster.find_links("node0.nic8")
    with pytest.raises(IndexError):
        cluster.link_name(cluster.links)
    with pytest.raises(InvalidTopology, match="has no rank 32"):
        cluster.routes(np.array([0]), np.array([32]))
    assert len(cluster.find_links("leaf0")) == 2 * 4 + 2


@pytest.mark.parametrize("name", topology_names())
def test_descriptions_say_what_is_there(name: str) -> None:
    cluster = load_topology(name, nodes=3)
    text = "\n".join(describe(cluster))
    for word in (cluster.gpu.name, cluster.fabric.kind, f"{cluster.ranks} GPUs", "Source:", "each way"):
        assert word in text
    assert max(map(len, text.splitlines())) < 140


@pytest.mark.parametrize("name", topology_names())
def test_pictures_name_the_devices_and_no_labels_overlap(name: str) -> None:
    cluster = load_topology(name, nodes=1 if name.startswith("dgx") else 40)
    figure = draw(cluster)
    figure.savefig(BytesIO(), format="png", dpi=50)
    texts = [t for axes in figure.axes for t in axes.texts if t.get_text() != "..."]
    shown = {t.get_text() for t in texts}
    assert {"gpu0", f"gpu{cluster.gpus_per_node - 1}", "host0", "nic0", "leaf0", "node0"} <= shown
    boxes = [t.get_window_extent().shrunk(0.98, 0.9) for t in texts]
    for i, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[i + 1 :]), texts[i].get_text()


def test_a_machine_without_a_network_can_be_drawn() -> None:
    cluster = load_topology("pcie_box", overrides={"fabric": "none"})
    assert not cluster.has_network
    assert len(draw(cluster).axes) == 1
    assert "Network: none" in "\n".join(describe(cluster))
    assert cluster.nic_of(np.array([0])).tolist() == [-1]
