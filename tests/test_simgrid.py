"""
Messages that share the links of real machines, beside SimGrid's fluid model (Casanova et al. 2014, CM02 without the
corrections for TCP): two codes that have nothing in common but the definition of max-min fairness.

It needs a Python that has SimGrid: Debian's python3-simgrid, or another that ``SIMGRID_PYTHON`` names. Elsewhere it is
skipped.
"""

import json
import os
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from trainsim.collectives.pattern import message_pattern
from trainsim.contracts.groups import Messages
from trainsim.contracts.instructions import Kernel, Program, Send, Task, Template
from trainsim.contracts.system import Communicator, System
from trainsim.engine import run
from trainsim.fold import fold, prune
from trainsim.hardware.cluster import Cluster, load_topology

FLOWS = Path(__file__).parent / "tools" / "simgrid_flows.py"
MACHINES = {
    "fat tree, 2 to 1": ("a100_fat_tree_2to1", {"nodes": 64}),
    "three GPUs behind a NIC": ("pcie_box", {"nodes": 6}),
    "one leaf, 8 to 1": ("dgx_a100", {"nodes": 40, "oversubscription": 8.0}),
}
PLAIN = {"message_network_gain": 1.0, "message_network_latency": 0.0, "message_latency": 0.0}


@cache
def _python() -> str | None:
    """A Python that imports SimGrid."""
    for python in filter(None, (os.environ.get("SIMGRID_PYTHON"), "/usr/bin/python3")):
        try:
            subprocess.run([python, "-c", "import simgrid"], check=True, capture_output=True, timeout=60)
        except (OSError, subprocess.SubprocessError):
            continue
        return python
    return None


def _flows(cluster: Cluster, seed: int, count: int) -> list[dict]:
    """Messages between nodes, each from a rank of its own; some receivers and rails are popular."""
    random = np.random.default_rng(seed)
    sources = random.choice(cluster.ranks, count, replace=False)
    popular = random.choice(cluster.ranks, 4)
    flows = []
    for src in sources.tolist():
        dst = int(random.choice(popular) if random.random() < 0.4 else random.integers(cluster.ranks))
        if src // cluster.gpus_per_node != dst // cluster.gpus_per_node:
            _, links = cluster.routes(np.array([src]), np.array([dst]))
            start, nbytes = random.choice([0.0, 0.1, random.uniform(0, 0.5)]), random.choice([1e9, 4e9, 9.7e9])
            flows.append({"src": src, "dst": dst, "start": start, "bytes": nbytes, "route": links.astype(str).tolist()})
    return flows


def _ours(cluster: Cluster, flows: list[dict]) -> list[float]:
    communicators, programs, program_of = {}, [Program(chains={})], np.zeros(cluster.ranks, np.int64)
    for k, flow in enumerate(flows):
        src, dst = np.array([flow["src"]]), np.array([flow["dst"]])
        sends, receives = (np.full(cluster.ranks, -1) for _ in "sr")
        sends[src] = receives[dst] = 0
        peers = Messages(f"flow {k}", int(dst[0] - src[0]))
        made = {"send": message_pattern(cluster, src, dst)}
        communicators[peers] = Communicator(group_of=(sends, receives), groups=1, patterns=made)
        task = (Kernel("until it starts", "other", flow["start"]), Send("message", "pp", peers, flow["bytes"], "in"))
        program_of[src] = len(programs)
        programs.append(Program(chains={"compute": (Task(Template("F", 0, task), 0),)}))
    nobody = np.full(cluster.ranks, -1, np.int64)
    system = System(
        programs=tuple(programs), program_of=program_of, slow=np.ones(cluster.ranks), communicators=communicators,
        resources=cluster.links, sm=nobody, hbm=nobody, owner=np.full(cluster.links, -1, np.int64),
    )  # fmt: skip
    trace = run(fold(prune(system)))
    return [
        float(trace.spans(flow["src"], next(c for c in trace.chain_names(flow["src"]) if c != "compute")).end[0])
        for flow in flows
    ]


def _simgrid(python: str, cluster: Cluster, flows: list[dict]) -> list[float]:
    links = {name: float(cluster.bandwidth[int(name)]) for flow in flows for name in flow["route"]}
    asked = json.dumps({"links": links, "flows": flows})
    done = subprocess.run([python, str(FLOWS)], input=asked, capture_output=True, text=True, check=True, timeout=120)
    ends: list[float] = json.loads(done.stdout)
    return ends


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("machine", MACHINES)
def test_messages_end_when_simgrid_says(machine: str, seed: int) -> None:
    python = _python()
    if python is None:
        pytest.skip("no Python with SimGrid: Debian's python3-simgrid has one, SIMGRID_PYTHON names another")
    name, fields = MACHINES[machine]
    cluster = load_topology(name, **fields, collectives={"base": "default", **PLAIN})
    flows = _flows(cluster, seed, count=min(60, cluster.ranks // 2))
    ours, theirs = _ours(cluster, flows), _simgrid(python, cluster, flows)
    assert ours == pytest.approx(theirs, rel=1e-5)
    alone = [f["start"] + f["bytes"] / min(cluster.bandwidth[list(map(int, f["route"]))]) for f in flows]
    assert max(np.array(ours) / alone) > 1.5  # the links were contended
