"""What strategies put beside a pass: laws that hold for all of them."""

from __future__ import annotations

import pytest

from trainsim.contracts.job import Job
from trainsim.scenario.scenario import Scenario
from trainsim.sharding import strategies
from trainsim.sharding.coordinator import Limits, coordinate
from trainsim.sharding.flights import PassFlights, PassMoment, Role
from trainsim.sharding.parameter_groups import ChunkParameters, ParameterGroup
from trainsim.sharding.tensorwise import whole

EVERY_PASS = [name for name in strategies if strategies[name].every_pass]
GROUP = ParameterGroup(name="dense", chunks=(ChunkParameters(0, (), 0),), replicas=16)
BACKWARD = Role("B", True, True)


def job(strategy: str) -> Job:
    return Scenario.from_dict(
        {
            "model": "gpt2",
            "cluster": {"topology": "dgx_a100", "nodes": 2},
            "sharding": {"strategy": strategy, "overlap": True},
            "training": {"global_batch": 32, "sequence_length": 1024},
        }
    ).resolve()


def backward(strategy: str) -> PassFlights:
    return strategies[strategy].plan(job(strategy), 0, (GROUP,)).flights[BACKWARD]


@pytest.mark.parametrize("strategy", EVERY_PASS)
def test_a_chain_never_holds_up_what_could_start_for_what_comes_later(strategy: str) -> None:
    """Flights that follow others stand on their chain in the order in which those are issued."""
    beside = backward(strategy)
    when = {f.name: f.issued for f in beside.flights}
    for chain in {f.chain for f in beside.flights}:
        issued = [f.issued for f in beside.flights if f.chain == chain]
        moments = [when[at] if isinstance(at, str) else at for at in issued]
        keys = [(moment.part, moment.after) for moment in moments if isinstance(moment, PassMoment)]
        assert len(keys) == len(moments)
        assert keys == sorted(keys)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("strategy", EVERY_PASS)
def test_one_gpu_has_nobody_to_send_to(strategy: str, overlap: bool) -> None:
    data = {
        "model": "gpt2",
        "cluster": {"topology": "dgx_a100", "nodes": 1, "gpus_per_node": 1},
        "sharding": {"strategy": strategy, "overlap": overlap},
        "training": {"global_batch": 2, "sequence_length": 1024},
    }
    result = Scenario.from_dict(data).run()
    assert result.memory.fits
    assert not result.to_dict()["communication"]["dp"]["bytes_per_rank"]


@pytest.mark.parametrize("hidden", [1024, 12288])
def test_zero3_holds_what_the_coordinator_holds(hidden: int) -> None:
    """Also where one layer is more than DeepSpeed keeps, so that a part gathers the same parameters twice."""
    data = {
        "model": {"layers": 4, "hidden": hidden, "heads": 16, "vocab": 50304},
        "cluster": {"topology": "dgx_a100", "nodes": 1},
        "sharding": {"strategy": "zero3", "persistence_threshold": 0},
        "training": {"global_batch": 16, "sequence_length": 1024, "recompute": "full"},
    }
    one = Scenario.from_dict(data)
    work = whole(one.resolve())
    found = coordinate(work.trace, work.sizes, limits=Limits(persistence_threshold=0))
    most, after = found.levels(len(work.trace))
    assert after[-1] == 0
    assert max(most[: found.backward]) == found.peak_forward
    held = one.run().memory.per_stage[0].levels["gathered"]
    assert held.max() == 2 * max(found.peak_forward, found.peak_backward)
    assert held[-1] == 0


def test_averages_over_groups_hide_under_the_backward_pass() -> None:
    """Between nodes HSDP sends no more bytes than FSDP, beside the same passes; hence most of it is hidden."""
    base = {
        "model": "llama-3-8b",
        "cluster": {"topology": "dgx_a100", "nodes": 8},
        "training": {"sequence_length": 8192, "micro_batch": 1, "global_batch": 64},
    }
    result = Scenario.from_dict(base | {"sharding": {"strategy": "hsdp"}}).run().to_dict()["communication"]["dp"]
    assert result["exposed_s"] < 0.25 * result["time_s"]
