"""
The ``node:`` section of a topology file: devices, cables in short form, NICs.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations, product
from typing import Any

from trainsim.documents.part import DocumentPart
from trainsim.errors import TrainsimError, UnknownName
from trainsim.hardware.constants import limits, link_kinds
from trainsim.hardware.node import FORWARDING, KINDS, Cable, Node, kind_of
from trainsim.hardware.ranges import expand, shorten, stem
from trainsim.units import parse_bandwidth, parse_time

NODE_KEYS = ("boards", "devices", "complexes", "links", "nics", "layout")
COUNTED = tuple(kind for kind in KINDS if kind not in ("gpu", "nic"))
LINK_KEYS = ("from", "to", "kind", "pattern", "lanes", "bandwidth", "reachable", "latency")
NIC_KEYS = ("count", "bandwidth", "attach", "kind", "lanes", "ports")
MOST_GPUS = 1024
ON_BOARDS = ("gpu", "pcie", "host", "nvme")
"""What stands on the boards of a node; NVSwitches stand elsewhere."""


def read_node(top: DocumentPart, *, written: Any = None) -> Node:
    """The node template of the topology *top*.

    *written* is the file's own ``gpus_per_node`` where a scenario overrides it: the node then has fewer GPUs in the
    same places, and of a node of boards only those that they need.
    """
    section = top.section("node", NODE_KEYS)
    gpus = top.integer("gpus_per_node", high=MOST_GPUS)
    template_gpus = written if isinstance(written, int) else gpus
    if gpus > template_gpus:
        raise top.fail("gpus_per_node", f"{gpus} GPUs do not fit: a node of this topology has {template_gpus} places")
    counts = {"gpu": template_gpus} | _counts(section)
    there = _present(section, counts, gpus)
    cables: dict[frozenset[str], tuple[Cable, int]] = {}
    links = section.data.get("links", [])
    if not isinstance(links, list):
        raise section.fail("links", f"expected a list of links, found a {type(links).__name__}")
    for i, link in enumerate(links):
        place = DocumentPart.open(section.document, (*section.path, "links", i), link, LINK_KEYS)
        for cable in _cables(place, counts):
            _add(cables, cable, place, i)
    kept = [cable for cable, _ in cables.values()]
    absent = frozenset(f"{kind}{i}" for kind, number in counts.items() for i in range(there[kind], number))
    nics, nic_bandwidth, nic_cables = _nics(section, counts, absent)
    there |= {"gpu": gpus, "nic": nics}
    absent |= {f"gpu{i}" for i in range(gpus, template_gpus)}
    node = Node(
        devices=tuple((kind, number) for kind, number in there.items() if number),
        cables=tuple(c for c in kept + nic_cables if c.a not in absent and c.b not in absent),
        complexes=_complexes(section, counts, absent),
        nic_bandwidth=nic_bandwidth,
        layout=_layout(section, there),
    )
    _check_connected(section, node)
    return node


def _counts(section: DocumentPart) -> dict[str, int]:
    devices = section.section("devices", COUNTED)
    return {kind: devices.integer(kind, 0, low=0, high=4096) for kind in COUNTED}


def _present(section: DocumentPart, counts: dict[str, int], gpus: int) -> dict[str, int]:
    """How many of each kind there are on the boards that *gpus* need, GPUs as places; without boards, all."""
    boards = section.integer("boards", 1, high=MOST_GPUS)
    for kind in ON_BOARDS:
        if counts[kind] % boards:
            raise section.fail("boards", f"{counts[kind]} {kind}s do not divide over {boards} equal boards")
    needed = -(-gpus * boards // counts["gpu"])
    return {kind: number * needed // boards if kind in ON_BOARDS else number for kind, number in counts.items()}


def _devices(section: DocumentPart, key: str, counts: dict[str, int]) -> tuple[str, ...]:
    """The devices that the range under *key* names; all of them must exist."""
    text = section.text(key)
    try:
        names = expand(text, count=counts.get(stem(text)))
    except TrainsimError as error:
        raise section.fail(key, str(error)) from None
    for name in names:
        kind = kind_of(name)
        if kind not in counts:
            raise section.fail(key, f"{name}: {UnknownName('kind of device', kind, counts)}")
        number = name.removeprefix(kind)
        if not number or int(number) >= counts[kind]:
            where = "gpus_per_node" if kind == "gpu" else f"node.devices.{kind}"
            have = shorten([f"{kind}{i}" for i in range(counts[kind])]) if counts[kind] else f"no {kind}"
            raise section.fail(key, f"there is no {name or text}: {where} gives {have}")
    return names


def _cables(section: DocumentPart, counts: dict[str, int]) -> list[Cable]:
    """The cables that one entry of ``links`` stands for."""
    a, b = _devices(section, "from", counts), _devices(section, "to", counts)
    pattern = section.text("pattern", "all")
    if pattern == "all":
        mesh = len(a) > 1 and set(a) == set(b)
        pairs = list(combinations(a, 2) if mesh else product(a, b))
    elif pattern == "blocks":
        few, many = sorted((a, b), key=len)
        if len(many) % len(few):
            raise section.fail(
                "pattern",
                f"{len(many)} devices do not make {len(few)} equal blocks; use pattern: all or fix the ranges",
            )
        size = len(many) // len(few)
        pairs = [(x, few[i // size]) if many is a else (few[i // size], x) for i, x in enumerate(many)]
    else:
        raise section.fail("pattern", str(UnknownName("pattern", pattern, ("all", "blocks"))))
    kind, bandwidth, reachable, latency = _physics(section)
    family = link_kinds()[kind].family
    return [Cable(x, y, kind, family, bandwidth, reachable, latency) for x, y in pairs]


def _physics(section: DocumentPart) -> tuple[str, float, float, float]:
    """(kind, line rate, reachable part, latency) of the link that *section* describes.

    In ``nics``, ``bandwidth`` is that towards the network and not of this link.
    """
    kinds = link_kinds()
    name = section.text("kind")
    if name not in kinds:
        family = any(known.rstrip("0123456789") == name for known in kinds)
        import_it = f" Which {name} it is follows from the GPU: import the file with --set cluster.gpu=NAME."
        raise section.fail("kind", f"{UnknownName('kind of link', name, kinds)}{import_it if family else ''}")
    kind = kinds[name]
    lanes = section.integer("lanes", kind.lanes, high=1024)
    low, high = limits("bandwidth")
    bandwidth = kind.lane * lanes
    if "bandwidth" in section.data and section.path[-1] != "nics":
        bandwidth = section.quantity("bandwidth", parse_bandwidth, low=low, high=high)
    reachable = kind.reachable
    if "reachable" in section.data:
        reachable = section.number("reachable", low=0.001, high=1.0)
    latency = section.quantity("latency", parse_time, kind.latency, low=limits("latency")[0], high=limits("latency")[1])
    return name, bandwidth, reachable, latency


def _add(cables: dict[frozenset[str], tuple[Cable, int]], cable: Cable, place: DocumentPart, index: int) -> None:
    if cable.a == cable.b:
        raise place.fail("to", f"cyclic link: {cable.a} is linked to itself")
    ends = frozenset((cable.a, cable.b))
    if ends in cables:
        first = cables[ends][1]
        raise place.fail(
            "from",
            f"duplicate link: {cable.a} and {cable.b} are already linked by links[{first}]; "
            "parallel cables are one link with lanes: 2",
        )
    cables[ends] = cable, index


def _nics(section: DocumentPart, counts: dict[str, int], absent: frozenset[str]) -> tuple[int, float, list[Cable]]:
    """(number, line rate of each, cables to the node) of the NICs; more NICs than GPUs are bonded.

    The NICs of *absent* boards are absent too, unless a scenario says how many there are.
    """
    if "nics" not in section.data:
        return 0, 0.0, []
    nics = section.section("nics", NIC_KEYS)
    gpus = sum(f"gpu{i}" not in absent for i in range(counts["gpu"]))
    count = nics.integer("count", high=4096)
    if (*nics.path, "count") not in section.document.origin.elsewhere:
        count = -(-count * gpus // counts["gpu"])
    ports = nics.integer("ports", 1, high=64)
    low, high = limits("bandwidth")
    bandwidth = nics.quantity("bandwidth", parse_bandwidth, low=low, high=high) * ports
    kind, host_rate, reachable, latency = _physics(nics)
    if count > gpus:
        if count % gpus:
            raise nics.fail(
                "count",
                f"{count} NICs cannot be shared evenly by {gpus} GPUs; use a multiple of {gpus}, or at most {gpus}",
            )
        bandwidth, host_rate, count = bandwidth * (count // gpus), host_rate * (count // gpus), gpus
    attach = [device for device in _attach(nics, counts) if device not in absent]
    family = link_kinds()[kind].family
    cables = [
        Cable(attach[i * len(attach) // count], f"nic{i}", kind, family, host_rate, reachable, latency)
        for i in range(count)
    ]
    return count, bandwidth, cables


def _attach(nics: DocumentPart, counts: dict[str, int]) -> tuple[str, ...]:
    """The devices that NICs hang on: a range, or a list with the device of each."""
    given = nics.data.get("attach")
    if not isinstance(given, list):
        return _devices(nics, "attach", counts)
    if not given or len(given) != nics.integer("count", high=4096):
        raise nics.fail(
            "attach", f"names {len(given)} devices; a list has one for each of the {nics.data['count']} NICs"
        )
    entries = (DocumentPart.open(nics.document, nics.path, {"attach": one}, NIC_KEYS) for one in given)
    named = [_devices(entry, "attach", counts) for entry in entries]
    if many := next((one for one, names in zip(given, named, strict=True) if len(names) != 1), None):
        raise nics.fail("attach", f"{many!r} is more than one device; a list has one for each NIC")
    return tuple(name for names in named for name in names)


def _complexes(
    section: DocumentPart, counts: dict[str, int], absent: Collection[str]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Named sets of devices that act as one."""
    given = section.data.get("complexes", {})
    names = given if isinstance(given, dict) else ()
    group = section.section("complexes", names)
    seen: set[str] = set()
    devices = {f"{kind}{i}" for kind, number in counts.items() for i in range(number)}
    result = []
    for name in names:
        if name in counts and counts[name] == 0:
            raise group.fail(name, f"there are no {name}s")
        members = _devices(group, name, counts)
        if seen & set(members) or len({kind_of(m) for m in members}) != 1:
            raise group.fail(name, "a complex joins devices of one kind, each in one complex only")
        if kind_of(members[0]) not in FORWARDING:
            raise group.fail(name, f"traffic goes through the devices of a complex: {', '.join(sorted(FORWARDING))}")
        if name in devices and name not in members:
            raise group.fail(name, f"{name} is a device of its own; call the complex otherwise")
        seen |= set(members)
        if here := tuple(member for member in members if member not in absent):
            result.append((str(name), here))
    return tuple(result)


def _layout(section: DocumentPart, counts: dict[str, int]) -> tuple[tuple[str, float, float], ...]:
    """Places of devices in pictures, ``gpu0: [x, y]``, in units of a GPU's room from the first GPU's usual place."""
    there = {f"{kind}{i}" for kind, n in counts.items() for i in range(n)}
    written = section.data.get("layout", {})
    gone: set[str] = set()  # a scenario that asks for fewer devices leaves the places of the others empty
    if section.document.origin.elsewhere and isinstance(written, dict):
        gone = {str(name) for name in written if kind_of(str(name)) in counts} - there
    layout = section.section("layout", [*sorted(there), *sorted(gone)])
    places = []
    for name, at in layout.data.items():
        if name in gone:
            continue
        if not isinstance(at, list) or len(at) != 2 or not all(isinstance(v, int | float) for v in at):
            raise layout.fail(name, f"expected a place [x, y], found {at!r}")
        places.append((str(name), float(at[0]), float(at[1])))
    return tuple(places)


def _check_connected(section: DocumentPart, node: Node) -> None:
    """No device hangs in the air."""
    joined = {end for cable in node.cables for end in (cable.a, cable.b)}
    single = node.count("gpu") == 1
    loose = [n for n in node.names if n not in joined and kind_of(n) in ("gpu", "nic") and not (single and n == "gpu0")]
    if loose:
        other = "gpu0" if loose[0] != "gpu0" else "gpu1"
        raise section.document.fail(section.path, f"{loose[0]} has no path to {other}: nothing is linked to it")
