"""What operations put on the links that their bytes cross, also on those that slow nobody down."""

from __future__ import annotations

from typing import NamedTuple

from trainsim.collectives.traffic import Rates
from trainsim.contracts.groups import Group, Messages, Peers
from trainsim.contracts.system import Floats, Ints
from trainsim.program.network import Network


class LinkLoad(NamedTuple):
    """What an operation on a buffer of one byte puts on links, as columns: the first rank of the group (of a message
    its sender), the link, the seconds for which it takes all of the link, and the bytes that cross it."""

    rank: Ints
    link: Ints
    seconds: Floats
    crossing: Floats


def link_load(network: Network, peers: Peers, operation: str) -> LinkLoad:
    """What every group of *peers* puts on every link when it carries out *operation* on a buffer of one byte."""
    members = network.members(peers)
    pattern = network.on_every_link(peers.anywhere, operation, members)
    posts = members[:, 0] if isinstance(peers, Messages) else members.min(axis=1)
    group, link = pattern.use_group, pattern.use_resource
    seconds = pattern.use_amount * pattern.factor[group] / pattern.bandwidth[group]
    return LinkLoad(posts[group], link, seconds, seconds * _rates(network, peers, operation).of(link))


def _rates(network: Network, peers: Peers, operation: str) -> Rates:
    """The rates of links that the pattern of an operation counts with."""
    cluster, sent = network.job.cluster, network.job.framework.communication
    if isinstance(peers, Messages):
        gain = cluster.constants["message_network_gain"]
        return Rates(cluster, sent.p2p_efficiency, network.bandwidth, gain)
    if isinstance(peers, Group) and peers.alone:
        return Rates(cluster, 1.0, network.bandwidth)
    efficiency = sent.p2p_efficiency if operation == "shift" else sent.network_efficiency
    return Rates(cluster, efficiency, network.bandwidth)
