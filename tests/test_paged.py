"""Optimizers in unified memory: on the GPU as far as there is room, the rest on the host with its copies."""

from __future__ import annotations

from typing import Any

import pytest

from trainsim.optimizers import load_optimizer, optimizer_names
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario

PAGED = tuple(name for name in optimizer_names() if load_optimizer(name).paged)
PLAIN = {"paged-adam8bit": "adam8bit", "paged-lion": "lion", "paged-lion8bit": "lion8bit"}
BASE: dict[str, Any] = {
    "model": "llama-3.2-3b",
    "framework": "pytorch-fsdp2-bf16",
    "cluster": {"topology": "dgx_a100", "nodes": 1, "gpus_per_node": 1},
    "sharding": {"strategy": "ddp"},
    "training": {"sequence_length": 2048, "recompute": "full", "cross_entropy": "chunked", "micro_batch": 1},
}
ALL: dict[str, Any] = {
    "one GPU": {},
    "fsdp": {"cluster.gpus_per_node": 4, "sharding.strategy": "fsdp", "training.optimizer_in_backward": False},
    "pipeline": {"cluster.gpus_per_node": 2, "parallel.pp": 2},
    "in the backward": {"training.optimizer_in_backward": True},
}


def run(memory: str, optimizer: str, **changes: Any) -> Result:
    gpu = {"base": "a100-sxm4-80gb", "memory": memory}
    values = {"cluster.gpu": gpu, "training.optimizer": optimizer, **changes}
    return Scenario.from_dict(BASE).replace(values).run()


@pytest.mark.parametrize("name", PLAIN)
def test_with_room_it_is_the_plain_one(name: str) -> None:
    paged, plain = run("80GB", name), run("80GB", PLAIN[name])
    assert (paged.step_time, paged.memory.peak) == (plain.step_time, plain.memory.peak)
    assert paged.memory.host.peak_per_node == 0 == paged.breakdown["offload"]


@pytest.mark.parametrize("name", PAGED)
def test_what_has_no_room_is_on_the_host(name: str) -> None:
    """Nothing is lost between GPU and host, and it fits just so."""
    wide, small = run("80GB", name), run("17GiB", name)
    assert wide.memory.needed > small.memory.capacity >= small.memory.needed
    assert small.memory.fits
    moved = small.memory.host.peak_per_node
    assert moved + small.memory.needed == pytest.approx(wide.memory.needed, abs=1.0)
    assert small.memory.needed == pytest.approx(small.memory.capacity, abs=2.0)


@pytest.mark.parametrize("case", ALL)
def test_less_room_takes_longer(case: str) -> None:
    """Both ways over PCIe, each at what the machine has; the closed form knows it."""
    full = run("80GB", "paged-adam", **ALL[case])
    tight = full.memory.needed / 2**30 - 1
    runs = [full, *(run(f"{tight - less}GiB", "paged-adam", **ALL[case]) for less in (0, 1))]
    assert runs[0].step_time < runs[1].step_time < runs[2].step_time
    for result in runs:
        assert result.simulation.estimate.seconds == pytest.approx(result.step_time, rel=0.1)
        assert result.memory.gpus_fit
    if case != "pipeline":  # whose stages run out of room one after the other
        less, more = (r.breakdown["offload"] / r.memory.host.peak_per_node for r in runs[1:])
        assert less == pytest.approx(more, rel=0.02)


def test_states_alone_can_leave() -> None:
    result = run("8GiB", "paged-adam8bit")
    assert not result.memory.fits
    assert result.memory.fullest.part("optimizer") == pytest.approx(0, abs=1.0)
    assert result.memory.fullest.part("weights") > 5e9


def test_it_is_told() -> None:
    resolved = Scenario.from_dict(BASE).replace({"training.optimizer": "paged_adamw_8bit"}).resolved
    assert resolved["training"]["optimizer"] == "paged-adam8bit"
    assert "on the host" in resolved["derived"]["training.optimizer"]


def test_eight_billion_parameters_on_24_gigabytes() -> None:
    """Llama-3-8B all in bf16, checkpointed, with the optimizer in the backward and paged 8-bit states: it runs on a
    card of 24 GB, as the README of meta-pytorch/torchtune says, and without pages it does not."""
    changes = {"model": "llama-3-8b", "training.optimizer_in_backward": True, "training.micro_batch": 2}
    assert run("24GiB", "paged-adam8bit", **changes).memory.fits
    assert not run("24GiB", "adam8bit", **changes).memory.fits
