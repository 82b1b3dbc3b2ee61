"""Schedules of slices on real layers: together the slices do the work of the whole sequence, in smaller pieces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.jobs import run_small, same_spans, small
from trainsim.contracts.instructions import Kernel, Meet, Program, Send
from trainsim.contracts.job import Job
from trainsim.engine import run
from trainsim.fold import fold, prune, unfolded
from trainsim.models.layers import Shape, embedding_operations, head_operations, layer_operations, style_of
from trainsim.models.operations import Attention, Gemm, Operation, Work
from trainsim.program.lower import lower
from trainsim.simulate import simulate

SLICED = ("seq1f1b", "terapipe")
WHOLE = {"seq1f1b": "1f1b", "terapipe": "gpipe"}


def sliced(name: str, group: int | None = None, **changes: object) -> Job:
    chosen = {} if group is None else {"pipeline__group": group}
    return small(pipeline__schedule=name, training__global_batch=16, **chosen, **changes)


def works(operations: tuple[Operation, ...]) -> list[Work]:
    return [w for o in operations for w in (*o.forward, *o.input_gradient, *o.weight_gradient)]


def shapes(job: Job, slices: int) -> list[Shape]:
    training = job.training
    length = training.sequence_length // slices
    one = Shape(
        micro_batch=training.micro_batch,
        sequence_length=length,
        tp=job.parallel.tp,
        padded_vocab=job.padded_vocab,
    )
    return [replace(one, context=k * length) for k in range(slices)]


@pytest.mark.parametrize("slices", [2, 4, 8])
def test_slices_have_the_flops_of_the_sequence(slices: int) -> None:
    job = small()
    style = style_of(job.framework)

    def flops(shape: Shape, kind: type[Work]) -> float:
        every = (
            *works(layer_operations(job.model.kind, shape, style)),
            *works(embedding_operations(job.model, shape, style)),
            *works(head_operations(job.model, shape, style)),
        )
        return sum(w.flops for w in every if isinstance(w, kind))

    (whole,) = shapes(job, 1)
    for kind in (Gemm, Attention):
        assert sum(flops(s, kind) for s in shapes(job, slices)) == flops(whole, kind)


def test_a_later_slice_looks_at_a_rectangle_and_its_own_square() -> None:
    job = small()
    style = style_of(job.framework)
    first, *_, last = shapes(job, 4)
    kernels = {
        s: [w for w in works(layer_operations(job.model.kind, s, style)) if isinstance(w, Attention)]
        for s in (first, last)
    }
    assert [(w.queries, w.keys, w.causal) for w in kernels[first]] == [(256, 256, True)] * 2
    assert [(w.queries, w.keys, w.causal) for w in kernels[last]] == [(256, 768, False), (256, 256, True)] * 2


def test_eager_scores_grow_with_the_slice() -> None:
    job = small(training__attention="eager")
    style = style_of(job.framework, "eager")

    def scores(shape: Shape) -> Gemm:
        return next(w for w in works(layer_operations(job.model.kind, shape, style)) if w.name == "scores")  # type: ignore[return-value]

    assert [(s.m, s.n) for s in map(scores, shapes(job, 4))] == [(256, 256), (256, 512), (256, 768), (256, 1024)]


def kernels(programs: tuple[Program, ...], *kinds: str) -> float:
    return sum(
        i.seconds
        for program in programs
        for task in program.chains["compute"]
        for i in task.template.instructions
        if isinstance(i, Kernel) and i.kind in kinds
    )


def sent(programs: tuple[Program, ...], kind: type) -> float:
    return sum(
        i.nbytes
        for program in programs
        for chain in program.chains.values()
        for task in chain
        for i in task.template.instructions
        if isinstance(i, kind) and i.kind in ("pp", "tp")
    )


@pytest.mark.parametrize("name", SLICED)
def test_finer_slices_cost_more_kernel_time_and_send_the_same_bytes(name: str) -> None:
    each = [lower(sliced(name, k)).system.programs for k in (1, 2, 4, 8)]
    seconds = [kernels(programs, "forward", "backward") for programs in each]
    assert seconds == sorted(seconds)
    assert len(set(seconds)) == 4
    for kind in (Send, Meet):
        assert [sent(programs, kind) for programs in each] == pytest.approx([sent(each[0], kind)] * 4)


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("name", SLICED)
def test_one_slice_is_the_whole_sequence(name: str, steps: int) -> None:
    one, whole = sliced(name, 1, simulation__steps=steps), sliced(WHOLE[name], simulation__steps=steps)
    a, b = simulate(one), simulate(whole)
    assert same_spans(a.trace, b.trace)
    assert [p.memory for p in a.programs] == [p.memory for p in b.programs]


CASES = {
    "plain": {},
    "eight": {"pipeline__group": 8},
    "blocking": {"pipeline__p2p": "blocking"},
    "sequence parallel": {"parallel__sequence_parallel": True, "training__tp_overlap": True},
    "recomputed": {"training__recompute": "full", "sharding__overlap": True},
    "eager": {"training__attention": "eager", "training__recompute": "selective", "sharding__strategy": "ddp"},
    "steps": {"simulation__steps": 3},
    "straggler": {"what_if": [{"slow": {"rank": 3, "factor": 1.3}}]},
}


@pytest.mark.parametrize("case", CASES)
def test_folding_changes_no_bit(case: str) -> None:
    plan = lower(sliced("seq1f1b", **CASES[case]))
    assert same_spans(run(fold(prune(plan.system))), run(unfolded(plan.system), merge=False))


def most_held(program: Program, whole: float) -> float:
    """The most activations at once, in slices whose sequence keeps *whole* bytes."""
    level = peak = 0.0
    for template, _ in program.chains["compute"]:
        level += max(template.balance, 0.0)
        peak = max(peak, level)
        level += min(template.balance, 0.0)
    assert level == pytest.approx(0.0, abs=1.0)
    return peak / whole


@pytest.mark.parametrize("slices", [1, 2, 4])
def test_slices_in_flight_are_those_of_the_order(slices: int) -> None:
    """Rank r of Seq1F1B holds p - 1 - r + k slices, TeraPipe all of them."""
    for name, most in (("seq1f1b", lambda r: 3 - r + slices), ("terapipe", lambda r: 8 * slices)):
        for rank, program in enumerate(lower(sliced(name, slices)).system.programs):
            one = program.chains["compute"][0].template.balance
            assert round(most_held(program, one)) == most(rank)


def test_full_recomputation_keeps_keys_and_values_of_slices() -> None:
    whole, cut = (lower(sliced("seq1f1b", k, training__recompute="full")).parts for k in (1, 4))
    job = whole.job
    seen = job.training.sequence_length * 2 * job.model.kv_heads // job.parallel.tp * job.model.head_dim * 2
    assert sum(one.layers[0].saved for one in cut.slices) == pytest.approx(whole.layers[0].saved + seen)


@pytest.mark.parametrize("framework", ["neutral", "megatron-core"])
@pytest.mark.parametrize("slices", [1, 2, 4])
@pytest.mark.parametrize("name", SLICED)
def test_the_closed_form_is_near(name: str, slices: int, framework: str) -> None:
    simulation = simulate(sliced(name, slices, framework=framework))
    assert simulation.estimate.seconds == pytest.approx(simulation.trace.duration, rel=0.03)


def test_slices_fill_the_pipeline_sooner() -> None:
    """With few long sequences what small kernels lose is less than the bubble that slices save."""
    long = {
        "training__sequence_length": 32768,
        "training__global_batch": 4,
        "model__vocab": 2048,
        "model__hidden": 4096,
        "model__heads": 32,
        "model__ffn_hidden": 11008,
    }
    whole, cut = (run_small(pipeline__schedule=name, **long).trace.duration for name in ("1f1b", "seq1f1b"))
    assert cut < 0.75 * whole
