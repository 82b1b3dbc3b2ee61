"""The part of the training section that says how tokens get to experts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from trainsim.scenario.fields import Factor, NotNegative, ScenarioSection, as_tuple


class ImbalanceSpec(ScenarioSection):
    """How unevenly a router fills experts: Zipf's law (the k-th most popular expert gets 1/k^zipf), or shares."""

    zipf: Annotated[float, Field(ge=0, le=10)] | None = None
    seed: NotNegative = 0
    loads: Annotated[tuple[float, ...] | None, BeforeValidator(as_tuple)] = None


class RoutingSpec(ScenarioSection):
    """How tokens get to their experts."""

    dispatcher: str | None = None
    dispatch_precision: Literal["fp8"] | None = None
    capacity_factor: Factor | None = None
    pad_to_capacity: bool = False
    imbalance: ImbalanceSpec | None = None
    shared_overlap: bool = False
