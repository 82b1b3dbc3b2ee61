"""The reference of topology files. They are read key by key, so what is said of a key stands in a table beside this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from trainsim.hardware.constants import collective_defaults, collective_unit
from trainsim.hardware.fabric_reader import FABRIC_KEYS
from trainsim.hardware.node_reader import LINK_KEYS, NIC_KEYS, NODE_KEYS
from trainsim.hardware.storage_reader import HOST_KEYS, NVME_KEYS
from trainsim.hardware.topology import KEYS
from website.key import Key, table

READ: Mapping[str, tuple[str, ...]] = {
    "": KEYS,
    "node": NODE_KEYS,
    "node.links[]": LINK_KEYS,
    "node.nics": NIC_KEYS,
    "hosts": HOST_KEYS,
    "nvme": NVME_KEYS,
    "fabric": FABRIC_KEYS,
}
"""The keys that are read, by the path of their section."""
INTRO = """# Every key of a topology file

A topology is one YAML file, and may say what differs from another that is its `base`. [Topologies](../topologies.md)
has a whole one and explains devices, routes and fabrics; [My cluster is not listed](../my-cluster.md) writes one step
by step.
"""
CONSTANTS = """## collectives

Constants that differ from the usual ones, or `base: NAME` and those that differ from that set. `trainsim list networks`
prints the sets; where each constant comes from stands in `trainsim/hardware/network.yaml`, and
[collectives](../collectives.md) says how they are used.
"""


def page() -> str:
    """The page, as Markdown."""
    parts = [INTRO]
    for path, keys in sections():
        parts += [f"## {path or 'The file'}", table(keys, examples=True)]
    rows = [f"| `collectives.{name}` | {_unit(name)} | {value:g} |" for name, value in collective_defaults().items()]
    return "\n\n".join([*parts, CONSTANTS, "\n".join(["| key | unit | default |", "|---|---|---|", *rows])]) + "\n"


def sections() -> Iterator[tuple[str, list[Key]]]:
    """(Path, keys) of the file and of each section."""
    said = yaml.safe_load((Path(__file__).parent / "topology_keys.yaml").read_text(encoding="utf-8"))
    for path, keys in said.items():
        yield path, [_key(path, name, words) for name, words in keys.items()]


def _key(path: str, name: str, words: list[object]) -> Key:
    kind, unit, default, meaning, example = (str(word).lower() if word is True else str(word) for word in words)
    return Key(
        f"{path}.{name}" if path else name, kind, unit, default, meaning, f"`{name}: {example}`" if example else ""
    )


def _unit(name: str) -> str:
    return {"s": "s", "B/s": "bytes/s", "B": "bytes"}.get(collective_unit(name), "ratio")
