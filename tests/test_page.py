"""The page of a run: its spans are those of the trace, its bytes those of the operations, and nothing escapes."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trainsim as ts
from tests.runs import result
from tests.test_sections import measured
from tests.traces import Shape
from trainsim.analysis.communication import WHOLE, WIRE
from trainsim.analysis.kinds import COMMUNICATION
from trainsim.analysis.pairs import who_sends
from trainsim.contracts.groups import Messages
from trainsim.contracts.instructions import SEND
from trainsim.report.html import page
from trainsim.report.page.areas import link_data, memory_data
from trainsim.report.page.assets import script
from trainsim.report.page.columns import packed, packed_parts
from trainsim.report.page.spans import timeline_data
from trainsim.report.sections import CARD, TERMINAL, report
from trainsim.report.sections.timeline import with_picture
from trainsim.tables.blocks import Interactive, Paragraph, Section
from trainsim.tables.page import card, json_text
from trainsim.tables.page import page as page_of
from trainsim.tables.terminal import rich_section

SCENARIOS: dict[str, dict[str, Any]] = {
    "whole kernels": {},
    "blocks": {"simulation.detail": "block"},
    "jitter": {"simulation.detail": "block", "simulation.jitter": {"gpu": 0.02, "kernel": 0.05}},
    "several steps": {"simulation.detail": "block", "simulation.steps": 2},
}


WORDS = ("name", "kind", "carries")
"""What is known of a label, as far as it is looked at."""


def unpacked(column: dict[str, Any]) -> npt.NDArray[Any]:
    """A column as the page reads it."""
    if "data" not in column:
        return np.full(column["size"], column["all"])
    return np.frombuffer(base64.b64decode(column["data"]), f"<{column['type']}")


def spans_of_page(data: dict[str, Any]) -> dict[tuple[int, str], list[tuple[int, int, str, int]]]:
    """Start, end (ns), name and microbatch of every span, by place of the rank and chain: one by one."""
    names = data["labels"]["name"]
    at = unpacked(names["at"])
    size, label, offset, length = (unpacked(data["runs"][key]) for key in ("size", "label", "offset", "length"))
    first = np.concatenate([[0], np.cumsum(size)]).astype(int)
    out = {}
    for chain in data["chains"]:
        spans: list[tuple[int, int, str, int]] = []
        keys = ("run", "after", "microbatch", "own", "gaps", "lengths")
        run, after, microbatch, own, gaps, lengths = (unpacked(chain[key]) for key in keys)
        start, place = 0, 0
        for row in range(len(run)):
            start += int(after[row])
            over = start
            for k in range(first[int(run[row])], first[int(run[row]) + 1]):
                begin = start + int(offset[k])
                end = begin + int(length[k])
                if own[row]:
                    begin = over + int(gaps[place])
                    end = begin + int(lengths[place])
                    place += 1
                over = end
                spans.append((begin, end, names["words"][int(at[int(label[k])])], int(microbatch[row])))
        out[chain["rank"], chain["name"]] = spans
    return out


@pytest.fixture(scope="module", params=SCENARIOS)
def run(request: pytest.FixtureRequest) -> ts.Result:
    return ts.Scenario.load("quickstart").replace(SCENARIOS[request.param]).run()


def test_the_spans_of_a_page_are_those_of_the_trace(run: ts.Result) -> None:
    found = spans_of_page(timeline_data(run.trace, run.pipeline))
    for place, rank in enumerate(run.pipeline):
        for chain in run.trace.chain_names(rank):
            spans, own = run.trace.spans(rank, chain), found[place, chain]
            assert len(own) == len(spans.label)
            assert [name for _, _, name, _ in own] == [run.trace.labels[k].name for k in spans.label.tolist()]
            assert [microbatch for *_, microbatch in own] == spans.microbatch.tolist()
            for k, times in enumerate((spans.start, spans.end)):
                assert np.abs(np.array([span[k] for span in own]) - times * 1e9).max(initial=0) <= 1.001


def test_a_window_has_the_rows_that_begin_in_it(run: ts.Result) -> None:
    half = run.duration / 2
    early = spans_of_page(timeline_data(run.trace, run.pipeline, (0.0, half)))
    late = spans_of_page(timeline_data(run.trace, run.pipeline, (half, np.inf)))
    whole = spans_of_page(timeline_data(run.trace, run.pipeline))
    assert {key: early[key] + late[key] for key in whole} == whole


def test_rows_of_a_page_have_their_task_their_wait_and_a_lane_without_overlap(run: ts.Result) -> None:
    assert_rows(run)
    assert any((unpacked(chain["wait"]) > 0).any() for chain in timeline_data(run.trace, run.pipeline)["chains"])


def test_messages_that_overlap_have_lanes_of_their_own() -> None:
    slow = result(Shape(stages=3, microbatches=6, latency=3.0), "slow messages")
    assert_rows(slow)
    assert {lane["layer"] for lane in timeline_data(slow.trace, slow.pipeline)["lanes"]} == {0, 1, 2}


def assert_rows(run: ts.Result) -> None:
    trace, data = run.trace, timeline_data(run.trace, run.pipeline)
    for chain in data["chains"]:
        number = trace.number[int(trace.rank_class[run.pipeline[chain["rank"]]]), chain["name"]]
        rows, facts = trace.rows(number), trace.tasks[number].facts.tolist()
        waited = [
            round(start * 1e9) - round(posted * 1e9) for start, posted in zip(rows.start, rows.posted, strict=True)
        ]
        assert unpacked(chain["wait"]).tolist() == waited
        of_tasks = [facts[task] if task < len(facts) else -1 for task in rows.task.tolist()]
        assert unpacked(chain["fact"]).tolist() == of_tasks
        over: dict[int, float] = {}
        for layer, posted, end in zip(unpacked(chain["layer"]).tolist(), rows.posted, rows.end, strict=True):
            assert posted >= over.get(layer, 0.0) - 2e-9
            over[layer] = end
        lanes = {
            lane["layer"] for lane in data["lanes"] if (lane["rank"], lane["chain"]) == (chain["rank"], chain["name"])
        }
        assert set(over) == lanes


def test_a_label_of_a_page_says_what_it_carries(run: ts.Result) -> None:
    labels = timeline_data(run.trace, run.pipeline)["labels"]
    (name, kind, carries) = ([labels[k]["words"][int(n)] for n in unpacked(labels[k]["at"])] for k in WORDS)
    known = {(label.name, label.kind): label.payloads for label in run.trace.labels}
    for key, words in zip(zip(name, kind, strict=True), carries, strict=True):
        for payload in known[key]:
            assert (f"{payload.operation} of " in words) == (payload.operation != SEND)
    assert any(carries)


def test_charts_of_memory_have_the_peak_of_every_stage(run: ts.Result) -> None:
    data, use = memory_data(run), run.memory
    assert [int(one["name"]) for one in data["series"]] == [stage.stage for stage in use.per_stage]
    for one, stage in zip(data["series"], use.per_stage, strict=True):
        times = unpacked(one["times"])
        whole = sum(unpacked(part["levels"]).astype(float) for part in one["parts"])
        assert float(whole.max()) == pytest.approx(stage.peak, rel=1e-6)
        assert abs(times[whole.argmax()] - stage.peak_at_s * 1e9) <= 0.01 * run.duration * 1e9
        assert times[0] == 0
        assert (np.diff(times) >= 0).all()
        assert one["until"] == round(run.duration * 1e9)
    assert use.per_stage[data["first"]].peak == use.peak
    assert [line["value"] for line in data["lines"]] == [use.capacity] * (use.capacity <= data["top"])


def test_charts_of_links_have_what_the_links_carry(run: ts.Result) -> None:
    data = link_data(run)
    assert data["series"]
    for one, row in zip(data["series"], run.link_traffic.rows, strict=False):
        assert {part["name"] for part in one["parts"]} == set(row.by_kind)
        times = unpacked(one["times"])
        assert times[0] == 0
        assert times[-1] < one["until"] == round(run.duration * 1e9)
        (means,) = run.link_traffic.level(row.link).mean(np.array([0.0, run.duration])).T
        for part in one["parts"]:
            mean = float(np.mean(unpacked(part["levels"]).astype(float)))
            assert mean == pytest.approx(float(means[COMMUNICATION.index(part["name"])]), rel=1e-5)


def test_each_lane_is_of_a_rank_and_the_path_runs_through_lanes_that_are_shown(run: ts.Result) -> None:
    data = timeline_data(run.trace, run.pipeline, path=run.critical_path)
    assert {lane["rank"] for lane in data["lanes"]} == set(range(len(run.pipeline)))
    start, length = (unpacked(data["path"][key]) for key in ("start", "length"))
    assert unpacked(data["path"]["lane"]).max() < len(data["lanes"])
    whole = sum(leg.end - leg.start for leg in run.critical_path.legs)
    assert float(length.sum()) * 1e-9 == pytest.approx(whole, rel=1e-6)
    assert float((start + length).max()) == pytest.approx(data["until"], abs=2)


def test_a_page_says_what_of_a_large_step_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainsim.report.sections.timeline.MOST_SPANS", 40)
    step = result(Shape(stages=4, microbatches=16), "long")
    section = with_picture(step, b"")
    assert section.note.startswith("an excerpt of one pipeline: ranks 0, ")
    (block,) = section.blocks
    assert isinstance(block, Interactive)
    assert 0 < block.data["until"] < step.duration * 1e9
    shown = sum(map(len, spans_of_page(dict(block.data)).values()))
    assert 0 < shown <= 60


def test_a_measured_step_has_its_timeline_and_nothing_that_needs_a_job() -> None:
    step = measured()
    text = page(step)
    assert re.findall(r'data-view="(\w+)"', text) == ["timeline"]
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', text)
    count = sum(len(spans) for spans in spans_of_page(json.loads(data)).values())
    assert count == sum(len(step.trace.spans(r, c).label) for r in step.pipeline for c in step.trace.chain_names(r))


@given(st.lists(st.integers(-(2**53), 2**53), max_size=20) | st.lists(st.integers(-3, 300), max_size=20))
def test_columns_come_back_as_they_were(values: list[int]) -> None:
    assert unpacked(packed(values)).tolist() == values


@given(st.lists(st.floats(-1e30, 1e30), max_size=20))
def test_columns_of_numbers_come_back_to_seven_digits(values: list[float]) -> None:
    assert unpacked(packed_parts(values)).tolist() == pytest.approx(values, rel=1e-6, abs=1e-37)


def test_a_column_takes_the_narrowest_type() -> None:
    assert [packed([0, top])["type"] for top in (255, 256, 65536, 2**32)] == ["u1", "u2", "u4", "f8"]
    assert [packed([-1, top])["type"] for top in (127, 128, 32768, 2**31)] == ["i1", "i2", "i4", "f8"]


# -- nothing escapes ------------------------------------------------------------------------------------------

NASTY = ("</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\"'`&<>", "<!--", "\u2028\u2029")


@settings(max_examples=60)
@given(st.text() | st.sampled_from(NASTY))
def test_data_of_a_page_neither_ends_a_script_nor_begins_a_tag(text: str) -> None:
    written = str(json_text({text: [text]}))
    assert not set("<>&") & set(written)
    assert json.loads(written) == {text: [text]}


@pytest.mark.parametrize("name", NASTY)
def test_names_of_a_scenario_are_only_text(name: str) -> None:
    text = page(result(Shape(stages=2, microbatches=2), name))
    tags = re.findall(r"<(script|img|iframe|object|embed|link|base|form)\b", text)
    plain = page(result(Shape(stages=2, microbatches=2), "plain"))
    assert tags == re.findall(r"<(script|img|iframe|object|embed|link|base|form)\b", plain)
    assert "alert(1)</script" not in text
    assert "onerror=alert" not in text or "&lt;img src=x onerror=alert" in text


def test_a_page_may_load_nothing_and_run_nothing_but_its_own_script() -> None:
    text = page_of([Section("a", (Interactive("view", {"a": 1}),))], "page", script=script())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    assert "default-src 'none'" in policy[1]
    assert "unsafe-inline" not in policy[1].split("script-src")[1]
    assert "</script" not in script()


def test_a_terminal_and_a_card_leave_out_what_is_interactive() -> None:
    from rich.console import Console

    block = Interactive("view", {"secret": 1}, (Paragraph("still there"),))
    console = Console(width=80)
    with console.capture() as lines:
        console.print(rich_section(Section("a", (block,))))
    assert "secret" not in lines.get()
    assert "still there" in card([Section("a", (block,))])
    assert "<script" not in card([Section("a", (block,))])
    shown = result(Shape(stages=2, microbatches=2), "two")
    for reader in (TERMINAL, CARD):
        assert not [b for one in report(shown, reader) for b in one.blocks if isinstance(b, Interactive)]


# -- who sends to whom ----------------------------------------------------------------------------------------

LAYOUTS: dict[str, dict[str, Any]] = {
    "tp and pp": {},
    "two nodes": {"cluster.nodes": 2, "parallel.pp": 2, "parallel.tp": 2},
    "experts": {
        "model": "mixtral-8x7b", "cluster.nodes": 2, "parallel": {"tp": 1, "pp": 2, "ep": 8},
        "training.sequence_length": 1024,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_bytes_between_ranks_are_those_of_every_operation(name: str) -> None:
    """The oracle goes through every span of every rank, operation by operation."""
    run = ts.Scenario.load("quickstart").replace({"simulation.detail": "block", **LAYOUTS[name]}).run()
    network, trace = run.simulation.network, run.trace
    tables = {kind: np.zeros((trace.ranks, trace.ranks)) for kind in COMMUNICATION}
    for rank in range(trace.ranks):
        for chain in trace.chain_names(rank):
            for k in trace.spans(rank, chain).label.tolist():
                for payload in trace.labels[k].payloads:
                    kind = trace.labels[k].kind
                    if kind not in COMMUNICATION or not network.has(payload.communicator):
                        continue
                    members = network.members(payload.communicator)
                    table = tables[kind]
                    if isinstance(payload.communicator, Messages):
                        table[rank, members[members[:, 0] == rank][0, 1]] += payload.nbytes
                        continue
                    group = sorted(
                        members[(members == rank).any(axis=1)][0], key=lambda r: int(network.gpu_of(np.array([r]))[0])
                    )
                    n = len(group)
                    nbytes = payload.nbytes * (
                        1 if payload.operation in WHOLE else WIRE[payload.operation] * (n - 1) / n
                    )
                    others = group if payload.operation == "all_to_all" else [group[(group.index(rank) + 1) % n]]
                    for other in set(others) - {rank}:
                        table[rank, other] += nbytes / len(set(others) - {rank})
    sent = who_sends(run.lanes, network)
    assert set(sent.by_kind) == {kind for kind, table in tables.items() if table.any()}
    for kind, table in sent.by_kind.items():
        assert table == pytest.approx(tables[kind], rel=1e-9)


def test_bytes_between_ranks_are_those_of_one_of_several_steps() -> None:
    one, three = (ts.Scenario.load("quickstart").replace({"simulation.steps": steps}).run() for steps in (1, 3))
    assert three.lanes.steps == 3
    single, several = (who_sends(run.lanes, run.simulation.network).by_kind for run in (one, three))
    assert set(single) == set(several)
    for kind, table in single.items():
        assert several[kind] == pytest.approx(table, rel=1e-9)


def test_rows_of_many_ranks_are_nodes_and_no_byte_is_lost() -> None:
    run = ts.Scenario.load("quickstart").replace({"simulation.detail": "block", "cluster.nodes": 4}).run()
    fine, nodes, pairs = (who_sends(run.lanes, run.simulation.network, most) for most in (64, 31, 2))
    assert (fine.names[9], nodes.names, pairs.names) == (
        "rank 9", ("node 0", "node 1", "node 2", "node 3"), ("nodes 0 to 1", "nodes 2 to 3")
    )  # fmt: skip
    for kind, table in fine.by_kind.items():
        folded = table.reshape(4, 8, 4, 8).sum(axis=(1, 3))
        assert nodes.by_kind[kind] == pytest.approx(folded, rel=1e-9)
        assert pairs.by_kind[kind] == pytest.approx(folded.reshape(2, 2, 2, 2).sum(axis=(1, 3)), rel=1e-9)
        assert table.sum() / 32 == pytest.approx(run.communication[kind].bytes_per_rank, rel=1e-9)
