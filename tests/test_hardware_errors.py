"""Bad topology files and overrides: one clear message each, with the place and the way out."""

# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from trainsim.errors import InvalidTopology, TrainsimError, UnknownName
from trainsim.hardware.cluster import load_topology
from trainsim.hardware.constants import collective_defaults
from trainsim.hardware.topology import OVERRIDES, parse_topology

GOOD = """\
gpu: a100-sxm4-80gb
gpus_per_node: 4
source: a test
node:
  devices: {nvswitch: 1, pcie: 2, host: 1}
  links:
    - {from: "gpu[*]", to: nvswitch0, kind: nvlink3, lanes: 12}
    - {from: "gpu[*]", to: "pcie[0-1]", pattern: blocks, kind: pcie4}
    - {from: "pcie[*]", to: host0, kind: pcie4}
  nics: {count: 2, bandwidth: 100Gbps, attach: "pcie[*]", kind: pcie4}
fabric: {kind: fat_tree, nodes_per_leaf: 2}
"""

keys = st.sampled_from(["gpu", "node", "links", "from", "to", "devices", "fabric", "kind", "nics"])
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
anything = st.recursive(
    scalars, lambda x: st.lists(x, max_size=3) | st.dictionaries(keys, x, max_size=4), max_leaves=10
)

MISTAKES = {
    "empty": ("", "", "file is empty"),
    "only a comment": ("", "# nothing\n", "file is empty"),
    "a list": ("", "- gpu: a100\n", "t.yaml:1: holds a list, where a mapping"),
    "not yaml": ("", "gpu: [1, 2\n", "t.yaml:2: not valid YAML"),
    "an alias of itself": ("source: a test", "source: &a [*a]", "contains itself"),
    "a key twice": ("gpus_per_node: 4", "gpu: l40s", "t.yaml:2: gpu is already given in line 1"),
    "unknown key": ("gpus_per_node: 4", "gpus_per_nod: 4", "t.yaml:2: gpus_per_nod: unknown key 'gpus_per_nod'. Did you mean 'gpus_per_node'?"),
    "missing gpus": ("gpus_per_node: 4\n", "", "gpus_per_node: 'gpus_per_node' is missing"),
    "missing gpu": ("gpu: a100-sxm4-80gb\n", "", "gpu: 'gpu' is missing"),
    "missing source": ("source: a test\n", "", "'source' is missing"),
    "boards": ("node:\n", "node:\n  boards: 3\n", "node.boards: 4 gpus do not divide over 3 equal boards"),
    "no gpus": ("gpus_per_node: 4", "gpus_per_node: 0", "t.yaml:2: gpus_per_node: 0 is out of range"),
    "a list for a mapping": ("devices: {nvswitch: 1, pcie: 2, host: 1}", "devices: [nvswitch]", "t.yaml:5: node.devices: expected a mapping"),
    "a mapping for a list": ("links:\n", "links: {}\n  x:\n", "node.x: unknown key"),
    "unknown device": ("to: nvswitch0", "to: nvswich0", "t.yaml:7: node.links.0.to: nvswich0: No kind of device is called 'nvswich'. Did you mean 'nvswitch'?"),
    "device that is not there": ("to: nvswitch0", "to: nvswitch3", "there is no nvswitch3: node.devices.nvswitch gives nvswitch0"),
    "gpu that is not there": ('"gpu[*]", to: nvswitch0', '"gpu[0-7]", to: nvswitch0', "there is no gpu4: gpus_per_node gives gpu[0-3]"),
    "range backwards": ('"gpu[*]", to: nvswitch0', '"gpu[3-0]", to: nvswitch0', "'gpu[3-0]' counts down; write gpu[0-3]"),
    "no range": ('"gpu[*]", to: nvswitch0', '"gpu[a]", to: nvswitch0', "'a' is not a number or a range of numbers"),
    "cyclic link": ('"gpu[*]", to: nvswitch0', '"gpu0", to: gpu0', "node.links.0.to: cyclic link: gpu0 is linked to itself"),
    "duplicate link": ('"pcie[*]", to: host0', '"gpu[*]", to: "pcie[0-1]", pattern: blocks', "node.links.2.from: duplicate link: gpu0 and pcie0 are already linked by links[1]"),
    "duplicate, other way": ('"pcie[*]", to: host0', '"pcie0", to: gpu0', "duplicate link: pcie0 and gpu0"),
    "unequal blocks": ('"pcie[0-1]", pattern: blocks', '"pcie[0-1]", pattern: blokcs', "Did you mean 'blocks'?"),
    "nothing linked": ("gpus_per_node: 4", "gpus_per_node: 4\nnodes: 0", "t.yaml:3: nodes: 0 is out of range; it must be from 1"),
    "unknown link kind": ("kind: nvlink3", "kind: nvlink33", "Did you mean 'nvlink3'?"),
    "negative bandwidth": ("kind: nvlink3", "kind: nvlink3, bandwidth: -5GB/s", "t.yaml:7: node.links.0.bandwidth"),
    "no bandwidth": ("kind: nvlink3", "kind: nvlink3, bandwidth: 0", "0 is out of range"),
    "absurd bandwidth": ("kind: nvlink3", "kind: nvlink3, bandwidth: 1EB/s", "1EB/s is out of range"),
    "a unit that is none": ("100Gbps", "25 parsecs", "t.yaml:10: node.nics.bandwidth: '25 parsecs' is not a bandwidth"),
    "a bandwidth that is none": ("100Gbps", "[1, 2]", "[1, 2] is not a quantity"),
    "a reachable part above one": ("nodes_per_leaf: 2", "nodes_per_leaf: 2, reachable: 1.5", "1.5 is out of range"),
    "nics that do not share": ("count: 2", "count: 6", "6 NICs cannot be shared evenly by 4 GPUs"),
    "unknown fabric": ("fat_tree", "fat_treee", "Did you mean 'fat_tree'?"),
    "fabric without leaves": (", nodes_per_leaf: 2", "", "'nodes_per_leaf' is missing"),
    "fabric key that does not apply": ("kind: fat_tree", "kind: single_switch", "'nodes_per_leaf' does not apply to fabric 'single_switch'"),
    "fabric without nics": ("  nics: {", "  #", "a fat_tree fabric needs NICs"),
    "unknown constant": ("fabric:", "collectives: {ringstep: 1us}\nfabric:", "Did you mean 'ring_step'?"),
    "constant with a wrong unit": ("fabric:", "collectives: {ring_step: 3GB}\nfabric:", "'3GB' is not a time"),
    "constant that is not a number": ("fabric:", "collectives: {nvls_rate: fast}\nfabric:", "'fast' is not a number"),
    "flag that is none": ("fabric:", "nvls: maybe\nfabric:", "expected true or false, found 'maybe'"),
    "unknown complex member": ("  links:", '  complexes: {board: "nvswitch[0-3]"}\n  links:', "there is no nvswitch1"),
    "complex of two kinds": ("  links:", '  complexes: {board: "nvswitch0", other: "nvswitch0"}\n  links:', "each in one complex only"),
    "layout of nobody": ("  links:", "  layout: {gpu9: [0, 0]}\n  links:", "unknown key 'gpu9'"),
    "layout that is none": ("  links:", "  layout: {gpu0: 3}\n  links:", "expected a place [x, y], found 3"),
}  # fmt: skip


def test_the_good_file_is_good() -> None:
    assert parse_topology(GOOD).node.count("gpu") == 4


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_have_a_place_and_a_way_out(mistake: str) -> None:
    old, new, message = MISTAKES[mistake]
    assert old in GOOD
    with pytest.raises(InvalidTopology) as raised:
        parse_topology(GOOD.replace(old, new, 1) if old else new, file="t.yaml")
    assert str(raised.value).startswith("t.yaml")
    assert message in str(raised.value)
    assert len(str(raised.value)) < 700


def test_a_gpu_that_nothing_reaches_is_named() -> None:
    text = GOOD.replace('"gpu[*]", to: nvswitch0', '"gpu[0-2]", to: nvswitch0')
    text = text.replace('"gpu[*]", to: "pcie[0-1]", pattern: blocks', '"gpu[0-2]", to: "pcie0"')
    with pytest.raises(InvalidTopology, match="gpu3 has no path to gpu0"):
        parse_topology(text)


def test_two_islands_are_named() -> None:
    text = GOOD.replace('"gpu[*]", to: nvswitch0', '"gpu[0-1]", to: nvswitch0').replace(
        '    - {from: "pcie[*]", to: host0, kind: pcie4}\n', ""
    )
    with pytest.raises(InvalidTopology, match="gpu2 has no path to gpu0"):
        parse_topology(text)


def test_a_gpu_without_a_way_to_a_nic_is_named() -> None:
    text = GOOD.replace('"gpu[*]", to: "pcie[0-1]", pattern: blocks', '"gpu[0-2]", to: "pcie0"')
    with pytest.raises(InvalidTopology, match="gpu3 has no path to any NIC"):
        parse_topology(text)


def test_nodes_without_a_network_cannot_be_two() -> None:
    with pytest.raises(InvalidTopology, match="2 nodes need a network"):
        parse_topology(GOOD.replace("fabric:", "#"), nodes=2)


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        ({"gpus_per_nod": 4}, UnknownName, "Did you mean 'gpus_per_node'?"),
        ({"gpus_per_node": 16}, InvalidTopology, "override gpus_per_node: 16 GPUs do not fit: a node of this topology has 8"),
        ({"gpus_per_node": "many"}, InvalidTopology, "override gpus_per_node: 'many' is not a whole number"),
        ({"nic_bandwidth": "25 parsecs"}, InvalidTopology, "override nic_bandwidth: '25 parsecs'"),
        ({"nics_per_node": 12}, InvalidTopology, "override nics_per_node: 12 NICs cannot be shared evenly"),
        ({"oversubscription": 0}, InvalidTopology, "override oversubscription: 0 is out of range"),
        ({"gpu": "a100"}, InvalidTopology, "override gpu: No GPU is called 'a100'"),
        ({"fabric": "hypercube"}, InvalidTopology, "override fabric: No fabric is called 'hypercube'"),
        ({"collectives": {"ramp": "25 parsecs"}}, InvalidTopology, "override collectives"),
        ({"fabric": "single_switch", "oversubscription": 2}, InvalidTopology, "'oversubscription' does not apply"),
        ({"nodes": -1}, InvalidTopology, "override nodes: -1 is out of range"),
    ],
)  # fmt: skip
def test_overrides_are_checked(overrides: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        load_topology("dgx_a100", overrides=overrides)
    assert message in str(raised.value)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'dgx_a100'"):
        load_topology("dgx_a10")
    with pytest.raises(InvalidTopology, match=r"mine\.yaml: no such file"):
        load_topology(tmp_path / "mine.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidTopology, match="cannot be read"):
        load_topology(tmp_path / "binary.yaml")


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(GOOD)
    cluster = load_topology(str(tmp_path / "mine.yaml"), nodes=5)
    assert (cluster.name, cluster.ranks, cluster.fabric.leaves) == ("mine", 20, 3)


def test_the_example_of_the_documentation_works() -> None:
    page = (Path(__file__).parents[1] / "docs" / "topologies.md").read_text()
    example = page.split("```yaml\n")[1].split("```")[0]
    assert parse_topology(example).name == "my_box"
    for name in collective_defaults():
        assert f"`{name}`" in page
    for name in OVERRIDES:
        assert name in page


@given(anything)
@settings(deadline=None, max_examples=100)
def test_any_yaml_gives_a_message_and_no_traceback(value: object) -> None:
    with pytest.raises(TrainsimError):
        parse_topology(yaml.safe_dump({"gpu": "l40s", "gpus_per_node": 2, "source": "x", "node": value, "nodes": 2}))


@given(st.text(max_size=60))
@settings(deadline=None, max_examples=150)
def test_any_text_gives_a_message_and_no_traceback(text: str) -> None:
    with pytest.raises(TrainsimError):
        parse_topology(text)
