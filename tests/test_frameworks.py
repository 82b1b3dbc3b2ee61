"""Profiles of frameworks: complete, sourced, and in agreement with what their memory and traffic are known to be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.jobs import run_small, small
from trainsim.errors import UnknownName
from trainsim.frameworks import Framework, framework_names, load_framework
from trainsim.hardware.gpu import load_gpu
from trainsim.program.lower import lower
from trainsim.program.tensor_overlap import tensor_overlaps
from trainsim.sharding import strategies
from trainsim.sharding.cutting import rules


@pytest.mark.parametrize("name", framework_names())
@pytest.mark.parametrize("precision", ["", "bf16", "fp16"])
def test_profiles_are_complete(name: str, precision: str) -> None:
    profile = load_framework(name, precision)
    assert profile.name == name
    assert len(profile.source) > 40
    assert profile.kernels.attention in {"eager", "sdpa", *load_gpu("h100-sxm5-80gb").kernels.attention.curves}
    assert profile.communication.tp_overlap in tensor_overlaps
    assert profile.communication.zero1_operation in {"reduce_scatter", "all_reduce", "reduce"}
    assert profile.communication.bucketed_stages in {"all", "first"}
    assert profile.communication.bucket_rule in rules
    assert profile.communication.norm_over in {"shards", "model"}
    assert set(profile.communication.overflow_checked) <= set(strategies)
    assert profile.communication.gradient_bytes in (2, 4)
    assert 0 < profile.communication.network_efficiency <= 1
    assert 0 < profile.communication.p2p_efficiency <= 1
    assert not (profile.kernels.accumulation_fused and profile.kernels.accumulation_bytes_per_parameter)
    for field, kind in Framework.__annotations__.items():
        known = {word.partition("[")[0].replace("None", "NoneType") for word in kind.split(" | ")}
        assert type(getattr(profile, field)).__name__ in known, field


def test_a_base_is_a_base() -> None:
    """What blocks launches differs from what does not in nothing else."""
    plain, blocking = (load_framework("megatron-deepspeed-2022" + end) for end in ("", "-launch-blocking"))
    differ = {k for k in Framework.__annotations__ if getattr(plain, k) != getattr(blocking, k)}
    assert differ == {"name", "source", "host"}
    assert replace(blocking.host, blocking=False) == plain.host


def test_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'megatron-core'"):
        load_framework("megatron-cor")


@pytest.mark.parametrize(
    ("framework", "rows"),
    [
        *((name, 50257) for name in ("neutral", "transformers", "pytorch-fsdp2", "deepspeed", "torchtitan")),
        *((name, 50304) for name in ("megatron-core", "megatron-deepspeed-2022", "nemo", "oneflow")),
    ],
)
def test_padding_of_the_vocabulary_is_the_frameworks(framework: str, rows: int) -> None:
    """Hugging Face's GPT-2 has the parameters of its checkpoint; Megatron-LM pads to a multiple of 128 x tp."""
    one = {"cluster": {"topology": "dgx_a100", "nodes": 1, "gpus_per_node": 1}, "training__global_batch": 1}
    job = small(model="gpt2", parallel__tp=1, parallel__pp=1, framework=framework, sharding__strategy="ddp", **one)
    assert job.padded_vocab == rows
    assert lower(job).system.programs[0].parameters == 124_439_808 + (rows - 50257) * 768


@pytest.mark.parametrize("name", framework_names())
def test_tensor_parallelism_cuts_whatever_vocabulary(name: str) -> None:
    job = small(model__vocab=50257, parallel__tp=8, parallel__pp=1, framework=name, model__heads=16)
    multiple = 8 * load_framework(name).kernels.vocab_multiple
    assert job.padded_vocab % multiple == 0
    assert 0 <= job.padded_vocab - 50257 < multiple


@pytest.mark.parametrize(("nics", "ratio"), [(1, 8.0), (2, 8.0)])
def test_slices_of_a_message_share_the_nics_of_a_node(nics: int, ratio: float) -> None:
    """SC21's scatter/gather: the ranks of a tensor-parallel group send a part each over what NICs there are."""
    narrow = {"topology": "dgx_a100", "nodes": 2, "nics_per_node": nics, "nic_bandwidth": "10Gbps"}
    changes = {"cluster": narrow, "parallel": {"tp": 8, "pp": 2}, "training__global_batch": 1}
    seconds = {
        sliced: run_small(
            **changes, framework={"base": "megatron-2021", "communication": {"p2p_sliced": sliced}}
        ).trace.duration
        for sliced in (True, False)
    }
    message = 1024 * 1024 * 2.0  # tokens x hidden x bytes
    whole = 2 * 8 * message / (nics * 1.25e9 * 0.98)  # forward and backward, 8 ranks
    assert seconds[False] - seconds[True] == pytest.approx(whole * (1 - 1 / ratio), rel=0.1)
