"""
Events of a profiler trace (Chrome's format, as Kineto writes it): what ran when, on which thread, and why.

The text is read event by event, so that a file that ends early gives all that is before, and a large one is never in
memory as a whole tree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

from trainsim.errors import ScenarioError
from trainsim.measured.file import FileText

NANOSECOND = 1e-9
LATEST = 1 << 62
"""Nanoseconds: times beyond are damaged."""
LEFT_OUT = frozenset({"python_function", "overhead", "trace"})
"""Kinds of events that nobody reads: with stacks they are most of a file."""
UNREAD = frozenset({
    "grid", "block", "registers per thread", "shared memory", "blocks per SM", "warps per SM", "queued", "context",
    "est. achieved occupancy %", "cbid", "Ev Idx", "Record function id", "memory bandwidth (GB/s)", "Call stack",
    "In split size", "Out split size", "Python id", "Concrete Inputs", "Input Strides", "Trace name", "Trace iteration",
})  # fmt: skip
"""Arguments of events that nobody reads."""
SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


class Event(NamedTuple):
    """A complete event: ``kind`` in lower case, times in nanoseconds, ``link`` joins a launch to its kernel, ``cause``
    a kernel to the operator that asked for it (-1: none)."""

    name: str
    kind: str
    begin_ns: int
    length_ns: int
    thread: tuple[str, str]
    link: int
    cause: int
    args: Mapping[str, Any]

    @property
    def end_ns(self) -> int:
        return self.begin_ns + self.length_ns

    @property
    def begin(self) -> float:
        """Seconds."""
        return self.begin_ns * NANOSECOND

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.length_ns * NANOSECOND

    @property
    def end(self) -> float:
        """Seconds: when it is over."""
        return self.end_ns * NANOSECOND


class Arrow(NamedTuple):
    """One end of an arrow between events: ``start`` or not, in nanoseconds, on the thread of the event there."""

    kind: str
    number: str
    start: bool
    at_ns: int
    thread: tuple[str, str]


@dataclass(frozen=True, kw_only=True, repr=False)
class TraceFile:
    """The events of a file in the order in which they begin, its arrows between a forward and its backward, names of
    processes (by pid) and of threads, and what is said of the whole. ``fault`` says why it ends early, if it does;
    ``damaged`` counts the events that were left out because their times are none."""

    shown: str
    events: tuple[Event, ...]
    arrows: tuple[Arrow, ...] = ()
    processes: Mapping[str, str]
    threads: Mapping[tuple[str, str], str]
    info: Mapping[str, Any]
    fault: str = ""
    damaged: int = 0

    @property
    def gpu(self) -> str:
        """The name of the first GPU, or nothing."""
        devices = self.info.get("deviceProperties")
        first = mapping(devices[0]) if isinstance(devices, list) and devices else {}
        return str(first.get("name", ""))

    @property
    def distributed(self) -> Mapping[str, Any]:
        """What is said of the job."""
        return mapping(self.info.get("distributedInfo"))


def trace_of(shown: str, text: FileText) -> TraceFile:
    """The events in *text*, also where it ends early. Raises ScenarioError for what is no such trace; events that are
    damaged are left out."""
    walk = _EventWalk(text.text)
    walk.go()
    if not walk.found:
        reason = walk.fault and f": not valid JSON, is it cut off? Export it again: {walk.fault}"
        raise ScenarioError(f"{shown}{reason or ': no trace: it has no list of traceEvents'}")
    events = [*walk.events, *walk.closed()]
    events.sort(key=lambda event: event.begin_ns)
    fault = walk.fault or ("" if text.whole else "the file is cut off")
    return TraceFile(
        shown=shown, events=tuple(events), arrows=tuple(walk.arrows), processes=walk.processes, threads=walk.threads,
        info=walk.info, fault=fault, damaged=walk.damaged,
    )  # fmt: skip


class _EventWalk:
    """Goes through the text once and keeps what is of use."""

    def __init__(self, text: str):
        self.text = text
        self.events: list[Event] = []
        self.arrows: list[Arrow] = []
        self.processes: dict[str, str] = {}
        self.threads: dict[tuple[str, str], str] = {}
        self.info: dict[str, Any] = {}
        self.found = False
        self.fault = ""
        self.damaged = 0
        self._edges: list[tuple[int, int, bool, Mapping[str, Any]]] = []
        self._words: dict[str, str] = {}

    def go(self) -> None:
        """All of the text, or as much as is sound."""
        try:
            at = self._next(0)
            if self.text[at : at + 1] == "[":
                self.found = True
                self._list(at + 1)
            elif self.text[at : at + 1] == "{":
                self._object(at + 1)
            else:
                _DECODER.raw_decode(self.text, at)
        except (ValueError, RecursionError) as fault:
            self.fault = str(fault)

    def _next(self, at: int) -> int:
        found = SPACE.match(self.text, at)
        return found.end() if found else at

    def _object(self, at: int) -> None:
        at = self._next(at)
        while self.text[at : at + 1] != "}":
            key, at = _DECODER.raw_decode(self.text, at)
            at = self._after(self._next(at), ":")
            if key == "traceEvents" and self.text[at : at + 1] == "[":
                self.found = True
                at = self._list(at + 1)
            else:
                self.info[str(key)], at = _DECODER.raw_decode(self.text, at)
            at = self._next(at)
            if self.text[at : at + 1] != "}":
                at = self._after(at, ",")

    def _list(self, at: int) -> int:
        """The events of the list that begins at *at*; where it ends. A comma may be the last."""
        at = self._next(at)
        while self.text[at : at + 1] != "]":
            entry, at = _DECODER.raw_decode(self.text, at)
            if isinstance(entry, dict):
                self._enter(entry)
            at = self._next(at)
            if self.text[at : at + 1] != "]":
                at = self._after(at, ",")
        return at + 1

    def _after(self, at: int, letter: str) -> int:
        if self.text[at : at + 1] != letter:
            raise json.JSONDecodeError(f"Expecting {letter!r}", self.text[at : at + 1], 0)
        return self._next(at + 1)

    def _enter(self, entry: dict[str, Any]) -> None:
        phase = entry.get("ph")
        if phase == "X":
            event = self._event(entry, nanoseconds_of(entry.get("ts")), nanoseconds_of(entry.get("dur")))
            if event:
                self.events.append(event)
        elif phase in ("B", "E"):
            at = nanoseconds_of(entry.get("ts"))
            if at is not None:
                self._edges.append((at, len(self._edges), phase == "B", entry))
        elif phase in ("s", "f") and entry.get("cat") != "ac2g":
            at = nanoseconds_of(entry.get("ts"))
            if at is not None:
                kind, number = self._word(entry.get("cat")), str(entry.get("id"))
                self.arrows.append(Arrow(kind, number, phase == "s", at, self._thread(entry)))
        elif phase == "M":
            name = str(mapping(entry.get("args")).get("name", ""))
            if entry.get("name") in ("process_name", "process_labels"):
                pid = str(entry.get("pid"))
                self.processes[pid] = f"{self.processes.get(pid, '')} {name}".strip()
            elif entry.get("name") == "thread_name":
                self.threads[self._thread(entry)] = name

    def _event(self, entry: Mapping[str, Any], begin: int | None, length: int | None) -> Event | None:
        kind = self._word(str(entry.get("cat", "")).lower())
        if kind in LEFT_OUT:
            return None
        if begin is None or length is None or length < 0:
            self.damaged += 1
            return None
        args = {self._word(key): value for key, value in mapping(entry.get("args")).items() if key not in UNREAD}
        return Event(
            name=self._word(entry.get("name", "")),
            kind=kind,
            begin_ns=begin,
            length_ns=length,
            thread=self._thread(entry),
            link=number(args.get("correlation"), -1),
            cause=number(args.get("External id", args.get("external id")), -1),
            args=args,
        )

    def closed(self) -> Iterator[Event]:
        """Events whose beginning and end are written apart: an end closes the last beginning of its thread."""
        under_way: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for at, _, begins, entry in sorted(self._edges, key=lambda edge: edge[:2]):
            stack = under_way.setdefault(self._thread(entry), [])
            if begins:
                stack.append(entry)
            elif stack:
                first = stack.pop()
                begin = nanoseconds_of(first.get("ts"))
                both = {**first, "args": {**mapping(first.get("args")), **mapping(entry.get("args"))}}
                event = self._event(both, begin, None if begin is None else at - begin)
                if event:
                    yield event

    def _thread(self, entry: Mapping[str, Any]) -> tuple[str, str]:
        return self._word(entry.get("pid")), self._word(entry.get("tid"))

    def _word(self, value: object) -> str:
        """*value* as text that is kept once."""
        text = str(value)
        if not text.isascii():  # half of a pair of surrogates is text in JSON, but in no file
            text = text.encode("utf-8", "replace").decode("utf-8")
        return self._words.setdefault(text, text)


def nanoseconds_of(value: object) -> int | None:
    """Microseconds of a file as whole nanoseconds; None for what is no time.

    >>> nanoseconds_of(1682725898236567), nanoseconds_of("2.25"), nanoseconds_of("x"), nanoseconds_of(float("inf"))
    (1682725898236567000, 2250, None, None)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value * 1000 if abs(value) < LATEST // 1000 else None
    try:
        micros = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return round(micros * 1000) if isfinite(micros) and abs(micros) < LATEST // 1000 else None


def number(value: object, default: int) -> int:
    """*value* if it is a whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def mapping(value: object) -> Mapping[str, Any]:
    """*value* if it is an object of JSON, else an empty one."""
    return value if isinstance(value, dict) else {}
