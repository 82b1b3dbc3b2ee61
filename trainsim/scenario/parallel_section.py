"""The ``parallel`` section of a scenario: degrees of parallelism, and how ranks lie on GPUs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator

from trainsim.scenario.fields import Degree, ScenarioSection, as_tuple

Axis = Literal["tp", "cp", "ep", "dp", "pp"]


class ParallelSpec(ScenarioSection):
    """Degrees of parallelism; their product is the number of GPUs."""

    tp: Degree = 1  # ranks that every layer is cut over (tensor parallelism)
    pp: Degree = 1  # pipeline stages, of `pipeline.chunks` virtual ones each
    dp: Degree | None = None  # replicas; left out: GPUs / (tp x pp x cp)
    cp: Degree = 1  # ranks that share a sequence (context parallelism)
    ep: Degree = 1  # ranks that the experts of a layer are dealt to, inside the replicas
    etp: Degree | None = None  # ranks that cut each expert; left out: tp
    sequence_parallel: bool = False  # activations between tensor-parallel parts are cut along the sequence
    context_parallel: str = "ring"  # how ranks of cp see each other's keys: `ring`, `all_gather`, `ulysses`, `hybrid`
    ulysses: Degree | None = None  # in a `hybrid`: neighbours that share the heads; left out: derived
    position_parallel: bool = False  # the table of learned positions is cut over tp
    order: Annotated[tuple[Axis, ...], BeforeValidator(as_tuple)] = ("tp", "cp", "ep", "dp", "pp")
    """How ranks lie on GPUs, innermost first."""
