"""Which profile stands for which software: a table that answers every name, and says so where it guesses."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.software import table
from trainsim.frameworks import framework_names, load_framework
from trainsim.frameworks.software import Software, profile_for, softwares
from trainsim.sharding import strategies

PAGE = Path(__file__).parents[1] / "docs" / "frameworks.md"


@pytest.mark.parametrize("row", softwares(), ids=lambda row: row.software)
def test_rows_name_profiles_and_strategies(row: Software) -> None:
    assert row.profile in framework_names()
    assert set(row.sharding) <= set(strategies)
    assert row.own or row.assumed, "what stands in says what that assumes"
    assert row.since <= row.until


def test_every_row_can_be_chosen() -> None:
    """No row stands behind one that answers for all of its names, years and strategies."""
    for number, row in enumerate(softwares()):
        for before in softwares()[:number]:
            same = before.named == row.named and before.since <= row.since and row.until <= before.until
            sharded = not before.sharding or (row.sharding and set(row.sharding) <= set(before.sharding))
            assert not (same and sharded), row.software


@given(st.text(), st.none() | st.integers(2017, 2030), st.none() | st.sampled_from(list(strategies)))
def test_every_name_has_a_profile(software: str, year: int | None, sharding: str | None) -> None:
    chosen = profile_for(software, year=year, sharding=sharding)
    assert chosen.known or chosen.assumed
    assert load_framework(chosen.profile).source


@pytest.mark.parametrize(
    ("software", "year", "sharding", "profile"),
    [
        ("Composer/FSDP1", 2023, "fsdp", "llm-foundry"),
        ("Megatron-Bridge (Megatron-Core)", 2025, "fsdp", "megatron-fsdp"),
        ("Megatron-DeepSpeed", 2022, "zero1", "megatron-deepspeed-2022"),
        ("Megatron-LM + DeepSpeed (2020)", 2020, "ddp", "megatron-deepspeed-2020"),
        ("Megatron-LM 2021", 2021, None, "megatron-2021"),
        ("Megatron-Core 0.12", 2025, "zero1", "megatron-core"),
        ("NeMo (Megatron-Core), MLPerf-tuned", 2024, "zero1", "mlperf"),
        ("NeMo 24.07 (Megatron-Core)", 2024, "zero1", "nemo-2024"),
        ("OneFlow 0.3.5", 2021, "ddp", "oneflow"),
        ("HuggingFace Trainer", 2023, "zero3", "transformers-deepspeed"),
        ("PyTorch FSDP", 2022, "fsdp", "pytorch-fsdp1"),
        ("Megatron-DeepSpeed", 2024, "ddp", "megatron-deepspeed-2024"),
        ("Megatron-LM", 2023, "zero1", "megatron-2023"),
        ("Megatron-Core 0.8", 2024, "zero1", "megatron-core-2024"),
        ("Megatron-LM + TE 2.11", 2026, "zero1", "megatron-core-fused-loss"),
        ("Megatron-Bridge (Megatron-Core)", 2026, "zero1", "megatron-bridge"),
        ("NeMo AutoModel (PyTorch FSDP2)", 2025, "fsdp", "nemo-automodel"),
        ("InternEvo", 2023, "zero1", "internevo"),
        ("JAX (MaxText)", 2025, "fsdp", "maxtext"),
        ("DeepSpeed ZeRO-3", 2021, "zero3", "megatron-deepspeed-2020"),
        ("DeepSpeed", 2024, "zero3", "transformers-deepspeed"),
        ("PyTorch FSDP2 + torch.compile", 2025, "fsdp", "pytorch-fsdp2"),
        ("PyTorch FSDP2", 2025, "fsdp", "pytorch-fsdp2-eager"),
        ("torchtune", 2024, None, "pytorch-fsdp2-bf16-eager"),
        ("TorchTitan", 2025, "fsdp", "torchtitan"),
        ("an in-house trainer", None, None, "neutral-eager"),
    ],
)
def test_names_that_people_print(software: str, year: int | None, sharding: str | None, profile: str) -> None:
    assert profile_for(software, year=year, sharding=sharding).profile == profile


def test_the_page_has_the_table() -> None:
    """``python -m tests.tools.software`` prints it."""
    text = PAGE.read_text(encoding="utf-8")
    assert [line for line in table() if line not in text] == []
