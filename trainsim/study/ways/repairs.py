"""What is slow or out of service in ``what_if`` put right."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.job import Job
from trainsim.scenario.scenario import Scenario
from trainsim.scenario.what_if_section import FailSpec, FlapSpec, SlowSpec, WhatIfSpec
from trainsim.study.trial import Change
from trainsim.study.ways import TIME, way
from trainsim.units import format_number_of

MOST_REPAIRS = 8
"""Repairs that are tried one by one."""


@way("repairs", TIME)
def repairs(scenario: Scenario, job: Job) -> Iterator[Change]:
    """The job without each of its slow, failed or flapping parts, and, of several, without all of them."""
    entries = scenario.spec.what_if
    broken = [k for k, entry in enumerate(entries) if _part(entry)]
    for k in broken[:MOST_REPAIRS]:
        yield _without(entries, {k}, f"repair {_name(entries[k])}")
    if len(broken) > 1:
        yield _without(entries, set(broken), f"repair all {len(broken)} parts of what_if")


def _without(entries: tuple[WhatIfSpec, ...], gone: set[int], title: str) -> Change:
    left = [entry.model_dump(exclude_unset=True) for k, entry in enumerate(entries) if k not in gone]
    return Change(kind="repair", title=title, values={"what_if": left})


def _part(entry: WhatIfSpec) -> SlowSpec | FailSpec | FlapSpec | None:
    return entry.slow or entry.fail or entry.flap


def _name(entry: WhatIfSpec) -> str:
    """The part that an entry is about, in words.

    >>> _name(WhatIfSpec(fail=FailSpec(uplink="leaf0", count=3))), _name(WhatIfSpec(slow=SlowSpec(node=7, factor=2)))
    ('3 uplinks of leaf0', 'node 7')
    """
    part = _part(entry)
    if isinstance(part, FailSpec) and part.uplink is not None:
        return f"{format_number_of(part.count, 'uplink')} of {part.uplink}"
    names = ("node", "rank", "gpu", "link", "nic", "leaf", "rail", "spine")
    kind, name = next((name, value) for name in names if (value := getattr(part, name, None)) is not None)
    return f"{kind} {name}" if isinstance(name, int) else str(name)
