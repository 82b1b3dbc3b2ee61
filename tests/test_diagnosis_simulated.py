"""Simulated jobs written as operation tables: the straggler that was put in is the one that is found."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trainsim as ts
from trainsim.diagnosis.operations import FORWARD, NUMBER
from trainsim.diagnosis.reading import save_operations
from trainsim.diagnosis.simulated import operations_of
from trainsim.diagnosis.spans import spans_of
from trainsim.errors import NotBuilt, TrainsimError, UnknownName

DATA = Path(__file__).parent / "data" / "stragglers"
SMALL = {
    "name": "small",
    "model": {"name": "tiny", "layers": 16, "hidden": 2048, "heads": 16, "vocab": 1000, "max_positions": 1024},
    "cluster": {"topology": "dgx_a100", "nodes": 1},
    "parallel": {"pp": 4, "tp": 1},
    "training": {"sequence_length": 1024, "global_batch": 32},
    "simulation": {"steps": 2, "detail": "block"},
}


def run(**changes: Any) -> Any:
    return ts.Scenario.from_dict(SMALL).replace(changes).run()


@cache
def usual() -> Any:
    return run()


def test_a_job_without_a_straggler_has_none_and_as_long_a_step() -> None:
    one = ts.diagnose(operations_of(usual()))
    assert one.slowdown < 1.1
    assert one.cause.startswith("No straggler")
    assert not one.remarks
    assert one.step_s == pytest.approx(usual().step_time, rel=0.03)
    assert one.shape.layers == 16


def test_a_slow_gpu_is_named() -> None:
    one = ts.diagnose(operations_of(run(what_if=[{"slow": {"rank": 5, "factor": 1.6}}])))
    assert one.found[0].kind == "slow worker"
    assert one.cause.startswith("DP rank 1, stage 2 is slow: passes take 1.")


def test_uneven_layers_are_named() -> None:
    one = ts.diagnose(operations_of(run(**{"pipeline.layout": [3, 3, 3, 7]})))
    assert one.found[0].kind == "uneven stages"
    assert "on stage 3, the last" in one.cause
    assert one.suggestions[0].startswith("move 3 layers of 16 from stage 3")


def test_a_slow_link_is_named() -> None:
    slow = {"slow": {"link": "node0.gpu3>nvswitch", "factor": 0.002}}
    one = ts.diagnose(operations_of(run(what_if=[slow])))
    assert one.found[0].kind == "slow network"
    assert "grads-reduce-scatter between 2 workers (DP rank 0, stage 1; DP rank 1, stage 1)" in one.cause
    messages = [score for name, score in one.by_operation.items() if name == "forward-pp-comm"]
    assert messages[0] > 1.1


def test_chunks_and_tensor_parallelism() -> None:
    many = run(
        **{"parallel.tp": 2, "parallel.sequence_parallel": True, "pipeline.schedule": "interleaved-1f1b",
           "pipeline.chunks": 2, "simulation.detail": "op"}
    )  # fmt: skip
    one = ts.diagnose(operations_of(many))
    assert (one.shape.vpp, one.shape.tp, one.shape.dp) == (2, 2, 1)
    assert not one.remarks
    assert [step.step for step in one.steps] == [0, 1]
    assert one.step_s == pytest.approx(many.step_time, rel=0.05)


def test_a_result_survives_the_file(tmp_path: Path) -> None:
    table = operations_of(usual())
    path = save_operations(table, tmp_path / "trace-small.parquet")
    assert ts.diagnose(path).by_stage == ts.diagnose(table).by_stage


def test_what_a_table_has_no_words_for_is_refused() -> None:
    with pytest.raises(NotBuilt, match=r"a pass [IW]: an operation table"):
        operations_of(run(**{"pipeline.schedule": "zb-h1"}))
    with pytest.raises(NotBuilt, match="blocking"):
        operations_of(run(**{"pipeline.p2p": "blocking"}))


# -- as a measured trace ------------------------------------------------------------------------------------------


def test_a_step_of_a_table_is_a_measured_trace() -> None:
    one = ts.read_trace(DATA / "trace-ST.parquet", step=23)
    assert one.step_time == pytest.approx(2.3816521167755127)
    assert one.trace.ranks == 8
    assert one.trace.stage.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert {str(chain) for chain in one.trace.messages} == {"send:pp-forward", "send:pp-backward"}
    assert ts.read_trace(DATA / "trace-ST.parquet", step="all").trace.duration > 60
    with pytest.raises(UnknownName, match="No step of the table is called '24'"):
        ts.read_trace(DATA / "trace-ST.parquet", step=24)


def test_spans_are_the_operations_with_waits_taken_off() -> None:
    table = operations_of(usual())
    spans = spans_of(table, 0)
    forward = [k for k, name in enumerate(spans.columns["name"]) if name == FORWARD]
    rows = np.flatnonzero((table.type == NUMBER[FORWARD]) & (table.step == 0))
    seconds = sum(spans.columns["end"][k] - spans.columns["start"][k] for k in forward)
    assert seconds == pytest.approx(float(table.duration[rows].sum()))
    trace = spans.trace()
    assert trace.duration == pytest.approx(float(table.end[table.step == 0].max()))


def test_a_damaged_table_is_one_message(tmp_path: Path) -> None:
    raw = (DATA / "trace-ST.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(raw[: len(raw) // 2])
    with pytest.raises(TrainsimError, match=r"cut\.parquet: cannot be read as an operation table"):
        ts.read_trace(tmp_path / "cut.parquet")
