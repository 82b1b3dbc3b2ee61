"""Results without an engine: hand-made traces dressed as simulations."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np

from tests.traces import Shape, pipeline
from trainsim.contracts.allocation import Allocation
from trainsim.contracts.groups import REPLICAS, TENSOR, Messages, Peers
from trainsim.hardware.node import Node
from trainsim.program.estimate import Estimate
from trainsim.result.result import Result


class Network:
    """A layout of ``replicas`` ranks per stage; nothing crosses a node but ``dp``."""

    def __init__(self, shape: Shape):
        ranks = np.arange(shape.stages * shape.replicas)
        self.mesh = SimpleNamespace(groups=lambda axis: ranks.reshape(shape.stages, -1).T)
        self._members = {TENSOR: ranks.reshape(-1, 1).repeat(2, 1), REPLICAS: ranks.reshape(shape.stages, -1)}

    def gpu_of(self, ranks: np.ndarray) -> np.ndarray:
        return ranks

    def has(self, peers: Peers) -> bool:
        return peers in self._members

    def members(self, peers: Peers) -> np.ndarray:
        if isinstance(peers, Messages):  # from one stage to the next, or to the one before
            stages = self._members[REPLICAS]
            ahead = [np.stack(pair, 1) for pair in pairwise(stages)]
            return np.concatenate(ahead if peers.distance > 0 else [pairs[:, ::-1] for pairs in ahead])
        return self._members[peers]


def result(shape: Shape, name: str = "a pipeline", scenario: dict | None = None) -> Result:
    """The result of a pipeline executed by its definition."""
    trace = pipeline(shape)
    kernels = SimpleNamespace(name="generic", attention=SimpleNamespace(curves={"flash2": {}}, fallback="flash2"))
    cluster = SimpleNamespace(
        ranks=trace.ranks,
        node=Node(devices=(("gpu", 8),), cables=()),
        memory_per_gpu=80e9,
        reserved_memory=0.0,
        price_per_gpu_hour=None,
        gpu=SimpleNamespace(
            name="test-gpu",
            memory=0.0,
            usable_memory=80e9,
            sms=108,
            flops={"bf16": 312e12},
            measured=True,
            kernels=kernels,
        ),
        gpus_per_node=8,
        node_of=lambda rank: np.asarray(rank) // 8,
        failed_nics=(),
        fabric=SimpleNamespace(failed_uplinks=()),
        crosses_network=lambda src, dst: np.asarray(src) != np.asarray(dst),
    )
    from trainsim.models.reading import load_model

    job = SimpleNamespace(
        name=name, framework=SimpleNamespace(name="neutral", host=SimpleNamespace(seconds_per_operation=5e-6)),
        sum_bytes=4.0, cluster=cluster, what_if=(), model=load_model("gpt2-xl"),
        allocation=Allocation(), parallel=SimpleNamespace(ranks=trace.ranks),
        training=SimpleNamespace(
            sequence_length=1024, global_batch=shape.microbatches * shape.replicas, recompute="none", precision="bf16",
            attention="flash2", recompute_modules=(),
        decoder_length=None,
        tokens=None,
        document=0,
        ),
    )  # fmt: skip
    parts = {"steady": shape.microbatches * (shape.forward + shape.backward), "fill and drain": 3.0}
    simulation = SimpleNamespace(
        plan=SimpleNamespace(rollout=None),
        job=job, trace=trace, wall_s=0.01, network=Network(shape),
        estimate=Estimate(seconds=sum(parts.values()), parts=parts),
    )  # fmt: skip
    made = Result(simulation=simulation, scenario=scenario or {"name": name})
    made.__dict__["link_traffic"] = SimpleNamespace(rows=())  # there is no machine whose links carry anything
    return made
