"""Boards of GPUs: the memory that programs see, what others keep of it, and a limit on the power."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainsim.costs.kernels import kernel_time
from trainsim.errors import TrainsimError
from trainsim.hardware.boards import clock_under, least_power, usable_share
from trainsim.hardware.cluster import load_topology
from trainsim.hardware.gpu import GPUS, gpu_names, load_gpu
from trainsim.report.memory_page import memory_charts
from trainsim.report.memory_table import memory_sections
from trainsim.report.style import KEPT
from trainsim.scenario.scenario import Scenario

GIB = 2.0**30
PLAIN: dict[str, Any] = {
    "model": {"family": "gpt", "layers": 4, "hidden": 2048, "heads": 16, "vocab": 50000},
    "cluster": {"topology": "dgx_h100"},
    "training": {"sequence_length": 2048, "micro_batch": 4, "global_batch": 32},
}
gpus = pytest.mark.parametrize("name", gpu_names())


def plain(**cluster: Any) -> Scenario:
    return Scenario.from_dict(PLAIN).replace({f"cluster.{key}": value for key, value in cluster.items()})


# -- memory --------------------------------------------------------------------------------------------------------


@gpus
def test_programs_see_a_little_less_than_is_sold(name: str) -> None:
    gpu = load_gpu(name)
    assert 0.9 < gpu.usable_memory / gpu.memory < 1
    assert gpu.source
    assert 50 < gpu.tdp < 2000


MESSAGES = {  # total in PyTorch's messages about out of memory, GiB: github.com issues and logs
    "a100-sxm4-80gb": 79.25,  # HiDream-ai/VAREdit 6
    "a100-sxm4-40gb": 39.50,  # TianheWu/CoSeR 10
    "v100-sxm2-16gb": 15.78,  # kchengiva/Shift-GCN 34
    "rtx-4090": 23.64,  # ali-vilab/VGen 104
    "rtx-5090": 31.37,  # Wan-Video/Wan2.1 465
    "t4": 14.75,  # hpcaitech/Open-Sora 697
}


@pytest.mark.parametrize("name", MESSAGES)
def test_what_programs_see_is_what_pytorch_reports(name: str) -> None:
    assert load_gpu(name).usable_memory == pytest.approx(MESSAGES[name] * GIB, rel=1e-3)


def test_the_usual_share_is_within_one_percent_where_there_is_no_ecc_in_the_memory() -> None:
    inline_ecc = {"a10", "a10g", "a40", "l4", "l40s", "t4"}
    shares = {n: load_gpu(n).usable_memory / load_gpu(n).memory for n in gpu_names() if n not in inline_ecc}
    assert all(abs(share - usable_share()) < 0.0101 for share in shares.values())


def test_another_memory_does_not_keep_what_programs_see_of_the_first(tmp_path: Path) -> None:
    other = load_gpu({"base": "h100-sxm5-80gb", "memory": "95GiB"})
    assert other.usable_memory == pytest.approx(95 * GIB * usable_share())
    both = load_gpu({"base": "h100-sxm5-80gb", "memory": "95GiB", "usable_memory": "93.1GiB"})
    assert both.usable_memory == pytest.approx(93.1 * GIB)
    (tmp_path / "ours.yaml").write_text("base: h100-sxm5-80gb\nmemory: 95GiB\nusable_memory: 94.5GiB\n")
    above = load_gpu({"base": str(tmp_path / "ours.yaml"), "memory": "90GiB"})
    assert above.usable_memory == pytest.approx(90 * GIB * usable_share())
    assert "usable_memory" not in GPUS.written({"base": "h100-sxm5-80gb", "memory": "95GiB"})
    with pytest.raises(TrainsimError, match=r"usable_memory.*out of range"):
        load_gpu({"base": "h100-sxm5-80gb", "usable_memory": "81GiB"})


def test_the_capacity_is_what_programs_see() -> None:
    use = plain().run().memory
    assert use.capacity == load_gpu("h100-sxm5-80gb").usable_memory
    assert use.nominal == 80 * GIB


@pytest.mark.parametrize(("written", "kept"), [("8GiB", 8 * GIB), (8e9, 8e9), ("40%", 0.4), ("12.5 %", 0.125)])
def test_what_others_keep_is_taken_from_the_capacity_and_told(written: object, kept: float) -> None:
    usable = load_gpu("h100-sxm5-80gb").usable_memory
    bytes_kept = kept * usable if kept < 1 else kept
    all_of_it, some = plain().run(), plain(reserved_memory=written).run()
    assert some.memory.capacity == pytest.approx(usable - bytes_kept)
    assert (some.memory.peak, some.step_time) == (all_of_it.memory.peak, all_of_it.step_time)
    data = some.to_dict()["memory"]
    assert data["capacity_bytes"] + data["reserved_bytes"] == pytest.approx(usable)
    assert data["gpu_bytes"] == 80 * GIB
    told = " ".join(str(block) for section in memory_sections(some) for block in section.blocks)
    assert "other processes hold" in told
    assert "beyond reserved_memory" in told
    assert some.scenario["cluster"]["reserved_memory"] == written
    assert Scenario.from_dict(dict(some.scenario)).run().memory.capacity == some.memory.capacity


def test_pictures_show_what_others_keep() -> None:
    alone = plain().run()
    beside = plain(reserved_memory=alone.memory.capacity - alone.memory.peak / 0.6).run()
    for run, shown in ((alone, False), (beside, True)):
        words = [text.get_text() for legend in run.memory_chart().legends for text in legend.get_texts()]
        assert any(word.startswith("kept by others") for word in words) == shown, words
        assert (KEPT in memory_charts(run)) == shown


def test_a_job_that_fits_alone_need_not_fit_beside_others() -> None:
    peak = plain().run().memory.peak
    full = plain(reserved_memory=load_gpu("h100-sxm5-80gb").usable_memory - 0.7 * peak).run()
    assert not full.memory.fits
    assert any("others keep" in words for words in full.warnings)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("100%", "leaves nothing of the 79.2 GiB of a h100-sxm5-80gb; reserve less"),
        ("90GiB", "leaves nothing"),
        ("140%", "out of range"),
        ("x%", "is not a number"),
        ("lots", "not a number of bytes"),
        ([1], "is not a quantity"),
    ],
)
def test_wrong_amounts_are_refused_in_words(written: object, told: str) -> None:
    with pytest.raises(TrainsimError, match=told) as caught:
        plain(reserved_memory=written).resolve()
    assert "cluster.reserved_memory" in str(caught.value)


# -- power ---------------------------------------------------------------------------------------------------------


@gpus
def test_without_a_limit_nothing_changes(name: str) -> None:
    """To the last bit: a limit of the TDP is none."""
    gpu = load_gpu(name)
    free, limited = load_gpu({"base": name, "power": gpu.tdp}), load_gpu({"base": name, "tdp": gpu.tdp})
    assert free.clock == limited.clock == 1.0
    times = {kernel_time(g, "gemm", dtype="fp16", m=4096, n=4096, k=4096) for g in (free, limited)}
    assert len(times) == 1


@given(limit=st.floats(0.28, 1.0))
def test_the_clock_obeys_the_law_of_power(limit: float) -> None:
    """What is drawn at the clock is the limit again: a fixed part, and one that goes as its cube."""
    assert 0.2 + 0.8 * clock_under(limit) ** 3 == pytest.approx(limit)


def test_less_power_is_never_quicker_and_memory_bound_work_does_not_care() -> None:
    watts = (700, 650, 500, 350, 196)
    limited = [load_gpu({"base": "h100-sxm5-80gb", "power": w}) for w in watts]
    products = [kernel_time(gpu, "gemm", m=8192, n=8192, k=8192) for gpu in limited]
    attention = [kernel_time(gpu, "attention", batch=1, heads=32, seq=8192, head_dim=128) for gpu in limited]
    assert products == sorted(products)
    assert len(set(products)) == len(watts)
    assert attention == sorted(attention)
    assert len({kernel_time(gpu, "memory_bound", kind="norm", nbytes="1GiB") for gpu in limited}) == 1
    free = products[0] - 5.61e-6
    assert products[2] - 5.61e-6 == pytest.approx(free / limited[2].clock, rel=0.01)


def test_eight_h100_of_500_watts_train_as_torchtitan_measured() -> None:
    """pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md: 6,667 tokens/s per GPU; without the limit and the
    slower memory the same step is a fifth too fast."""
    as_there = Scenario.load("fsdp_llama").replace({"cluster.gpu": "h100-hbm2e-96gb-500w"}).run()
    assert as_there.throughput.tokens_per_s_per_gpu == pytest.approx(6667, rel=0.03)
    assert Scenario.load("fsdp_llama").run().throughput.tokens_per_s_per_gpu > 1.18 * 6667


@pytest.mark.parametrize(
    ("gpu", "told"),
    [
        ({"base": "h100-sxm5-80gb", "power": "800W"}, "above the board's TDP: a limit is from 196 W to 700 W"),
        ({"base": "h100-sxm5-80gb", "power": "100W"}, "below 196 W, the lowest that is simulated"),
        ({"base": "h100-sxm5-80gb", "power": "500 horses"}, "write 500W, 0.7kW"),
        ({"base": "h100-sxm5-80gb", "tdp": 0, "power": "500W"}, "give tdp as well"),
    ],
)
def test_wrong_limits_are_refused_with_the_way_out(gpu: dict[str, Any], told: str) -> None:
    with pytest.raises(TrainsimError, match=told):
        load_gpu(gpu)
    with pytest.raises(TrainsimError, match=r"cluster\.gpu"):
        plain(gpu=gpu).resolve()


def test_another_board_does_not_keep_the_limit_of_the_first() -> None:
    assert load_gpu("h100-hbm2e-96gb-500w").power == 500
    assert load_gpu({"base": "h100-hbm2e-96gb-500w", "tdp": "600W"}).power == 600
    assert 700 * least_power() == pytest.approx(196)


def test_a_machine_may_say_itself_what_others_keep() -> None:
    assert load_topology("dgx_h100", reserved_memory="10%").reserved_memory == pytest.approx(7.92 * GIB)
    assert load_topology("dgx_h100").reserved_memory == 0
