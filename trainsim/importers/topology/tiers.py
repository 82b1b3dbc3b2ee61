"""
Networks as graphs of switches and of hosts' ports: which switches are leaves, what is above them, and whether hosts
stand on rails.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainsim.importers.topology.fabric_facts import FabricParts
from trainsim.importers.topology.matrix import JoinedNames
from trainsim.importers.topology.notebook import Notebook

SAME = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A NIC's port of a host: what it is called, the switch that it is on, its rate in Gb/s."""

    name: str
    switch: str
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchNetwork:
    """Ports by host, and (a, b) -> Gb/s of all cables between two switches."""

    hosts: Mapping[str, Sequence[Port]]
    cables: Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A network as a fabric, the NICs of a node and their rate in Gb/s."""

    fabric: FabricParts
    nics: int
    rate: float


def fabric_of(book: Notebook, network: SwitchNetwork) -> Seen:
    """The leaves, pods and rails of *network*; what does not fit is told in *book*. Raises ScenarioError for none."""
    hosts = _alike(book, network.hosts)
    nics = len(next(iter(hosts.values())))
    rate = _rate(book, hosts)
    leaves = list(dict.fromkeys(port.switch for ports in hosts.values() for port in ports))
    units, rails = _units(book, hosts, nics)
    above = _neighbours(network.cables)
    ups = [sum(r for other, r in above[leaf].items() if other not in leaves) for leaf in leaves]
    _tell_leaves(book, leaves, ups, above)
    pods, pod_up = _pods(book, network, leaves, units)
    one = rate if rails else nics * rate
    up = sum(ups) / len(ups) / one if len(leaves) > 1 and any(ups) else None
    each = pod_up / (nics * rate) if pod_up else None
    sizes = tuple(len(members) for members in units.values())
    fabric = FabricParts(leaves=sizes, pods=pods, rails=rails, leaf_up=up, pod_up=each)
    return Seen(fabric=fabric, nics=nics, rate=rate)


def _alike(book: Notebook, hosts: Mapping[str, Sequence[Port]]) -> dict[str, Sequence[Port]]:
    """The hosts with the usual number of ports; others are told and left out."""
    if not hosts:
        raise book.fail("no host is attached to a switch here, so leaves cannot be identified")
    usual = Counter(len(ports) for ports in hosts.values()).most_common(1)[0][0]
    kept: dict[str, Sequence[Port]] = {
        name: sorted(ports, key=lambda port: port.name) for name, ports in hosts.items() if len(ports) == usual
    }
    if others := [f"{name} ({len(ports)})" for name, ports in hosts.items() if name not in kept]:
        words = f"not modelled: hosts with other than {usual} ports are left out: {', '.join(others[:6])}"
        book.warn("hosts", words + (f" and {len(others) - 6} more" if len(others) > 6 else ""))
    return kept


def _rate(book: Notebook, hosts: Mapping[str, Sequence[Port]]) -> float:
    rates = Counter(port.rate for ports in hosts.values() for port in ports)
    usual = rates.most_common(1)[0][0]
    if len(rates) > 1:
        told = ", ".join(f"{count} of {rate:g} Gb/s" for rate, count in rates.most_common())
        book.warn("ports", f"not modelled: ports of hosts have different rates ({told}); {usual:g} is used for all")
    return usual


def _units(
    book: Notebook, hosts: Mapping[str, Sequence[Port]], nics: int
) -> tuple[dict[tuple[str, ...], list[str]], bool]:
    """(Hosts by the leaves that they are on, whether each NIC of a host is on a leaf of its own)."""
    units: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, ports in hosts.items():
        units[tuple(port.switch for port in ports)].append(name)
    spread = {len(set(leaves)) for leaves in units}
    if nics > 1 and spread == {nics}:
        return dict(units), True
    if spread != {1}:
        words = (
            f"not modelled: a host's {nics} NICs are on {' or '.join(map(str, sorted(spread)))} leaves; treated as one"
        )
        book.warn("hosts", words)
    first: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for leaves, names in units.items():
        first[tuple(sorted(set(leaves)))] += names
    return dict(first), False


def _neighbours(cables: Mapping[tuple[str, str], float]) -> dict[str, dict[str, float]]:
    out: dict[str, dict[str, float]] = defaultdict(dict)
    for (a, b), rate in cables.items():
        out[a][b] = out[a].get(b, 0.0) + rate
        out[b][a] = out[b].get(a, 0.0) + rate
    return out


def _tell_leaves(book: Notebook, leaves: Sequence[str], ups: Sequence[float], above: Mapping[str, object]) -> None:
    if len(leaves) > 1 and not any(ups):
        raise book.fail(f"{len(leaves)} switches with hosts, and no cable leads up from any: they are not connected")
    if len(leaves) > 1 and max(ups) > (1 + SAME) * min(ups):
        words = f"not modelled: from {min(ups):g} to {max(ups):g} Gb/s lead up from a leaf; the mean is taken"
        book.warn("uplinks", words)


def _pods(
    book: Notebook, network: SwitchNetwork, leaves: Sequence[str], units: Mapping[tuple[str, ...], Sequence[str]]
) -> tuple[tuple[int, ...], float]:
    """(Hosts of each pod, mean of what leads up from one in Gb/s); nothing where all leaves share their spines."""
    above = _neighbours(network.cables)
    bottom = set(leaves)
    spines = {other for leaf in leaves for other in above[leaf]} - bottom
    groups = JoinedNames([*leaves, *sorted(spines)])
    for leaf in leaves:
        for other in above[leaf]:
            groups.join(leaf, other)
    for unit in units:
        for leaf in unit[1:]:
            groups.join(unit[0], leaf)
    pods = [set(group) for group in groups.all()]
    if len(pods) < 2:
        return (), 0.0
    sizes = [sum(len(names) for unit, names in units.items() if unit[0] in pod) for pod in pods]
    ups = [sum(r for s in pod & spines for o, r in above[s].items() if o not in pod) for pod in pods]
    if not all(ups):
        raise book.fail(f"the leaves fall into {len(pods)} parts that are not connected: give the whole network")
    return tuple(sizes), sum(ups) / len(ups)
