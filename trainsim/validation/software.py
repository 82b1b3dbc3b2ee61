"""The profile of the software that a published run used, by what its source calls it."""

from __future__ import annotations

import re
from typing import NamedTuple

from trainsim.frameworks import load_framework
from trainsim.frameworks.software import profile_for
from trainsim.validation.published import PublishedRun
from trainsim.validation.strategy import strategy_of

TOLD = (re.compile(r"container (\d[\d.]*\d)"), re.compile(r"(fused cross entropy)"))
"""What the notes of a row tell of the software itself: the release of the container that held it, and an option."""


class SoftwareOfRun(NamedTuple):
    """The name of a profile, whose software it is, and what was assumed."""

    profile: str
    family: str
    assumed: tuple[str, ...]


def called(run: PublishedRun) -> str:
    """What the source calls the software, with what the notes tell of it.

    >>> called(PublishedRun(line=2, cells={"framework": "Megatron-Bridge", "notes": "NeMo container 26.06; dropless"}))
    'Megatron-Bridge 26.06'
    """
    told = (found[1] for pattern in TOLD if (found := pattern.search(run.text("notes"))))
    return " ".join((run.text("framework"), *told))


def software_of(run: PublishedRun) -> SoftwareOfRun:
    """The profile for *run*.

    >>> software_of(PublishedRun(line=2, cells={"framework": "Megatron-LM", "year": "2021", "zero_stage": "1"})).profile
    'megatron-2021'
    """
    chosen = profile_for(called(run), year=run.whole("year"), sharding=strategy_of(run))
    why = chosen.why if run.text("framework") else "framework is blank"
    assumed = () if chosen.known else (f"{why}: {chosen.assumed}" if chosen.assumed else why,)
    return SoftwareOfRun(chosen.profile, load_framework(chosen.profile).family, assumed)
