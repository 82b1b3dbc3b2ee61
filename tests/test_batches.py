"""Batches and the types of gradients: two numbers give the third, one switch means two keys, and all agree."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainsim.errors import TrainsimError
from trainsim.scenario.scenario import Scenario
from trainsim.study.ways import MEMORY, TIME, suggestions

DP = 8


def scenario(**training: Any) -> Scenario:
    """GPT-2 on eight GPUs that are all replicas."""
    return Scenario.from_dict({"model": "gpt2", "cluster": {"topology": "dgx_a100", "nodes": 1}, "training": training})


@given(st.integers(1, 32), st.integers(1, 32))
def test_any_two_of_the_batches_give_the_third(micro_batch: int, accumulation: int) -> None:
    every = {
        "micro_batch": micro_batch,
        "gradient_accumulation": accumulation,
        "global_batch": micro_batch * accumulation * DP,
    }
    jobs = [scenario(**every).resolve().training]
    jobs += [
        scenario(**{key: value for key, value in every.items() if key != left}).resolve().training for left in every
    ]
    assert {(j.micro_batch, j.microbatches, j.global_batch) for j in jobs} == {tuple(every.values())}


def test_accumulation_alone_has_one_sequence_at_a_time() -> None:
    job = scenario(gradient_accumulation=5).resolve().training
    assert (job.micro_batch, job.microbatches, job.global_batch) == (1, 5, 5 * DP)


def test_resolved_batches_are_read_again() -> None:
    one = scenario(gradient_accumulation=4, micro_batch=2, gradients="bf16")
    again = Scenario.from_dict(one.resolved)
    assert again.resolve().training == one.resolve().training


@pytest.mark.parametrize(
    ("training", "words"),
    [
        (
            {"micro_batch": 2, "gradient_accumulation": 4, "global_batch": 128},
            [
                "micro_batch 2 x dp 8 x gradient_accumulation 4 = 64",
                "is 128",
                "gradient_accumulation=8",
                "micro_batch=4",
            ],
        ),
        (
            {"gradient_accumulation": 3, "global_batch": 64},
            ["dp 8 x gradient_accumulation 3 = 24", "48, 72"],
        ),
        ({"gradient_accumulation": 0}, ["training.gradient_accumulation = 0", "at least 1"]),
        ({"gradient_acumulation": 4}, ["did you mean 'gradient_accumulation'"]),
        ({"gradients": "fp32", "gradient_dtype": "bf16"}, ["training.gradients", "gradient_dtype is bf16"]),
        ({"gradients": "bf16", "accumulation_dtype": "fp32"}, ["training.gradients", "accumulation_dtype is fp32"]),
        ({"gradients": "fp16"}, ["training.gradients", "fp32 and bf16 would work"]),
        ({"gradients": "bf16", "precision": "fp32"}, ["training.gradients", "fp32 would work"]),
    ],
)
def test_what_does_not_agree_is_told(training: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(TrainsimError) as caught:
        scenario(**training).resolve()
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_one_switch_is_both_types(dtype: str) -> None:
    one, two = scenario(gradients=dtype), scenario(gradient_dtype=dtype, accumulation_dtype=dtype)
    assert one.resolve().training == two.resolve().training
    assert "training.gradients" in one.resolved["derived"]["training.gradient_dtype"]


@pytest.mark.parametrize("saves", [MEMORY, TIME])
def test_ways_to_change_a_job_go_with_accumulation(saves: str) -> None:
    """What changes the batch lets go of the number of micro-batches, so that nothing contradicts itself."""
    base = scenario(micro_batch=4, gradient_accumulation=4)
    job = base.resolve()
    changes = [
        c.values for c in suggestions(base, saves) if {"training.micro_batch", "training.global_batch"} & set(c.values)
    ]
    assert changes
    for values in changes:
        assert base.replace(values).resolve().training.global_batch >= job.training.global_batch
