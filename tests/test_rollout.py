"""The rollout of a step: laws of batching and of its cache, closed forms of its times, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trainsim as ts
from trainsim.cli import app
from trainsim.contracts.instructions import Kernel
from trainsim.contracts.rollout import Rollout
from trainsim.costs.kernels import cost
from trainsim.models.decoding import cache_bytes
from trainsim.models.operations import MemoryBound
from trainsim.program.batching import Batching, Iterations, Prompts, batching, cut_stretches
from trainsim.program.circulation import EnginePass, circulation
from trainsim.program.circulation import seconds as circulated
from trainsim.program.inference import Inference
from trainsim.program.parts import work_out

R = "training.rollout."
SMALL = {"family": "llama", "layers": 4, "hidden": 1024, "heads": 16, "kv_heads": 8, "vocab": 32000}
BASE: Mapping[str, Any] = {
    "model": SMALL,
    "cluster": {"topology": "dgx_a100", "nodes": 1},
    "sharding": {"strategy": "ddp"},
    "training": {"global_batch": 64, "rollout": {"prompt_length": 256, "response_length": 129}},
}


def scenario(**changes: Any) -> ts.Scenario:
    """The base with changes, whose keys may be dotted with ``__``."""
    return ts.Scenario.from_dict(BASE).replace({key.replace("__", "."): value for key, value in changes.items()})


def asked(**values: Any) -> Rollout:
    return Rollout(**{"prompt_length": 64, "response_length": 65, "samples": 8, **values})


def inference(**changes: Any) -> Inference:
    job = scenario(**changes).resolve()
    assert job.training.rollout is not None
    return Inference(work_out(job), job.training.rollout)


def tokens(done: Batching) -> int:
    """Tokens that were chosen: one per sequence and batch of prompts or iteration."""
    return sum(s.sequences if isinstance(s, Prompts) else s.iterations * s.sequences for s in done.steps)


# -- batching ----------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    prompt=st.integers(1, 70), response=st.integers(1, 70), samples=st.integers(1, 40), unit=st.integers(1, 20),
    spare=st.integers(0, 60), most=st.none() | st.integers(1, 12), cache=st.sampled_from(["paged", "contiguous"]),
)  # fmt: skip
def test_every_sample_gets_all_its_tokens_and_no_block_is_used_twice(
    prompt: int, response: int, samples: int, unit: int, spare: int, most: int | None, cache: str
) -> None:
    ask = Rollout(prompt_length=prompt, response_length=response, samples=samples, block_size=unit, max_num_seqs=most,
                  kv_cache=cache)  # fmt: skip
    blocks = -(-(prompt + response) // ask.unit) + spare
    done = batching(ask, samples, blocks)
    assert tokens(done) == samples * response
    assert done.blocks <= blocks
    assert 1 <= done.running <= min(samples, most or samples)
    assert sum(s.sequences for s in done.steps if isinstance(s, Prompts) and not s.again) == samples
    assert sum(s.sequences for s in done.steps if isinstance(s, Prompts) and s.again) == done.preemptions


@pytest.mark.parametrize("parts", [1, 3, 8])
def test_cutting_stretches_loses_nothing(parts: int) -> None:
    done = batching(asked(samples=9), 9, 50)
    pieces = list(cut_stretches(done.steps, parts))
    for name in ("iterations", "read", "unused"):
        whole, cut = (sum(getattr(s, name) for s in some if isinstance(s, Iterations)) for some in (done.steps, pieces))
        assert whole == cut
    grows = [s.read / s.iterations for s in pieces if isinstance(s, Iterations) and s.sequences == done.running]
    assert grows == sorted(grows)


def test_a_batch_that_fits_is_one_wave_with_the_exact_number_of_tokens_read() -> None:
    prompt, steps, running = 64, 64, 8
    (_, stretch) = batching(asked(), running, 10**6).steps
    assert isinstance(stretch, Iterations)
    assert stretch.read == running * sum(prompt + k for k in range(1, steps + 1))


@pytest.mark.parametrize("room", [1, 3, 5])
def test_contiguous_sequences_are_limited_by_what_they_reserve(room: int) -> None:
    """As many as fit whole; the others come in waves, each as long as the first."""
    done = batching(asked(kv_cache="contiguous"), 8, room)
    assert done.running == room
    assert done.waves == -(-8 // room)
    assert done.iterations == done.waves * 64
    assert done.preemptions == 0


@pytest.mark.parametrize("unit", [4, 16, 32])
def test_half_a_block_of_a_paged_cache_is_unused(unit: int) -> None:
    """Over whole blocks exactly (block - 1) / 2 tokens: from all but one down to none."""
    assert batching(asked(block_size=unit), 8, 10**6).unused == (unit - 1) / 2


def test_contiguous_wastes_more_and_runs_no_more_than_paged() -> None:
    room = 1000
    paged = batching(asked(), 8, room // 16)
    contiguous = batching(asked(kv_cache="contiguous"), 8, room // 129)
    assert contiguous.unused > paged.unused
    assert contiguous.running <= paged.running
    assert contiguous.iterations >= paged.iterations


def test_sequences_that_outgrow_the_cache_are_computed_again() -> None:
    """Prompts of 8 sequences fit, their responses do not; whoever came last gives way, and nothing is lost."""
    done = batching(asked(), 8, 8 * 4 + 6)
    assert done.running == 8
    assert done.preemptions > 0
    again = [s for s in done.steps if isinstance(s, Prompts) and s.again]
    assert all(64 < s.tokens <= 129 for s in again)


def test_more_room_never_means_more_iterations() -> None:
    each = [batching(asked(samples=32), 32, blocks).iterations for blocks in (9, 20, 60, 120, 288)]
    assert each == sorted(each, reverse=True)
    assert each[-1] == 64


# -- times -------------------------------------------------------------------------------------------------------


def seconds(kernels: Any, kind: str | None = None, name: str | None = None) -> float:
    return float(sum(k.seconds for k in kernels if kind in (None, k.kind) and name in (None, k.name)))


def test_a_token_is_bound_by_reading_the_cache_where_it_is_large() -> None:
    """Bytes over what the memory reaches: the part of the bandwidth of an elementwise kernel."""
    engine, read = inference(), 10**9
    gpu = engine.job.cluster.gpu
    nbytes = 4 * cache_bytes(engine.job.model.kind, 1, 2) * read
    _, efficiency = gpu.kernels.memory_bound["elementwise"]
    bound = (
        nbytes / (gpu.memory_bandwidth * efficiency * gpu.kernels.in_a_step.memory_bound) * engine.parts.blocks.spread
    )
    whole = seconds(engine.decode(64, read, 1))
    assert seconds(engine.decode(64, read, 1), name="cache read") == pytest.approx(bound, rel=1e-5)
    assert bound < whole < bound * 1.01


def test_iterations_are_linear_in_their_number_and_in_what_they_read() -> None:
    engine = inference()
    once, twice = engine.decode(8, 4096, 4), engine.decode(8, 8192, 8)
    assert seconds(twice) == pytest.approx(2 * seconds(once), rel=1e-12)
    base, more, most = (seconds(engine.decode(8, read, 1), name="cache read") for read in (0, 1000, 2000))
    assert most - more == pytest.approx(more - base, rel=1e-9)


def test_a_short_prompt_makes_generation_linear_in_the_response() -> None:
    """Where the cache is small beside the weights, twice the tokens take twice the time."""
    short, long = (scenario(**{R + "prompt_length": 1, R + "response_length": n}).run().rollout for n in (65, 129))
    assert short is not None
    assert long is not None
    assert long.decode_s / short.decode_s == pytest.approx(2.0, rel=0.01)


def test_prompts_are_linear_in_full_batches() -> None:
    engine = inference()
    most = 8192 // 256
    assert seconds(engine.prompts(4 * most, 256)) == pytest.approx(4 * seconds(engine.prompts(most, 256)), rel=1e-12)


def test_one_token_needs_no_iteration() -> None:
    use = scenario(**{R + "response_length": 1}).run().rollout
    assert use is not None
    assert use.decode_s == 0.0
    assert use.iterations == 0
    assert use.prefill_s > 0


def test_tensor_parallelism_cuts_weights_and_cache_and_sums() -> None:
    one, four = inference(), inference(**{R + "tp": 4})
    assert four.token_bytes(0) == one.token_bytes(0) / 4
    assert one.weights(0) / 4 < four.weights(0) < one.weights(0) / 4 * 1.01
    summed = next(k for k in four.decode(8, 0, 1) if k.kind == "tp")
    reduced = 2 * 8 * 1024  # bytes of 8 tokens
    assert sum(p.nbytes for p in summed.payloads if p.operation == "all_reduce") == (2 * 4 + 1) * reduced
    assert not any(k.kind == "tp" for k in one.decode(8, 0, 1))


def test_launching_kernel_by_kernel_is_slower() -> None:
    graphs, eager = (seconds(inference(**{R + "enforce_eager": on}).decode(1, 1, 1)) for on in (False, True))
    assert eager > graphs
    scheduled = inference(**{R + "host_per_iteration": "1ms"}).decode(8, 8, 10)
    assert seconds(scheduled, "host") == pytest.approx(10e-3)


def test_scores_take_logits_of_all_tokens() -> None:
    engine = inference()
    assert seconds(engine.prompts(8, 256, scores=True)) > seconds(engine.prompts(8, 256))


def test_the_cache_is_read_as_fast_as_a_kernel_of_its_kind() -> None:
    engine = inference()
    alone = cost(MemoryBound("x", "elementwise", 1e9), engine.job.cluster.gpu, "bf16").seconds
    read = 1e9 / cache_bytes(engine.job.model.kind, 1, 2)
    expected = 4 * alone * engine.parts.blocks.spread
    assert seconds(engine.decode(1, read, 1), name="cache read") == pytest.approx(expected, rel=1e-9)


# -- the step ----------------------------------------------------------------------------------------------------

JOBS: dict[str, dict[str, Any]] = {
    "ddp": {},
    "fsdp": {"sharding.strategy": "fsdp", R + "tp": 2},
    "zero3": {"sharding.strategy": "zero3"},
    "zero1 pipeline": {"sharding.strategy": "zero1", "parallel.pp": 2, "parallel.tp": 2},
    "wider engines": {"parallel.tp": 2, R + "tp": 8, R + "scored_by": 2},
    "narrower engines": {"parallel.tp": 4, "parallel.pp": 2, R + "tp": 2},
    "gathers ahead": {"framework": "megatron-core", "sharding.strategy": "zero1"},
    "coarse": {"parallel.pp": 4, "simulation.detail": "block"},
    "pipelined": {R + "pp": 2, R + "scored_by": 1},
    "both pipelined": {"parallel.pp": 2, "parallel.tp": 2, R + "pp": 4, R + "decode_micro_batches": 3},
    "separate": {R + "placement": "separate", R + "nodes": 2},
    "asynchronous": {R + "placement": "separate", R + "nodes": 1, R + "asynchronous": True},
}


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("name", JOBS)
def test_the_breakdown_adds_up_and_folding_changes_nothing(name: str, steps: int) -> None:
    job = scenario(**JOBS[name], **{"simulation.steps": steps})
    result = job.run()
    assert sum(result.breakdown.values()) == result.step_time
    assert sum(map(sum, (stage.values() for stage in result.breakdown_per_stage))) > 0
    unfolded = job.replace({"simulation.fold": False}).run()
    assert unfolded.step_time == result.step_time
    assert unfolded.breakdown == result.breakdown
    use = result.rollout
    assert use is not None
    assert use.generation_s == pytest.approx(use.prefill_s + use.decode_s)
    assert min(use.prefill_s, use.decode_s) > 0
    assert use.training_s > 0
    assert result.memory.peak < result.memory.capacity
    if steps > 1 and name != "asynchronous":
        assert result.period == pytest.approx(result.step_time, rel=0.02)


@pytest.mark.parametrize("name", ["ddp", "fsdp", "wider engines", "coarse", "separate", "pipelined"])
def test_training_is_what_it_is_without_a_rollout(name: str) -> None:
    """The step is the rollout and then the same passes: to the tick, since all ranks begin them at once."""
    job = scenario(**JOBS[name])
    without = job.replace({"training.rollout": None, "training.sequence_length": 385}).run()
    result = job.run()
    assert result.rollout is not None
    assert result.rollout.training_s == pytest.approx(without.step_time, rel=1e-9)
    assert result.bubble.window_s == pytest.approx(without.bubble.window_s, rel=1e-9)
    assert result.bubble.fraction == pytest.approx(without.bubble.fraction, rel=1e-9, abs=1e-12)
    rest = result.step_time - without.step_time
    assert rest == pytest.approx(result.simulation.estimate.parts["rollout"], rel=1e-6)


# -- engines that are pipelines ----------------------------------------------------------------------------------


def rounds(*, stages: int, micro_batches: int, iterations: int) -> list[EnginePass]:
    """Iterations whose every pass takes a second in each stage."""
    second = tuple((Kernel("k", "decode", 1.0),) for _ in range(stages))
    return [
        EnginePass("D", 1, second, 8.0, k - micro_batches if k >= micro_batches else None)
        for k in range(micro_batches * iterations)
    ]


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("micro_batches", [1, 2, 3, 4, 8])
def test_an_iteration_takes_the_longer_of_its_micro_batches_and_of_one_round(stages: int, micro_batches: int) -> None:
    """With as many micro-batches as stages, or more, only the first round is not full; with fewer, all are alike."""
    passes = rounds(stages=stages, micro_batches=micro_batches, iterations=10)
    full = 10 * micro_batches + stages - 1
    rounds_of_one = 10 * stages + micro_batches - 1
    assert circulated(passes, lambda nbytes: 0.0, stages) == max(full, rounds_of_one)


def test_messages_cost_as_much_as_they_take_where_nothing_hides_them() -> None:
    passes = rounds(stages=4, micro_batches=1, iterations=10)
    assert circulated(passes, lambda nbytes: 0.5, 4) == pytest.approx(10 * 4 * 1.5 - 0.5)


def test_no_stage_idles_with_as_many_micro_batches_as_stages() -> None:
    """The bubble of generation: all but one of the stages, or nearly none. Long caches make stages alike."""
    many = {R + "prompt_length": 4096, R + "response_length": 65, R + "max_num_batched_tokens": 4096}
    idle = {}
    for micro_batches in (1, 4):
        result = scenario(**many, **{R + "pp": 4, R + "decode_micro_batches": micro_batches}).run()
        use = result.rollout
        assert use is not None
        busy = result.breakdown["decode"]
        idle[micro_batches] = 1 - busy / use.decode_s
    assert idle[1] > 0.6
    assert idle[4] < 0.5 * idle[1]


def test_every_token_goes_round_once() -> None:
    engine = inference(**{R + "pp": 2, R + "decode_micro_batches": 3, R + "prompt_micro_batches": 4})
    done = batching(engine.rollout, 16, 10**6)
    passes = circulation(engine, cut_stretches(done.steps, 4), 16)
    assert sum(p.sequences for p in passes) == 16 * 129
    prompts = [p for p in passes if p.work == "P"]
    assert [p.sequences for p in prompts] == [4, 4, 4, 4]
    assert all(p.after is None for p in prompts)
    first = [p for p in passes if p.work == "D"][:3]
    assert [p.after for p in first] == [1, 2, 3]  # of 16 sequences, those behind each third have come back
    assert all(p.after is not None and p.after < k for k, p in enumerate(passes) if p.work == "D")


def test_stages_share_weights_and_cache() -> None:
    one, two = inference(), inference(**{R + "pp": 2})
    assert sum(two.token_bytes(s) for s in range(2)) == one.token_bytes(0)
    assert sum(two.weights(s) for s in range(2)) == pytest.approx(one.weights(0), rel=1e-6)


def test_the_simulation_of_a_pipelined_engine_is_its_closed_form() -> None:
    result = scenario(**{R + "pp": 4}).run()
    use, plan = result.rollout, result.simulation.plan.rollout
    assert use is not None
    assert plan is not None
    assert use.generation_s == pytest.approx(plan.generation_seconds, rel=0.02)
    assert abs(result.estimate.difference) < 0.02
    assert result.breakdown["bubble"] > 0


def test_asynchronous_engines_take_the_longer_of_generation_and_training() -> None:
    result = scenario(**JOBS["asynchronous"], **{"simulation.steps": 4}).run()
    use = result.rollout
    assert use is not None
    longest = max(use.generation_s, use.training_s)
    assert result.period == pytest.approx(use.weights_s + longest, rel=0.01)


def test_every_rank_waits_for_the_slowest_engine() -> None:
    plain, slow = (scenario(what_if=some).run() for some in ([], [{"slow": {"rank": 3, "factor": 2.0}}]))
    assert plain.rollout is not None
    begins = [float(lane.posted[lane.in_pass][0]) for lane in slow.lanes.compute]
    assert len(set(begins)) == 1
    assert begins[0] > 1.9 * plain.rollout.generation_s


def test_the_cache_is_held_while_generating_only() -> None:
    result = scenario().run()
    (stage,) = result.memory.per_stage
    held = stage.levels["kv_cache"]
    assert result.rollout is not None
    assert held.max() == pytest.approx(result.rollout.cache_bytes)
    assert held[-1] == 0.0
    assert stage.largest == "kv_cache"
    awake = scenario(**{R + "sleep": False, R + "gpu_memory_utilization": 0.3}).run()
    (stage,) = awake.memory.per_stage
    assert np.all(stage.levels["kv_cache"] > 0)


def test_kept_memory_stays_and_is_taken_from_the_cache() -> None:
    plain, kept = (scenario(**{R + "gpu_memory_utilization": 0.3, R + "kept_memory": n}).run() for n in (0, 2**30))
    assert plain.rollout is not None
    assert kept.rollout is not None
    assert plain.rollout.cache_bytes - kept.rollout.cache_bytes == pytest.approx(2**30)
    framework = [r.memory.per_stage[0].part("framework") for r in (plain, kept)]
    assert framework[1] - framework[0] == 2**30


def test_weights_move_only_where_layouts_differ() -> None:
    """Nothing crosses a link for engines that cut as training does, or finer; else parts are gathered."""
    for changes, gathers in (
        ({}, False),
        ({"parallel.tp": 2, R + "tp": 4}, False),
        ({"parallel.tp": 4, R + "tp": 2}, True),
        ({"parallel.pp": 2}, True),
        ({"sharding.strategy": "fsdp"}, True),
    ):
        result = scenario(**changes).run()
        names = {label.name for label in result.trace.labels}
        assert ("gather weights" in names) is gathers, changes


def test_gathered_weights_are_all_that_a_replica_has() -> None:
    result = scenario(**{"parallel.tp": 4, "parallel.pp": 2, R + "tp": 1}).run()
    (gathered,) = {p.nbytes for label in result.trace.labels if label.name == "gather weights" for p in label.payloads}
    assert gathered == pytest.approx(2 * result.job.model.parameters, rel=0.01)


# -- what is refused ---------------------------------------------------------------------------------------------

WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({R + "prompt_length": 0}, "prompt_length"),
    ({R + "response_length": 0}, "response_length"),
    ({R + "gpu_memory_utilization": 1.5}, "gpu_memory_utilization"),
    ({R + "gpu_memory_utilization": 0}, "gpu_memory_utilization"),
    ({R + "samples": 63}, "samples=56, 64 would"),
    ({R + "tp": 3}, "tp=1, 2, 4, 8"),
    ({R + "pp": 2, R + "placement": "separate", R + "nodes": 1}, "separate engines"),
    ({R + "pp": 9}, "pp"),
    ({R + "kv_cache": "none"}, "paged"),
    ({R + "kv_cache": "contiguous", R + "block_size": 8}, "block_size"),
    ({R + "max_num_seq": 8}, "max_num_seqs"),
    ({R + "gpu_memory_utilization": 0.001}, "a single sequence"),
    ({R + "placement": "separate"}, "nodes"),
    ({R + "nodes": 1}, "separate"),
    ({R + "asynchronous": True}, "separate"),
    ({R + "sleep": False}, "gpu_memory_utilization"),
    ({R + "kept_memory": "many"}, "kept_memory"),
    ({R + "response_length": 512, "training.sequence_length": 512}, "768 would"),
    ({"training.rollout": {"prompt_length": 8}}, "response_length"),
    ({"parallel.pp": 2, "pipeline.schedule": "pipedream"}, "pipedream"),
    ({"sharding": {"strategy": "zero3", "offload": {"optimizer": "cpu", "parameters": "cpu"}}}, "offload.parameters"),
    ({"model": "llama-2-70b"}, "a single sequence"),
)


@pytest.mark.parametrize(("changes", "says"), WRONG, ids=[str(k) for k in range(len(WRONG))])
def test_what_cannot_be_is_refused_with_the_way_out(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ts.TrainsimError, match="rollout") as caught:
        scenario(**changes).run()
    assert says in str(caught.value)


def test_a_resolved_rollout_reads_back() -> None:
    job = scenario(**{R + "samples": 128})
    again = ts.Scenario.from_dict(job.resolved)
    assert again.resolve().training == job.resolve().training
    assert job.resolve().training.sequence_length == 385
    assert "as in training" in job.resolved["derived"]["training.rollout.tp"]


def test_no_rollout_is_no_rollout() -> None:
    result = scenario(**{"training.rollout": None, "training.sequence_length": 64}).run()
    assert result.rollout is None
    assert result.to_dict()["rollout"] is None
    assert all(result.breakdown[kind] == 0.0 for kind in ("prefill", "decode", "scoring"))


# -- the command -------------------------------------------------------------------------------------------------


def test_the_whole_command(tmp_path: Any) -> None:
    from typer.testing import CliRunner

    out = CliRunner().invoke(app, ["run", "rlhf_7b", "--out", str(tmp_path)])
    assert out.exit_code == 0, out.output
    for word in ("generation", "prefill", "decode", "KV cache", "training"):
        assert word in out.output
    data = json.loads((tmp_path / "result.json").read_text())
    use = data["rollout"]
    assert use["prefill_s"] + use["decode_s"] + use["training_s"] < data["step_time_s"]
    assert sum(data["breakdown_s"].values()) == data["step_time_s"]
    assert (tmp_path / "gantt.png").stat().st_size > 10_000
    page = (tmp_path / "report.html").read_text()
    assert "Rollout" in page
    assert "decode" in page
