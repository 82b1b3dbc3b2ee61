"""Published steps of mixtures of experts and of long sequences, none of which anything was fitted on."""

from __future__ import annotations

import pytest

from trainsim import Scenario

ANCHORS = [
    # DeepSeek-V3 (arXiv 2412.19437): 2.664M H800 hours for 14.8T tokens, 62.9M tokens per step on 2,048 GPUs
    ("deepseek_v3", 19.91, 0.12),
    # NVIDIA NeMo 25.02, performance of pre-training: 15,457 tokens/s per GPU
    ("mixtral_8x7b", 1.06, 0.08),
]


@pytest.mark.parametrize(("name", "seconds", "within"), ANCHORS)
def test_published_steps(name: str, seconds: float, within: float) -> None:
    run = Scenario.load(name).run()
    assert run.step_time == pytest.approx(seconds, rel=within)


def test_grouped_products_as_measured() -> None:
    """SimuMax's grouped products of B200 (bf16, 3072 x 5120 per expert), TFLOP/s forward by tokens per expert."""
    from trainsim.costs.gemm import gemm_cost
    from trainsim.hardware.gpu import load_gpu
    from trainsim.models.operations import Gemm

    measured = {154: 449, 308: 870, 616: 1039, 1232: 1155}
    experts = {154: 160, 308: 80, 616: 40, 1232: 20}
    rates = []
    for tokens, rate in measured.items():
        work = Gemm("experts", tokens, 3072, 5120, experts[tokens], grouped=True)
        rates.append(work.flops / gemm_cost(work, load_gpu("b200-sxm"), "bf16").seconds / 1e12)
        assert rates[-1] == pytest.approx(rate, rel=0.35)
    assert rates == sorted(rates)
