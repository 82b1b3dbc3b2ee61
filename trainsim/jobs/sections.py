"""The tables of several jobs: what a step of each takes, and who disturbs whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainsim.analysis.kinds import TITLES
from trainsim.tables.blocks import Paragraph, Section
from trainsim.tables.cells import Sign, Unit
from trainsim.tables.table import Column, Table
from trainsim.units import format_time

if TYPE_CHECKING:
    from trainsim.jobs.outcome import Disturbance, JobOutcome, JobsResult

MOST_LINKS, MOST_KINDS, MOST_NODES = 3, 3, 8


def sections(result: JobsResult) -> list[Section]:
    """What to print of several jobs."""
    return [_times(result), *_pairs(result)]


def _times(result: JobsResult) -> Section:
    more = any(job.together.job.steps > job.steps for job in result.jobs)
    table = Table(
        columns=(
            Column("job", wraps=True),
            Column("nodes", wraps=True, priority=1),
            Column("start", Unit.TIME, priority=2),
            Column("steps", align="right", priority=1),
            Column("alone", Unit.TIME),
            Column("together", Unit.TIME),
            Column("slowdown", align="right"),
        ),
        rows=tuple(
            (job.name, _nodes(job.nodes), job.start_s, _steps(job), job.alone_s, job.together_s, f"x{job.slowdown:.3f}")
            for job in result.jobs
        ),
    )
    words = f"Seconds per step, the mean of a job's own steps; all are done after {format_time(result.duration)}."
    if more:
        words += " Jobs that finished earlier kept running: own steps + more."
    return Section(result.name, (table, Paragraph(words, "quiet")))


def _steps(job: JobOutcome) -> str:
    more = job.together.job.steps - job.steps
    return f"{job.steps} + {more}" if more else str(job.steps)


def _nodes(nodes: tuple[int, ...]) -> str:
    """Numbers of nodes, neighbours as a range.

    >>> _nodes((0, 1, 2, 5, 4)), _nodes(tuple(range(0, 40, 2)))
    ('0-2, 5, 4', '0, 2, 4, 6, 8, 10, 12, ... (20)')
    """
    ranges: list[list[int]] = []
    for node in nodes:
        if ranges and node == ranges[-1][-1] + 1:
            ranges[-1][1:] = [node]
        else:
            ranges.append([node])
    words = ["-".join(map(str, part)) for part in ranges]
    return ", ".join(words if len(words) <= MOST_NODES else [*words[: MOST_NODES - 1], f"... ({len(nodes)})"])


def _pairs(result: JobsResult) -> Iterator[Section]:
    if len(result.jobs) < 2:
        return
    if not result.disturbances:
        yield Section(
            "Interference between jobs", (Paragraph("None: no two jobs used the same link at the same time."),)
        )
        return
    table = Table(
        columns=(
            Column("jobs", wraps=True),
            Column("on one link", Unit.TIME),
            Column("oversubscribed", Unit.TIME),
            Column("with what", wraps=True),
            Column("links", wraps=True),
        ),
        rows=tuple(
            (f"{one.first}, {one.second}", one.shared_s, one.full_s, Sign(_traffic(one)), Sign(_links(one)))
            for one in result.disturbances
        ),
    )
    words = "Seconds in which both used the same link, and in which it was oversubscribed, which costs time."
    yield Section("Interference between jobs", (table, Paragraph(words, "quiet")))


def _traffic(one: Disturbance) -> str:
    parts = []
    for a, b, shared, full in one.traffic[:MOST_KINDS]:
        words = TITLES[a] if a == b else f"{TITLES[a]} of {one.first}, {TITLES[b]} of {one.second}"
        parts.append(f"{words}: {format_time(shared)}, {format_time(full)} of it oversubscribed")
    return "; ".join(parts)


def _links(one: Disturbance) -> str:
    names = [link.name for link in one.links]
    rest = len(names) - MOST_LINKS
    return ", ".join(names[:MOST_LINKS]) + (f" and {rest} more" if rest > 0 else "")
