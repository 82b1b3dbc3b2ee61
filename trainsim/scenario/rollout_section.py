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

    prompt_length: Length  # tokens of a prompt
    response_length: Length  # tokens that are generated
    samples: Size | None = None  # sequences that all engines generate in a step; left out: the global batch
    tp: Degree | None = None  # tensor parallelism of an engine; left out: that of training
    pp: Degree = 1  # pipeline stages of an engine
    kv_cache: Literal["paged", "contiguous"] = "paged"  # keys and values in blocks, or in one piece per sequence
    block_size: Size = 16  # tokens of a block
    gpu_memory_utilization: Utilization | None = None
    """The part of a GPU's memory that the engine takes; left out: what training leaves of 0.9."""
    max_num_seqs: Size | None = None  # sequences that run at once at most; left out: no limit
    max_num_batched_tokens: Size = 8192  # tokens of prompts that go through the model at once
    prompt_micro_batches: Degree | None = None  # parts that prompts are divided into; left out: `pp`
    decode_micro_batches: Degree | None = None  # parts that running sequences are divided into; left out: `pp`
    enforce_eager: bool = False  # no CUDA graphs: the host launches every kernel of every token
    host_per_iteration: Seconds = 0.0  # scheduling and sampling on the host between two iterations
    sleep: bool = True  # weights and cache are given back before training
    kept_memory: Bytes = 0.0  # what a sleeping engine keeps all the same
    placement: Literal["colocated", "separate"] = "colocated"
    """Engines on the GPUs of training, in turn with it, or on GPUs of their own."""
    nodes: Degree | None = None  # nodes of `separate` engines
    asynchronous: bool = False  # `separate` only: the next step is generated while this one trains
    scored_by: NotNegative = 0  # models of the same size that read every whole sequence once
