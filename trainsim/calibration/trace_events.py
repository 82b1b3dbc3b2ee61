"""
Events of a PyTorch profiler trace (Chrome's format, as Kineto writes it): what ran when, on which thread, and why.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from trainsim.calibration.reader import MeasuredText
from trainsim.errors import ScenarioError

MICROSECOND = 1e-6


class Event(NamedTuple):
    """A complete event: ``kind`` in lower case, times in seconds, ``link`` joins a launch to its kernel, ``cause`` a
    kernel to the operator that asked for it (-1: none)."""

    name: str
    kind: str
    begin: float
    seconds: float
    thread: tuple[str, str]
    link: int
    cause: int
    args: Mapping[str, Any]

    @property
    def end(self) -> float:
        """When it is over."""
        return self.begin + self.seconds


class TraceFile(NamedTuple):
    """The events of a file in the order in which they begin, the name of its GPU, and the rank that wrote it."""

    events: tuple[Event, ...]
    gpu: str
    rank: int


def trace_of(text: MeasuredText) -> TraceFile:
    """The events in *text*. Raises ScenarioError for what is no such trace; events that are damaged are left out."""
    try:
        data = json.loads(text.text)
    except (ValueError, RecursionError) as fault:
        raise ScenarioError(f"{text.shown}: not valid JSON, is it cut off? Export it again: {fault}") from None
    listed = data.get("traceEvents") if isinstance(data, dict) else data
    if not isinstance(listed, list):
        raise ScenarioError(f"{text.shown}: no trace: it has no list of traceEvents")
    events = sorted(_events(listed), key=lambda event: event.begin)
    info = data if isinstance(data, dict) else {}
    return TraceFile(tuple(events), _gpu(info), _number(_mapping(info.get("distributedInfo")).get("rank"), 0))


def _events(listed: list[Any]) -> Iterator[Event]:
    for entry in listed:
        if not isinstance(entry, dict) or entry.get("ph") != "X":
            continue
        begin, seconds = _time(entry.get("ts")), _time(entry.get("dur"))
        if begin is None or seconds is None or seconds < 0:
            continue
        args = _mapping(entry.get("args"))
        yield Event(
            name=str(entry.get("name", "")),
            kind=str(entry.get("cat", "")).lower(),
            begin=begin,
            seconds=seconds,
            thread=(str(entry.get("pid")), str(entry.get("tid"))),
            link=_number(args.get("correlation"), -1),
            cause=_number(args.get("External id", args.get("external id")), -1),
            args=args,
        )


def _gpu(info: Mapping[str, Any]) -> str:
    devices = info.get("deviceProperties")
    first = _mapping(devices[0]) if isinstance(devices, list) and devices else {}
    return str(first.get("name", ""))


def _time(value: object) -> float | None:
    try:
        seconds = float(value) * MICROSECOND  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return seconds if abs(seconds) < float("inf") else None


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
