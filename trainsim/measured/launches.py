"""What the host was at when it launched a kernel: forward, backward, recomputation or optimizer; which collective."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from trainsim.measured.trace_events import Event, number

RUNTIME = ("cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "privateuse1_runtime")
OPERATORS = ("cpu_op", "user_annotation", "operator")
ANNOTATIONS = ("user_annotation", "operator")
"""What people and libraries name; older files call them operators."""
ENGINE = "autograd::engine::evaluate_function"
OPTIMIZER = re.compile(r"optimizer\.(?:step|zero_grad)|optimizer[_ ]step|^adam|clip_grad", re.IGNORECASE)
CHECKPOINT = re.compile(r"checkpoint\w*backward|recompute|activation_checkpoint", re.IGNORECASE)
BACKWARD_WORDS = re.compile(r"backward|bwd|dgrad|wgrad|_grad(?![a-z])", re.IGNORECASE)
FORWARD_WORDS = re.compile(r"(?<![a-z])forward(?![a-z])", re.IGNORECASE)
UPDATE_WORDS = re.compile(r"adam|multi_tensor_apply|optimizer|sgd|lamb_", re.IGNORECASE)
RECORDS = ("record_param_comms", "nccl:", "rccl:", "gloo:")


class KernelLaunch(NamedTuple):
    """When a kernel was launched (nanoseconds; -1: not told), in which phase (a kind of span, or nothing), with what
    record of a collective and under what it calls it, by which process."""

    at_ns: int
    phase: str
    record: Mapping[str, Any]
    annotation: str
    process: str


class _Frame(NamedTuple):
    """An operator under way on a thread."""

    end_ns: int
    phase: str
    engine: bool
    record: Mapping[str, Any]
    annotation: str


NOTHING: Mapping[str, Any] = {}
BOTTOM = _Frame(1 << 62, "", False, NOTHING, "")
UNKNOWN = KernelLaunch(-1, "", NOTHING, "", "")


class KernelLaunches:
    """Every launch of a file, by the number that joins it to its kernels; several processes may use one number."""

    def __init__(self, events: Sequence[Event]):
        threads: dict[tuple[str, str], list[Event]] = {}
        for event in events:
            if event.kind in OPERATORS or (event.kind in RUNTIME and event.link >= 0):
                threads.setdefault(event.thread, []).append(event)
        self._by_link: dict[int, list[KernelLaunch]] = {}
        for own in threads.values():
            for link, launch in _of_thread(own):
                self._by_link.setdefault(link, []).append(launch)

    def of(self, kernel: Event) -> KernelLaunch:
        """The launch of a kernel or copy: of several the last one before it began."""
        found = self._by_link.get(kernel.link, [])
        if len(found) < 2:
            return found[0] if found else UNKNOWN
        before = [launch for launch in found if launch.at_ns <= kernel.begin_ns]
        return max(before or found, key=lambda launch: launch.at_ns)


def _of_thread(events: list[Event]) -> Iterator[tuple[int, KernelLaunch]]:
    """The launches of one thread, whose operators lie in each other."""
    stack = [BOTTOM]
    events.sort(key=lambda event: (event.begin_ns, -event.length_ns, event.kind in RUNTIME))
    for event in events:
        while stack[-1].end_ns <= event.begin_ns and len(stack) > 1:
            stack.pop()
        top = stack[-1]
        if event.kind in RUNTIME:
            yield event.link, KernelLaunch(event.begin_ns, top.phase, top.record, top.annotation, event.thread[0])
        else:
            stack.append(_frame(event, top))


def _frame(event: Event, below: _Frame) -> _Frame:
    """*event* on top of what is under way."""
    record = event.args if event.name.startswith(RECORDS) or "Collective name" in event.args else below.record
    annotation = event.name if event.name.startswith(RECORDS[1:]) else below.annotation
    engine = below.engine or event.name.startswith(ENGINE)
    return _Frame(event.end_ns, _phase(event, below, engine=engine), engine, record, annotation)


def _phase(event: Event, below: _Frame, *, engine: bool) -> str:
    """Kernels in the engine of autograd are backward, but for operators that build a graph again."""
    name = event.name
    if event.kind in ANNOTATIONS and OPTIMIZER.search(name):
        return "optimizer"
    if name.startswith(ENGINE):
        return "recompute" if CHECKPOINT.search(name) else "backward"
    if engine:
        graph = number(event.args.get("Sequence number"), -1) >= 0 and event.args.get("Fwd thread id") == 0
        return "recompute" if below.phase == "recompute" or CHECKPOINT.search(name) or graph else below.phase
    if event.kind in ANNOTATIONS:
        if CHECKPOINT.search(name):
            return "recompute"
        for phase, words in (("backward", BACKWARD_WORDS), ("forward", FORWARD_WORDS)):
            if words.search(name):
                return phase
    return below.phase


def phase_of_kernel(name: str) -> str:
    """The phase that a kernel's own *name* tells, where no launch does: forward if nothing else.

    >>> phase_of_kernel("flash_bwd_dq_dk_dv_loop"), phase_of_kernel("multi_tensor_apply_kernel<Adam>")
    ('backward', 'optimizer')
    """
    if UPDATE_WORDS.search(name):
        return "optimizer"
    return "backward" if BACKWARD_WORDS.search(name) else "forward"
