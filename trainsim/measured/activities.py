"""What GPUs did according to a profiler's file: kernels, copies and collectives, each with its rank, phase and step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from trainsim.errors import ScenarioError
from trainsim.measured.collective_records import CollectiveRecord, is_communication, record_of
from trainsim.measured.launches import KernelLaunches, phase_of_kernel
from trainsim.measured.marked_steps import StepMarks
from trainsim.measured.trace_events import Event, TraceFile, number

COPIES = ("gpu_memcpy", "gpu_memset", "memcpy", "memset")
ON_GPU = ("kernel", "concurrent_kernel", "privateuse1_kernel", *COPIES)
RANK_NAME = re.compile(r"(?<![a-z])(?:global_?)?rank[ _:=#-]*(\d{1,7})(?!\d)", re.IGNORECASE)
LAST_NUMBER = re.compile(r"(?<!\d)(\d{1,5})(?!\d)(?!.*\d)")
EXTENSIONS = re.compile(r"(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?$|\.gz$", re.IGNORECASE)


class GpuActivity(NamedTuple):
    """One kernel, copy or collective of a GPU, times in nanoseconds. ``kind`` is one of KINDS, or nothing for a
    collective (its ``record`` tells); ``launched_ns`` is -1 where that is not known, ``step`` NONE where it is in
    none."""

    stream: str
    name: str
    kind: str
    begin_ns: int
    end_ns: int
    launched_ns: int
    step: int
    record: CollectiveRecord | None


class FileActivities(NamedTuple):
    """The activities of each rank that a file speaks of, by rank number, and the steps that it marks."""

    by_rank: dict[int, list[GpuActivity]]
    marks: StepMarks


class ProfiledGpu(NamedTuple):
    """A GPU of a file: the process that its events are under, and its number."""

    process: str
    number: str


def activities_of(trace: TraceFile) -> FileActivities:
    """What the GPUs in *trace* did. Raises ScenarioError for a file without kernels."""
    events = [event for event in trace.events if event.kind in ON_GPU]
    if not any(event.kind not in COPIES for event in events):
        raise ScenarioError(
            f"{trace.shown}: the trace has no kernels; profile with activities=[ProfilerActivity.CPU, "
            "ProfilerActivity.CUDA], on a machine whose driver allows it"
        )
    ranks = ranks_of_devices(trace, dict.fromkeys(map(device_of, events)))
    launches, marks = KernelLaunches(trace.events), StepMarks(trace.events)
    by_rank: dict[int, list[GpuActivity]] = {rank: [] for rank in ranks.values()}
    for event in events:
        by_rank[ranks[device_of(event)]].append(_activity(event, launches, marks))
    return FileActivities({rank: own for rank, own in by_rank.items() if own}, marks)


def _activity(event: Event, launches: KernelLaunches, marks: StepMarks) -> GpuActivity:
    launch = launches.of(event)
    record, kind = None, "copy"
    if event.kind not in COPIES:
        if is_communication(event.name):
            record, kind = record_of(event.name, event.args, launch.record, launch.annotation), ""
        else:
            kind = launch.phase or phase_of_kernel(event.name)
    stream = event.args.get("stream")
    return GpuActivity(
        stream=str(event.thread[1] if stream is None else stream),
        name=event.name,
        kind=kind,
        begin_ns=event.begin_ns,
        end_ns=event.end_ns,
        launched_ns=launch.at_ns,
        step=marks.step_of(event, launch.at_ns, launch.process),
        record=record,
    )


def device_of(event: Event) -> ProfiledGpu:
    """The GPU that *event* ran on."""
    return ProfiledGpu(event.thread[0], str(event.args.get("device", "")))


def ranks_of_devices(trace: TraceFile, devices: Mapping[ProfiledGpu, None]) -> dict[ProfiledGpu, int]:
    """The rank of each GPU of a file: as its process is called, else as the file says, or as it is called, counted on
    from there where it has several."""
    named = {device: _named(trace.processes.get(device.process, "")) for device in devices}
    told = [rank for rank in named.values() if rank is not None]
    if len(told) == len(named) == len(set(told)):
        return {device: rank for device, rank in named.items() if rank is not None}
    first = rank_of_file(trace)
    if len(devices) == 1:
        return dict.fromkeys(devices, first or 0)
    order = sorted(devices, key=lambda device: (_as_number(device.process), _as_number(device.number)))
    numbers = [_as_number(device.number)[0] for device in order]
    if len(set(numbers)) == len(numbers) and max(numbers) < 1 << 20:
        return dict(zip(order, numbers, strict=True))  # one process that uses several GPUs, or ranks of one node
    return {device: (first or 0) + k for k, device in enumerate(order)}


def rank_of_file(trace: TraceFile) -> int | None:
    """The rank that wrote a file: as it says itself, or as its name does."""
    told = number(trace.distributed.get("rank"), -1)
    return told if told >= 0 else rank_of_name(trace.shown)


def rank_of_name(shown: str) -> int | None:
    """The rank in the name of a file, or else its last number.

    >>> rank_of_name("out/sampled_rank-12.json.gz"), rank_of_name("worker3.1700000000.pt.trace.json")
    (12, 3)
    >>> rank_of_name("trace_7.json"), rank_of_name("trace.json") is None
    (7, True)
    """
    name = EXTENSIONS.sub("", Path(shown).name)
    found = RANK_NAME.search(name) or re.search(r"(?:worker|gpu|device|proc(?:ess)?)[ _:=#-]*(\d{1,7})(?!\d)", name)
    found = found or LAST_NUMBER.search(name)
    return int(found[1]) if found else None


def _named(process: str) -> int | None:
    found = RANK_NAME.search(process)
    return int(found[1]) if found else None


def _as_number(word: str) -> tuple[int, str]:
    return (int(word), "") if word.isdecimal() and len(word) < 8 else (1 << 30, word)


def streams(activities: list[GpuActivity]) -> Iterator[tuple[str, int]]:
    """(Stream, nanoseconds of kernels that compute) of each stream that has any."""
    found: dict[str, int] = {}
    for activity in activities:
        if activity.record is None and activity.kind != "copy":
            found[activity.stream] = found.get(activity.stream, 0) + activity.end_ns - activity.begin_ns
    yield from found.items()
