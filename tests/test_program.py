"""From a job to programs: what is conserved, what is refused, and what the closed forms say about the result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.jobs import run_small, same_spans, small
from trainsim.analysis.kinds import PARTS, TITLES
from trainsim.contracts.groups import REPLICAS, WORLD, Messages
from trainsim.contracts.instructions import Hold, Kernel, Meet, Program, Send, Signal, Task, Template, Wait
from trainsim.contracts.job import Job, Pipeline
from trainsim.engine import run
from trainsim.errors import Deadlock, InvalidPlan, InvalidProgram
from trainsim.fold import fold, prune, unfolded
from trainsim.program.lower import lower
from trainsim.program.stages import virtual_stages
from trainsim.program.verify import verify
from trainsim.result.result import Result
from trainsim.schedules import schedules
from trainsim.schedules.cells import schedule
from trainsim.schedules.csv_files import write_schedule
from trainsim.simulate import simulate

# -- stages and parameters ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pp", "chunks", "tp"), [(1, 1, 1), (2, 1, 2), (4, 1, 4), (4, 2, 2), (2, 4, 1)])
def test_no_layer_and_no_parameter_is_lost(pp: int, chunks: int, tp: int) -> None:
    schedule = "1f1b" if chunks == 1 else "interleaved-1f1b"
    job = small(parallel__pp=pp, parallel__tp=tp, pipeline__chunks=chunks, pipeline__schedule=schedule)
    plan = lower(job)
    assert sum(s.layers for s in plan.parts.stages) == job.model.layers
    whole = sum(p.parameters for p in plan.system.programs)
    model = job.model
    norms = (2 * model.layers + 1) * model.hidden  # every rank of a tensor-parallel group has all of them
    table = 2 * (job.padded_vocab - model.vocab) * model.hidden
    assert whole * tp - norms * (tp - 1) - table == model.parameters


def test_a_layout_that_loses_layers_is_refused() -> None:
    job = small()
    bad = replace(job, pipeline=Pipeline(schedule="1f1b", chunks=1, layout=(2, 2, 2, 1)))
    with pytest.raises(InvalidPlan, match="4 stages and 7 layers"):
        virtual_stages(bad)


# -- programs ----------------------------------------------------------------------------------------------------


def test_tasks_are_the_schedule_and_share_templates() -> None:
    program = lower(small(training__global_batch=64)).system.programs[1]
    tasks = program.chains["compute"]
    assert [t.template.work for t in tasks].count("F") == [t.template.work for t in tasks].count("B") == 32
    assert len({id(t.template) for t in tasks}) <= 5  # F, first F, B, last B, update


def test_every_layer_runs_once_per_pass() -> None:
    program = lower(small()).system.programs[1]
    task = next(t for t in program.chains["compute"] if t.template.work == "F")
    layers = [i.layer for i in task.template.instructions if isinstance(i, Kernel) and i.name == "qkv"]
    assert layers == [2, 3]


def test_activations_in_flight_are_those_of_1f1b() -> None:
    simulation = run_small(training__global_batch=16)
    for stage, program in enumerate(simulation.programs):
        level, peak = 0.0, 0.0
        for template, _ in program.chains["compute"]:
            level += template.balance
            peak = max(peak, level)
        one = next(t.template.balance for t in program.chains["compute"])
        assert level == pytest.approx(0.0, abs=1.0)
        assert round(peak / one) == min(4 - stage, 8)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_recomputation_repeats_forward_work_and_keeps_less(recompute: str) -> None:
    job = small(training__recompute=recompute, training__attention="eager")
    block = lower(job).parts.layers[0]
    again = sum(p.seconds for p in block.backward if isinstance(p, Kernel) and p.kind == "recompute")
    forward = sum(p.seconds for p in block.forward if isinstance(p, Kernel) and p.kind == "forward")
    none = lower(small(training__attention="eager")).parts.layers[0]
    assert {"none": again == 0, "selective": 0 < again < forward, "full": again == forward}[recompute]
    assert (block.saved < none.saved) == (recompute != "none")


def test_partial_recomputation_is_between_none_and_full() -> None:
    seconds = [run_small(training__recompute=r).trace.duration for r in ("none", {"mode": "full", "layers": 1}, "full")]
    assert seconds == sorted(seconds)
    assert len(set(seconds)) == 3


# -- verify ------------------------------------------------------------------------------------------------------


def _with(job_changes: dict[str, object], edit: object) -> None:
    system = lower(small(**job_changes)).system
    programs = list(system.programs)
    programs[1] = edit(programs[1])  # type: ignore[operator]
    verify(replace(system, programs=tuple(programs)))


def _appended(program: Program, *instructions: object, chain: str = "compute") -> Program:
    task = Task(Template("extra", 0, instructions), 0)  # type: ignore[arg-type]
    return replace(program, chains={**program.chains, chain: (*program.chains.get(chain, ()), task)})


@pytest.mark.parametrize(
    ("instruction", "chain", "message"),
    [
        (Wait("godot"), "compute", "waits for 'godot' of microbatch 0, which nobody sets"),
        (Meet("lonely", "dp", REPLICAS, "all_reduce", 8.0), "side", "from the chains"),
        (Meet("lonely", "other", WORLD, "all_reduce", 8.0), "compute", "post different collectives"),
        (Send("stray", "pp", Messages("forward", 1), 8.0, "nowhere"), "compute", "which does not wait for it"),
    ],
)
def test_an_illegal_program_is_refused(instruction: object, chain: str, message: str) -> None:
    with pytest.raises(InvalidProgram, match=message):
        _with({"sharding__overlap": False}, lambda p: _appended(p, instruction, chain=chain))


def test_memory_that_is_never_given_back_is_refused() -> None:
    def leak(program: Program) -> Program:
        task = Task(Template("leak", 0, (Signal("x"),), ((0, Hold("activations", 1e6)),)), 0)
        return replace(program, chains={**program.chains, "compute": (*program.chains["compute"], task)})

    with pytest.raises(InvalidProgram, match="keeps 1000000 bytes"):
        _with({}, leak)


# -- the step ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("detail", ["op", "layer", "block"])
def test_coarser_detail_takes_the_same_time_where_nothing_is_shared(detail: str) -> None:
    alone = {"parallel__tp": 1, "parallel__pp": 1, "cluster__gpus_per_node": 1, "cluster__nodes": 1}
    op = run_small(**alone, training__global_batch=4)
    other = run_small(**alone, training__global_batch=4, simulation__detail=detail)
    assert other.trace.duration == pytest.approx(op.trace.duration, rel=1e-7)  # a tick per kernel
    assert other.trace.operations <= op.trace.operations


def test_block_detail_is_close_with_tensor_parallelism() -> None:
    op, block = run_small(), run_small(simulation__detail="block")
    assert block.trace.duration == pytest.approx(op.trace.duration, rel=0.02)


@pytest.mark.parametrize("detail", ["layer", "block"])
@pytest.mark.parametrize("vocabulary", [32000, 320000])
@pytest.mark.parametrize("sequence", [512, 4096])
def test_coarse_detail_hides_collectives_as_kernels_do(detail: str, vocabulary: int, sequence: int) -> None:
    """Overlapped collectives are part of the blocks: as long as in the simulation of every kernel, and no more work."""
    changes = {
        "parallel__sequence_parallel": True,
        "model__vocab": vocabulary,
        "training__sequence_length": sequence,
        "sharding__overlap": False,
    }
    exposed, op, coarse = (
        run_small(**changes, training__tp_overlap=overlap, simulation__detail=detail)
        for overlap, detail in (("none", detail), ("wgrad", "op"), ("wgrad", detail))
    )
    assert coarse.trace.duration == pytest.approx(op.trace.duration, rel=0.005)
    assert coarse.trace.duration < exposed.trace.duration
    assert coarse.trace.operations == exposed.trace.operations


def test_a_collective_that_outlasts_its_kernels_sticks_out_alike_at_any_detail() -> None:
    """A link so slow that it ends long after them; nothing else is on its way."""
    whole = {"parallel__pp": 1, "sharding__overlap": False}
    changes = {"parallel__sequence_parallel": True, "training__tp_overlap": True, **whole}
    slow = {"cluster__nvlink_bandwidth": "20GB/s"}
    op, block = (run_small(**changes, **slow, simulation__detail=detail) for detail in ("op", "block"))
    assert block.trace.duration == pytest.approx(op.trace.duration, rel=1e-6)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_the_closed_form_is_exact_where_nothing_is_shared(schedule: str) -> None:
    """One replica, no tensor parallelism: only messages and uneven ends separate formula and simulation."""
    simulation = run_small(
        pipeline__schedule=schedule,
        parallel__tp=1,
        parallel__pp=4,
        cluster__nodes=1,
        cluster__gpus_per_node=4,
        training__global_batch=8,
    )
    assert simulation.estimate.seconds == pytest.approx(simulation.trace.duration, rel=0.05)
    assert sum(simulation.estimate.parts.values()) == pytest.approx(simulation.estimate.seconds)


def test_overlap_hides_gradient_reduction() -> None:
    exposed = run_small(parallel__pp=1, sharding__overlap=False).trace.duration
    hidden = run_small(parallel__pp=1, sharding__overlap=True).trace.duration
    assert hidden < exposed


def test_a_host_that_cannot_keep_up_is_the_bottleneck() -> None:
    """Tiny kernels: the step takes as long as the host needs to launch them."""
    tiny = {
        "model": {"family": "gpt", "layers": 4, "hidden": 128, "heads": 2, "vocab": 1024, "max_positions": 128},
        "framework": "megatron-2022",
        "parallel__tp": 1,
        "parallel__pp": 1,
        "cluster__nodes": 1,
        "cluster__gpus_per_node": 1,
        "training__sequence_length": 128,
        "training__global_batch": 4,
    }
    job = small(**tiny)
    simulation = run_small(**tiny)
    framework = job.framework
    launches = (framework.host.operations_forward + framework.host.operations_backward) * 4 * 4
    assert simulation.trace.duration > launches * framework.host.seconds_per_operation
    kinds = [label.kind for label in simulation.trace.labels]
    assert "host" in kinds


def test_a_delay_moves_one_rank_and_those_who_wait_for_it() -> None:
    base = run_small()
    late = run_small(what_if=[{"delay": {"rank": 5, "at": "backward", "seconds": 0.5}}])
    assert 0.3 < late.trace.duration - base.trace.duration <= 0.5 + 1e-9
    assert late.trace.classes > base.trace.classes


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_nothing_is_faster_than_the_units(precision: str) -> None:
    simulation = run_small(training__precision=precision, training__sequence_length=8192)
    assert 0.0 < Result(simulation=simulation, scenario={}).mfu < 1.0


def test_a_whole_stage_can_be_delayed() -> None:
    one = {"parallel__tp": 1, "parallel__pp": 8, "training__global_batch": 32}
    base = run_small(**one)
    ranks = base.plan.parts.network.mesh.ranks
    stage = [r for r in range(ranks) if base.plan.system.program_of[r] == base.plan.system.program_of[3]]
    late = run_small(**one, what_if=[{"delay": {"rank": r, "seconds": 0.5}} for r in stage])
    assert late.trace.duration == pytest.approx(base.trace.duration + 0.5, abs=0.05)


def test_a_slow_link_slows_only_what_crosses_it() -> None:
    base = run_small(parallel__pp=1, sharding__overlap=False)
    slow = run_small(parallel__pp=1, sharding__overlap=False, what_if=[{"slow": {"link": "node1.nic0", "factor": 0.1}}])
    assert slow.trace.duration > base.trace.duration


CASES = {
    "plain": {},
    "sequence parallel": {"parallel__sequence_parallel": True},
    "interleaved": {"pipeline__schedule": "interleaved-1f1b", "pipeline__chunks": 2},
    "gpipe": {"pipeline__schedule": "gpipe"},
    "uneven": {"pipeline__layout": [1, 3, 2, 2]},
    "straggler": {"what_if": [{"slow": {"rank": 3, "factor": 1.3}}]},
    "slow node": {"what_if": [{"slow": {"node": 1, "factor": 1.2}}]},
    "slow link": {"what_if": [{"slow": {"link": "node0.nic1", "factor": 0.5}}]},
    "delay": {"what_if": [{"delay": {"rank": 6, "at": "forward", "seconds": 0.01}}]},
    "shared nics": {"cluster__topology": "jean_zay_a100", "framework": "megatron-deepspeed-2022"},
    "ddp overlapped, pp inside": {
        "parallel__order": ["pp", "tp", "cp", "ep", "dp"],
        "sharding__strategy": "ddp",
        "sharding__overlap": True,
    },
    "tp across nodes": {"parallel__order": ["dp", "tp", "cp", "ep", "pp"], "parallel__pp": 2},
    "user buffers": {"parallel__sequence_parallel": True, "training__tp_overlap": True, "framework": "nemo"},
}


@pytest.mark.parametrize("case", CASES)
def test_folding_marks_and_pruning_change_no_bit(case: str) -> None:
    plan = lower(small(**CASES[case]))
    plain = run(unfolded(plan.system), merge=False)
    folded = run(fold(prune(plan.system)))
    assert folded.classes <= plain.classes
    assert same_spans(plain, folded)


@pytest.mark.slow
@pytest.mark.parametrize(
    "what_if", [[], [{"slow": {"rank": 77, "factor": 1.1}}], [{"slow": {"node": 20, "factor": 1.1}}]]
)
def test_folding_changes_no_bit_on_1024_ranks(what_if: list[object]) -> None:
    plan = lower(small(cluster__nodes=128, training__global_batch=1024, what_if=what_if))
    assert same_spans(run(unfolded(plan.system)), run(fold(prune(plan.system))))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2, 4]),
    chunks=st.sampled_from([1, 2]),
    sequence=st.booleans(),
    overlap=st.booleans(),
    strategy=st.sampled_from(["ddp", "zero1"]),
    framework=st.sampled_from(["neutral", "megatron-2022", "megatron-core", "megatron-deepspeed-2022", "nemo"]),
    recompute=st.sampled_from(["none", "selective", "full"]),
)
def test_any_legal_plan_runs_and_folds(
    tp: int, pp: int, chunks: int, sequence: bool, overlap: bool, strategy: str, framework: str, recompute: str
) -> None:
    chunks = chunks if pp > 1 else 1
    job = small(
        parallel__tp=tp,
        parallel__pp=pp,
        parallel__sequence_parallel=sequence and tp > 1,
        pipeline__chunks=chunks,
        pipeline__schedule="interleaved-1f1b" if chunks > 1 else "1f1b",
        sharding__overlap=overlap,
        sharding__strategy=strategy,
        framework=framework,
        training__recompute=recompute,
        training__global_batch=64,
    )
    plan = lower(job)
    folded = run(fold(prune(plan.system)))
    assert folded.duration > 0
    ends = [folded.spans(r, "compute").end[-1] for r in range(job.parallel.ranks)]
    assert max(ends) == folded.duration
    assert np.isfinite(ends).all()
    assert same_spans(folded, run(unfolded(prune(plan.system))))


# -- every schedule on real layers -------------------------------------------------------------------------------

WHOLE = [name for name in schedules if not schedules.traits(name).sliced]
BLOCKING = ("1f1b", "gpipe", "deepspeed", "interleaved-1f1b", "dualpipe", "dualpipev", "zb-h1")


def scheduled(name: str, **changes: object) -> Job:
    """The small job under a schedule, with the chunks that it needs."""
    chunks = schedules.traits(name).chunks or 2
    strategy = {"sharding__strategy": "ddp"} if schedules.traits(name).asynchronous else {}
    changes = {**strategy, **changes}
    return small(pipeline__schedule=name, pipeline__chunks=chunks, training__global_batch=32, **changes)


@pytest.mark.parametrize("name", schedules)
def test_every_schedule_runs_on_layers_and_folds(name: str) -> None:
    plan = lower(scheduled(name))
    folded = run(fold(prune(plan.system)))
    assert same_spans(folded, run(unfolded(plan.system), merge=False))
    one = lower(scheduled("gpipe"))
    if not schedules.traits(name).sliced:  # slices of 256 tokens wait for the host
        assert folded.duration < run(fold(prune(one.system))).duration * 1.5  # V-Min pays for its small memory


@pytest.mark.parametrize("name", WHOLE)
def test_every_schedule_does_all_the_work(name: str) -> None:
    """The kernels of all ranks together take as long as those of 1F1B, whatever the order and the halves."""

    def work(job: Job) -> float:
        return sum(
            i.seconds
            for program in lower(job).system.programs
            for task in program.chains["compute"]
            for i in task.template.instructions
            if isinstance(i, Kernel) and i.kind in ("forward", "backward")
        )

    assert work(scheduled(name)) == pytest.approx(work(scheduled("1f1b")), rel=1e-9)


@pytest.mark.parametrize("name", BLOCKING)
def test_blocking_messages_cost_time_and_fold(name: str) -> None:
    plan = lower(scheduled(name, pipeline__p2p="blocking"))
    folded = run(fold(prune(plan.system)))
    assert same_spans(folded, run(unfolded(plan.system), merge=False))
    assert folded.duration > run(fold(prune(lower(scheduled(name)).system))).duration


@pytest.mark.parametrize("chunks", [1, 2])
def test_two_stages_can_block(chunks: int) -> None:
    changes = {"parallel__pp": 2, "training__global_batch": 32, "pipeline__chunks": chunks}
    changes["pipeline__schedule"] = "1f1b" if chunks == 1 else "interleaved-1f1b"
    free, blocked = run_small(**changes), run_small(**changes, pipeline__p2p="blocking")
    assert free.trace.duration < blocked.trace.duration < free.trace.duration * 1.5


def test_an_order_that_blocks_for_ever_is_said_to() -> None:
    with pytest.raises(Deadlock, match=r"rank 0 .*waits"):
        run(fold(lower(scheduled("looped-bfs", pipeline__p2p="blocking")).system))


@pytest.mark.parametrize("name", ["chimera", "dualpipe"])
def test_two_way_pipelines_hold_and_reduce_two_replicas(name: str) -> None:
    plan, usual = lower(scheduled(name)), lower(scheduled("1f1b"))
    assert sum(p.parameters for p in plan.system.programs) == 2 * sum(p.parameters for p in usual.system.programs)
    assert plan.parts.network.size(REPLICAS) == 2 * usual.parts.network.size(REPLICAS)


@pytest.mark.parametrize("steps", [2, 5])
def test_steps_follow_each_other(steps: int) -> None:
    one, many = run_small(), run_small(simulation__steps=steps)
    assert many.trace.duration <= one.trace.duration * steps * (1 + 1e-9)
    assert many.trace.duration > one.trace.duration * (steps - 1)
    assert [t.template.work for t in many.programs[0].chains["compute"]].count("update") == steps


def test_post_validation_takes_the_barrier_out_of_the_period() -> None:
    waits, goes_on = (
        run_small(simulation__steps=4, pipeline__schedule="zb-h2", pipeline__post_validation=late).trace.duration
        for late in (False, True)
    )
    assert goes_on < waits


def test_a_schedule_from_a_file_runs_like_the_schedule_itself(tmp_path: Path) -> None:
    path = tmp_path / "zbv.csv"
    write_schedule(schedule("zb-v", 4, 16, chunks=2), path)
    ours, file = (small(pipeline__schedule=name, training__global_batch=32) for name in ("zb-v", str(path)))
    assert file.pipeline.layout == ours.pipeline.layout
    assert same_spans(simulate(ours).trace, simulate(file).trace)
    with pytest.raises(InvalidPlan, match=r"is an order for pp = 4, not 2"):
        small(pipeline__schedule=str(path), parallel__pp=2)


def test_copies_of_sharded_parameters_are_called_copies() -> None:
    """What FSDP2 copies out of and into its buffers is neither the host's work nor the rest."""
    job = small(framework="pytorch-fsdp2", sharding__strategy="fsdp", parallel__tp=1, parallel__pp=1)
    tasks = lower(job).system.programs[0].chains["compute"]
    copies = {i.kind for t in tasks for i in t.template.instructions if isinstance(i, Kernel) and i.name == "copy"}
    assert copies == {"copy"}
    assert "copy" in PARTS["other"]
    assert "copies" in TITLES["other"]
