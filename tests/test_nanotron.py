"""nanotron's sweep: where its blocks live, what its jobs wait for, what communication takes of memory, who ran out."""

from __future__ import annotations

import csv
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.jobs import scenario, small
from trainsim.frameworks import load_framework
from trainsim.program.communication_memory import communicators, gathered_buffers
from trainsim.program.parts import Parts, work_out
from trainsim.scenario.scenario import Scenario
from trainsim.validation.mapping import scenario_of
from trainsim.validation.nanotron import as_usual, stages_of
from trainsim.validation.published import TABLES, PublishedRun
from trainsim.validation.scores import RunScore
from trainsim.validation.scoring import replayed
from trainsim.validation.summary import room

SWEEP = {row["id"]: row for row in csv.DictReader(TABLES["nanotron"].open())}
SAMPLE = ("N177", "N198", "N300", "N370", "N399", "N632", "N806", "N1022", "N1142", "N1552", "N2904", "N3595")
"""Rows of all kinds: with and without a pipeline, tp 1 to 16, each state of the software; two ran out of memory."""


def three_billion(**changes: Any) -> Parts:
    """The sweep's model on 16 H100, worked out."""
    cells = SWEEP["N806"] | {name: str(value) for name, value in changes.items() if "__" not in name}
    base = Scenario.from_dict(scenario_of(PublishedRun(line=1, cells=as_usual(cells))).scenario)
    others = {name.replace("__", "."): value for name, value in changes.items() if "__" in name}
    return work_out(base.replace(others).resolve())


# where blocks live


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=40), st.integers(1, 16))
def test_blocks_stay_in_order_and_leave_out_no_rank(costs: list[float], pp: int) -> None:
    places = stages_of(costs, pp)
    assert len(places) == len(costs)
    assert places[0] == 0
    assert all(step in (0, 1) for step in (b - a for a, b in pairwise(places)))
    assert places[-1] < pp


@pytest.mark.parametrize(
    ("pp", "layers"),
    [(1, ""), (2, "[16, 12]"), (4, "[8, 8, 8, 4]"), (8, f"[{'4, ' * 7}0]"), (16, f"[{'2, ' * 14}0, 0]")],
)
def test_the_head_counts_as_its_products(pp: int, layers: str) -> None:
    """28 layers of 113M products and a head of 403M, cut where src/nanotron/models/base.py cuts."""
    assert as_usual(SWEEP["N806"] | {"pp": str(pp)})["layout"] == layers


# what a row says


def test_failed_runs_give_their_batch_in_tokens() -> None:
    row = SWEEP["N1836"]
    assert row["global_batch"] == "1048576.0"
    assert as_usual(row)["global_batch"] == "256"


@pytest.mark.parametrize(
    ("run", "profile"),
    [
        ("N177", "nanotron"),  # one node
        ("N1061", "nanotron"),  # 32 nodes whose all-gather reaches 73 GB/s
        ("N1458", "nanotron-collectives-wait"),  # 64 nodes, 6.3 GB/s
        ("N1170", "nanotron-messages-wait"),  # before the fix
        ("N813", "nanotron-messages-wait"),  # succeeded before the fix, out of memory after it
        ("N1836", "nanotron"),  # failed
    ],
)
def test_the_state_of_the_software_is_told_by_the_columns(run: str, profile: str) -> None:
    assert scenario_of(PublishedRun(line=1, cells=as_usual(SWEEP[run]))).software.profile == profile


# what collectives and messages wait for


@pytest.mark.parametrize(("tp", "floor"), [(2, 8.3e-3), (4, 12.8e-3), (8, 21e-3)])
def test_a_layer_takes_as_long_as_its_ranks_wait(tp: int, floor: float) -> None:
    """Floors of the sweep per layer and micro-batch of one sequence, forward and backward, whatever the nodes."""
    for gpus in (16, 32):
        dp = gpus // tp // 2
        parts = three_billion(num_gpus=gpus, nodes=gpus // 8, dp=dp, tp=tp, pp=2, micro_batch=1, grad_accum=32)
        block = parts.layer_blocks(parts.stages[0])[0]
        assert block.forward_seconds + block.backward_seconds == pytest.approx(floor, rel=0.2)


def test_nobody_waits_in_one_node() -> None:
    waiting, plain = (
        work_out(small(cluster__nodes=1, parallel__pp=2, framework=name))
        for name in ("nanotron-collectives-wait", "nanotron")
    )
    for ours, others in zip(waiting.layers, plain.layers, strict=True):
        assert ours.forward_seconds == others.forward_seconds


def test_a_far_group_waits_longer_than_a_near_one() -> None:
    near, far = (
        work_out(small(parallel__tp=tp, parallel__pp=1, framework="nanotron-collectives-wait")).layers[0]
        for tp in (8, 16)
    )
    assert far.forward_seconds > 2 * near.forward_seconds


def test_a_message_that_waits_costs_half_a_second() -> None:
    """One per micro-batch with two stages, two in the midst of more (before the fix of the pipeline)."""
    for pp, messages in ((2, 1), (4, 2)):
        slow, quick = (
            scenario(parallel__pp=pp, training__global_batch=64, framework=f"nanotron-{end}-wait").run().step_time
            for end in ("messages", "collectives")
        )
        microbatches = 64 // (8 // pp)
        assert slow - quick == pytest.approx(0.5 * messages * microbatches, rel=0.35)


# what it takes of memory


@pytest.mark.parametrize(
    ("degrees", "groups"),
    [((1, 1), 1), ((2, 1), 3), ((1, 2), 3), ((2, 4), 5)],
)
def test_groups_of_ranks(degrees: tuple[int, int], groups: int) -> None:
    tp, pp = degrees
    assert communicators(small(parallel__tp=tp, parallel__pp=pp)) == groups
    tied = small(parallel__tp=tp, parallel__pp=pp, model__tied_embeddings=True)
    assert communicators(tied) == groups + (pp > 1)


def test_communicators_are_part_of_the_framework() -> None:
    job, memory = small(framework="nanotron"), load_framework("nanotron").memory
    held = scenario(framework="nanotron").run().memory.fullest.part("framework")
    assert held == memory.fixed + memory.communicator * communicators(job) > memory.fixed


def test_sums_that_come_back_late() -> None:
    """59 and 62 whole inputs above states, activations and logits without a pipeline, of 28 layers, in the sweep."""
    sequence = 4096 * 3072 * 2.0
    for micro_batch in (1, 8):
        alone = three_billion(num_gpus=16, nodes=2, dp=1, tp=16, pp=1, micro_batch=micro_batch, framework="nanotron",
                              ag_GBps=220)  # fmt: skip
        assert gathered_buffers(alone, 0) == (2 * 28 + 2) * micro_batch * sequence


def test_who_runs_ahead() -> None:
    """The first stage through all forwards before its first backward, others through one; one that waits for messages
    not at all; nobody without tensor parallelism along the sequence."""
    sequence = 2.0 * 1024 * 1024
    plain = work_out(small(framework="nanotron", parallel__sequence_parallel=True))
    layers = plain.job.pipeline.layout[0]
    assert gathered_buffers(plain, 0) == (2 + 2 * layers * 4) * sequence
    assert gathered_buffers(plain, 1) == (2 + 2 * layers) * sequence
    blocked = work_out(small(framework="nanotron-messages-wait", parallel__sequence_parallel=True))
    assert gathered_buffers(blocked, 0) == 2 * sequence
    waiting = work_out(small(framework="nanotron-collectives-wait", parallel__sequence_parallel=True))
    assert gathered_buffers(waiting, 0) == (2 + 2 * layers * 2) * sequence
    assert gathered_buffers(work_out(small(framework="nanotron", parallel__tp=1)), 0) == 0
    assert gathered_buffers(work_out(small(framework="nanotron", parallel__sequence_parallel=False)), 0) == 0


def test_slack_that_is_not_given_back_has_to_fit() -> None:
    returned, kept = (
        scenario(framework={"base": "megatron-core", "memory": {"slack_returned": part}}).run().memory
        for part in (1, 0)
    )
    for one, other in zip(returned.per_stage, kept.per_stage, strict=True):
        assert one.needed == one.peak - one.part("slack") < one.peak
        assert other.needed == other.peak == one.peak


def test_profiles_differ_in_what_waits() -> None:
    plain, collectives, messages = (
        load_framework(f"nanotron{end}") for end in ("", "-collectives-wait", "-messages-wait")
    )
    assert replace(collectives, name="", source="", host=plain.host) == replace(plain, name="", source="")
    assert messages.host == collectives.host
    assert messages.communication.p2p_announcement > plain.communication.p2p_announcement


# the sweep


def test_a_sample_of_the_sweep() -> None:
    errors, peaks, told = [], [], []
    for name in SAMPLE:
        run = PublishedRun(line=1, cells=as_usual(SWEEP[name]))
        value = replayed(Scenario.from_dict(scenario_of(run).scenario).run())
        score = RunScore(run=run, published=run.step_time, predicted=value.step_time, fits=value.fits)
        told.append(score)
        if not score.ran_out:
            errors.append(abs(score.error or 1.0))
            peaks.append(abs(dict(value.peaks)[run.memory_measure] / (run.peak_memory or 1.0) - 1))
    assert median(errors) < 0.10
    assert median(peaks) < 0.06
    found = room(told)
    assert found is not None
    assert (found.runs, found.right, found.ran_out) == (12, 12, 2)


def test_who_had_room() -> None:
    def score(oom: str, fits: bool) -> RunScore:
        return RunScore(run=PublishedRun(line=1, cells={"oom": oom}), published=None, fits=fits)

    assert room([score("False", True), score("", True)]) is None
    found = room([score("True", True), score("True", False), score("False", False), score("False", True)])
    assert found is not None
    assert (found.runs, found.right, found.ran_out, found.missed, found.alarms) == (4, 2, 2, 1, 1)
