"""Traces that this program has written of a simulation, read back with all that was known of each span."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from trainsim.contracts.groups import USUAL, Group, Messages, Peers, Within
from trainsim.contracts.instructions import KINDS, Payload
from trainsim.contracts.measured_trace import MeasuredTrace
from trainsim.contracts.record import COMPUTE
from trainsim.errors import ScenarioError
from trainsim.measured.activities import RANK_NAME, rank_of_file
from trainsim.measured.collective_records import record_of
from trainsim.measured.reader import TraceRequest
from trainsim.measured.spans import MeasuredSpan, trace_of_spans
from trainsim.measured.trace_events import Event, TraceFile, mapping, nanoseconds_of, number
from trainsim.units import format_number_of

TITLE = re.compile(r"^(?:stream \d+ |host )?(?P<stream>.+?)(?: \((?P<chain>[^()]*)\))?(?:, \d+)?$")
STAGE = re.compile(r"\bstage (\d{1,6})\b")
MESSAGE = re.compile(r"^(?:pp-(forward|backward)(-reverse)?|control-(next|previous)|([a-z ]+)([+-]\d{1,6}))$")
LOOP = "training loop"
WAITS = "compute waits"


class _WrittenTask(NamedTuple):
    begin_ns: int
    end_ns: int
    work: str
    chunk: int


def is_own(trace: TraceFile) -> bool:
    """Whether this program wrote the file: its spans say what they are for."""
    return any(_kind(event) for event in trace.events)


def _kind(event: Event) -> str:
    """What a span is for, as it says itself."""
    kind = str(event.args.get("kind", event.kind))
    return kind if kind in KINDS and "microbatch" in event.args and "work" not in event.args else ""


def own_trace(traces: Sequence[TraceFile], request: TraceRequest) -> MeasuredTrace:
    """One trace of files of one simulation. Raises ScenarioError for two of one rank, and for a step alone."""
    if isinstance(request.step, int):
        raise ScenarioError(f"step {request.step}: files of a simulation are read as a whole; leave it out")
    owner: dict[int, str] = {}
    found: dict[int, list[MeasuredSpan]] = {}
    stages: dict[int, int] = {}
    carriers: dict[str, Messages] = {}
    for trace in traces:
        for rank, spans, stage in _of_file(trace, carriers):
            if rank in found:
                raise ScenarioError(f"{owner[rank]} and {trace.shown} are both from rank {rank}; give each rank once")
            owner[rank], found[rank], stages[rank] = trace.shown, spans, stage
    ranks = tuple(sorted(found))
    every = [span._replace(rank=place) for place, rank in enumerate(ranks) for span in found[rank]]
    result = trace_of_spans(every, stages=[stages[rank] for rank in ranks], messages=carriers, observed=False)
    about = mapping(traces[0].info.get("otherData"))
    faults = [f"{t.shown} ends early ({t.fault}): everything before that is read" for t in traces if t.fault]
    return MeasuredTrace(
        name=request.name or str(about.get("name", "simulation")),
        trace=result,
        files=tuple(trace.shown for trace in traces),
        rank_numbers=ranks,
        part=f"{format_number_of(len(ranks), 'rank')} of a simulation",
        gpu=traces[0].gpu,
        warnings=tuple(faults),
    )


def _of_file(trace: TraceFile, carriers: dict[str, Messages]) -> Iterator[tuple[int, list[MeasuredSpan], int]]:
    """(Rank, its spans, its stage) of all ranks of a file."""
    writer = rank_of_file(trace)
    by_process: dict[str, int] = {}
    stages: dict[int, int] = {}
    for process, name in trace.processes.items():
        named = RANK_NAME.search(name)
        rank = int(named[1]) if named else writer or 0
        by_process[process] = rank
        if stage := STAGE.search(name):
            stages[rank] = int(stage[1])
    tasks: dict[int, list[_WrittenTask]] = {}
    for event in trace.events:
        if event.kind == "gpu_user_annotation" and "work" in event.args:
            task = _WrittenTask(
                event.begin_ns, event.end_ns, str(event.args["work"]), number(event.args.get("chunk"), 0)
            )
            tasks.setdefault(by_process.get(event.thread[0], writer or 0), []).append(task)
    spans: dict[int, list[MeasuredSpan]] = {}
    for event in trace.events:
        if kind := _kind(event):
            rank = by_process.get(event.thread[0], writer or 0)
            place = _place(trace.threads.get(event.thread, COMPUTE), carriers)
            spans.setdefault(rank, []).append(_span(event, kind, place, tasks.get(rank, [])))
    for rank, own in spans.items():
        yield rank, own, stages.get(rank, 0)


def _place(title: str, carriers: dict[str, Messages]) -> tuple[str, str]:
    """(Chain, stream) of the thread that is called so; chains of messages are noted in *carriers*."""
    found = TITLE.match(title)
    stream, chain = (found["stream"], found["chain"] or found["stream"]) if found else (title, title)
    if stream == LOOP or chain == LOOP:
        return COMPUTE, COMPUTE
    if chain == WAITS:
        return COMPUTE, stream
    if way := messages_of(chain):
        carriers[way.chain] = way
        return way.chain, stream
    return chain, stream


def messages_of(title: str) -> Messages | None:
    """The messages that are called so; None for the name of anything else.

    >>> print(messages_of("pp-backward-reverse"), messages_of("control-next"), messages_of("tp"))
    pp-backward-reverse control-next None
    """
    found = MESSAGE.match(title)
    if not found:
        return None
    carries, back, control, other, far = found.groups()
    if carries:
        return Messages(carries, -USUAL[carries] if back else USUAL[carries])
    return Messages("control", 1 if control == "next" else -1) if control else Messages(other, int(far))


def _span(event: Event, kind: str, place: tuple[str, str], tasks: Sequence[_WrittenTask]) -> MeasuredSpan:
    chain, stream = place
    waited = nanoseconds_of(event.args.get("waited_us", 0)) or 0
    named = "operation" in event.args
    posted, begin = (event.begin_ns, event.begin_ns + waited) if named else (event.begin_ns - waited, event.begin_ns)
    task = _task(tasks, posted) if chain == COMPUTE else None
    return MeasuredSpan(
        rank=0, chain=chain, name=str(event.args["operation"]) if named else event.name, kind=kind, stream=stream,
        posted_ns=posted, begin_ns=min(begin, event.end_ns), end_ns=event.end_ns, work=task.work if task else "",
        microbatch=number(event.args.get("microbatch"), -1), layer=number(event.args.get("layer"), -1),
        chunk=task.chunk if task else 0, payloads=_payloads(event.name, event.args, kind),
    )  # fmt: skip


def _task(tasks: Sequence[_WrittenTask], at: int) -> _WrittenTask | None:
    k = bisect_right(tasks, at, key=lambda task: task.begin_ns) - 1
    return tasks[k] if k >= 0 and at < tasks[k].end_ns else None


def _payloads(name: str, args: Mapping[str, object], kind: str) -> tuple[Payload, ...]:
    if "Collective name" not in args:
        return ()
    record = record_of(name, args, {}, "")
    peers: Peers = Group((kind,), part=Within(record.size) if record.size else None)
    nbytes = args.get("bytes", record.nbytes)
    return (Payload(peers, record.operation, float(nbytes) if isinstance(nbytes, int | float) else 0.0),)
