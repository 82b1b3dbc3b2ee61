"""The head spread over all pipeline ranks: nothing is lost, the stages become even, and all folds as before."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.jobs import run_small, same_spans, small
from trainsim.contracts.groups import Ends
from trainsim.contracts.instructions import Kernel, Meet, Program
from trainsim.engine import run
from trainsim.errors import NotBuilt
from trainsim.fold import fold, prune, unfolded
from trainsim.models.layers import Shape, Style, head_operations, style_of
from trainsim.models.operations import Gemm
from trainsim.program.lower import Lowered, lower
from trainsim.result.result import Result

SPREAD: dict[str, object] = {"pipeline__vocabulary_parallel": True}
LARGE: dict[str, object] = {
    "model": {
        "family": "llama", "layers": 8, "hidden": 1024, "heads": 16, "kv_heads": 8, "ffn_hidden": 2816,
        "vocab": 131072,
    },
    "parallel__tp": 1,
    "parallel__pp": 4,
    "cluster__nodes": 1,
    "training__global_batch": 32,
}  # fmt: skip
TIED: dict[str, object] = {
    "model": {"family": "gpt", "layers": 8, "hidden": 1024, "heads": 16, "vocab": 50257, "tied_embeddings": True}
}


def _instructions(program: Program, chain: str) -> Iterable[object]:
    return (i for task in program.chains[chain] for i in task.template.instructions)


def _works(plan: Lowered) -> list[str]:
    tasks = plan.system.programs[-1].chains["compute"]
    return [f"{t.template.work}{t.microbatch}" for t in tasks]


# -- what is conserved -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pp", "chunks", "tp"), [(2, 1, 2), (4, 1, 1), (4, 2, 2)])
def test_no_parameter_is_lost(pp: int, chunks: int, tp: int) -> None:
    schedule = "1f1b" if chunks == 1 else "interleaved-1f1b"
    job = small(
        parallel__pp=pp, parallel__tp=tp, pipeline__chunks=chunks, pipeline__schedule=schedule, **SPREAD
    )  # fmt: skip
    model, whole = job.model, sum(p.parameters for p in lower(job).system.programs)
    norms = (2 * model.layers + 1) * model.hidden  # every rank of a tensor-parallel group has all of them
    table = 2 * (job.padded_vocab - model.vocab) * model.hidden
    assert job.padded_vocab % (128 * tp * pp) == 0
    assert whole * tp - norms * (tp - 1) - table == model.parameters


def test_a_tied_head_is_a_copy_where_the_embedding_is_not() -> None:
    job = small(**TIED, **SPREAD)
    usual = sum(p.parameters for p in lower(small(**TIED)).system.programs)
    table = small(**TIED).padded_vocab // 2 * 1024
    shards = job.padded_vocab // 8 * 1024
    padding = (job.padded_vocab - small(**TIED).padded_vocab) // 2 * 1024
    assert sum(p.parameters for p in lower(job).system.programs) == usual - table + 3 * shards + padding
    sums = [
        [i for i in _instructions(p, "compute") if isinstance(i, Meet) and isinstance(i.communicator.part, Ends)]
        for p in lower(job).system.programs
    ]
    assert [len(some) for some in sums] == [3, 1, 1, 1]


def test_all_ranks_together_make_all_logits() -> None:
    job, pp = small(**SPREAD), 4
    shape = Shape(micro_batch=1, sequence_length=1024, tp=2, padded_vocab=job.padded_vocab)
    columns = Shape(micro_batch=1, sequence_length=1024, tp=2, padded_vocab=job.padded_vocab // pp)
    style: Style = style_of(job.framework)

    def flops(one: Shape) -> int:
        operations = head_operations(job.model, one, style)
        works = [w for o in operations for w in (*o.forward, *o.input_gradient, *o.weight_gradient)]
        return sum(2 * w.m * w.n * w.k * w.batch for w in works if isinstance(w, Gemm))

    assert pp * flops(columns) == flops(shape)


def test_logits_take_about_as_long_in_all() -> None:
    def seconds(changes: dict[str, object]) -> float:
        programs = lower(small(**LARGE, **changes)).system.programs
        kernels = (i for p in programs for chain in p.chains for i in _instructions(p, chain))
        return sum(k.seconds for k in kernels if isinstance(k, Kernel) and k.name.startswith("logits"))

    assert seconds(SPREAD) == pytest.approx(seconds({}), rel=0.05)


# -- what it is good for -----------------------------------------------------------------------------------------


def test_a_large_vocabulary_no_longer_holds_up_the_pipeline() -> None:
    usual, spread = (Result(simulation=run_small(**LARGE, **changes)) for changes in ({}, SPREAD))
    assert spread.trace.duration < 0.8 * usual.trace.duration
    first, last = (one.memory.per_stage[-1].peak for one in (usual, spread))
    assert last < 0.8 * first


def test_the_head_is_work_of_every_stage() -> None:
    """What runs beside the layers is no bubble: about (p - 1) / (m + p - 1) of the window is idle."""
    longer = {"training__sequence_length": 4096}  # the host is ahead of the layers
    result = Result(simulation=run_small(**LARGE, **SPREAD, **longer))
    busy = [stage.busy_s for stage in result.bubble.stages]
    assert max(busy) < 1.1 * min(busy)
    assert result.bubble.fraction == pytest.approx(3 / 19, abs=0.06)
    assert sum(result.breakdown.values()) == result.step_time
    alone = lower(small(**LARGE, **SPREAD)).parts
    assert alone.vocabulary is not None
    head, layer = (b.forward_seconds + b.backward_seconds for b in (alone.vocabulary.block, alone.layers[0]))
    assert result.breakdown["compute"] > 0.85 * (16 * head + 2 * 16 * layer)  # some of it at the same time


def test_the_closed_form_knows_it() -> None:
    one = run_small(**LARGE, **SPREAD)
    assert one.estimate.seconds == pytest.approx(one.trace.duration, rel=0.1)


def test_two_more_microbatches_are_in_flight() -> None:
    assert _works(lower(small()))[:4] == ["F0", "B0", "F1", "B1"]
    assert _works(lower(small(training__global_batch=32, **SPREAD)))[:6] == ["F0", "F1", "F2", "B0", "F3", "B1"]


def test_one_stage_has_nothing_to_spread() -> None:
    usual, spread = (run_small(parallel__pp=1, **changes) for changes in ({}, SPREAD))
    assert same_spans(usual.trace, spread.trace)


# -- what runs and what does not ---------------------------------------------------------------------------------

CASES: dict[str, dict[str, object]] = {
    "plain": {},
    "tied": TIED,
    "sequence parallel": {"parallel__sequence_parallel": True},
    "overlapped tp": {"training__tp_overlap": "wgrad"},
    "interleaved": {"pipeline__schedule": "interleaved-1f1b", "pipeline__chunks": 2},
    "gpipe": {"pipeline__schedule": "gpipe"},
    "few microbatches": {"training__global_batch": 4},
    "straggler": {"what_if": [{"slow": {"rank": 3, "factor": 1.3}}]},
    "two steps": {"simulation__steps": 2},
    "gathers overlapped": {"sharding__overlap": True},
    "small buckets": {"sharding__strategy": "ddp", "sharding__overlap": True, "sharding__reduce_bucket": 1e5},
    "shared nics": {"cluster__topology": "jean_zay_a100", "framework": "megatron-deepspeed-2022"},
    "blocks": {"simulation__detail": "block"},
    "a stage without layers": {
        "pipeline__layout": [3, 0, 3, 2],
        "sharding__strategy": "ddp",
        "sharding__overlap": True,
        "sharding__reduce_bucket": 1e5,
    },
}


@pytest.mark.parametrize("case", CASES)
def test_folding_marks_and_pruning_change_no_bit(case: str) -> None:
    plan = lower(small(**{**CASES[case], **SPREAD}))
    folded = run(fold(prune(plan.system)))
    assert same_spans(run(unfolded(plan.system), merge=False), folded)


@pytest.mark.parametrize("changes", [{"pipeline__schedule": "zb-h1"}, {"pipeline__p2p": "blocking"}])
def test_what_is_not_built_is_said(changes: dict[str, object]) -> None:
    with pytest.raises(NotBuilt, match="vocabulary_parallel"):
        small(**SPREAD, **changes)
