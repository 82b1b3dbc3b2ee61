"""Texts and files: what is said is what happened."""

import gzip
import io
import json
import re
from itertools import pairwise

import pytest

from tests.kineto import spans_in
from tests.runs import result
from tests.traces import Shape
from trainsim.report.text import summary

SMALL = Shape(stages=3, microbatches=4, tp=0.2, recompute=0.5, latency=0.1, reduce=0.7, update=0.2, replicas=2)
LONG = Shape(stages=6, microbatches=96, recompute=0.5, latency=0.02, reduce=3.0, update=0.4)


@pytest.fixture(scope="module")
def small():
    return result(SMALL, "small")


@pytest.fixture(scope="module")
def long():
    return result(LONG, "long")


def printed(renderable, columns=80):
    from rich.console import Console

    console = Console(width=columns, no_color=True, force_terminal=False, file=io.StringIO())
    console.print(renderable)
    return console.file.getvalue()


def test_the_summary_is_read_in_80_columns_without_colour(small):
    text = printed(summary(small))
    assert max(map(len, text.splitlines())) <= 80
    order = ["step time", "Where the time goes", "Memory\n", "Pipeline bubble", "Who waits for whom"]
    assert [text.index(word) for word in order] == sorted(text.index(word) for word in order)
    assert "gradients from stage 1" in text


@pytest.mark.parametrize("columns", [80, 100])
def test_no_number_stands_apart_from_its_unit(small, columns):
    text = printed(summary(small), columns)
    assert "…" not in text
    assert not [line for line in text.splitlines() if re.match(r"\s*(GiB|MiB|s|ms|%)\b", line)]


def test_waiting_is_told_from_communication(small):
    text = " ".join(printed(summary(small)).split())
    assert "of which at the end of the step" in text
    assert "of the longest span from a rank's first pass to its last" in text
    assert "Megatron-LM's formula" in text


def test_a_model_that_does_not_fit_is_named_by_stage_and_part():
    big = result(Shape(stages=2, activation=40e9))
    text = " ".join(printed(summary(big)).split())
    assert "DOES NOT FIT" in text
    assert "rank 0 of stage 0 needs" in text
    assert "the largest part is activations" in text
    assert not big.memory.fits


def test_comparison_as_text(small):
    other = result(Shape(stages=3, microbatches=4, tp=0.1), "other", {"parallel": {"tp": 2}})
    text = " ".join(printed(other - small).split())
    assert "shorter" in text
    assert "parallel - {tp: 2}" in text


def test_the_chrome_trace_has_every_span_and_no_overlap(small, tmp_path):
    path = small.to_chrome(tmp_path / "trace.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    spans = spans_in({"traceEvents": events})
    ranks = small.pipeline
    expected = sum(len(small.trace.spans(r, c).label) for r in ranks for c in small.trace.chain_names(r))
    assert len(spans) == expected
    threads = {}
    for e in spans:
        threads.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    for times in threads.values():
        times.sort()
        assert all(a[1] <= b[0] + 0.01 for a, b in pairwise(times))
    names = [e for e in events if e["name"] == "process_name"]
    assert [e["args"]["name"] for e in names] == [f"stage {k} · rank {r}" for k, r in enumerate(ranks)]
    assert {e["args"]["layer"] for e in spans} == {-1, 0, 1}
    starts, ends = ({e["id"] for e in events if e["ph"] == ph} for ph in "sf")
    assert starts == ends != set()


def test_no_two_threads_of_a_process_have_one_name(dualpipev, small, tmp_path):
    from tests.jobs import scenario

    for run in (small, dualpipev, scenario().run()):
        events = json.loads(run.to_chrome(tmp_path / "trace.json").read_text())["traceEvents"]
        names = [(e["pid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"]
        assert len(set(names)) == len(names)


def test_a_chrome_trace_without_compression_is_the_same(small, tmp_path):
    packed = gzip.decompress(small.to_chrome(tmp_path / "a.json.gz").read_bytes())
    assert small.to_chrome(tmp_path / "a.json").read_bytes() == packed


def test_the_page_needs_nothing_else(small, tmp_path):
    text = small.to_html(tmp_path / "report.html").read_text()
    assert "http" not in text.replace("http-equiv", "")
    assert "default-src 'none'" in text
    assert 'src="' not in text.replace('src="data:', "")
    for word in ("Where the time goes", "Memory over time", "Who waits for whom", "data:image/png;base64,"):
        assert word in text


def test_a_run_leaves_four_files(small, tmp_path):
    paths = small.save(tmp_path / "out")
    assert [p.name for p in paths] == ["result.json", "gantt.png", "trace.json.gz", "report.html"]
    assert all(p.stat().st_size > 1000 for p in paths)
    first = [p.read_bytes() for p in paths]
    assert [p.read_bytes() for p in result(SMALL, "small").save(tmp_path / "out")] == first


@pytest.fixture(scope="module")
def dualpipev():
    from tests.jobs import scenario

    changes = {"pipeline.schedule": "dualpipev", "training.global_batch": 32, "training.tp_overlap": "none"}
    return scenario().replace(changes).run()
