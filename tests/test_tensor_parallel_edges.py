"""The edges of tensor parallelism: a loss over cut or gathered logits, and sequences that it does not divide."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs import run_small, same_spans, scenario, small
from trainsim.contracts.groups import TENSOR
from trainsim.contracts.instructions import Meet
from trainsim.errors import InvalidPlan, ScenarioError
from trainsim.frameworks import framework_names, load_framework
from trainsim.program.parts import work_out
from trainsim.study.ways import ways

EAGER = {"framework": "transformers", "parallel__pp": 1}
UNEVEN: dict[str, Any] = {"parallel__sequence_parallel": True, "parallel__tp": 4, "training__sequence_length": 1023}


def test_gathered_logits_are_one_collective_more_and_every_logit_is_held() -> None:
    cut, whole = (work_out(small(**EAGER, parallel__tp=4, training__loss_parallel=given)) for given in (True, False))
    job = whole.job
    logits = job.training.sequence_length * job.padded_vocab
    gathers = [piece for piece in whole.head.forward if isinstance(piece, Meet) and piece.name == "logits gather"]
    assert [(g.communicator, g.operation, g.nbytes) for g in gathers] == [(TENSOR, "all_gather", 2.0 * logits)]
    assert not any(isinstance(piece, Meet) and "loss" in piece.name for piece in whole.head.forward)
    sums = [piece for piece in cut.head.forward if isinstance(piece, Meet) and piece.name == "loss.all_reduce"]
    assert len(sums) == 3
    kept = job.framework.memory.saved.logits.kept
    assert whole.head.saved - cut.head.saved == pytest.approx(kept * logits * 3 / 4)
    assert whole.head.forward_seconds > cut.head.forward_seconds
    assert whole.head.backward_seconds > cut.head.backward_seconds


def test_one_rank_has_all_logits_anyway() -> None:
    traces = [run_small(**EAGER, parallel__tp=1, training__loss_parallel=given).trace for given in (True, False)]
    assert same_spans(*traces)
    note = scenario(**EAGER, parallel__tp=1, training__loss_parallel=True).resolved["derived"]["training.loss_parallel"]
    assert "without effect: tp is 1" in note


def test_the_framework_says_whether_the_loss_is_parallel() -> None:
    assert not small(**EAGER).training.loss_parallel
    assert small(framework="torchtitan", parallel__pp=1).training.loss_parallel
    with pytest.raises(ScenarioError, match=r"loss_parallel = false: megatron-core supports no other loss; true"):
        small(training__loss_parallel=False)
    with pytest.raises(ScenarioError, match="a head on all pipeline stages supports no other loss"):
        small(framework="transformers", training__loss_parallel=False, pipeline__vocabulary_parallel=True)


def test_a_parallel_loss_is_suggested_where_there_is_none() -> None:
    for given, suggested in ((False, [{"training.loss_parallel": True}]), (True, [])):
        run = scenario(**EAGER, training__loss_parallel=given)
        assert [dict(c.values) for c in ways["parallel loss"].suggest(run, run.resolve())] == suggested


@pytest.mark.parametrize("name", framework_names())
def test_a_sequence_that_does_not_divide_is_padded_or_refused(name: str) -> None:
    changes = {**UNEVEN, "framework": name, "parallel__pp": 1, "sharding__strategy": "ddp"}
    if load_framework(name).communication.uneven_sequence == "refused":
        with pytest.raises(InvalidPlan, match="1023 tokens of a sequence"):
            small(**changes)
        return
    assert small(**changes).parallel.sequence_parallel
    note = scenario(**changes).resolved["derived"]["parallel.sequence_parallel"]
    assert f"1023 tokens are padded to 256 on each of 4 ranks, as {name} does" in note


def test_padding_costs_what_the_next_multiple_costs_outside_of_products() -> None:
    changes = {**UNEVEN, "framework": "torchtitan", "parallel__pp": 1}
    odd, even = (work_out(small(**changes | {"training__sequence_length": n})) for n in (1023, 1024))
    for a, b in zip(odd.layers[0].forward, even.layers[0].forward, strict=True):
        if isinstance(a, Meet):
            assert isinstance(b, Meet)
            assert a.nbytes == b.nbytes
        elif getattr(a, "name", "").startswith(("norm", "add")):
            assert a == b
    assert odd.layers[0].forward_seconds <= even.layers[0].forward_seconds
    assert odd.layers[0].saved < even.layers[0].saved
