"""NeMo's YAML as scenarios: the same words in two dialects, and interpolation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.importing import CASES
from trainsim.errors import ScenarioError
from trainsim.importers.formats.megatron_arguments import meaning
from trainsim.importers.imported import Imported
from trainsim.importers.importing import import_config, import_sources, importer_of
from trainsim.importers.source import Source
from trainsim.importers.tables import table

OLD = (
    "trainer: {devices: 8, num_nodes: 2, precision: bf16}\nmodel:\n  num_layers: 16\n  hidden_size: 1024\n"
    "  num_attention_heads: 16\n  encoder_seq_length: 2048\n  micro_batch_size: 1\n  global_batch_size: 64\n"
)
NEW = (
    "model:\n  num_layers: 16\n  hidden_size: 1024\n  num_attention_heads: 16\n  seq_length: 2048\n"
    "  vocab_size: 32000\n"
    "train: {micro_batch_size: 1, global_batch_size: 64}\nddp: {use_distributed_optimizer: true}\n"
)


def of(text: str, changes: dict[str, Any] | None = None) -> Imported:
    return import_sources([Source(shown="conf.yaml", text=text)], changes)


def at(imported: Imported, key: str) -> Any:
    here: Any = imported.scenario
    for part in key.split("."):
        here = here.get(part) if isinstance(here, dict) else None
    return here


def test_a_sum_of_other_values_is_done() -> None:
    imported = import_config(CASES / "nemo" / "large_nemo_1" / "pretraining.yaml")
    assert at(imported, "training.global_batch") == 72 * 28
    assert at(imported, "model.ffn_hidden") == 16384 * 13 // 4
    assert at(imported, "model.max_positions") == 8192
    assert at(imported, "cluster.gpus") == 576


def test_virtual_stages_count_chunks() -> None:
    imported = of(f"{OLD}  pipeline_model_parallel_size: 2\n  virtual_pipeline_model_parallel_size: 4\n")
    assert imported.scenario["pipeline"] == {"chunks": 4}


@pytest.mark.parametrize(
    ("lines", "key", "value"),
    [
        ("activation: fast-swiglu", "model.activation", "silu"),
        ("activation: geglu", "model.gated_mlp", True),
        ("activation: squared-relu", "model.activation", "relu2"),
        ("activation: gelu", "model.gated_mlp", False),
        ("bias: false", "model.biases", "none"),
        ("bias: true", "model.biases", "all"),
        ("normalization: layernorm1p", "model.norm", "layernorm1p"),
        ("normalization: rmsnorm", "model.norm", "rmsnorm"),
        ("share_embeddings_and_output_weights: false", "model.tied_embeddings", False),
        ("num_query_groups: 4", "model.kv_heads", 4),
        ("num_query_groups: null", "model.kv_heads", None),
        ("fp8: true", "training.precision", "fp8"),
        ("fp8: false", "training.precision", "bf16"),
        ("optim: {name: fused_adam}", "sharding.strategy", "ddp"),
        ("optim: {name: mcore_distributed_optim}", "sharding.strategy", "zero1"),
        ("optim: {name: distributed_fused_adam, grad_sync_dtype: bf16}", "training.gradients", "bf16"),
        ("optim: {name: distributed_fused_adam, grad_sync_dtype: fp32}", "training.gradients", "fp32"),
        ("use_flash_attention: false", "training.attention", "eager"),
        ("tensor_model_parallel_size: 2", "training.tp_overlap", "wgrad"),
        ("fsdp: true\n  fsdp_sharding_strategy: hybrid", "sharding.strategy", "hsdp"),
        ("fsdp: true\n  fsdp_sharding_strategy: full", "sharding.strategy", "fsdp"),
        ("fsdp: true\n  fsdp_sharding_strategy: grad", "sharding.reshard_after_forward", False),
        ("fsdp: false\n  fsdp_sharding_strategy: full", "sharding.strategy", "zero1"),
        ("make_vocab_size_divisible_by: 256", "framework.kernels.vocab_multiple", 256),
        ("tokenizer: {type: meta-llama/Llama-3.1-8B}", "model.vocab", 128256),
    ],
)
def test_words_of_nemo_1(lines: str, key: str, value: Any) -> None:
    if "fsdp" in lines:
        lines += "\n  optim: {name: mcore_distributed_optim}"
    assert at(of(f"{OLD}  {lines}\n"), key) == value


@pytest.mark.parametrize(
    ("lines", "key", "value"),
    [
        ("mixed_precision: bf16_mixed", "training.precision", "bf16"),
        ("mixed_precision: {bf16: true, fp8: e4m3, fp8_recipe: mxfp8}", "training.precision", "mxfp8"),
        ("comm_overlap: {overlap_moe_expert_parallel_comm: true}", "training.moe_overlap", True),
        ("dist: {use_tp_pp_dp_mapping: true}", "parallel.order", ["tp", "cp", "ep", "pp", "dp"]),
        ("optimizer: {optimizer: sgd}", "training.optimizer", "sgd-momentum"),
    ],
)
def test_words_of_megatron_bridge(lines: str, key: str, value: Any) -> None:
    assert at(of(f"{NEW}{lines}\n"), key) == value


def test_both_dialects_and_megatrons_arguments_say_the_same() -> None:
    from_old = of(OLD.replace("trainer:", "x: 0\ntrainer:").replace("x: 0\n", "") + "  bias: false\n")
    from_new = of(
        NEW.replace("  vocab_size: 32000\n", "  add_bias_linear: false\n") + "mixed_precision: {bf16: true}\n"
    )
    arguments = "--num-layers 16 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --micro-batch-size 1"
    text = f"torchrun pretrain_gpt.py {arguments} --global-batch-size 64 --bf16 --disable-bias-linear\n"
    theirs = import_sources([Source(shown="run.sh", text=text)])
    for section in ("model", "training"):
        assert from_old.scenario[section] == from_new.scenario[section] == theirs.scenario[section]


def test_values_that_only_the_environment_has_are_told() -> None:
    imported = of(OLD.replace("num_layers: 16", "num_layers: ${oc.env:LAYERS}"))
    assert "LAYERS" in {remark.key: remark.words for remark in imported.warnings}["model.num_layers"]
    assert "model.layers" in imported.missing


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{OLD}  normalization: groupnorm\n", "model.normalization: 'groupnorm' is not known"),
        (f"{OLD}  activation: mish\n", "conf.yaml:9: model.activation: 'mish' is not known"),
        (OLD.replace("bf16", "int4"), "conf.yaml:1: trainer.precision: int4 is not known"),
        (OLD.replace("num_layers: 16", "num_layers: [1]"), "conf.yaml:3: model.num_layers: expected a whole number"),
        (f"{OLD}  virtual_pipeline_model_parallel_size: 2\n", "virtual stages need"),
    ],
)
def test_what_cannot_be_is_refused_with_file_line_and_key(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        of(text)
    assert message in str(caught.value)


def test_every_entry_of_the_tables_is_an_argument_of_megatron() -> None:
    for name in ("nemo", "bridge"):
        assert [argument for argument in table("nemo")[name] if meaning(f"--{argument}") is None] == []


def test_files_are_told_from_those_of_others() -> None:
    assert importer_of(Source(shown="a.yaml", text=OLD)).name == "nemo"
    assert importer_of(Source(shown="a.yaml", text=NEW)).name == "nemo"
