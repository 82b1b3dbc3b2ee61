"""Pictures of machines: every device and every link can be seen."""

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainsim.hardware.cluster import Cluster, load_topology, topology_names
from trainsim.hardware.draw import draw
from trainsim.hardware.draw_places import MOST_GPUS, MOST_SWITCHES, Places, strokes

UP = {"from": "gpu[*]", "to": "host[*]", "pattern": "blocks", "kind": "pcie4"}


def pairs(kind: str, count: int, link: str) -> list[dict[str, Any]]:
    return [{"from": f"{kind}{a}", "to": f"{kind}{b}", "kind": link} for a in range(count) for b in range(a)]


def ring(count: int) -> list[dict[str, Any]]:
    return [{"from": f"gpu{k}", "to": f"gpu{(k + 1) % count}", "kind": "nvlink3", "lanes": 4} for k in range(count)]


OWN: dict[str, tuple[int, dict[str, int], list[dict[str, Any]], dict[str, Any]]] = {  # GPUs, devices, links, NICs
    "a ring": (8, {"host": 1}, [*ring(8), UP], {"count": 1, "attach": "host0"}),
    "a mesh, NICs on GPUs": (
        6,
        {"host": 2},
        [*pairs("gpu", 6, "nvlink3"), UP, *pairs("host", 2, "upi")],
        {"count": 6, "attach": "gpu[*]"},
    ),
    "four hosts": (
        4,
        {"host": 4, "nvme": 4},
        [UP, *pairs("host", 4, "upi"), {"from": "nvme[*]", "to": "host[*]", "pattern": "blocks", "kind": "pcie4"}],
        {"count": 1, "attach": "host2"},
    ),
    "a tree": (
        8,
        {"host": 1, "pcie": 3},
        [
            {"from": "gpu[*]", "to": "pcie[0-1]", "pattern": "blocks", "kind": "pcie4"},
            {"from": "pcie[0-1]", "to": "pcie2", "kind": "pcie4"},
            {"from": "pcie2", "to": "host0", "kind": "pcie4"},
        ],
        {"count": 2, "attach": "pcie2"},
    ),
}


def machine(name: str, folder: Path) -> Cluster:
    if name not in OWN:
        return load_topology(name)
    gpus, devices, links, nics = OWN[name]
    node = {"devices": devices, "links": links, "nics": nics | {"bandwidth": "100Gbps", "kind": "pcie4"}}
    file = folder / "own.yaml"
    file.write_text(
        yaml.safe_dump(
            {"name": name, "description": "日本", "source": "a test", "gpu": "a100-sxm4-80gb", "gpus_per_node": gpus}
            | {"node": node, "fabric": {"kind": "single_switch"}}
        )
    )
    return load_topology(str(file))


@pytest.mark.parametrize("name", [*topology_names(), *OWN])
def test_no_link_is_hidden_behind_a_box(name: str, tmp_path: Path) -> None:
    places = Places(machine(name, tmp_path).node)
    drawn = strokes(places)
    assert [(s.cable.a, s.cable.b) for s in drawn if places.hits(s)] == []
    assert len({(s.start, s.control, s.end) for s in drawn}) == len(drawn)


@pytest.mark.parametrize("name", [*topology_names(), *OWN])
def test_every_device_is_drawn_unless_the_node_is_too_large(name: str, tmp_path: Path) -> None:
    node = machine(name, tmp_path).node
    places = Places(node)
    devices = {f"{kind}{k}" for kind, count in node.devices for k in range(count)}
    hidden = {device for device in devices if device not in places.at}
    if node.count("gpu") <= MOST_GPUS and node.count("nvswitch") <= MOST_SWITCHES:
        assert all(device.startswith("nvme") for device in hidden)  # one box stands for the disks of a host
    assert len(strokes(places)) == sum(c.a in places.at and c.b in places.at for c in node.cables)


@pytest.mark.parametrize("name", [*topology_names(), *OWN])
def test_everything_lies_in_the_picture(name: str, tmp_path: Path) -> None:
    cluster = machine(name, tmp_path)
    figure = draw(cluster)
    figure.savefig(BytesIO(), format="png", dpi=50)
    axes, places = figure.axes[-1], Places(cluster.node)
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    for stroke in strokes(places):
        x, y = stroke.points().T
        assert left <= x.min()
        assert x.max() <= right
        assert bottom <= y.min()
        assert y.max() <= top


def test_a_name_without_letters_draws_no_boxes(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    draw(machine("a ring", tmp_path)).savefig(BytesIO(), format="png", dpi=50)
    assert not [warning for warning in recwarn.list if "Glyph" in str(warning.message)]
