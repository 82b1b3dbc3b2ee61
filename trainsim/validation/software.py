"""The profile of the software that a published run used, by what its source calls it."""

from __future__ import annotations

from typing import NamedTuple

from trainsim.frameworks import load_framework
from trainsim.validation.published import Run

INTERIM = (
    ("OneFlow", "oneflow"),
    ("Composer", "llm-foundry"),
    ("MLPerf", "mlperf"),
    ("ZeRO-3", "deepspeed-zero3-2021"),
    ("DeepSpeed (2020)", "megatron-deepspeed-2020"),
    ("Megatron-LM 2020", "megatron-2020"),
    ("Megatron-LM 2021", "megatron-2021"),
    ("Megatron-LM 2022", "megatron-2022"),
    ("Megatron-DeepSpeed", "megatron-deepspeed-2022"),
    ("AutoModel", "pytorch-fsdp2-bf16"),
    ("Megatron-Core 0", "megatron-core"),
    ("TE 2.11", "megatron-core-fused-loss"),
    ("NeMo", "nemo"),
    ("Bridge", "megatron-core"),
    ("InternEvo", "deepspeed"),
    ("nanotron, messages", "nanotron-messages-wait"),
    ("nanotron, collectives", "nanotron-collectives-wait"),
    ("nanotron", "nanotron"),
)


class Software(NamedTuple):
    """The name of a profile, whose software it is, and what was assumed."""

    profile: str
    family: str
    assumed: tuple[str, ...]


def software_of(run: Run) -> Software:
    """The profile for *run*."""
    named = run.text("framework")
    name = next((profile for word, profile in INTERIM if word in named), "neutral")
    return Software(name, load_framework(name).family, ())
