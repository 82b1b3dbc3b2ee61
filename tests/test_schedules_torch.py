"""Schedule files as PyTorch takes them: loaded, validated, lowered and run dry by torch.distributed.pipelining."""

from __future__ import annotations

import re

import pytest

from trainsim.errors import InvalidPlan
from trainsim.schedules import schedules
from trainsim.schedules.cells import schedule
from trainsim.schedules.csv_files import read_schedule, write_schedule
from trainsim.schedules.slices import SLICES

torch_schedules = pytest.importorskip("torch.distributed.pipelining.schedules")

SHAPES = [(2, 4), (3, 6), (4, 8), (4, 12)]


def loaded(path, ranks, stages, microbatches):
    """PyTorch's runtime with the file in it, and without the process group that it would run in."""
    runtime = object.__new__(torch_schedules._PipelineScheduleRuntime)
    runtime.pp_group_size, runtime._num_stages, runtime._n_microbatches = ranks, stages, microbatches
    runtime.pipeline_order, runtime._stages, runtime._defer_pp_recv = {}, [], False
    runtime._load_csv(str(path))
    return runtime


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
@pytest.mark.parametrize("name", schedules)
def test_pytorch_loads_every_schedule_and_runs_it_dry(name, ranks, microbatches, tmp_path):
    chunks = schedules.traits(name).chunks or 2
    try:
        schedules.check(name, ranks, microbatches=microbatches, chunks=chunks)
    except InvalidPlan:
        pytest.skip("not for these numbers")
    order = schedule(name, ranks, microbatches, chunks)
    path = tmp_path / "schedule.csv"
    if schedules.traits(name).replicas == 2:
        with pytest.raises(InvalidPlan, match="dualpipev"):
            write_schedule(order, path)
        return
    write_schedule(order, path)
    stages = ranks * chunks
    runtime = loaded(path, ranks, stages, microbatches * (SLICES if schedules.traits(name).sliced else 1))
    kept = {  # the simulator knows passes and messages only, one at a time
        rank: [
            single
            for action in row
            for single in (action.sub_actions or (action,))
            if not re.search("SHARD|REDUCE", str(single))
        ]
        for rank, row in runtime.pipeline_order_with_comms.items()
    }
    simulated = torch_schedules._simulate_comms_compute(
        kept, lambda stage: runtime.stage_index_to_group_rank[stage], stages
    )
    assert len(simulated) == ranks
    with_messages = tmp_path / "with_messages.csv"
    runtime._dump_csv(str(with_messages), format="compute_comms")
    assert "SEND_F" in with_messages.read_text() or ranks == 1
    assert read_schedule(with_messages).texts == read_schedule(path).texts == tuple(map(tuple, order))


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("looped-bfs", "ScheduleLoopedBFS"),
        ("interleaved-1f1b", "ScheduleInterleaved1F1B"),
        ("interleaved-zb", "ScheduleInterleavedZeroBubble"),
        ("zb-v", "ScheduleZBVZeroBubble"),
        ("dualpipev", "ScheduleDualPipeV"),
    ],
)
def test_orders_are_those_of_the_classes(name, theirs, ranks, microbatches):
    planner = object.__new__(getattr(torch_schedules, theirs))
    planner.pp_group_size, planner._n_microbatches, planner.n_local_stages = ranks, microbatches, 2
    planner.num_stages = planner._num_stages = 2 * ranks
    planner._stages = [None, None]
    planner.number_of_rounds = max(1, microbatches // ranks)
    planner.microbatches_per_round = microbatches // planner.number_of_rounds
    build = planner._calculate_single_rank_operations
    found = [[str(action) for action in build(rank) if action is not None] for rank in range(ranks)]
    assert found == schedule(name, ranks, microbatches, 2)
