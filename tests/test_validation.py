"""Published runs as scenarios: every row maps, rules are the same for all sources, and errors do not creep up."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import trainsim as ts
from trainsim.analysis.likely import likely, spread
from trainsim.cli import main
from trainsim.documents.catalogue import shipped
from trainsim.errors import InvalidData, TrainsimError, UnknownName
from trainsim.frameworks import framework_names, load_framework
from trainsim.validation import fitting, uncertainty
from trainsim.validation.forms import rows_of
from trainsim.validation.left_out import without
from trainsim.validation.machines import machine_of
from trainsim.validation.mapping import scenario_of
from trainsim.validation.published import TABLES, PublishedRun, UnreadableCell, read_runs
from trainsim.validation.ranking import ranking
from trainsim.validation.scores import RunScore
from trainsim.validation.summary import errors

RUNS = list(read_runs())
EXPECTED = yaml.safe_load((Path(__file__).parent / "data" / "validation.yaml").read_text())
CREEP = 0.01
"""By how much a source's errors may grow before somebody has to say why."""

CELLS = {
    "id": "X-1", "source_id": "X", "framework": "DeepSpeed", "year": "2024", "model_name": "llama2-7b",
    "family": "llama",
    "layers": "32", "hidden": "4096", "ffn_hidden": "11008", "heads": "32", "kv_heads": "32", "vocab": "32000",
    "seq_len": "4096", "gated_mlp": "1", "gpu": "H100-SXM5-80GB", "num_gpus": "16", "gpus_per_node": "8",
    "interconnect": "8x400Gb/s IB per node", "dp": "16", "tp": "1", "pp": "1", "cp": "1", "zero_stage": "3",
    "micro_batch": "1", "global_batch": "16", "precision": "bf16", "recompute": "full", "step_time_s": "1.0",
}  # fmt: skip


def run(**cells: str) -> PublishedRun:
    """A row of a made-up source."""
    return PublishedRun(line=2, cells={**CELLS, **cells})


def status(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def table(*rows: dict[str, str]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


# what is said of a row


@pytest.mark.parametrize("source", sorted({row.source for row in RUNS}))
def test_every_shipped_row_is_a_scenario(source: str) -> None:
    rows = [row for row in RUNS if row.source == source]
    for row in rows[:: max(1, len(rows) // 6)]:
        job = ts.Scenario.from_dict(scenario_of(row).scenario).resolve()
        assert job.parallel.ranks == row.whole("num_gpus")
        assert job.training.global_batch == row.whole("global_batch")
        assert job.model.layers == row.whole("layers")


def test_every_row_of_nanotron_is_a_scenario() -> None:
    rows = list(rows_of(TABLES["nanotron"]))
    assert {row.source for row in rows} == {"nanotron"}
    for row in rows[::120]:
        assert ts.Scenario.from_dict(scenario_of(row).scenario).resolve().parallel.ranks == row.whole("num_gpus")


def test_sizes_of_shipped_models_are_those_of_the_columns() -> None:
    """A model that is found by its name has the parameters that the columns describe."""
    seen = {}
    for row in RUNS:
        key = (row.text("model_name"), row.text("layers"))
        if row.whole("num_experts") and key not in seen:
            job = ts.Scenario.from_dict(scenario_of(row).scenario).resolve()
            seen[key] = True
            assert job.model.hidden == row.whole("hidden"), row.id
            moe = next(kind.moe for kind in job.model.kinds if kind.moe is not None)
            assert (moe.experts, moe.top_k) == (row.whole("num_experts"), row.whole("top_k")), row.id
    assert len(seen) > 4


def test_the_source_of_a_row_changes_nothing() -> None:
    row = next(row for row in RUNS if row.id == "S17-089")
    other = PublishedRun(line=2, cells={**row.cells, "id": "Z-1", "source_id": "Z", "source": "somebody else"})
    assert scenario_of(other).scenario == scenario_of(row).scenario


@pytest.mark.parametrize(
    ("text", "nics", "rate"),
    [
        ("8x400Gb/s NDR IB per node (inferred)", 8, "400Gbps"),
        ("8x ConnectX-7 NDR 400Gb/s per node", 8, "400Gbps"),
        ("4x100Gb/s RoCE per node", 4, "100Gbps"),
        ("800 Gb/s per node (4x200Gb/s HDR)", 4, "200Gbps"),
        ("800 Gb/s per node", 4, "200Gbps"),
        ("100 Gbps per node", 1, "100Gbps"),
        ("NVSwitch + 1x100Gb/s EDR IB per node", 1, "100Gbps"),
        ("200 Gbps InfiniBand", 8, "200Gbps"),
    ],
)
def test_networks_in_words(text: str, nics: int, rate: str) -> None:
    cluster = machine_of(run(interconnect=text, gpu="A100-SXM4-80GB")).cluster
    assert (cluster.get("nics_per_node", 8), cluster["nic_bandwidth"]) == (nics, rate)


def test_a_network_that_nobody_tells_is_assumed_and_said() -> None:
    machine = machine_of(run(interconnect=""))
    assert "nics_per_node" not in machine.cluster
    assert machine.assumed == ("network of dgx_h100",)


@pytest.mark.parametrize(
    ("cells", "path", "value"),
    [
        ({"zero_note": "FSDP FULL_SHARD", "framework": "Composer/FSDP1"}, ("sharding", "strategy"), "fsdp"),
        ({"zero_stage": "1"}, ("sharding", "strategy"), "zero1"),
        ({"zero_stage": "0"}, ("sharding", "strategy"), "ddp"),
        ({"zero_note": "HSDP group 8", "framework": "torchtitan"}, ("sharding", "shard_size"), 8),
        ({"zero_stage": "1", "zero_note": "optimizer sharded in groups of 8"}, ("sharding", "instances"), 2),
        ({"zero_stage": "1", "zero_note": "sharded in groups of 8 (hybrid ZeRO-1)"}, ("sharding", "strategy"), "zero1"),
        ({"zero_stage": "3", "zero_note": "HYBRID_SHARD group 8"}, ("sharding", "strategy"), "hsdp"),
        ({"optimizer_offload": "Adam / cpu"}, ("sharding", "offload"), {"optimizer": "cpu"}),
        ({"recompute": ""}, ("training", "recompute"), "none"),
        ({"optimizer_offload": "AdamW / none (no offload)", "zero_stage": "1"}, ("sharding", "strategy"), "zero1"),
        ({"optimizer_offload": "CPUAdam / nvme, parameters too"},
         ("sharding", "offload"), {"optimizer": "nvme", "parameters": "nvme"}),
        ({"precision": "FP8 (tensorwise)"}, ("training", "precision"), "fp8"),
        ({"pp": "4", "dp": "4", "schedule": "ZB-2p"}, ("pipeline", "schedule"), "zb-h2"),
        ({"pp": "4", "dp": "4", "schedule": "V-Half"}, ("pipeline", "chunks"), 2),
        ({"flash_attention": "0"}, ("training", "attention"), "eager"),
        ({"flash_attention": "1.0"}, ("training", "attention"), "flash1"),
        ({"flash_attention": "triton"}, ("training", "attention"), "triton"),
        ({"notes": "FP8 attention"}, ("training", "attention"), "cudnn-fp8"),
        ({"pp": "4", "dp": "4", "vpp": "2", "schedule": "interleaved 1F1B"}, ("pipeline", "chunks"), 2),
        ({"pp": "5", "dp": "3", "num_gpus": "15", "gpus_per_node": "5", "global_batch": "15"},
         ("pipeline", "layout"), [6, 6, 7, 7, 6]),
        ({"tp": "2", "dp": "8", "sequence_parallel": "1", "overlap_flags": "TP_COMM_OVERLAP off"},
         ("training", "tp_overlap"), "wgrad"),
        ({"tp": "2", "dp": "8", "sequence_parallel": "1", "framework": "torchtitan", "zero_note": "FSDP2 + async TP"},
         ("training", "tp_overlap"), "async"),
        ({"framework": "torchtitan", "zero_note": "FSDP2", "notes": "without torch.compile"},
         ("framework", "compiled"), False),
        ({"framework": "PyTorch DDP", "zero_stage": "0", "notes": "torch.compile"}, ("framework", "compiled"), True),
    ],
)  # fmt: skip
def test_rules(cells: dict[str, str], path: tuple[str, str], value: object) -> None:
    section, key = path
    assert scenario_of(run(**cells)).scenario[section][key] == value


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ({"layers": "many"}, "layers = 'many' is not a number"),
        (
            {"heads": "", "model_name": "ours-7b"},
            "heads is blank, and model_name = 'ours-7b' is not a model of the catalogue",
        ),
        ({"family": "lama"}, "did you mean 'llama'"),
        ({"zero_stage": "7"}, "zero_stage = 7 is none of 0, 1, 2, 3"),
        ({"tp": "0"}, "tp = '0' is not above 0; leave it blank"),
        ({"year": "-5"}, "year = '-5' is not a whole number from 0 on"),
        ({"dp": "8"}, "dp = 8: times tp, pp and cp (1) that is 8 GPUs, and num_gpus says 16"),
        ({"gpu": "TPU v5p"}, "gpu = 'TPU v5p' is none of the catalogue's"),
        ({"gated_mlp": "maybe"}, "neither yes (1) nor no (0)"),
        ({"pp": "4", "dp": "4", "schedule": "banana"}, "schedule = 'banana'"),
        ({"recompute": "sometimes"}, "recompute = 'sometimes'"),
        ({"micro_batch": "1.5"}, "micro_batch = '1.5' is not a whole number"),
    ],
)
def test_what_is_no_value_is_said(cells: dict[str, str], says: str) -> None:
    with pytest.raises(UnreadableCell) as raised:
        scenario_of(run(**cells))
    assert says in str(raised.value)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(CELLS)), st.one_of(st.text(max_size=8), st.integers().map(str))))
def test_a_damaged_row_has_a_reason_and_no_traceback(damage: dict[str, str]) -> None:
    row = run(**damage)
    try:
        assert row.step_time is None or row.step_time > 0
        ts.Scenario.from_dict(scenario_of(row).scenario)
    except TrainsimError as error:
        assert str(error)


# measured times and peaks


def test_a_model_by_its_name_alone_is_that_of_the_catalogue() -> None:
    bare = dict.fromkeys(("layers", "hidden", "ffn_hidden", "heads", "kv_heads", "vocab", "family", "gated_mlp"), "")
    known = scenario_of(run(**bare, model_name="llama-3-8b"))
    assert known.scenario["model"] == {"base": "llama-3-8b"}
    named = {"model_name": "llama-2-7b", "family": "", "gated_mlp": ""}
    assert scenario_of(run(**named)).scenario["model"]["base"] == "llama-2-7b"  # not a GPT of those sizes
    assert any("a GPT" in said for said in scenario_of(run(**named | {"model_name": "ours"})).assumed)


def test_replicas_are_the_gpus_that_are_left() -> None:
    assert run(dp="", tp="2", pp="4").replicas == 2
    assert scenario_of(run(dp="", micro_batch="")).scenario["training"]["micro_batch"] == 1


def test_a_peak_is_above_zero() -> None:
    with pytest.raises(UnreadableCell, match="peak_mem_GB = '-5' is not above 0"):
        _ = run(peak_mem_GB="-5").peak_memory


def test_times_are_taken_as_printed_or_worked_out() -> None:
    assert run().step_time == 1.0
    assert run(derived_step_time_s="2").step_time == 2.0
    assert run(step_time_s="", tokens_per_s_per_gpu="4096").step_time == 1.0
    assert run(step_time_s="", samples_per_s="8").step_time == 2.0
    assert run(step_time_s="").step_time is None


@pytest.mark.parametrize(
    ("note", "measure", "nbytes"),
    [
        ("GiB max allocated over ranks; reserved 70.88", "allocated", 10 * 2**30),
        ("max_memory_usage in the log (torch, GB)", "allocated", 10e9),
        ("nvidia-smi MiB / 1024", "smi", 10 * 2**30),
        ("reserved", "reserved", 10e9),
    ],
)
def test_peaks_and_what_measures_them(note: str, measure: str, nbytes: float) -> None:
    row = run(peak_mem_GB="10", mem_note=note)
    assert (row.memory_measure, row.peak_memory) == (measure, nbytes)


# files


def test_a_table_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        dict(CELLS), {**CELLS, "id": "X-2", "gpu": "abacus"}, {**CELLS, "id": "X-3", "tp": "3"},
        {**CELLS, "id": "X-4", "step_time_s": ""},
    ]  # fmt: skip
    file, out = tmp_path / "mine.csv", tmp_path / "out.csv"
    file.write_text(table(*rows))
    assert status("validate", "--runs", str(file), "--csv", str(out), "--workers", "1") == 0
    shown = capsys.readouterr().out
    assert "abacus" in shown
    assert "1 of 4 runs: the median error is" in " ".join(shown.split())
    written = list(csv.DictReader(out.open()))
    assert [row["id"] for row in written] == ["X-1", "X-2", "X-3", "X-4"]
    assert float(written[0]["error"]) == pytest.approx(float(written[0]["predicted_s"]) - 1.0)
    assert "abacus" in written[1]["reason"]
    assert written[2]["reason"]
    assert not written[2]["predicted_s"]
    assert written[3]["predicted_s"]
    assert not written[3]["error"]


def test_a_table_of_which_nothing_could_be_replayed_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(table({**CELLS, "gpu": "abacus"}, {**CELLS, "id": "X-2", "tp": "3"}))
    assert status("validate", "--runs", str(file), "--workers", "1", "--json") == 2
    out, err = capsys.readouterr()
    assert len(json.loads(out)["rows"]) == 2
    assert "no run could be replayed; the first one" in err
    assert "abacus" in err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no column 'id'"),
        ("a,b\n1,2\n", "no column 'id'"),
        ("id;gpu;num_gpus\n", "parted by ','"),
        ("id,gpu,num_gpus,global_batch,seq_len,step_time_s\n", "no column 'layers' and no model_name"),
        (f"{','.join(CELLS)},tp\n", "the column 'tp' is there twice"),
        (f"{','.join(CELLS)},sequence_paralel\n", "is 'sequence_parallel' meant"),
        (f"{','.join(CELLS)}\n", "runs.csv: a header and no row below it"),
        (f"{table(CELLS).strip()},more\n", "runs.csv:2: more cells than the header has"),
        ("id,layers,hidden,heads,gpu,num_gpus,global_batch,seq_len\n", "no column with a time"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "runs.csv"
    file.write_text(text)
    with pytest.raises(InvalidData, match=says):
        ts.validate(file)


def test_the_table_that_is_read_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(table(CELLS))
    before = file.read_bytes()
    assert status("validate", "--runs", str(file), "--csv", str(file)) == 2
    assert "would be lost" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_nothing_is_left_out_for_a_source_that_taught_nothing(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(table(CELLS))
    with pytest.raises(TrainsimError, match="nothing was learnt from X"):
        ts.validate(file, left_out=True)


def test_a_file_that_is_not_there_and_a_source_that_nobody_is() -> None:
    with pytest.raises(InvalidData, match="no such file"):
        ts.validate("nowhere.csv")
    with pytest.raises(UnknownName, match="S4"):
        ts.validate(sources=["S44"])
    with pytest.raises(UnknownName, match="called 'S44'"):
        ts.validate(sources="S44")


def test_the_command_says_it_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("validate", "--source", "S44") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.strip().splitlines()) == 1


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=400), st.booleans())
def test_any_text_is_a_table_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str, headed: bool) -> None:
    file = tmp_path_factory.getbasetemp() / "any.csv"
    file.write_text((",".join(CELLS) + "\n" if headed else "") + text, encoding="utf-8")
    try:
        rows = list(rows_of(file))
    except InvalidData as error:
        assert "any.csv" in str(error)
    else:
        assert headed or not rows or "id" in text


# errors


@pytest.mark.slow
def test_korthikanti_within_three_percent() -> None:
    """Korthikanti et al. 2022 (arXiv 2205.05198), table 5."""
    validation = ts.validate(sources=["S4"], workers=1, progress=False)
    scores = validation.scores
    assert len(scores) == 8
    assert repr(validation).startswith("<Validation 8 of 8 runs: the median error is")
    assert max(abs(score.error) for score in scores if score.error is not None) <= 0.03


@pytest.mark.slow
@pytest.mark.parametrize("source", sorted(EXPECTED))
def test_no_source_gets_worse(source: str) -> None:
    """Errors by source as docs/accuracy.md has them; ``python -m benchmarks.accuracy --write`` makes both anew."""
    scores = ts.validate(sources=[source], workers=1, progress=False).scores
    found, before = errors(s.error for s in scores if s.error is not None), EXPECTED[source]
    assert found is not None
    assert found.runs >= before["runs"]
    assert found.median <= before["median"] + CREEP
    assert found.ninety <= before["ninety"] + 2 * CREEP
    assert found.bias == pytest.approx(before["bias"], abs=CREEP)


# rankings, ranges and fits


def score(published: float, predicted: float, **cells: str) -> RunScore:
    return RunScore(run=run(**cells), published=published, predicted=predicted)


def test_ranking_counts_pairs_and_regret() -> None:
    scores = [score(1.0, 1.1, tp="1"), score(2.0, 1.0, tp="2"), score(3.0, 3.0, tp="4"), score(3.01, 2.9, tp="8")]
    found = ranking(scores)
    assert found is not None
    assert found.pairs == 5  # the last two are alike
    assert found.in_order == pytest.approx(4 / 5)
    assert found.regret == pytest.approx(1.0)
    assert ranking(scores[:1]) is None


def test_a_range_holds_the_prediction_and_grows_with_what_is_unknown() -> None:
    sure, unsure = (likely(6.0, {"every run": 1.0, "software": unknown, "GPU": unknown}) for unknown in (0.0, 1.0))
    assert unsure.low < sure.low < 6.0 < sure.high < unsure.high
    assert likely(12.0, {"every run": 1.0}).high == pytest.approx(2 * likely(6.0, {"every run": 1.0}).high)
    assert spread({"a": 2.0}, {"a": 0.1}) == pytest.approx(0.2)


def test_every_result_has_its_range() -> None:
    result = ts.Scenario.load("quickstart").replace({"simulation.detail": "block"}).run()
    low, high = result.to_dict()["range_s"]
    assert low < result.step_time < high
    assert high / low < 2.0


def test_a_fit_finds_the_constants_that_made_the_errors() -> None:
    rng = np.random.default_rng(0)
    share = rng.uniform(0.2, 0.8, 200)
    names = [f"r{k}" for k in range(200)]
    truth = {"clock": 1.2, "memory": 0.9}

    def seconds(clock: float, memory: float) -> dict[str, float]:
        return {n: s / clock + (1 - s) / memory for n, s in zip(names, share, strict=True)}

    given = fitting.sensitivities(
        seconds(1.0, 1.0),
        {"clock": seconds(fitting.STEP, 1.0), "memory": seconds(1.0, fitting.STEP)},
        published=seconds(**truth),
        sources={n: "AB"[k % 2] for k, n in enumerate(names)},
        weights=dict.fromkeys(names, 1.0),
    )
    found = fitting.fitted(given)
    assert found["clock"] == pytest.approx(truth["clock"], rel=0.04)
    assert found["memory"] == pytest.approx(truth["memory"], rel=0.04)
    assert np.abs(fitting.left(given, found)).max() < 0.04
    assert set(given.without("A").sources) == {"B"}


def test_ranges_fitted_on_some_sources_hold_others() -> None:
    """Errors drawn from two parts: four of five of a source that was left out lie in their range."""
    rng = np.random.default_rng(1)
    parts = np.stack([np.ones(3000), rng.integers(0, 2, 3000).astype(float)], axis=1)
    values = rng.laplace(0.0, np.sqrt(parts**2 @ np.array([0.03, 0.2]) ** 2))
    given = uncertainty.ErrorTable(
        values=values,
        parts=parts,
        names=("every run", "software"),
        weights=np.ones(3000),
        sources=tuple("ABC"[k % 3] for k in range(3000)),
    )
    fitted = uncertainty.fit(given)
    assert fitted.deviation["software"] > 3 * fitted.deviation["every run"]
    assert all(0.75 < part < 0.85 for part in uncertainty.coverage(given).values())


def test_every_source_has_software_that_stands_in() -> None:
    for row in RUNS[::9]:
        data = scenario_of(row).scenario
        told, instead = data["framework"], without(row.source, data)["framework"]
        if told != "megatron-fsdp":
            assert instead != told, row.id
    for instead in shipped("validation", "left_out").data["software"].values():
        for profile, other in instead.items():
            assert profile in framework_names()
            assert load_framework(other)


def test_left_out_forgets_software_and_nothing_of_other_sources() -> None:
    row = next(row for row in RUNS if row.source == "S4")
    data = scenario_of(row).scenario
    assert without("S4", data)["framework"] != data["framework"]
    assert without("nobody", data) == data


def test_a_profile_of_others_may_stand_in_with_numbers_of_its_own() -> None:
    row = next(row for row in RUNS if row.source == "S17")
    data = scenario_of(row).scenario
    blocking = {"base": data["framework"], "host": {"blocking": True}}
    for framework in (data["framework"], blocking):
        host = load_framework(without("S17", data | {"framework": framework})["framework"]).host
        assert host.recompute_seconds != load_framework(data["framework"]).host.recompute_seconds
        assert host.blocking == (framework == blocking)
