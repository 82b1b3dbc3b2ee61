"""How fast the host of this machine launches, beside the one with which a profile's times were found."""

from __future__ import annotations

from trainsim.errors import UnknownName
from trainsim.frameworks import Framework
from trainsim.frameworks.pace import paced
from trainsim.hardware.cluster import Cluster
from trainsim.hardware.storage import processors
from trainsim.scenario.context import Context


def with_pace(context: Context, framework: Framework, cluster: Cluster) -> Framework:
    """*framework* on the processor of *cluster*; as it is where nothing is known of that.

    Raises ScenarioError for a ``host.processor`` that nobody knows.
    """
    name, here, known = framework.host.processor, cluster.node.host, processors()
    if not name or here is None:
        return framework
    with context.at("framework"):
        if name not in known:
            raise UnknownName("processor", name, known)
    factor = known[name].single_thread / here.single_thread
    if factor == 1.0:
        return framework
    reason = (
        f"the profile's times are those of a {name}, and a thread of this machine runs {1 / factor:.2f} times as fast"
    )
    context.derived("framework.host", f"times x {factor:.2f}", reason)
    return paced(framework, factor)
