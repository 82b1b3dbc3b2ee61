"""The processor of the machine sets how long its host takes, beside the one with which a profile's times were found."""

from __future__ import annotations

import pytest

from tests.jobs import scenario
from trainsim.errors import ScenarioError
from trainsim.frameworks import framework_names, load_framework
from trainsim.frameworks.pace import TIMES
from trainsim.hardware.storage import processors
from trainsim.hardware.topology import TOPOLOGIES
from trainsim.scenario.scenario import Scenario


def on(speed: float, **changes: object) -> Scenario:
    """A small model on hosts of a thread's *speed*."""
    return scenario(cluster__hosts={"processor": "epyc-7742", "single_thread": speed}, **changes)


@pytest.mark.parametrize("name", framework_names())
def test_profiles_say_where_their_times_are_from(name: str) -> None:
    assert load_framework(name).host.processor in processors()


@pytest.mark.parametrize("speed", [0.5, 1.0, 2.0])
def test_times_of_the_host_go_with_the_thread(speed: float) -> None:
    given, host = load_framework("megatron-2022").host, on(speed, framework="megatron-2022").resolve().framework.host
    assert given.processor == "epyc-7742"
    for name in TIMES:
        assert getattr(host, name) == pytest.approx(getattr(given, name) / speed)
    assert host.operations_forward == given.operations_forward


def test_a_faster_thread_never_slows_a_step_down() -> None:
    steps = [on(speed, framework="megatron-2022").run().step_time for speed in (0.1, 0.3, 1.0, 3.0)]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > 2 * steps[-1], "this model is bound by its host"


def test_the_note_says_why() -> None:
    notes = on(2.0, framework="megatron-2022").resolved["derived"]
    assert notes["framework.host"].startswith("times x 0.50")
    assert "framework.host" not in on(1.0, framework="megatron-2022").resolved["derived"]


def test_an_unknown_processor_is_refused_with_the_nearest() -> None:
    with pytest.raises(ScenarioError, match="epyc-7742"):
        scenario(framework={"base": "neutral", "host": {"processor": "epyc-7724"}}).resolve()


def test_machines_name_processors_that_are_known() -> None:
    for name in TOPOLOGIES.names():
        given = TOPOLOGIES.find(name).data.get("hosts", {})
        assert given.get("processor", "grace") in processors(), name


def test_recomputation_of_the_host_hides_behind_the_gpu() -> None:
    """What recomputation costs the host shows only where the GPU does not cover it."""
    recomputed = {"framework": "megatron-deepspeed-2022", "training__recompute": "full", "parallel": {"tp": 1, "pp": 4}}
    free = {"base": "megatron-deepspeed-2022", "host": {"recompute_seconds": 0}}
    blocking = {"base": "megatron-deepspeed-2022", "host": {"blocking": True}}
    large = {"model__hidden": 8192, "model__heads": 64, "model__ffn_hidden": 28672, "training__sequence_length": 4096}
    plain, without, waits = (
        scenario(**{**recomputed, "framework": framework, **large}).run().step_time
        for framework in ("megatron-deepspeed-2022", free, blocking)
    )
    assert plain == pytest.approx(without, rel=0.001)
    assert waits > 1.01 * plain
    small = [
        scenario(**{**recomputed, "framework": name}).run().step_time for name in ("megatron-deepspeed-2022", free)
    ]
    assert small[0] > 1.3 * small[1]
