"""The rollout of reinforcement learning: the sequences that a step generates before it trains on them."""

from __future__ import annotations

from dataclasses import dataclass

WEIGHTS, PREFILL, DECODE, SCORING, COLLECTED = "weights", "P", "D", "scoring", "collected"
WORKS = (WEIGHTS, PREFILL, DECODE, SCORING, COLLECTED)
"""``work`` of the templates of a rollout, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """What is generated, and the inference engine that does it; lengths in tokens, memory in bytes.

    An engine is a model over ``tp`` x ``pp`` GPUs. ``gpu_memory_utilization`` is the part of a GPU's memory that it
    takes (None: what training leaves of the usual part), ``kept_memory`` what stays of it while training, if it
    sleeps. On GPUs of their own (``nodes``) engines are ``asynchronous`` if they generate the samples of the next step
    while this one trains.
    """

    prompt_length: int
    response_length: int
    samples: int
    tp: int = 1
    pp: int = 1
    kv_cache: str = "paged"
    block_size: int = 16
    gpu_memory_utilization: float | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int = 8192
    prompt_micro_batches: int | None = None
    decode_micro_batches: int | None = None
    enforce_eager: bool = False
    host_per_iteration: float = 0.0
    sleep: bool = True
    kept_memory: float = 0.0
    placement: str = "colocated"
    nodes: int | None = None
    asynchronous: bool = False
    scored_by: int = 0

    @property
    def separate(self) -> bool:
        """Whether engines have GPUs of their own."""
        return self.placement == "separate"

    @property
    def length(self) -> int:
        """Tokens of a whole sequence."""
        return self.prompt_length + self.response_length

    @property
    def unit(self) -> int:
        """Tokens of the blocks in which memory is given out: a whole sequence where the cache is contiguous."""
        return self.length if self.kv_cache == "contiguous" else self.block_size
