"""``trainsim memory``: will it fit, how, and on what card."""

import json
from pathlib import Path

import pytest

from tests.test_cli import status
from trainsim.hardware.gpu import gpu_names, load_gpu
from trainsim.models.known import model_names
from trainsim.models.reading import load_model
from trainsim.scenario.scenario import Scenario
from trainsim.study.memory_plans import plans, usual_cards
from trainsim.study.memory_rules import deepspeed_estimates, largest_module, rules
from trainsim.study.memory_table import machine_of, memory_table

SMALL = {"model": {"name": "tiny", "family": "llama", "layers": 4, "hidden": 512, "heads": 8, "vocab": 4000}}


@pytest.mark.parametrize("card", gpu_names())
def test_every_card_has_a_machine(card: str) -> None:
    machine = machine_of(load_gpu(card), card)
    scenario = Scenario.from_dict({**SMALL, "cluster": {**machine, "gpus": 1}, "training": {"precision": "fp16"}})
    assert scenario.resolve().cluster.ranks == 1


@pytest.mark.parametrize("plan", plans(), ids=lambda plan: plan.title)
def test_every_plan_runs_on_a_usual_card(plan) -> None:
    table = memory_table(SMALL, cards=[usual_cards()[4]], gpus=[2], workers=1, progress=False)
    fit = table.at(2)[plan.title][usual_cards()[4]]
    assert fit.problem == ""
    assert fit.fits


def test_what_shares_states_is_left_out_on_one_gpu() -> None:
    table = memory_table(SMALL, cards=["rtx-4090"], gpus=[1], workers=1, progress=False)
    assert not any(fit.plan.several for fit in table.fits)


def test_a_row_is_the_run_of_the_scenario() -> None:
    """The table has no model of memory of its own."""
    table = memory_table(SMALL, cards=["a100-sxm4-40gb"], gpus=[1], workers=1, progress=False)
    fit = next(fit for fit in table.fits if fit.plan.title == "recompute")
    assert fit.ran is not None
    assert fit.ran.peak_memory == fit.outcome.trial.scenario().run().memory.peak


def test_qwen_7b_by_the_rule_and_as_it_is() -> None:
    """Activations of 28.5 GB by the formula of Korthikanti et al. 2022 (arXiv 2205.05198), eager attention; nothing
    of it says that the states alone take four times as much."""
    model = load_model("qwen1.5-7b")
    states, eager, fused = rules(model, sequence_length=2048, micro_batch=1)
    assert eager.nbytes == 28.5 * 2**30
    assert fused.nbytes == 8.5 * 2**30
    assert states.nbytes == 16 * model.parameters
    table = memory_table({"model": "qwen1.5-7b"}, cards=["v100-sxm2-32gb", "a100-sxm4-40gb"], gpus=[1], progress=False)
    assert {fit.fits for fit in table.fits if fit.plan.title == "as given"} == {False}
    lora = {fit.card: fit for fit in table.fits if fit.plan.title == "LoRA, recompute"}
    assert all(fit.fits for fit in lora.values())


@pytest.mark.parametrize(
    ("model", "printed"),
    [
        ("t5-3b", {"5.31", "15.93", "0.12", "0.79", "6.10"}),
        ("t5-large", {"1.37", "4.12", "0.12", "0.29", "1.67"}),
    ],
)
def test_deepspeeds_published_estimates(model: str, printed: set[str]) -> None:
    """As its documentation prints them for 8 GPUs on one node (docs/code-docs/source/memory.rst; t5-large by the same
    formulas, from 737,668,096 parameters and a largest module of 32,899,072)."""
    rows = deepspeed_estimates(load_model(model), gpus_per_node=8)
    assert printed <= {f"{row.bytes_per_gpu / 2**30:.2f}" for row in rows}


@pytest.mark.parametrize("name", model_names())
def test_the_largest_module_is_a_part_of_the_model(name: str) -> None:
    model = load_model(name)
    assert model.hidden * min(model.hidden, model.vocab) // model.heads <= largest_module(model) <= model.parameters


def test_the_command_reads_a_config(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 4000}
    Path("config.json").write_text(json.dumps({"model_type": "llama", "intermediate_size": 1024, **sizes}))
    assert status("memory", "config.json", "--cards", "rtx-4090,l40s", "--gpus", "1,2", "--out", "fits.png") == 0
    out = capsys.readouterr().out
    assert all(words in out for words in ("Rules of thumb", "On one GPU", "On 2 GPUs, each", "What fits", "per CPU"))
    assert Path("fits.png").read_bytes().startswith(b"\x89PNG")
    assert status("memory", "config.json", "--cards", "rtx-4090", "--gpus", "1", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["plan"] for row in rows} == {plan.title for plan in plans() if not plan.several}


def test_a_scenario_with_a_machine_is_tried_on_its_own_card(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("memory", "quickstart", "--gpus", "8", "--set", "model.layers=2", "--json") == 0
    assert {row["card"] for row in json.loads(capsys.readouterr().out)["rows"]} == {"h100-sxm5-80gb"}


def test_the_scenarios_own_machine_is_kept() -> None:
    """Its GPU written in place, its network and its hosts; only the number of GPUs is the table's."""
    gpu = {"base": "h100-sxm5-80gb", "memory": "95GB", "power": "500W"}
    cluster = {"topology": "gcp_a3_high", "nodes": 7, "gpu": gpu, "nic_bandwidth": "50Gbps"}
    table = memory_table({**SMALL, "cluster": cluster}, gpus=[1, 16], workers=1, progress=False)
    assert table.cards == ("h100-sxm5-80gb, changed",)
    for fit in table.fits:
        said = fit.outcome.trial.base.data["cluster"]
        assert said == {"topology": "gcp_a3_high", "gpu": gpu, "nic_bandwidth": "50Gbps", "gpus": fit.gpus}
        assert fit.ran is not None
        assert fit.ran.capacity < 95e9


def test_a_slower_network_is_slower() -> None:
    def best(rate: str) -> float:
        data = {**SMALL, "cluster": {"topology": "dgx_a100", "nic_bandwidth": rate}}
        found = memory_table(data, gpus=[16], workers=1, progress=False).best("a100-sxm4-80gb", 16)
        assert found is not None
        assert found.ran is not None
        return found.ran.tokens_per_s

    assert best("25Gbps") < best("200Gbps")


def test_accumulation_of_a_scenario_is_its_own() -> None:
    training = {"sequence_length": 512, "micro_batch": 2, "gradient_accumulation": 4}
    table = memory_table({**SMALL, "training": training}, cards=["l40s"], gpus=[2], workers=1, progress=False)
    assert {fit.ran.global_batch for fit in table.fits if fit.ran} == {16}


def test_cards_that_cannot_run_a_scenario_are_told_beside_those_that_can(capsys: pytest.CaptureFixture[str]) -> None:
    changes = ("model.layers=2", "training.precision=fp8", "parallel.tp=1", "parallel.pp=1")
    words = ["memory", "quickstart", "--cards", "v100-sxm2-32gb,l40s", "--gpus", "2"]
    words += [word for change in changes for word in ("--set", change)]
    assert status(*words, "--json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    refused = [row for row in rows if row["card"] == "v100-sxm2-32gb"]
    assert all("v100-sxm2-32gb has no fp8 units" in row["error"] for row in refused)
    assert any(row["fits"] for row in rows if row["card"] == "l40s")
    assert status(*words) == 0
    assert "v100-sxm2-32gb in dgx1_v100" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("llama-3-8b", "--gpus", "0"), "expected numbers of GPUs"),
        (("llama-3-8b", "--cards", "h1000"), "No GPU is called 'h1000'"),
        (("nothing-3-8b",), "No scenario is called 'nothing-3-8b'"),
    ],
)
def test_wrong_words_are_told(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str) -> None:
    assert status("memory", *words) == 2
    assert message in capsys.readouterr().err
