"""
NCCL's topology XML: what NCCL_TOPO_DUMP_FILE writes of a machine, and what NCCL_TOPO_FILE hands to it.
"""

from __future__ import annotations

from trainsim.importers.findings import Findings
from trainsim.importers.formats.nccl_topology_devices import NcclMachine, machine_of
from trainsim.importers.formats.nccl_topology_links import nvlinks, sockets
from trainsim.importers.importer import Importer, no_effect, read, register
from trainsim.importers.source import Source
from trainsim.importers.topology.generations import architecture, gpu_with_id, gpus_of, parts
from trainsim.importers.topology.likeness import Likeness
from trainsim.importers.topology.node_facts import NodeParts, assume_collectives, say_node
from trainsim.importers.topology.notebook import Notebook
from trainsim.importers.topology.safe_xml import read_xml, root_tag
from trainsim.importers.topology.wires import Wire

BECAUSE = "system"


def sniff(source: Source) -> float:
    """Sure of XML whose outermost element is a system."""
    return 0.95 if root_tag(source.text) == "system" else 0.0


def load(source: Source) -> Findings:
    """A node: GPUs, NVLinks, PCIe switches, sockets, NICs."""
    book = Notebook(source)
    root = read_xml(source.text, file=source.shown)
    if root.tag != "system":
        raise book.fail(f"<{root.tag}> is not a topology of NCCL, whose outermost element is <system>", root.line)
    machine = machine_of(book, root)
    _gpu(book, machine)
    wires = [*machine.wires, *sockets(machine)]
    lanes, switches = nvlinks(book, machine)
    wires = [*lanes, *wires]
    if machine.is_hint and len(machine.gpus) > 1:
        wires = [Wire(f"gpu{i}", "nvswitch0", (("kind", "baseboard"),)) for i in range(len(machine.gpus))] + wires
    names = [f"nvswitch{i}" for i in range(switches)]
    complexes = {"nvswitch": names} if switches > 1 else {}
    parts_of = NodeParts(gpus=len(machine.gpus), wires=tuple(wires), nics=tuple(machine.nics), complexes=complexes)
    say_node(book, parts_of, BECAUSE)
    assume_collectives(book, parts_of)
    if switches and machine.sm >= parts()["multicast_from"]:
        book.assume("nvls", True, "NVSwitches of Hopper and later multicast; the file does not say whether it is on")
    _remarks(book, machine)
    return book.findings("nccl-topology", [Likeness(file=source.shown)])


def _gpu(book: Notebook, machine: NcclMachine) -> None:
    """Say which GPU it is, by the PCI device id, else leave it open with those that it may be."""
    named = {gpu_with_id(gpu.device) for gpu in machine.gpus}
    name = named.pop() if len(named) == 1 else None
    if len(named) > 0:
        raise book.fail(f"different GPUs in one node are not simulated: {', '.join(sorted(map(str, named)))}")
    if name:
        book.say("gpu", name, "pci.device", machine.gpus[0].line)
        book.use("pci.device", f"{machine.gpus[0].device}: gpu = {name}", machine.gpus[0].line)
        return
    known = gpus_of(machine.sm) if machine.sm else []
    told = f"sm {machine.sm}" if machine.sm else "the file has neither sm nor device of GPUs"
    choice = f"; one of {', '.join(known)}" if known else ""
    if machine.sm and len(known) == 1:
        book.say("gpu", known[0], "gpu.sm", machine.gpus[0].line)
        return
    book.leave_open("gpu", f"{told}{choice}: --set cluster.gpu=NAME")


def _remarks(book: Notebook, machine: NcclMachine) -> None:
    generation = architecture(machine.sm) if machine.sm else None
    if machine.sm and generation is None:
        book.warn("gpu.sm", f"compute capability {machine.sm} is not known: links are as fast as the GPU says")
    elif machine.sm:
        book.use("gpu.sm", f"{machine.sm}: kinds of link")
    if machine.is_hint:
        book.note("nvlink", "the file has no <gpu>: it is one that NCCL is given, and names no NVLinks")
    if len(machine.hosts) > 2:
        words = f"{len(machine.hosts)} NUMA nodes became hosts; those of one socket share its memory and are nearer"
        book.note("cpu.numaid", f"{words} than links between sockets say: hosts.memory_bandwidth tells offload")
    book.ignore("net.guid, net.maxconn, net.latency, cpu.affinity", "names, limits of software and places of threads")


KEYS = (
    read("system.cpu", "a host (a NUMA node), and what joins it to others by vendor and model"),
    read("system.cpu.pci", "a PCIe switch, a GPU or a NIC, by class and by what stands in it"),
    read("system.cpu.pci.link_speed", "the generation of the link above; those of virtual machines are reported"),
    read("system.cpu.pci.link_width", "its lanes; 0 is 16"),
    read("system.cpu.pci.device", "gpu, by its PCI id"),
    read("system.cpu.pci.gpu", "a GPU, in the order of its dev"),
    read("system.cpu.pci.gpu.sm", "kinds of link, and gpu where only one is of that architecture"),
    read("system.cpu.pci.gpu.nvlink", "count links to target: a GPU, or an NVSwitch by tclass 0x068000"),
    read("system.cpu.pci.gpu.c2c", "a link to the host instead of PCIe"),
    read("system.cpu.pci.nic.net.speed", "node.nics.bandwidth, from Mb/s"),
    *no_effect("names, limits of software and places of threads", "system.cpu.affinity", "system.cpu.pci.nic.net.guid",
               "system.cpu.pci.nic.net.maxconn", "system.cpu.pci.nic.net.latency", "system.version"),
    *no_effect("reported where it is off: data then goes through the host's memory", "system.cpu.pci.nic.net.gdr"),
)  # fmt: skip

register(
    Importer(
        name="nccl-topology",
        title="NCCL's topology of a node (XML)",
        about="What `NCCL_TOPO_DUMP_FILE=topo.xml` makes NCCL write, and files that `NCCL_TOPO_FILE` hands to it.",
        leaves_open="The network between nodes; which GPU it is, unless the PCI id of its device tells; hosts' memory.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=(
            "A document type (`<!DOCTYPE`) is refused; at most 100,000 elements are read.",
            "GPUs are in the order of `dev`; where the file has none, in the order of bus ids, as CUDA has them.",
            "Files for `NCCL_TOPO_FILE` name no NVLinks and no rates of NICs: the usual board is taken and reported.",
            "PCI devices without `class` cannot be told apart and are refused.",
            "PCIe links below 8 GT/s or of no width are what virtual machines report: the GPU's generation is taken.",
        ),
    )
)
