"""The scenarios about sharding and offload: each runs, and what its comment says is so."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario

GIB = 2.0**30
PAGE = Path(__file__).parents[1] / "docs" / "sharding.md"
NAMES = (
    "ds_zero1",
    "ds_zero2",
    "ds_zero3",
    "zero3_18b_800g",
    "zeropp_18b_200g",
    "fsdp_llama",
    "hsdp",
    "zero_offload_v100",
    "zero_infinity",
    "lora_zero3_offload",
    "deepspeed_3d_32gpu",
)
AWAY = {"zero_offload_v100", "zero_infinity", "lora_zero3_offload"}
TITAN = {1: 6667, 16: 6514}  # tokens/s per GPU by nodes; torchtitan benchmarks/llama3_h100_202412_torchtitan.md
TITAN_MEMORY = {1: 77.0, 16: 62.0}  # GiB, the same
TITAN_A100 = 2973  # tokens/s per GPU on 64 A100, docs/performance.md of 2024


@cache
def run(name: str) -> Result:
    """The scenario as it ships."""
    return Scenario.load(name).run()


def other(name: str, **changes: object) -> Result:
    """The scenario with keys of ``sharding`` changed."""
    return Scenario.load(name).replace({f"sharding.{key}": value for key, value in changes.items()}).run()


def sent(result: Result, kind: str = "dp") -> dict[str, Any]:
    found: dict[str, Any] = result.to_dict()["communication"][kind]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_and_fits(name: str) -> None:
    result = run(name)
    assert result.memory.fits
    assert result.to_dict()["communication"]["offload"]["bytes_per_rank"] * (name not in AWAY) == 0
    assert sum(result.to_dict()["breakdown_s"].values()) == pytest.approx(result.step_time)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_says_what_is_measured(name: str) -> None:
    (row,) = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{name}` |")]
    step, peak = re.findall(r"\| ([\d.]+) s \| ([\d.]+) GiB \|$", row)[0]
    assert run(name).step_time == pytest.approx(float(step), rel=0.05)
    assert run(name).memory.peak / GIB == pytest.approx(float(peak), rel=0.05)


def test_each_stage_of_zero_takes_less_memory_and_sends_more() -> None:
    one, two, three = (run(f"ds_zero{stage}") for stage in (1, 2, 3))
    assert one.memory.peak - two.memory.peak > 10 * GIB
    assert two.memory.peak - three.memory.peak > 10 * GIB
    assert sent(one)["bytes_per_rank"] < sent(two)["bytes_per_rank"] < sent(three)["bytes_per_rank"]
    assert sent(one)["exposed_s"] == pytest.approx(sent(one)["time_s"]), "nothing of ZeRO-1 is hidden"
    assert sent(two)["exposed_s"] == pytest.approx(sent(two)["time_s"]), "nor of ZeRO-2"
    assert sent(three)["exposed_s"] < 0.05 * sent(three)["time_s"]
    assert max(one.step_time, three.step_time) < two.step_time
    assert one.step_time == pytest.approx(three.step_time, rel=0.02), "more is sent, but hidden"
    assert other("ds_zero2", overlap=True).step_time < three.step_time


def test_volumes_of_zero_in_models() -> None:
    """A gradient's all-reduce counts twice; ZeRO-2 sends one for each of four micro-batches, ZeRO-3 gathers twice and
    scatters once."""
    model = 2 * Scenario.load("ds_zero1").resolve().model.parameters * 31 / 32
    volumes = [sent(run(f"ds_zero{stage}"))["bytes_per_rank"] / model for stage in (1, 2, 3)]
    assert volumes == pytest.approx([2 + 1, 4 * 2 + 1, 4 * 3], rel=0.06)
    assert volumes[2] < 12, "the last layers stay gathered from forward to backward"


def test_zeropp_on_a_quarter_of_the_network_is_about_as_fast_as_zero3() -> None:
    fast, cheap = run("zero3_18b_800g"), run("zeropp_18b_200g")
    assert cheap.step_time < 1.1 * fast.step_time
    less = sent(cheap)["bytes_inter_node_per_rank"] / sent(fast)["bytes_inter_node_per_rank"]
    assert less == pytest.approx(0.75 / 3, rel=0.02)
    plain = Scenario.load("zero3_18b_800g").replace({"cluster.nics_per_node": 2}).run()
    assert plain.step_time > 1.4 * cheap.step_time


def test_a_slower_network_shows_under_dp_though_kernels_follow_each_gather() -> None:
    """Numbers that come back from 8 bits end each wait; what was waited for before them is the network."""
    two, one = (
        Scenario.load("zeropp_18b_200g").replace({"cluster.nics_per_node": nics}).run().to_dict()["breakdown_s"]
        for nics in (2, 1)
    )
    assert one["dp"] > 2.5 * two["dp"]
    assert one["other"] < 1.2 * two["other"]


@pytest.mark.parametrize("nodes", TITAN)
def test_fsdp_is_near_torchtitan(nodes: int) -> None:
    changes = {"cluster.nodes": nodes, "training.global_batch": 16 * nodes}
    result = Scenario.load("fsdp_llama").replace(changes).run()
    assert 1.0 < result.tokens_per_s / (8 * nodes) / TITAN[nodes] < 1.25, "those GPUs had slower memory and less power"
    assert result.memory.peak / GIB == pytest.approx(TITAN_MEMORY[nodes], rel=0.08)


def test_hsdp_sends_less_between_nodes_than_fsdp() -> None:
    hybrid, full = run("hsdp"), other("hsdp", strategy="fsdp", shard_size=None)
    assert sent(hybrid)["bytes_inter_node_per_rank"] < 0.65 * sent(full)["bytes_inter_node_per_rank"]
    assert hybrid.step_time < full.step_time
    assert hybrid.memory.peak > full.memory.peak
    assert hybrid.tokens_per_s / 64 / TITAN_A100 == pytest.approx(1, abs=0.15)
    single = {"training.gradient_dtype": "fp32"}
    fp32 = [
        Scenario.load("hsdp").replace({**single, **strategy}).run()
        for strategy in ({}, {"sharding.strategy": "fsdp", "sharding.shard_size": None})
    ]
    volumes = [sent(result)["bytes_inter_node_per_rank"] for result in fp32]
    assert volumes[0] == pytest.approx(volumes[1], rel=0.1)


def test_zero_offload_makes_room_for_ten_billion_parameters() -> None:
    away = run("zero_offload_v100")
    here = other("zero_offload_v100", offload={"optimizer": "none"})
    assert not here.memory.fits
    assert here.memory.peak > 200 * GIB
    assert sent(away, "offload")["exposed_s"] < 0.25 * sent(away, "offload")["time_s"], "copies go beside the passes"


def test_zero_infinity_needs_the_drives() -> None:
    drives, hosts = run("zero_infinity"), other("zero_infinity", offload={"optimizer": "cpu", "parameters": "cpu"})
    assert drives.memory.host.fits
    assert not hosts.memory.host.fits
    assert drives.step_time > hosts.step_time


def test_adapters_cost_next_to_nothing() -> None:
    adapters = run("lora_zero3_offload")
    assert adapters.to_dict()["parameters"]["trainable"] == pytest.approx(16e6, rel=0.05)
    whole = Scenario.load("lora_zero3_offload").replace({"model": "llama-2-70b"}).run()
    assert sent(adapters, "offload")["exposed_s"] < 0.01 * sent(whole, "offload")["exposed_s"]
    assert sent(adapters)["bytes_per_rank"] < 0.7 * sent(whole)["bytes_per_rank"], "gathers, and hardly a reduction"
    assert adapters.step_time < 0.65 * whole.step_time


def test_nothing_hides_the_reduction_of_deepspeeds_pipeline() -> None:
    result = run("deepspeed_3d_32gpu")
    job = Scenario.load("deepspeed_3d_32gpu").resolve()
    assert (job.parallel.tp, job.parallel.pp, job.parallel.dp) == (4, 4, 2)
    assert sent(result)["time_s"] > 0
    assert sent(result)["exposed_s"] == pytest.approx(sent(result)["time_s"])
