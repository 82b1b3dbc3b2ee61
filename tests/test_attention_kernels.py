"""Attention kernels: what was measured of forward and backward, which of them runs, and what stands in for the rest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs import run_small, scenario, small
from trainsim.costs.attention import efficiency
from trainsim.costs.kernels import alone, cost, kernel_time
from trainsim.errors import ScenarioError
from trainsim.hardware.gpu import gpu_names, load_gpu
from trainsim.models.operations import Attention
from trainsim.study.ways import ways

A100, A100_PCIE, H100, B200 = "a100-sxm4-80gb", "a100-pcie-80gb", "h100-sxm5-80gb", "b200-sxm"
GB200, GB300 = "gb200", "gb300"
PAIRS = [(gpu, kernel) for gpu in gpu_names() for kernel in load_gpu(gpu).kernels.attention.curves]
BOTH = ("forward", "backward")


def attention(kernel: str, direction: str = "forward", **shape: Any) -> Attention:
    """*kernel* on 32 heads of 4,096 tokens, unless *shape* says otherwise."""
    usual: dict[str, Any] = {"batch": 1, "heads": 32, "queries": 4096, "head_dim": 128, "causal": True}
    known = usual | {"keys": shape.get("queries", 4096)} | shape
    return Attention("a", kernel, kv_heads=known["heads"], direction=direction, **known)


FA2, FA3 = "Dao-AILab/flash-attention assets/flash2_", "Dao-AILab/flash-attention assets/flash3_fp16_fwd.png"
SIMUMAX = "MooreThreads/SimuMax configs/system/"
CUDNN = "NVIDIA/cudnn-frontend benchmark/sdpa_benchmark_training/"
MEASURED = [  # source, GPU, kernel, passes, causal, batch, heads, length, head size, TFLOP/s (useful: half if causal)
    (f"{FA2}a100_fwd_bwd_benchmark.png", A100, "flash2", BOTH, False, 2, 32, 8192, 64, 175),
    (f"{FA2}a100_fwd_bwd_benchmark.png", A100, "flash2", BOTH, False, 32, 32, 512, 64, 132),
    (f"{FA2}a100_fwd_bwd_benchmark.png", A100, "flash1", BOTH, False, 16, 16, 1024, 128, 72),
    (f"{FA2}a100_fwd_bwd_benchmark.png", A100, "xformers", BOTH, False, 2, 32, 8192, 64, 75),
    (f"{FA2}a100_fwd_bwd_benchmark.png", A100, "triton", BOTH, False, 4, 16, 4096, 128, 93),
    (f"{FA2}a100_fwd_bwd_benchmark.png", A100, "triton", BOTH, True, 4, 16, 4096, 128, 74),
    (f"{FA2}h100_fwd_bwd_benchmark.png", H100, "flash2", BOTH, True, 4, 16, 4096, 128, 294),
    (f"{FA2}h100_fwd_bwd_benchmark.png", H100, "flash2", BOTH, True, 32, 32, 512, 64, 141),
    (f"{FA2}h100_fwd_bwd_benchmark.png", H100, "flash1", BOTH, True, 4, 16, 4096, 128, 126),
    (FA3, H100, "flash2", ("forward",), False, 2, 16, 8192, 128, 370),
    (FA3, H100, "flash2", ("forward",), True, 1, 8, 16384, 256, 298),
    (FA3, H100, "flash3", ("forward",), False, 8, 16, 2048, 128, 625),
    (FA3, H100, "flash3", ("forward",), True, 1, 16, 16384, 128, 616),
    (FA3, H100, "flash3", ("forward",), True, 4, 8, 4096, 256, 612),
    (FA3, H100, "cudnn", ("forward",), False, 1, 16, 16384, 128, 595),
    (FA3, H100, "cudnn", ("forward",), True, 2, 8, 8192, 256, 497),
    (f"{SIMUMAX}a100_pcie.json", A100_PCIE, "cudnn", ("forward",), True, 1, 32, 4096, 128, 176.59),
    (f"{SIMUMAX}a100_pcie.json", A100_PCIE, "cudnn", ("backward",), True, 1, 32, 4096, 128, 152.32),
    (f"{SIMUMAX}a100_pcie.json", A100_PCIE, "cudnn", ("forward",), True, 1, 4, 4096, 128, 80.21),
    (f"{CUDNN}results/gb200_918_only_cudnn", GB200, "cudnn", ("forward",), True, 1, 64, 4096, 128, 1297),
    (f"{CUDNN}results/gb200_918_only_cudnn", GB200, "cudnn", ("forward",), True, 1, 64, 32768, 128, 1686),
    (f"{CUDNN}results/gb200_918_only_cudnn", GB200, "cudnn", ("backward",), True, 1, 64, 8192, 128, 1279),
    (f"{CUDNN}results/gb200_918_only_cudnn", GB200, "cudnn-fp8", ("forward",), True, 1, 64, 16384, 128, 2016),
    (f"{CUDNN}results/gb200_918_only_cudnn", GB200, "cudnn-fp8", ("backward",), True, 1, 64, 8192, 128, 1485),
    (f"{CUDNN}results/gb300_918_only_cudnn", GB300, "cudnn", ("forward",), True, 1, 64, 8192, 128, 1927),
    (f"{CUDNN}results/gb300_918_only_cudnn", GB300, "cudnn", ("backward",), True, 1, 64, 8192, 128, 1391),
    (f"{CUDNN}results/gb300_918_only_cudnn", GB300, "cudnn-fp8", ("forward",), True, 1, 64, 8192, 128, 2534),
    (f"{CUDNN}results/gb300_918_only_cudnn", GB300, "cudnn-fp8", ("backward",), True, 1, 64, 8192, 128, 1591),
    (f"{CUDNN}artifacts", B200, "cudnn", ("forward",), True, 1, 128, 8192, 128, 1384),
    (f"{CUDNN}artifacts", GB200, "flash2", BOTH, True, 1, 128, 8192, 128, 357),
]


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: f"{row[1]}-{row[2]}-{row[8]}-{row[7]}-{'-'.join(row[3])}")
def test_published_rates(row: tuple[Any, ...]) -> None:
    _, gpu, kernel, passes, causal, batch, heads, length, size, teraflops = row
    shape = {"batch": batch, "heads": heads, "queries": length, "head_dim": size, "causal": causal}
    works = [attention(kernel, direction, **shape) for direction in passes]
    seconds = sum(alone(work, load_gpu(gpu), "bf16").seconds for work in works)
    assert sum(work.flops for work in works) / seconds / 1e12 == pytest.approx(teraflops, rel=0.1)


@pytest.mark.parametrize(
    ("gpu", "kernel", "direction", "length", "milliseconds"),
    [
        (GB200, "cudnn", "forward", 8192, 1.800),
        (GB200, "cudnn", "backward", 8192, 5.728),
        (GB200, "cudnn-fp8", "forward", 4096, 0.359),
        (GB300, "cudnn", "forward", 8192, 1.548),
        (GB300, "cudnn", "backward", 4096, 1.544),
        (GB300, "cudnn-fp8", "backward", 8192, 4.108),
    ],
)
def test_latent_attention_as_published(gpu: str, kernel: str, direction: str, length: int, milliseconds: float) -> None:
    """128 heads of 192 and 128 (the same benchmark, gb200_919 and gb300_919)."""
    work = attention(kernel, direction, heads=128, queries=length, head_dim=192, value_dim=128)
    assert alone(work, load_gpu(gpu), "bf16").seconds * 1e3 == pytest.approx(milliseconds, rel=0.1)


@pytest.mark.parametrize("direction", BOTH)
def test_a_gb300_has_the_faster_exponentials(direction: str) -> None:
    """Forward waits for them, backward less (NVIDIA, Making Softmax More Efficient with NVIDIA Blackwell Ultra)."""
    slow, fast = (cost(attention("cudnn", direction, heads=64), load_gpu(g), "bf16").seconds for g in (GB200, GB300))
    assert slow / fast == pytest.approx({"forward": 1.29, "backward": 1.08}[direction], rel=0.05)


@pytest.mark.parametrize(("gpu", "kernel"), PAIRS)
@pytest.mark.parametrize("causal", [True, False])
def test_both_passes_together_take_what_was_measured(gpu: str, kernel: str, causal: bool) -> None:
    machine = load_gpu(gpu)
    curves = machine.kernels.attention.curves[kernel]
    for size, curve in curves.together.items():
        for length in (128, 512, 4096, 1 << 20):
            rates = [
                efficiency(attention(kernel, way, queries=length, head_dim=size, causal=causal), machine)
                for way in BOTH
            ]
            most = 2 if kernel.endswith("fp8") else 1  # of the peak of 16 bits
            assert all(0 < rate < most for rate in rates)
            assert 3.5 / (1 / rates[0] + 2.5 / rates[1]) == pytest.approx(curve.at(length, causal=causal))


@pytest.mark.parametrize(("gpu", "kernel"), PAIRS)
def test_a_head_size_lies_between_its_neighbours(gpu: str, kernel: str) -> None:
    machine = load_gpu(gpu)

    def at(size: int) -> float:
        return efficiency(attention(kernel, head_dim=size), machine)

    low, high = sorted((at(64), at(128)))
    assert low <= at(80) <= high
    assert at(96) == pytest.approx((low + high) / 2)
    assert at(32) == at(64)
    most = max(machine.kernels.attention.curves[kernel].together)
    assert at(2 * most) == at(most)


@given(
    pair=st.sampled_from(PAIRS),
    heads=st.integers(1, 64),
    length=st.integers(1, 1 << 15),
    causal=st.booleans(),
    direction=st.sampled_from(BOTH),
)
@settings(deadline=None, max_examples=200)
def test_more_heads_never_take_less(
    pair: tuple[str, str], heads: int, length: int, causal: bool, direction: str
) -> None:
    gpu, kernel = load_gpu(pair[0]), pair[1]
    shapes = [{"heads": heads * k, "queries": length, "causal": causal} for k in (1, 2)]
    few, twice = (cost(attention(kernel, direction, **shape), gpu, "bf16").seconds for shape in shapes)
    assert few <= twice <= 2 * few * (1 + 1e-9)


@pytest.mark.parametrize(("gpu", "kernel"), PAIRS)
def test_parts_of_a_ring_are_about_as_efficient_as_a_square(gpu: str, kernel: str) -> None:
    """What a rank of ring attention computes: its 2c queries against c keys of another, all of them."""
    machine, part = load_gpu(gpu), 4096
    chunk = attention(kernel, queries=2 * part, keys=part, causal=False)
    square = attention(kernel, queries=2 * part, keys=2 * part, causal=False)
    seconds = [cost(work, machine, "bf16").seconds for work in (chunk, square)]
    assert 0.5 <= seconds[0] / seconds[1] < 0.65


# -- which kernel runs ---------------------------------------------------------------------------------------------


def chosen(gpu: str, **changes: Any) -> tuple[str, str]:
    """The kernel that runs on *gpu*, and the note about it."""
    run = scenario(cluster__gpu=gpu, training__precision="fp16", **changes)
    return run.resolve().training.attention, str(run.resolved["derived"].get("training.attention", ""))


def test_sdpa_is_what_pytorch_takes() -> None:
    assert chosen(A100, training__attention="sdpa")[0] == chosen(H100, training__attention="sdpa")[0] == "flash2"
    kernel, note = chosen("v100-sxm2-32gb", training__attention="sdpa")
    assert kernel == "xformers"
    assert "the kernel that sdpa selects on v100-sxm2-32gb" in note
    assert small(training__attention="sdpa", training__precision="fp32").training.attention == "eager"
    assert small(framework="transformers").training.attention == "flash2"


@pytest.mark.parametrize(("gpu", "kernel"), [(A100, "flash3"), (B200, "flash3"), ("v100-sxm2-32gb", "flash2")])
def test_a_kernel_that_does_not_run_is_refused(gpu: str, kernel: str) -> None:
    with pytest.raises(ScenarioError, match=rf"'{kernel}': it needs \w+ \(sm\d+\) and does not run on {gpu}; sdpa, .*"):
        small(cluster__gpu=gpu, training__attention=kernel, training__precision="fp16")
    with pytest.raises(ScenarioError, match=f"{kernel} needs .* does not run on {gpu}; sdpa"):
        kernel_time(gpu, "attention", kernel=kernel, batch=1, heads=8, seq=1024, head_dim=64)


def test_what_only_the_framework_would_take_is_replaced_and_reads_back() -> None:
    kernel, note = chosen("v100-sxm2-32gb", framework="neutral")
    assert kernel == "xformers"
    assert "neutral uses flash2, which needs Ampere (sm80)" in note
    run = scenario(cluster__gpu="v100-sxm2-32gb", training__precision="fp16", framework="neutral")
    assert type(run).from_dict(run.resolved).resolve().training.attention == "xformers"


def test_a_kernel_that_nobody_measured_says_whose_curve_it_goes_by() -> None:
    kernel, note = chosen(H100, training__attention="cudnn-fp8")
    assert kernel == "cudnn-fp8"
    assert "the curve of cudnn is used" in note
    assert chosen(H100, training__attention="flash3") == ("flash3", "")


def test_flash3_beats_flash2_beats_scores_in_memory() -> None:
    changes = {"cluster": {"topology": "dgx_h100", "nodes": 2}, "training__sequence_length": 8192}
    times = [
        run_small(training__attention=k, **changes).trace.duration for k in ("flash3", "flash2", "flash1", "eager")
    ]
    assert times == sorted(times)


@pytest.mark.parametrize("gpu", [A100, H100, B200, "v100-sxm2-32gb", "mi300x"])
def test_explain_suggests_kernels_that_run(gpu: str) -> None:
    run = scenario(cluster__gpu=gpu, training__precision="fp16")
    job = run.resolve()
    kernels = [c.values["training.attention"] for c in ways["attention kernel"].suggest(run, job)]
    assert job.training.attention not in kernels
    assert not set(kernels) & set(job.cluster.gpu.kernels.attention.absent)
    assert "generic" not in kernels
    for kernel in kernels:
        assert run.replace({"training.attention": kernel}).resolve().training.attention == kernel


@pytest.mark.parametrize(("gpu", "kernel"), PAIRS)
@pytest.mark.parametrize("direction", BOTH)
@pytest.mark.parametrize("length", [8192, 131072])
def test_a_narrower_window_never_takes_longer(gpu: str, kernel: str, direction: str, length: int) -> None:
    """Half as many keys take as long at most, and all of them longest."""
    windows = [1 << power for power in range(length.bit_length())]
    works = [attention(kernel, direction, queries=length, window=window) for window in (*windows, None)]
    seconds = [cost(work, load_gpu(gpu), "bf16").seconds for work in works]
    assert seconds == sorted(seconds)
    assert seconds[0] < 0.9 * seconds[-1]
