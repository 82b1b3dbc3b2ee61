"""The part of the training section that says how tokens get to experts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from trainsim.scenario.fields import Factor, NotNegative, ScenarioSection, as_tuple


class ImbalanceSpec(ScenarioSection):
    """How unevenly a router fills experts: Zipf's law (the k-th most popular expert gets 1/k^zipf), or shares."""

    zipf: Annotated[float, Field(ge=0, le=10)] | None = None  # exponent of Zipf's law; 0: all alike
    seed: NotNegative = 0  # which experts are popular
    loads: Annotated[tuple[float, ...] | None, BeforeValidator(as_tuple)] = None
    """The share of each expert, in the place of a law."""


class RoutingSpec(ScenarioSection):
    """How tokens get to their experts."""

    dispatcher: str | None = None  # `alltoall`, `allgather`, `deepep`, `hybridep`; left out: the framework's
    dispatch_precision: Literal["fp8"] | None = None  # of tokens on their way to experts; left out: 16 bits
    capacity_factor: Factor | None = None
    """An expert takes at most so many times an equal share; left out: no token is dropped."""
    pad_to_capacity: bool = False  # and exactly so many
    imbalance: ImbalanceSpec | None = None  # how unevenly experts are filled; left out: evenly
    shared_overlap: bool = False  # shared experts compute while tokens travel
