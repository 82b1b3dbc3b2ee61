"""
The devices in NCCL's topology XML, and their cables other than NVLinks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trainsim.errors import shorten
from trainsim.importers.topology.generations import architecture, parts, physics_of
from trainsim.importers.topology.node_facts import Nic, number
from trainsim.importers.topology.notebook import Notebook
from trainsim.importers.topology.safe_xml import Element
from trainsim.importers.topology.wires import Wire, wire

GPU_CLASSES = ("0x0300", "0x0302", "0x0380")
NIC_CLASSES = ("0x0200", "0x0207", "0x0280")
SWITCH_CLASSES = ("0x0604",)
SPEED = re.compile(r"(\d{1,3}(?:\.\d+)?)\s*GT/s")
FASTEST = 10_000_000  # Mb/s


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU of the file: its number there, its bus id, what it hangs on, and its element."""

    dev: int | None
    busid: str
    device: str
    on: str
    link: dict[str, Any]
    element: Element | None
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclMachine:
    """All devices of a file; GPUs in their order, cables other than NVLinks among them."""

    gpus: tuple[Gpu, ...]
    hosts: tuple[Element, ...]
    nics: tuple[Nic, ...]
    wires: tuple[Wire, ...]
    sm: int

    @property
    def is_hint(self) -> bool:
        """Whether it is a file that NCCL is given, which has no GPUs by name."""
        return all(gpu.element is None for gpu in self.gpus)


@dataclass(slots=True)
class _MetDevices:
    """What was met on the way through the file."""

    book: Notebook
    sm: int
    gpus: list[Gpu] = field(default_factory=list)
    nics: list[tuple[Nic, int]] = field(default_factory=list)
    switches: int = 0
    wires: list[Wire] = field(default_factory=list)
    slow: list[Element] = field(default_factory=list)
    unknown: list[Element] = field(default_factory=list)


def machine_of(book: Notebook, root: Element) -> NcclMachine:
    """The devices below *root*, a <system>. Raises ScenarioError for none, and for those that cannot be told apart."""
    hosts = root.all("cpu")
    if not hosts:
        raise book.fail("<system> has no <cpu>: nothing hangs on anything", root.line)
    found = _MetDevices(book, _sm(book, root))
    for k, host in enumerate(hosts):
        _below(found, host, f"host{k}", 0)
    if not found.gpus and found.unknown:
        n, line = len(found.unknown), found.unknown[0].line
        raise book.fail(
            f"{n} PCI devices without class: nothing says which are GPUs. NCCL itself looks at the machine; let it "
            "write what it finds: NCCL_TOPO_DUMP_FILE=topo.xml",
            line,
        )
    if not found.gpus:
        raise book.fail("no GPU is in it: no <gpu>, and no <pci> of class 0x0302", root.line)
    for element in found.unknown:
        book.ignore(f"pci {element.get('busid')}", f"a device of class {element.get('class') or '?'}", element.line)
    _tell_slow(found)
    gpus = _ordered(found.gpus)
    links = [wire(f"gpu{i}", gpu.on, **gpu.link) for i, gpu in enumerate(gpus)]
    nics = tuple(nic for nic, _ in sorted(found.nics, key=lambda pair: pair[1]))
    return NcclMachine(gpus=gpus, hosts=hosts, nics=nics, wires=(*links, *found.wires), sm=found.sm)


def _sm(book: Notebook, root: Element) -> int:
    """The compute capability of the GPUs; 0 where the file has none. They must be alike."""
    said = {gpu.get("sm"): gpu.line for gpu in root.walk() if gpu.tag == "gpu" and gpu.get("sm")}
    if len(said) > 1:
        raise book.fail(f"GPUs of sm {' and '.join(sorted(said))} in one node: different GPUs are not simulated")
    for text, line in said.items():
        value = number(text, 1, 9999)
        if value is None:
            raise book.fail(f"gpu.sm is {shorten(text)}; it is a number such as 80 or 90", line)
        return value
    return 0


def _below(found: _MetDevices, parent: Element, on: str, depth: int) -> None:
    """Take in everything that hangs on *parent*, which is the device *on*."""
    for element in parent.children:
        if element.tag == "pci":
            _pci(found, element, on, depth)
        elif element.tag == "nic":
            _nics(found, element, on, {}, depth)
        elif element.tag == "gpu":
            _gpu(found, element, element, on, _pcie(found, parent))
        elif element.tag not in ("nvlink", "c2c"):
            found.book.warn(element.tag, "unknown element, ignored", element.line)


def _pci(found: _MetDevices, element: Element, on: str, depth: int) -> None:
    kind, gpus, nics = element.get("class")[:6], element.all("gpu"), element.all("nic")
    inner = element.all("pci")
    if gpus or (kind in GPU_CLASSES and not inner):
        _gpu(found, element, gpus[0] if gpus else None, on, _pcie(found, element))
    elif nics or (kind in NIC_CLASSES and not inner):
        for nic in nics or (element,):
            _nics(found, nic, on, _pcie(found, element), depth)
    elif inner or kind in SWITCH_CLASSES:
        if inner:
            name = f"pcie{found.switches}"
            found.switches += 1
            found.wires.append(wire(name, on, **_pcie(found, element)))
            _below(found, element, name, depth + 1)
    else:
        found.unknown.append(element)


def _gpu(found: _MetDevices, pci: Element, gpu: Element | None, on: str, link: dict[str, Any]) -> None:
    chips = gpu.all("c2c") if gpu else ()
    if chips:
        link = {"kind": "c2c"}
    dev = number(gpu.get("dev"), 0, 1 << 16) if gpu else None
    device = pci.get("device")
    found.gpus.append(Gpu(dev=dev, busid=pci.get("busid"), device=device, on=on, link=link, element=gpu, line=pci.line))


def _nics(found: _MetDevices, element: Element, on: str, link: dict[str, Any], depth: int) -> None:
    """The ports of a NIC; one without any is of a file that NCCL is given."""
    link = link or _pcie(found, element)
    physics = wire("nic0", on, **link).physics
    ports = element.all("net")
    if not ports:
        name = element.get("busid") or "a NIC"
        found.nics.append((Nic(name=name, on=on, physics=physics, near=-depth), len(found.nics)))
    for port in ports:
        speed = number(port.get("speed"), 0, FASTEST)
        if not speed:
            shown = shorten(port.get("speed"))
            raise found.book.fail(f"net.speed is {shown}; it is the rate in Mb/s, from 1 to {FASTEST}", port.line)
        name = port.get("name") or "a NIC"
        if port.get("gdr") == "0":
            words = f"not modelled: {name} does not read the memory of GPUs (gdr 0); data goes through the host's"
            found.book.warn("net.gdr", words, port.line)
        found.book.use("net.speed", f"{name}: {speed / 1000:g} Gb/s on {on}", port.line)
        dev = number(port.get("dev"), 0, 1 << 16)
        place = len(found.nics) if dev is None else dev
        found.nics.append((Nic(name=name, on=on, physics=physics, rate=speed / 1000, near=-depth), place))


def _pcie(found: _MetDevices, element: Element) -> dict[str, Any]:
    """The link above *element*: as it says, else of the GPU's generation."""
    speed, width = SPEED.match(element.get("link_speed")), number(element.get("link_width") or "0", 0, 64)
    if width is None:
        shown = shorten(element.get("link_width"))
        raise found.book.fail(f"pci.link_width is {shown}; it is a number of lanes", element.line)
    kind = parts()["pcie"].get(f"{float(speed[1]):g}") if speed else None
    if kind is None or not width:
        found.slow.append(element)
        generation = architecture(found.sm)
        return physics_of("pcie", 0, generation) if generation else {"kind": kind or "pcie"}
    return {"kind": kind} if width == 16 else {"kind": kind, "lanes": width}


def _tell_slow(found: _MetDevices) -> None:
    """Tell which PCIe links have the rate of the GPU's generation because the file has none that can be."""
    said = [e for e in found.slow if e.tag == "pci"]
    if said:
        shown = sorted({f"{e.get('link_speed') or 'no speed'} x{e.get('link_width') or '?'}" for e in said})
        words = f"{len(said)} links ({', '.join(shown[:4])}) are of the GPU's generation, 16 lanes"
        found.book.note("pci.link_speed", words, said[0].line)


def _ordered(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """GPUs in the order of CUDA: by number where each has one of its own, else by bus id."""
    numbered = {gpu.dev for gpu in gpus}
    if None not in numbered and len(numbered) == len(gpus):
        return tuple(sorted(gpus, key=lambda gpu: gpu.dev or 0))
    return tuple(sorted(gpus, key=lambda gpu: gpu.busid.lower()))
