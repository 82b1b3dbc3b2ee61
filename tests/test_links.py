"""Traffic on links: all bytes of all operations and no others, never more than a link carries, folded or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trainsim as ts
from trainsim.analysis.kinds import COMMUNICATION
from trainsim.analysis.link_level import level
from trainsim.analysis.links import expand
from trainsim.errors import InvalidPlan
from trainsim.hardware.cluster import load_topology, topology_names
from trainsim.hardware.link_kinds import link_kinds
from trainsim.report.link_words import NOTABLE
from trainsim.report.sections.links import full_links, links
from trainsim.result.result import Result

PIPELINE: dict[str, Any] = {
    "model": "llama-2-7b",
    "cluster": {"topology": "dgx_h100", "nodes": 4},
    "parallel": {"tp": 2, "pp": 4, "dp": 4},
    "training": {"global_batch": 32, "micro_batch": 1, "sequence_length": 1024},
}
RUNS: dict[str, tuple[str | dict[str, Any], dict[str, Any]]] = {
    "pipeline over nodes": (PIPELINE, {}),
    "blocks": (PIPELINE, {"simulation.detail": "block"}),
    "rails that several share": (PIPELINE, {"cluster.topology": "jean_zay_a100", "parallel.tp": 4, "parallel.dp": 2}),
    "zero3": ("ds_zero3", {}),
    "offload": ("quickstart", {"sharding.offload": {"optimizer": "cpu"}}),
    "experts": ("mixtral_8x7b", {}),
}


def run(name: str | dict[str, Any], changes: dict[str, Any]) -> Result:
    scenario = ts.Scenario.load(name) if isinstance(name, str) else ts.Scenario.from_dict({"name": "x", **name})
    return scenario.replace(changes).run()


@pytest.fixture(scope="module", params=RUNS)
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def result(case: str) -> Result:
    return run(*RUNS[case])


def test_use_over_time_adds_up_to_the_bytes_on_the_link(result: Result) -> None:
    edges = np.linspace(0.0, result.duration, 401)
    assert result.link_traffic.rows
    for row in result.link_traffic.rows:
        spent = (result.link_traffic.level(row.link).mean(edges) * np.diff(edges)).sum(axis=1)
        expected = [row.by_kind.get(kind, 0.0) * result.duration for kind in COMMUNICATION]
        assert spent == pytest.approx(expected, rel=1e-6, abs=1e-9 * result.duration)
        assert sum(row.by_kind.values()) == pytest.approx(row.mean, rel=1e-12)
        bandwidth = float(result.simulation.network.bandwidth[row.link])
        if not row.is_network:  # software and line rates count between nodes
            assert row.bytes == pytest.approx(row.mean * result.step_time * bandwidth, rel=1e-9)


def test_no_link_carries_more_than_it_can(result: Result) -> None:
    for row in result.link_traffic.rows:
        assert 0.0 < row.mean <= row.peak <= 1.01, row
        assert 0.0 <= row.nearly_full_s <= result.step_time
        assert 1 <= row.equal <= row.links


def test_folded_is_unfolded(case: str, result: Result) -> None:
    name, changes = RUNS[case]
    whole = run(name, {**changes, "simulation.fold": False})
    assert len(whole.link_traffic.rows) == len(result.link_traffic.rows)
    for one, other in zip(result.link_traffic.rows, whole.link_traffic.rows, strict=True):
        assert (one.kind, one.name, one.equal, one.links) == (other.kind, other.name, other.equal, other.links)
        for key in ("mean", "peak", "nearly_full_s", "bytes"):
            assert getattr(one, key) == pytest.approx(getattr(other, key), rel=1e-6, abs=1e-9), (one.kind, key)


def test_a_ring_sends_as_many_bytes_as_are_counted_per_rank() -> None:
    """One node, one ring: what leaves a GPU by its port is what the rank sends."""
    found = run("fsdp_llama", {"network.algorithm": "ring"})
    (row,) = found.link_traffic.rows
    assert row.kind == "NVLink"
    assert row.bytes == pytest.approx(found.communication["dp"].bytes_per_rank, rel=1e-9)


def test_steps_back_to_back_have_the_bytes_of_one() -> None:
    one, three = (run(PIPELINE, {"simulation.steps": n}) for n in (1, 3))
    for a, b in zip(one.link_traffic.rows, three.link_traffic.rows, strict=True):
        assert (a.kind, a.bytes) == (b.kind, pytest.approx(b.bytes, rel=1e-9))


def test_a_single_gpu_uses_no_link() -> None:
    one = {"cluster.nodes": 1, "cluster.gpus_per_node": 1, "parallel": {"tp": 1, "pp": 1, "dp": 1}}
    alone = run(PIPELINE, {**one, "training.global_batch": 1})
    assert alone.link_traffic.rows == ()
    assert links(alone) is None
    assert full_links(alone) is None
    assert alone.links().empty
    assert alone.to_dict()["links"] == []
    assert len(alone.link_chart().axes) == 1


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_can_be_carried_is_never_too_much(data: st.DataObject) -> None:
    """Operations that shared a link in some way: each keeps its bytes, and the link is full at most."""
    count = data.draw(st.integers(1, 6))
    steps = data.draw(st.integers(1, 8))
    share = np.array(data.draw(st.lists(st.floats(0, 1), min_size=count * steps, max_size=count * steps)))
    share = share.reshape(count, steps)
    start = np.array(data.draw(st.lists(st.integers(0, steps - 1), min_size=count, max_size=count)))
    end = np.array([data.draw(st.integers(int(s) + 1, steps)) for s in start])
    at = np.arange(steps)
    share = np.where((at >= start[:, None]) & (at < end[:, None]), share, 0.0)
    share /= np.maximum(share.sum(axis=0), 1.0)
    seconds = share.sum(axis=1) * 0.99 + 1e-6
    kind = np.arange(count) % len(COMMUNICATION)
    found = level(kind, start.astype(float), end.astype(float), seconds)
    spent = (found.parts * np.diff(found.times)).sum(axis=1)
    assert spent == pytest.approx(np.bincount(kind, seconds, len(COMMUNICATION)), rel=1e-6, abs=1e-9)
    assert found.peak <= 1.02


def test_operations_that_do_not_meet_are_as_they_are() -> None:
    found = level(np.array([0, 3]), np.array([0.0, 5.0]), np.array([2.0, 6.0]), np.array([1.0, 0.95]))
    assert found.times.tolist() == [0.0, 2.0, 5.0, 6.0]
    assert found.parts[0].tolist() == [0.5, 0.0, 0.0]
    assert found.parts[3].tolist() == [0.0, 0.0, pytest.approx(0.95)]
    assert (found.peak, found.above(0.9), found.above(0.99)) == (pytest.approx(0.95), 1.0, 0.0)
    assert found.mean(np.array([1.0, 3.0, 7.0]))[0].tolist() == [0.25, 0.0]


def test_parts_of_things_are_found_one_by_one() -> None:
    which, part = expand(np.array([2, 0, 1]), np.array([2, 0, 1, 0]))
    assert which.tolist() == [0, 1, 1, 3, 3]
    assert part.tolist() == [2, 0, 1, 0, 1]


@pytest.mark.parametrize("name", topology_names())
def test_every_link_of_every_machine_has_a_kind(name: str) -> None:
    cluster = load_topology(name)
    names, of = link_kinds(cluster)
    assert len(of) == cluster.links
    assert set(of.tolist()) == set(range(len(names)))


def test_a_full_nic_is_told_with_whose_bytes_fill_it() -> None:
    found = run("mixtral_8x7b", {})
    section = full_links(found)
    assert section is not None
    nic = next(row for row in found.link_traffic.rows if row.kind == "NIC")
    part = nic.nearly_full_s / found.step_time
    assert part >= NOTABLE
    assert f"{nic.name} and {nic.equal - 1} others: above 90% for {part:.0%} of the step; dp 100%" in str(section)
    assert full_links(run("quickstart", {})) is None


def test_the_picture_has_a_strip_for_each_kind_and_one_for_the_passes() -> None:
    found = run(PIPELINE, {})
    rows = found.link_traffic.rows
    figure = found.link_chart()
    assert len(figure.axes) == 1 + min(6, len(rows))
    assert [axes.get_title("left").split(":")[0] for axes in figure.axes[1:]] == [row.kind for row in rows[:6]]
    assert len(found.link_chart(1, window=(0.0, found.duration / 10)).axes) == 2
    with pytest.raises(InvalidPlan, match="n=0"):
        found.link_chart(0)
    with pytest.raises(InvalidPlan):
        found.link_chart(window=(1.0, 1.0))


def test_the_table_of_a_notebook_is_that_of_the_file() -> None:
    found = run(PIPELINE, {})
    table, rows = found.links(), found.to_dict()["links"]
    assert list(table.columns) == [
        "kind",
        "name",
        "equal",
        "links",
        "mean",
        "peak",
        "nearly_full_s",
        "bytes",
        *COMMUNICATION,
    ]
    assert table["name"].tolist() == [row["name"] for row in rows]
    assert table["dp"].tolist() == [row["by_kind"]["dp"] for row in rows]
