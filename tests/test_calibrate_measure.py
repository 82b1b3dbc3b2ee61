"""``--measure``: a stand-in for PyTorch whose kernels take known times gives those times back; none is a message."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from trainsim.calibration import measuring
from trainsim.calibration.answer import median_error
from trainsim.calibration.bases import Bases
from trainsim.calibration.calibrating import calibrated
from trainsim.calibration.measuring import measure_here
from trainsim.cli import main
from trainsim.costs.kernels import alone
from trainsim.errors import ScenarioError
from trainsim.hardware.gpu import load_gpu
from trainsim.models.operations import Attention, Gemm, MemoryBound

GPU = load_gpu("a100-sxm4-80gb")
SLOWER, LONG, LOADED_AFTER = 1.25, 1.1, 100
"""Products take so many times what is simulated, and so many times that once there were as many runs in a row."""


class Tensor:
    """Knows its sizes, and lets the clock run where something is done with it."""

    def __init__(self, torch: Torch, *shape: int):
        self.torch, self.shape = torch, shape

    def requires_grad_(self) -> Tensor:
        return self

    def detach(self) -> Tensor:
        return self

    def backward(self, gradient: Tensor) -> None:
        self.torch.attend(self.shape, "backward")

    def __add__(self, other: float) -> Tensor:
        return self.torch.move("elementwise", self)

    def copy_(self, other: Tensor, non_blocking: bool = False) -> None:
        self.torch.now += self.shape[0] / 25e9


class Event:
    """A moment on the clock of the stand-in."""

    def __init__(self, torch: Torch):
        self.torch, self.at = torch, 0.0

    def record(self) -> None:
        self.at = self.torch.now

    def elapsed_time(self, other: Event) -> float:
        return (other.at - self.at) * 1e3


class Torch:
    """As much of the module as is used, with a clock instead of a GPU."""

    bfloat16, uint8 = "bf16", "u8"

    def __init__(self, *, gpu: bool = True, name: str = "NVIDIA A100-SXM4-80GB"):
        self.now, self.in_a_row, self.last = 0.0, 0, None
        self.cuda = SimpleNamespace(
            is_available=lambda: gpu, get_device_name=lambda: name, synchronize=lambda: None,
            Event=lambda enable_timing: Event(self),
        )  # fmt: skip
        functional = SimpleNamespace(
            scaled_dot_product_attention=lambda q, k, v, is_causal: self.attend(q.shape, "forward", q),
            layer_norm=lambda x, shape: self.move("norm", x, "torch"),
            gelu=lambda x: self.move("gelu", x),
            softmax=lambda x, dim: self.move("softmax", x, "torch"),
        )
        self.nn = SimpleNamespace(functional=functional)

    def randn(self, *shape: int, device: str, dtype: str) -> Tensor:
        return Tensor(self, *shape)

    def empty(self, size: int, **options: Any) -> Tensor:
        return Tensor(self, size)

    def no_grad(self) -> Any:
        return pytest.MonkeyPatch.context()

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        work = Gemm("gemm", a.shape[0], b.shape[1], a.shape[1])
        self.in_a_row = self.in_a_row + 1 if work == self.last else 0
        self.last = work
        hot = LONG if self.in_a_row > LOADED_AFTER else 1.0
        self.now += alone(work, GPU, "bf16").seconds * SLOWER * hot
        return a

    def attend(self, shape: tuple[int, ...], direction: str, out: Any = None) -> Any:
        batch, heads, length, size = shape
        work = Attention("attention", "flash2", batch, heads, heads, length, length, size, direction=direction)
        self.now += alone(work, GPU, "bf16").seconds * (1.1 if direction == "forward" else 1.2)
        return out

    def move(self, kind: str, x: Tensor, variant: str = "tuned") -> Tensor:
        work = MemoryBound(kind, kind, 4.0 * x.shape[0] * x.shape[1], variant=variant)
        self.now += 1.5 * alone(work, GPU, "bf16").seconds
        return x


def test_what_the_gpu_takes_comes_back() -> None:
    phases: list[str] = []
    measured = measure_here(phases.append, torch=Torch())
    assert measured.clocks == (pytest.approx(1 / LONG, rel=1e-3),)
    assert any("25" in fact for fact in measured.facts)
    found = calibrated(measured, Bases())
    fitted = found.to_dict()["fitted"]
    assert fitted["kernels.sustained.gemm"]["value"] == pytest.approx(1 / LONG, rel=1e-3)
    assert fitted["kernels.gemm.speed"]["value"] == pytest.approx(1 / SLOWER, rel=0.03)
    gpu = load_gpu(yaml.safe_load(found.to_yaml("gpu")))
    rate, before = gpu.kernels.rate("gelu", "tuned"), GPU.kernels.rate("gelu", "tuned")
    assert rate.efficiency == pytest.approx(before.efficiency / 1.5, rel=0.02)
    assert rate.overhead == pytest.approx(1.5 * before.overhead, rel=0.1)
    after = median_error(found.compared, "after")
    assert after is not None
    assert after < 0.02
    assert len(phases) > 20


def test_a_gpu_that_nobody_knows_asks_for_the_nearest() -> None:
    measured = measure_here(torch=Torch(name="Something New"))
    with pytest.raises(ScenarioError, match="name the nearest with --base"):
        calibrated(measured, Bases())
    assert calibrated(measured, Bases(gpu="h100-sxm5-80gb")).documents["gpu"]["base"] == "h100-sxm5-80gb"


def test_without_a_gpu_or_without_torch_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ScenarioError, match="PyTorch sees no GPU here"):
        measure_here(torch=Torch(gpu=False))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SystemExit) as left:
        main(["calibrate", "--measure"])
    printed = capsys.readouterr()
    assert (left.value.code, printed.out) == (2, "")
    assert "PyTorch cannot be imported here" in printed.err
    assert len(printed.err.strip().splitlines()) == 1


def test_every_kind_that_is_timed_is_known() -> None:
    for kind, variant in measuring.KINDS.items():
        assert GPU.kernels.rate(kind, variant).efficiency > 0
