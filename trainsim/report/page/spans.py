"""The spans of some ranks for the timeline of a page.

They stay folded: a row of the trace is a run (labels at fixed offsets) at some moment, and only rows that shared a
resource bring the lengths of their spans along. Half a million spans of a hundred runs are 200 kB of a page. Times are
whole nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from trainsim.analysis.critical import CriticalPath
from trainsim.contracts.instructions import SEND, Payload
from trainsim.contracts.record import Label
from trainsim.contracts.trace import Ints, Trace
from trainsim.report.drawn_ranks import look_of
from trainsim.report.page.columns import packed, whole_nanoseconds
from trainsim.report.style import LOOKS
from trainsim.report.trace_tracks import Tracks, track_title, tracks_of
from trainsim.units import format_bytes


class _ShownChain(NamedTuple):
    """A chain of a shown rank: the place of the rank among these, its name and number, and the rows that are shown."""

    rank: int
    name: str
    number: int
    rows: Ints


def timeline_data(
    trace: Trace,
    ranks: Sequence[int],
    window: tuple[float, float] = (0.0, np.inf),
    *,
    path: CriticalPath | None = None,
    words: str = "",
) -> dict[str, Any]:
    """Every span of *ranks* whose row begins in *window* (seconds), what is known of it, and their lanes: for the view
    ``timeline``. *path* is drawn over them; *words* say what is left out."""
    tracks = [tracks_of(trace, rank) for rank in ranks]
    chains = [_shown(trace, k, rank, name, window) for k, rank in enumerate(ranks) for name in trace.chain_names(rank)]
    runs = np.unique(np.concatenate([np.zeros(0, np.int64), *(_run(trace, chain) for chain in chains)]))
    labels = np.unique(trace.run_spans.label[_spans_of(trace, runs)])
    lanes = [lane for k, some in enumerate(tracks) for lane in _lanes(trace, k, some)]
    return {
        "until": int(whole_nanoseconds(min(trace.duration, window[1]))),
        "words": words,
        "ranks": [{"rank": rank, "stage": int(trace.stage[trace.rank_class[rank]])} for rank in ranks],
        "lanes": lanes,
        "labels": _labels([trace.labels[k] for k in labels.tolist()]),
        "facts": [[fact.work, fact.chunk] for fact in trace.facts],
        "runs": _runs(trace, runs, labels),
        "chains": [_chain(trace, chain, tracks[chain.rank], runs) for chain in chains],
        "path": None if path is None else _path(trace, ranks, path, lanes),
    }


def _shown(trace: Trace, place: int, rank: int, name: str, window: tuple[float, float]) -> _ShownChain:
    number = trace.number[int(trace.rank_class[rank]), name]
    start = trace.rows(number).start
    return _ShownChain(place, name, number, np.flatnonzero((start >= window[0]) & (start < window[1])))


def _run(trace: Trace, chain: _ShownChain) -> Ints:
    return trace.rows(chain.number).run[chain.rows]


def _spans_of(trace: Trace, runs: Ints) -> Ints:
    """The places of the spans of some *runs* among those of all, run by run."""
    flat = trace.run_spans
    size = flat.size[runs]
    return np.repeat(flat.first[runs] - (np.cumsum(size) - size), size) + np.arange(int(size.sum()))


def _runs(trace: Trace, runs: Ints, labels: Ints) -> dict[str, Any]:
    """Of each of *runs* its spans: label (a place among *labels*), offset from the row's start, and length."""
    flat, at = trace.run_spans, _spans_of(trace, runs)
    start, end = whole_nanoseconds(flat.start[at]), whole_nanoseconds(flat.end[at])
    return {
        "size": packed(flat.size[runs]),
        "label": packed(np.searchsorted(labels, flat.label[at])),
        "offset": packed(start),
        "length": packed(end - start),
    }


def _chain(trace: Trace, chain: _ShownChain, tracks: Tracks, runs: Ints) -> dict[str, Any]:
    """The rows of a chain: ``after`` is the start of each less that of the row before, ``wait`` the time that it waited
    for peers, ``own`` whether its spans are not those of its run. Of these rows ``gaps`` and ``lengths`` say how long
    after the one before each span begins, and how long it is."""
    rows, some = trace.rows(chain.number), chain.rows
    start, tasks = whole_nanoseconds(rows.start[some]), trace.tasks[chain.number].facts
    own = (rows.literal | (rows.scale != 1.0))[some]
    task = rows.task[some]
    gaps, lengths = _own_spans(trace, chain.number, some[own])
    return {
        "rank": chain.rank,
        "name": chain.name,
        "run": packed(np.searchsorted(runs, rows.run[some])),
        "after": packed(np.diff(start, prepend=0)),
        "microbatch": packed(rows.microbatch[some]),
        "wait": packed(start - whole_nanoseconds(rows.posted[some])),
        "layer": packed(tracks.layers[chain.name][some]),
        "fact": packed(np.where(task < len(tasks), np.append(tasks, -1)[np.minimum(task, len(tasks))], -1)),
        "own": packed(own.astype(np.int64)),
        "gaps": packed(gaps),
        "lengths": packed(lengths),
    }


def _own_spans(trace: Trace, number: int, rows: Ints) -> tuple[Ints, Ints]:
    """(Gaps, lengths) of the spans of *rows* of chain *number*; the gap of a row's first span counts from its start."""
    if not len(rows):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    spans = trace.spans_of(number, rows)
    start, end = whole_nanoseconds(spans.start), whole_nanoseconds(spans.end)
    first = np.diff(spans.row, prepend=-1) != 0
    before = np.append(0, end[:-1])
    before[first] = whole_nanoseconds(trace.rows(number).start[rows])
    return start - before, end - start


def _lanes(trace: Trace, place: int, tracks: Tracks) -> list[dict[str, Any]]:
    """The lanes of a rank, as a trace file has its threads."""
    return [
        {"rank": place, "chain": chain, "stream": stream, "layer": layer,
         "title": track_title(trace, chain, stream, layer)}
        for chain, stream, layer, _ in tracks.threads
    ]  # fmt: skip


def _labels(labels: Sequence[Label]) -> dict[str, Any]:
    """What is known of each label; names, streams and what is carried are kept once."""
    words = {
        "name": [label.name for label in labels],
        "kind": [label.kind for label in labels],
        "stream": [label.stream for label in labels],
        "look": [look_of(label) for label in labels],
        "carries": ["; ".join(map(_carried, label.payloads)) for label in labels],
    }
    out: dict[str, Any] = {"layer": packed([label.layer for label in labels])}
    for what, texts in words.items():
        known = {text: k for k, text in enumerate(dict.fromkeys(texts))}
        out[what] = {"words": list(known), "at": packed([known[text] for text in texts])}
    out["looks"] = {look: _look(look) for look in out["look"]["words"]}
    return out


def _look(look: str) -> dict[str, str]:
    shown = LOOKS.get(look, LOOKS["other"])
    return {"fill": shown.fill, "title": shown.title if look in LOOKS else look}


def _carried(payload: Payload) -> str:
    """What a span moves, in words."""
    size, peers = format_bytes(payload.nbytes), payload.communicator
    return f"{size}, {peers}" if payload.operation == SEND else f"{payload.operation} of {size} in group {peers}"


def _path(trace: Trace, ranks: Sequence[int], path: CriticalPath, lanes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The legs of the path that run through the lanes that are shown: the first lane of a chain."""
    place = {int(trace.stage[trace.rank_class[rank]]): k for k, rank in reversed([*enumerate(ranks)])}
    lane = {(one["rank"], one["chain"]): k for k, one in reversed([*enumerate(lanes)])}
    legs = [(lane[key], leg.start, leg.end) for leg in path.legs if (key := (place.get(leg.stage), leg.chain)) in lane]
    columns = np.array(legs, np.float64).reshape(-1, 3)
    start, end = whole_nanoseconds(columns[:, 1]), whole_nanoseconds(columns[:, 2])
    return {"lane": packed(columns[:, 0]), "start": packed(start), "length": packed(end - start)}
