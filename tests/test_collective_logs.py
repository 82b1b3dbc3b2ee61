"""Public nccl-tests logs beside what is predicted: every one can be asked for, and errors stay where they are."""

from __future__ import annotations

import statistics

import pytest

from benchmarks.collectives import MIB, Log, calibrated_errors, logs, median_error
from tests.machines import SwitchedNodes
from trainsim.collectives import factor
from trainsim.collectives.pattern import collective_time

MEDIANS = {  # as docs/collectives.md has them: (between nodes, half): from 64 KiB to 1 MiB, from 1 MiB
    (False, "fit"): (0.30, 0.045),
    (False, "score"): (0.45, 0.09),
    (True, "fit"): (0.18, 0.105),
    (True, "score"): (0.13, 0.15),
}


@pytest.mark.parametrize("log", logs(), ids=lambda log: log.name)
def test_every_log_can_be_asked_for(log: Log) -> None:
    """And no time is less than the line rates of the machine's links allow one GPU."""
    size = max(log.seconds)
    seconds = log.predicted(size)
    assert 0 < seconds < 10
    assert factor(log.said["operation"], len(log.ranks)) * size / seconds < 2e12


@pytest.mark.parametrize(("far", "half"), MEDIANS)
def test_errors_stay_where_they_are(far: bool, half: str) -> None:
    some = [log for log in logs() if log.clean and log.far is far and log.said["half"] == half]
    for bound, sizes in zip(MEDIANS[far, half], ((MIB / 16, MIB), (MIB, float("inf"))), strict=True):
        assert median_error(some, *sizes)[0] < bound


@pytest.mark.slow
def test_a_machine_that_was_measured_is_within_five_per_cent() -> None:
    """Fitted to every other size of a log, the sizes between them are met."""
    errors = calibrated_errors()
    assert len(errors) > 25
    assert statistics.median(e for some in errors.values() for e in some) < 0.05


# ---- what every network simulator is asked for first


@pytest.mark.parametrize("nodes", [2, 4, 8, 16])
def test_an_all_to_all_over_one_gpu_per_node_goes_at_the_rate_of_its_nic(nodes: int) -> None:
    """nccl-tests' bus bandwidth of it is the NIC's rate; the buffer's rate is that times N / (N - 1)."""
    machine = SwitchedNodes(nodes).without_constants()
    seconds = collective_time(machine, "all_to_all", range(0, 8 * nodes, 8), 1 << 30)
    assert (1 << 30) / seconds == pytest.approx(25e9 * 0.96 * nodes / (nodes - 1))


def test_more_gpus_of_a_node_use_more_nics() -> None:
    """One ring per NIC that the group has: 1, 2, 4 and 8 GPUs of each node go at as many times the rate."""
    machine = SwitchedNodes(4, line=3e12).without_constants()
    one, *others = (
        factor("all_reduce", 4 * n)
        / collective_time(machine, "all_reduce", [8 * node + g for node in range(4) for g in range(n)], 1 << 30, "ring")
        for n in (1, 2, 4, 8)
    )
    assert [rate / one for rate in others] == pytest.approx([2, 4, 8])


@pytest.mark.parametrize("nbytes", [1e6, 1e8, 1e9])
@pytest.mark.parametrize("ranks", [4, 8, 16, 64])
@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_a_switch_against_the_closed_form(operation: str, ranks: int, nbytes: float) -> None:
    """All ranks on one switch, without latencies: every rank's port carries what an ideal algorithm sends."""
    machine = SwitchedNodes(1, gpus=64, reached=1.0).without_constants()
    took = collective_time(machine, operation, range(ranks), nbytes)
    assert took == pytest.approx(factor(operation, ranks) * nbytes / 300e9)
