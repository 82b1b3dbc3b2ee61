"""The profile of the software that a published run used, by what its source calls it."""

from __future__ import annotations

from typing import NamedTuple

from trainsim.frameworks import load_framework
from trainsim.frameworks.software import profile_for
from trainsim.validation.published import Run
from trainsim.validation.strategy import strategy_of


class Software(NamedTuple):
    """The name of a profile, whose software it is, and what was assumed."""

    profile: str
    family: str
    assumed: tuple[str, ...]


def software_of(run: Run) -> Software:
    """The profile for *run*.

    >>> software_of(Run(line=2, cells={"framework": "Megatron-LM", "year": "2021", "zero_stage": "1"})).profile
    'megatron-2021'
    """
    chosen = profile_for(run.text("framework"), year=run.whole("year"), sharding=strategy_of(run))
    assumed = () if chosen.known else (f"{chosen.why}: {chosen.assumed}" if chosen.assumed else chosen.why,)
    return Software(chosen.profile, load_framework(chosen.profile).family, assumed)
