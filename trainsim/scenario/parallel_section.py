"""The ``parallel`` section of a scenario: degrees of parallelism, and how ranks lie on GPUs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator

from trainsim.scenario.fields import Degree, ScenarioSection, as_tuple

Axis = Literal["tp", "cp", "ep", "dp", "pp"]


class ParallelSpec(ScenarioSection):
    """Degrees of parallelism; their product is the number of GPUs."""

    tp: Degree = 1
    pp: Degree = 1
    dp: Degree | None = None
    cp: Degree = 1
    ep: Degree = 1
    etp: Degree | None = None
    sequence_parallel: bool = False
    context_parallel: str = "ring"
    ulysses: Degree | None = None
    position_parallel: bool = False
    order: Annotated[tuple[Axis, ...], BeforeValidator(as_tuple)] = ("tp", "cp", "ep", "dp", "pp")
