"""What files of other simulators say that is easily misread, each with the answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from trainsim.errors import ScenarioError
from trainsim.importers.imported import Imported
from trainsim.importers.importing import import_sources, importer_of
from trainsim.importers.source import Source

EXECUTION = {
    "num_procs": 64, "tensor_par": 4, "pipeline_par": 4, "data_par": 4, "batch_size": 64, "microbatch_size": 1,
    "datatype": "bfloat16", "tensor_par_comm_type": "rs_ag", "tensor_par_overlap": "none",
}  # fmt: skip
APPLICATION = {"hidden": 4096, "feedforward": 16384, "seq_size": 2048, "attn_heads": 32, "attn_size": 128,
               "num_blocks": 32}  # fmt: skip
STRATEGY = {"seq_len": 4096, "micro_batch_size": 1, "micro_batch_num": 8, "world_size": 8, "tp_size": 1, "pp_size": 4}
LLAMA = {"model_name": "llama3_8b", "hidden_size": 4096, "head_num": 32, "kv_head_num": 8, "intermediate_size": 14336,
         "layer_num": 32, "vocab_size": 128256, "use_swiglu": True}  # fmt: skip
ANALYSED = {"name": "own", "num_layers": 32, "n_head": 32, "hidden_dim": 4096, "vocab_size": 32000}


def source(data: dict[str, Any], name: str = "x.json") -> Source:
    return Source(shown=name, text=json.dumps(data), folder=Path())


def said(*files: dict[str, Any]) -> Imported:
    return import_sources([source(data, f"{k}.json") for k, data in enumerate(files)])


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (EXECUTION, "calculon"), (APPLICATION, "calculon"), ({"matrix": {}, "vector": {}, "mem1": {}, "networks": []},
        "calculon"), (STRATEGY, "simumax"), (LLAMA, "simumax"), (LLAMA | {"model_type": "dense"}, "simumax"),
        ({"sys_name": "a", "num_per_node": 8, "accelerator": {}, "networks": {}}, "simumax"),
        (ANALYSED, "llm-analysis"),
        (ANALYSED | {"model_type": "llama", "max_seq_len": 8}, "llm-analysis"),
        ({"weight_bits": 16, "activation_bits": 16, "embedding_bits": 16}, "llm-analysis"),
    ],
)  # fmt: skip
def test_each_kind_of_file_is_recognised(data: dict[str, Any], name: str) -> None:
    assert importer_of(source(data)).name == name


def test_an_execution_of_calculon_is_no_model_and_no_machine() -> None:
    assert set(said(EXECUTION).missing) == {"model", "cluster.topology"}
    assert set(said(EXECUTION, APPLICATION).missing) == {"cluster.topology"}


def test_calculon_counts_gpus_and_the_whole_batch() -> None:
    scenario = said(EXECUTION).scenario
    assert scenario["cluster"]["gpus"] == 64
    assert (scenario["training"]["global_batch"], scenario["training"]["micro_batch"]) == (64, 1)


def test_degrees_that_do_not_multiply_out_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"0.json:1: num_procs: 64 is not tensor_par x .* = 80"):
        said(EXECUTION | {"data_par": 5})


def test_an_execution_without_training_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"0.json:1: training: an execution without training"):
        said(EXECUTION | {"training": False})


def test_layers_that_simumax_has_padded_are_taken_and_told() -> None:
    imported = said(LLAMA | {"layer_num": 36, "kv_head_num": 16})
    assert imported.scenario["model"]["layers"] == 36
    assert [remark.words for remark in imported.warnings] == [
        "sizes are taken as they are written; llama-3-8b of the catalogue has layers 32, not 36, kv_heads 8, not 16"
    ]
    assert not said(LLAMA).warnings


def test_micro_batches_of_simumax_are_a_replicas() -> None:
    training = said(STRATEGY).scenario["training"]
    assert (training["micro_batch"], training["gradient_accumulation"]) == (1, 8)


def test_recomputation_of_no_layers_is_none() -> None:
    off = {"enable_recompute": True, "recompute_granularity": "full_block", "recompute_layer_num": 0}
    assert said(STRATEGY | off).scenario["training"]["recompute"] == "none"
    on = off | {"recompute_layer_num": 3}
    assert said(STRATEGY | on).scenario["training"]["recompute"] == {"mode": "full", "layers": 3}


def test_the_width_of_an_mlp_is_taken_as_llm_analysis_writes_it_and_told() -> None:
    imported = said(ANALYSED | {"ffn_embed_dim": 16384, "model_type": "llama", "name": "NousResearch_Llama-2-7b-hf"})
    assert imported.scenario["model"]["ffn_hidden"] == 16384
    assert [remark.key for remark in imported.warnings] == ["ffn_embed_dim", "name"]
    assert "llama-2-7b of the catalogue has ffn_hidden 11008, not 16384" in imported.warnings[1].words


def test_a_model_whose_name_lies_is_told() -> None:
    imported = said(ANALYSED | {"name": "bloom-175b", "num_layers": 96, "hidden_dim": 12288, "n_head": 96})
    assert any("bloom-176b of the catalogue has layers 70, not 96" in remark.words for remark in imported.warnings)


def test_a_gpu_is_taken_by_name_or_by_its_datasheet() -> None:
    gpu = {"name": "h100-sxm-80gb", "mem_per_GPU_in_GB": 80, "hbm_bandwidth_in_GB_per_sec": 3350,
           "intra_node_bandwidth_in_GB_per_sec": 450, "peak_fp16_TFLOPS": 989}  # fmt: skip
    assert said(gpu).scenario["cluster"]["gpu"] == "h100-sxm5-80gb"
    system = {"matrix": {"tflops": 312}, "vector": {"tflops": 78}, "mem1": {"GiB": 40}, "networks": []}
    assert said(system).scenario["cluster"]["gpu"] == "a100-sxm4-40gb"
    unknown = said(system | {"matrix": {"tflops": 12}})
    assert "gpu" not in unknown.scenario.get("cluster", {})
    assert any("--set cluster.gpu=NAME" in remark.words for remark in unknown.warnings)
