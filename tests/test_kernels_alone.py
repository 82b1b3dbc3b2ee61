"""Kernels alone against what public sources measured, and what a step of training makes of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any

import pytest

from benchmarks.kernels import Measured, measurements, scores
from tests.jobs import run_small
from tests.test_cli import status
from trainsim.costs.errors import errors_alone
from trainsim.costs.kernels import alone, cost, kernel_time
from trainsim.costs.standard_attention import standard_attention
from trainsim.errors import ScenarioError, TrainsimError, UnknownName
from trainsim.frameworks import load_framework
from trainsim.hardware.gpu import GPU, gpu_names, load_gpu
from trainsim.hardware.kernel_constants import ALONE, Speeds, kernel_names, load_kernels
from trainsim.models.layers import Shape, layer_operations, style_of
from trainsim.models.operations import Attention, Gemm, MemoryBound, Work
from trainsim.models.reading import load_model

A100, H100 = "a100-sxm4-80gb", "h100-sxm5-80gb"
VARIANTS = ("tuned", *load_kernels("generic").variants)
WORKS: list[Work] = [
    Gemm("g", 8192, 8192, 8192),
    Attention("a", "flash2", 4, 32, 32, 4096, 4096, 128),
    Attention("a", "eager", 4, 32, 32, 4096, 4096, 128, direction="backward"),
    MemoryBound("m", "norm", 1e9),
]


@pytest.fixture(scope="module")
def rows() -> list[Measured]:
    return measurements()


# -- measured --------------------------------------------------------------------------------------------------------


def sizes(rows: list[Measured], start: tuple[str, ...], gpus: tuple[str, ...] = ()) -> list[float]:
    return [abs(row.error) for row in rows if row.what.startswith(start) and (not gpus or row.gpu in gpus)]


@pytest.mark.parametrize("gpu", [A100, H100, "a100-pcie-80gb", "a40"])
def test_products_of_2048_rows_and_more(rows: list[Measured], gpu: str) -> None:
    """Vidur's A100, H100 and A40 and SimuMax's A100 PCIe: 4 % in the median."""
    found = sizes(rows, ("gemm of 2048",), (gpu,))
    assert len(found) >= 60
    assert median(found) < 0.04
    assert median(sizes(rows, ("gemm of fewer",), (gpu,))) < 0.07


def test_attention(rows: list[Measured]) -> None:
    """Charts of FlashAttention 1 to 3, xformers, cuDNN and PyTorch's operators: 6 % in the median, GPU by GPU.

    SimuMax's B200 runs an older cuDNN than the one that the constants are of.
    """
    for gpu in (A100, H100, "a100-pcie-80gb", "gb200", "gb300"):
        assert median(sizes(rows, ("attention",), (gpu,))) < 0.06
    assert median(sizes(rows, ("attention",))) < 0.06


def test_memory_bound_kernels(rows: list[Measured]) -> None:
    """Vidur's, QuACK's and STREAM's: 15 % in the median, over all and for nearly each."""
    other = ("gemm", "grouped", "attention")
    found = [row for row in rows if not row.what.startswith(other)]
    assert len(found) > 200
    assert median(abs(row.error) for row in found) < 0.08
    each = [e for e in scores(found) if e.median > 0.15]
    assert {(e.gpu, e.what) for e in each} <= {
        (H100, "residual add"),  # in the L2 cache
        (H100, "layernorm (torch)"),  # of up to 21 us
        (H100, "cross entropy (compiled)"),
    }


def test_the_table_that_ships_is_what_the_code_gives(rows: list[Measured]) -> None:
    """Else: python -m benchmarks.kernels --write."""
    shipped = {(e.gpu, e.what): e for name in {row.gpu for row in rows} for e in errors_alone(load_gpu(name))}
    now = {(e.gpu, e.what): e for e in scores(rows)}
    assert shipped.keys() == now.keys()
    for key, e in now.items():
        assert shipped[key][2:6] == pytest.approx(e[2:6], abs=2e-3), key
        assert shipped[key].source == e.source


def test_every_measurement_has_a_public_source(rows: list[Measured]) -> None:
    assert all("/" in row.source.split()[0] and row.seconds > 0 for row in rows)
    assert len({row.source.split()[0] for row in rows}) >= 7


# -- laws ------------------------------------------------------------------------------------------------------------


def faster(gpu: GPU, sustained: Speeds, run: Speeds) -> GPU:
    return replace(gpu, kernels=replace(gpu.kernels, name="changed", sustained=sustained, run=run))


@pytest.mark.parametrize("name", kernel_names())
@pytest.mark.parametrize("work", WORKS, ids=lambda work: f"{type(work).__name__}-{getattr(work, 'kernel', '')}")
def test_what_a_step_makes_of_a_kernel_is_not_in_its_time_alone(name: str, work: Work) -> None:
    """A kernel alone knows neither; in a step its work is so much slower, but for fixed seconds and joined terms."""
    gpu = replace(load_gpu(H100), kernels=load_kernels(name))
    slow = faster(gpu, Speeds(0.5, 0.5, 0.5), ALONE)
    assert alone(work, slow, "bf16") == alone(work, gpu, "bf16") == cost(work, faster(gpu, ALONE, ALONE), "bf16")
    least = 1.5 if getattr(work, "kernel", "") == "eager" else 1.8  # its products wait for the memory
    assert least < cost(work, slow, "bf16").seconds / alone(work, gpu, "bf16").seconds <= 2.0
    assert cost(work, faster(gpu, ALONE, Speeds(0.5, 0.5, 0.5)), "bf16") == cost(work, slow, "bf16")


@pytest.mark.parametrize("name", gpu_names())
@pytest.mark.parametrize("variant", VARIANTS)
def test_no_variant_beats_the_bandwidth(name: str, variant: str) -> None:
    gpu = load_gpu(name)
    for kind in gpu.kernels.memory_bound:
        times = [kernel_time(gpu, "memory_bound", kind=kind, nbytes=n, variant=variant) for n in (1e6, 1e8, 1e10)]
        assert times == sorted(times)
        assert times[-1] > 1e10 / gpu.memory_bandwidth
        if variant == "vllm":
            assert times[-1] >= kernel_time(gpu, "memory_bound", kind=kind, nbytes=1e10)


@pytest.mark.parametrize("gpu", [A100, H100])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_attention_without_a_fused_kernel(gpu: str, direction: str) -> None:
    """It is its parts, it grows with the square of the length, a mask is added to all scores, and it is slower."""

    def seconds(length: int, kernel: str = "eager", *, causal: bool = True) -> float:
        shape: dict[str, Any] = {"batch": 2, "heads": 32, "seq": length, "head_dim": 128, "causal": causal}
        return kernel_time(gpu, "attention", kernel=kernel, direction=direction, **shape)

    work = Attention("a", "eager", 2, 32, 32, 4096, 4096, 128, True, direction)
    parts = [alone(part, load_gpu(gpu), "bf16").seconds for part in standard_attention(work)]
    assert sum(parts) == pytest.approx(seconds(4096))
    assert 3.5 < seconds(8192) / seconds(4096) < 4
    assert seconds(4096) >= seconds(4096, causal=False)
    assert seconds(4096) > 3 * seconds(4096, "flash2")
    times = [seconds(1 << power) for power in range(6, 15)]
    assert all(short < long for short, long in pairwise(times))


@pytest.mark.parametrize("gpu", [A100, H100, "b200-sxm"])
def test_products_of_experts_take_one_after_the_other(gpu: str) -> None:
    one, four = (kernel_time(gpu, "gemm", m=2048, n=4096, k=4096, batch=b, grouped=True) for b in (1, 4))
    assert 3.5 < four / one < 4
    assert one == pytest.approx(kernel_time(gpu, "gemm", m=2048, n=4096, k=4096), rel=0.05)


@pytest.mark.parametrize("kernel", ["flash2", "cudnn"])
def test_values_narrower_than_keys_take_less(kernel: str) -> None:
    shape: dict[str, Any] = {"batch": 1, "heads": 32, "seq": 4096, "head_dim": 192, "kernel": kernel}
    narrow, wide = (kernel_time(A100, "attention", value_dim=v, **shape) for v in (128, 192))
    assert narrow < wide == kernel_time(A100, "attention", **shape)


# -- what software chooses -------------------------------------------------------------------------------------------


def test_a_framework_says_whose_kernels_it_runs() -> None:
    """vLLM's norms are slower than PyTorch's, and these than tuned ones; tuned is what is left out."""
    times = [
        run_small(framework={"base": "megatron-core", "kernels": {"variants": variants}}).trace.duration
        for variants in ({}, {"norm": "tuned"}, {"norm": "torch"}, {"norm": "vllm"})
    ]
    assert times[0] == times[1] < times[2] < times[3]


def test_a_generation_of_software_has_speeds_of_its_own() -> None:
    """Twice as fast kernels of a kind are that kernel twice as fast, in a step; 1 is what is left out."""
    times = [
        run_small(framework={"base": "megatron-core", "kernels": {"speeds": speeds}}).trace.duration
        for speeds in ({}, {"gemm": 1.0}, {"gemm": 1.1}, {"gemm": 1.1, "memory_bound": 1.1})
    ]
    assert times[0] == times[1] > times[2] > times[3]
    gpu, work = load_gpu(H100), Gemm("g", 8192, 8192, 8192)
    slow, fast = (cost(work, gpu, "bf16", Speeds(speed, 1.0, 1.0)).seconds for speed in (1.0, 2.0))
    assert slow / fast == pytest.approx(2.0, rel=0.02)


@pytest.mark.parametrize(
    ("variants", "error", "told"),
    [
        ({"norm": "vlm"}, ScenarioError, r"framework\.kernels\.variants\.norm.*vllm"),
        ({"nrom": "torch"}, UnknownName, "Did you mean 'norm'"),
    ],
)
def test_what_nobody_runs_is_named(variants: dict[str, str], error: type[TrainsimError], told: str) -> None:
    with pytest.raises(error, match=told):
        run_small(framework={"base": "megatron-core", "kernels": {"variants": variants}})


def test_a_rotation_moves_queries_and_keys_and_no_values() -> None:
    """Each read and written once, in 16 bits."""
    kind, shape = load_model("llama-3-8b").kind, Shape(micro_batch=2, sequence_length=1024, tp=1, padded_vocab=32000)
    (rope,) = [o for o in layer_operations(kind, shape, style_of(load_framework("neutral"))) if o.name == "rope"]
    (kernel,) = rope.forward
    assert isinstance(kernel, MemoryBound)
    assert kernel.nbytes == 2 * 2 * shape.tokens * kind.head_dim * (kind.heads + kind.kv_heads)


# -- shown -----------------------------------------------------------------------------------------------------------


def test_show_gpu_tells_sources_and_errors(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert status("show", "gpu", A100) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "run.gemm 1.01 ampere.yaml:" in out
    assert "SimuMax A100-PCIe, 183 shapes" in out
    (row,) = [e for e in errors_alone(load_gpu(A100)) if e.what == "gemm of 2048 rows and more"]
    assert f"{row.what} {row.measured} {row.median:.1%}" in out


def test_a_gpu_that_nobody_measured_shows_the_errors_of_its_relatives() -> None:
    assert {e.gpu for e in errors_alone(load_gpu("a800-sxm4-80gb"))} == {A100}
    assert errors_alone(load_gpu("v100-sxm2-32gb")) == ()
