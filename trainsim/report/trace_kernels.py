"""
What each span of a step is in a trace of the PyTorch profiler: a kernel, a copy or work of the host, and its record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from trainsim.analysis.analysis import Analysis
from trainsim.analysis.kinds import COMMUNICATION
from trainsim.analysis.step_analysis import StepAnalysis
from trainsim.contracts.groups import Group, Messages, Peers
from trainsim.contracts.instructions import SEND, Payload
from trainsim.contracts.record import Label
from trainsim.report.kernel_names import (
    NumberType,
    collective_name,
    compute_name,
    copy_name,
    number_type,
    recorded_name,
)
from trainsim.report.trace_file import quoted

KERNEL, COPY, HOST = "kernel", "gpu_memcpy", "cpu_op"
"""Categories of Kineto: kernels, copies between a GPU and memory, and what a host does itself."""
ON_HOST = ("host", "delay")
"""Kinds of spans in which a GPU waits for its host."""
USUAL = {"pp": SEND, "ep": "all_to_all", "cp": "shift", "tp": "all_reduce", "dp": "all_reduce", "other": "all_reduce"}
"""The operation of a span of communication that has no payload, by kind."""
SHOWN_RANKS = 30
"""Ranks of a group that PyTorch writes into a record; of more, it writes that there are more."""
SCATTERED, GATHERED = ("reduce_scatter",), ("all_gather",)


class ShownSpan(NamedTuple):
    """How a span is shown: Kineto's category, the name of its kernel, and the operation if it is communication."""

    category: str
    name: str
    operation: str = ""

    @property
    def on_gpu(self) -> bool:
        """Whether a stream of a GPU carries it out."""
        return self.category != HOST


class Kernels:
    """What the spans of a trace are shown as: what is known without a job, so under their own names."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, tuple[Payload, ...], int], str] = {}
        self._shown: dict[int, ShownSpan] = {}  # by the labels of the trace themselves, which are long to compare

    def shown(self, label: Label) -> ShownSpan:
        """What a span with *label* is."""
        shown = self._shown.get(id(label))
        if shown is None:
            shown = self._shown[id(label)] = self._show(label)
        return shown

    def recorded(self, label: Label, rank: int) -> str:
        """The record as the inside of ``args`` in a text that is filled in."""
        if not label.payloads:
            return ""
        key = label.kind, label.payloads, rank
        if key not in self._records:
            about = self.record(label, rank)
            self._records[key] = "".join(
                f",{quoted(name)}:{json.dumps(value).replace('%', '%%')}" for name, value in about.items()
            )
        return self._records[key]

    def on_gpu(self, label: Label) -> bool:
        """Whether a stream of a GPU carries out the spans with *label*."""
        return self.shown(label).on_gpu

    def _show(self, label: Label) -> ShownSpan:
        operation = label.payloads[0].operation if label.payloads else ""
        copy = copy_name(label.kind if label.kind == "copy" else operation)
        if copy:
            return ShownSpan(COPY, copy)
        if label.kind in (*ON_HOST, "offload"):
            return ShownSpan(HOST, label.name)
        if label.kind in COMMUNICATION or (label.kind == "other" and label.payloads):
            operation = operation or USUAL[label.kind]
            return ShownSpan(KERNEL, self._collective(label, operation), operation)
        return ShownSpan(KERNEL, self._kernel(label))

    def _collective(self, label: Label, operation: str) -> str:
        return label.name

    def _kernel(self, label: Label) -> str:
        return label.name

    def record(self, label: Label, rank: int) -> dict[str, Any]:
        """What the profiler notes of a collective or message of *rank*: group and size. A span that stands for several
        has no sizes."""
        return {}

    def of_rank(self, rank: int) -> Iterator[dict[str, Any]]:
        """The process groups of a rank, as the profiler lists them."""
        yield from ()


class JobKernels(Kernels):
    """The same where a job is known: kernels of libraries, and the groups in which ranks talk."""

    def __init__(self, analysis: Analysis):
        super().__init__()
        job = analysis.job
        self.chip, self.precision = job.cluster.gpu.kernels.name, job.training.precision
        self.network, self.trace = analysis.simulation.network, analysis.trace
        self.number, _ = number_type(self.precision)
        self.sums = job.sum_bytes

    def _collective(self, label: Label, operation: str) -> str:
        name, _ = self._number(label.kind, operation)
        return collective_name(operation, name)

    def _kernel(self, label: Label) -> str:
        return compute_name(label.name, label.kind, self.chip, self.number)

    def _number(self, kind: str, operation: str) -> tuple[str, NumberType]:
        """The type of the numbers that are sent: sums of gradients have one of their own."""
        reduced = kind == "dp" and operation in ("all_reduce", *SCATTERED)
        return number_type(self.precision, self.sums if reduced else None)

    def record(self, label: Label, rank: int) -> dict[str, Any]:
        operation = self.shown(label).operation
        if not operation or not label.payloads:
            return {}
        about: dict[str, Any] = {"Collective name": recorded_name(operation)}
        payload, single = label.payloads[0], len(label.payloads) == 1
        members = self._members(payload.communicator, rank)
        if single:
            about |= self._sizes(label.kind, operation, payload.nbytes, max(1, len(members)))
        if len(members):
            about |= {"Group size": len(members), "Process Group Name": self.groups[payload.communicator]}
            about |= {"Process Group Description": str(payload.communicator), "Process Group Ranks": _listed(members)}
        if isinstance(payload.communicator, Messages) and len(members):
            about |= {"Src Rank": members[0], "Dst Rank": members[1]}
        return about

    def _sizes(self, kind: str, operation: str, nbytes: float, size: int) -> dict[str, Any]:
        """Elements that go in and come out, of a buffer of *nbytes* in a group of *size*; counted in bytes where they
        are no whole numbers."""
        _, number = self._number(kind, operation)
        if nbytes % (number.nbytes * size):
            _, number = number_type(self.precision, 1.0)
        whole = round(nbytes / number.nbytes)
        taken = whole // size if operation in GATHERED else whole
        given = whole // size if operation in SCATTERED else whole
        return {"In msg nelems": taken, "Out msg nelems": given, "dtype": number.record}

    @cached_property
    def groups(self) -> Mapping[Peers, str]:
        """The name of every group that something is sent in, as PyTorch numbers its process groups: 0 is all ranks."""
        used = {p.communicator for label in self.trace.labels for p in label.payloads if self.shown(label).operation}
        return {peers: str(k + 1) for k, peers in enumerate(sorted(used, key=str))}

    def of_rank(self, rank: int) -> Iterator[dict[str, Any]]:
        everybody = self.trace.ranks
        yield _configuration("0", "default_pg", range(everybody))
        for peers, name in self.groups.items():
            members = self._members(peers, rank)
            if members:
                yield _configuration(name, str(peers), members)

    def _members(self, peers: Peers, rank: int) -> list[int]:
        """The ranks of the group that a rank posts to (of messages: sender and receiver); nobody if it is alone."""
        if isinstance(peers, Group) and peers.alone:
            return []
        members = self.network.members(peers)
        own = members[:, :1] == rank if isinstance(peers, Messages) else members == rank
        rows = np.flatnonzero(own.any(axis=1))
        return [int(member) for member in members[rows[0]]] if len(rows) else []


def kernels_of(analysis: StepAnalysis) -> Kernels:
    """What the spans of a simulated or of a measured step are shown as."""
    return JobKernels(analysis) if isinstance(analysis, Analysis) else Kernels()


def _configuration(name: str, about: str, ranks: range | list[int]) -> dict[str, Any]:
    return {
        "pg_name": name, "pg_desc": about, "backend_config": "cuda:nccl", "pg_size": len(ranks), "ranks": list(ranks),
    }  # fmt: skip


def _listed(ranks: list[int]) -> str:
    """
    >>> _listed([0, 8]), _listed(list(range(40)))[-13:]
    ('[0, 8]', ' 28, 29, ...]')
    """
    more = ", ..." if len(ranks) > SHOWN_RANKS else ""
    return f"[{', '.join(map(str, ranks[:SHOWN_RANKS]))}{more}]"
