"""
``ibnetdiscover``: every cable of an InfiniBand network.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

from trainsim.importers.findings import Findings
from trainsim.importers.importer import Importer, no_effect, not_modelled, read, register
from trainsim.importers.source import Source
from trainsim.importers.topology.fabric_facts import Ports, say_fabric
from trainsim.importers.topology.generations import parts
from trainsim.importers.topology.notebook import Notebook
from trainsim.importers.topology.tiers import Port, SwitchNetwork, fabric_of

OWNER = re.compile(r'(Switch|Ca|Rt)\s+\d+\s+"([SHR]-[0-9a-fA-Fx]+)"\s*(?:#\s*"([^"]*)")?')
CABLE = re.compile(
    r'\[(\d{1,4})\](?:\([0-9a-fA-Fx]+\))?\s+"([SHR]-[0-9a-fA-Fx]+)"\[(\d{1,4})\](?:\([0-9a-fA-Fx]+\))?(.*)'
)
RATE = re.compile(r"\b(\d{1,2})x([A-Z]DR(?:10)?)\b")
NAMED = re.compile(r'"([^"]*)"')
AGGREGATION = re.compile(r"aggregation node", re.IGNORECASE)
NO_NAME = re.compile(r"MT\d|Mellanox|ConnectX", re.IGNORECASE)
MOST_CABLES = 1_000_000


@dataclass(slots=True)
class _Cables:
    """What was read so far: what devices are called, and cables by both ends, which the file has twice."""

    called: dict[str, str] = field(default_factory=dict)
    rates: dict[frozenset[tuple[str, int]], float] = field(default_factory=dict)


def sniff(source: Source) -> float:
    """Sure of the lines in which it names what a port belongs to."""
    start = source.text[:200_000]
    return 0.95 if re.search(r"^(Switch|Ca)\s+\d+\s+\"[SH]-", start, re.MULTILINE) else 0.0


def load(source: Source) -> Findings:
    """The leaves and what is above them, oversubscription, rails, and the ports of hosts."""
    book = Notebook(source)
    read_cables = _cables(book, source.text)
    network = _network(book, read_cables)
    seen = fabric_of(book, network)
    switches = {name for name in read_cables.called if name.startswith("S-")}
    book.use("Switch", f"{len(switches)} switches, {len(network.cables)} pairs of them joined")
    book.use("Ca", f"{len(network.hosts)} hosts of {seen.nics} NICs, {seen.rate:g} Gb/s each")
    say_fabric(book, seen.fabric, "ibnetdiscover")
    words = f"{seen.rate:g} Gb/s, as the ports of hosts have"
    book.assume("node.nics.bandwidth", f"{seen.rate:g}Gbps", words)
    book.ignore("lid, lmc, vendid, devid, sysimgguid", "addresses and makers")
    return book.findings("ibnetdiscover", [Ports(file=source.shown, nics=seen.nics, rate=seen.rate)])


def _cables(book: Notebook, text: str) -> _Cables:
    out, owner = _Cables(), ""
    for number, line in enumerate(text.splitlines(), 1):
        if found := OWNER.match(line):
            owner = found[2]
            out.called[owner] = found[3] or ""
        elif (cable := CABLE.match(line)) and owner:
            rate = RATE.search(cable[4])
            if rate is None or rate[2] not in parts()["infiniband"]:
                raise book.fail(
                    "a port without its rate, such as 4xHDR; give the whole output of ibnetdiscover", number
                )
            names = NAMED.findall(cable[4])
            out.called.setdefault(cable[2], names[0] if names else "")
            gigabits = round(int(rate[1]) * float(parts()["infiniband"][rate[2]]), 1)
            ends = frozenset(((owner, int(cable[1])), (cable[2], int(cable[3]))))
            if len(ends) == 2:
                out.rates[ends] = gigabits
            if len(out.rates) > MOST_CABLES:
                raise book.fail(f"more than {MOST_CABLES} cables", number)
        elif line.startswith("["):
            raise book.fail("this port cannot be read; give the output of ibnetdiscover as it is", number)
    return out


def _network(book: Notebook, cables: _Cables) -> SwitchNetwork:
    """Ports by host, and the rate between switches; ports of switches that add up in the network are left out."""
    hosts: dict[str, list[Port]] = defaultdict(list)
    between: dict[tuple[str, str], float] = defaultdict(float)
    nameless, adding = set(), 0
    for ends, rate in cables.rates.items():
        (a, _), (b, _) = sorted(ends, key=lambda end: (end[0].startswith("S-"), end))
        if a.startswith("S-"):
            between[a, b] += rate
            continue
        called = cables.called.get(a, "")
        if AGGREGATION.search(called):
            adding += 1
        elif a.startswith("H-") and b.startswith("S-"):
            host, name = _host(a, called)
            nameless |= {a} if host == a else set()
            hosts[host].append(Port(name=name, switch=b, rate=rate))
    if adding:
        words = f"not modelled: {adding} ports with which switches add up (SHARP)"
        book.warn("Aggregation Node", words)
    if nameless:
        words = f"{len(nameless)} NICs do not say whose they are: a host each"
        book.note("Ca", words)
    return SwitchNetwork(hosts=dict(hosts), cables=dict(between))


def _host(guid: str, called: str) -> tuple[str, str]:
    """(Host, NIC) as a description such as ``node07 mlx5_3`` has them; the NIC's own number where it has none."""
    words = called.split()
    if len(words) < 2 or NO_NAME.match(called):
        return guid, guid
    return words[0], " ".join(words[1:])


KEYS = (
    read("Switch", "a leaf where hosts hang on it, else a switch above"),
    read("Ca", "a NIC of the host that its description begins with"),
    read("4xHDR", "a cable's rate: fabric.oversubscription; node.nics.bandwidth where no other file says it"),
    *no_effect("addresses and makers", "lid", "lmc", "vendid", "devid", "sysimgguid", "switchguid", "caguid"),
    *not_modelled("switches that add up (SHARP)", "Aggregation Node"),
)

register(
    Importer(
        name="ibnetdiscover",
        title="the cables that ibnetdiscover lists",
        about="What `ibnetdiscover` prints of an InfiniBand network.",
        leaves_open="The node: GPUs and which of them uses which NIC.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=(
            "A host whose NICs are on as many leaves is on rails (`rail_optimised`); if all are on one leaf it is a "
            "`fat_tree`.",
            "Oversubscription is what comes from a full leaf over what all its cables to other switches carry.",
            "Groups of leaves that meet only above their spines are pods.",
            "It combines with a file of a node, or with a built-in machine: `--set cluster.topology.base=dgx_h100`.",
        ),
    )
)
