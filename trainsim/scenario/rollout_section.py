"""The ``training.rollout`` section of a scenario: what a step generates, and the inference engines that do it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from trainsim.scenario.fields import Degree, Length, NotNegative, ScenarioSection, Seconds, Size
from trainsim.units import parse_bytes

Bytes = Annotated[float, BeforeValidator(parse_bytes), Field(ge=0)]
Utilization = Annotated[float, Field(gt=0, le=1)]


class RolloutSpec(ScenarioSection):
    """The sequences that a step generates before it trains on them, in the words of vLLM and verl."""

    prompt_length: Length
    response_length: Length
    samples: Size | None = None
    tp: Degree | None = None
    pp: Degree = 1
    kv_cache: Literal["paged", "contiguous"] = "paged"
    block_size: Size = 16
    gpu_memory_utilization: Utilization | None = None
    max_num_seqs: Size | None = None
    max_num_batched_tokens: Size = 8192
    prompt_micro_batches: Degree | None = None
    decode_micro_batches: Degree | None = None
    enforce_eager: bool = False
    host_per_iteration: Seconds = 0.0
    sleep: bool = True
    kept_memory: Bytes = 0.0
    placement: Literal["colocated", "separate"] = "colocated"
    nodes: Degree | None = None
    asynchronous: bool = False
    scored_by: NotNegative = 0
