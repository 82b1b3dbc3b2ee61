"""Configurations of accelerate and of the tools for fine-tuning: what people trip over, one test each."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from trainsim.errors import TrainsimError
from trainsim.importers.adapters import TARGETS
from trainsim.importers.hub import catalogue_name
from trainsim.importers.imported import Imported
from trainsim.importers.importing import import_config, import_sources
from trainsim.importers.source import Source
from trainsim.models.adapters import members
from trainsim.models.known import model_names

MACHINE = {"model": "gpt2-xl", "cluster.topology": "dgx_a100", "training.global_batch": 64}
LLAMA = {"model_name_or_path": "meta-llama/Llama-2-7b-hf", "template": "llama2", "cutoff_len": 1024, "stage": "sft"}
AXOLOTL = {"base_model": "meta-llama/Llama-2-7b-hf", "sequence_len": 1024, "micro_batch_size": 2, "datasets": []}
TRL = {"model_name_or_path": "gpt2", "dataset_name": "d", "per_device_train_batch_size": 2, "output_dir": "out"}


def imported(config: dict[str, Any], changes: dict[str, Any] | None = None) -> Imported:
    return import_sources([Source(shown="own.yaml", text=yaml.safe_dump(config))], changes)


def fsdp(processes: int = 8, **keys: Any) -> dict[str, Any]:
    inner = {f"fsdp_{name}": value for name, value in keys.items()}
    return {"distributed_type": "FSDP", "num_processes": processes, "mixed_precision": "bf16", "fsdp_config": inner}


def told(result: Imported, key: str) -> str:
    kinds = ("used", "ignored", "warnings", "defaults")
    return " | ".join(r.words for kind in kinds for r in getattr(result, kind) if r.key == key)


@pytest.mark.parametrize(
    ("word", "number", "strategy", "kept"),
    [("FULL_SHARD", 1, "fsdp", None), ("SHARD_GRAD_OP", 2, "fsdp", False), ("NO_SHARD", 3, "ddp", None),
     ("HYBRID_SHARD", 4, "hsdp", None), ("HYBRID_SHARD_ZERO2", 5, "hsdp", False)],
)  # fmt: skip
def test_a_strategy_is_a_word_or_a_number_and_stands_under_either_spelling(
    word: str, number: int, strategy: str, kept: bool | None
) -> None:
    ways = [{"sharding_strategy": word}, {"sharding_strategy": number}, {"sharding_strategy": str(number)},
            {"reshard_after_forward": word}, {"sharding_strategy": word.lower()}]  # fmt: skip
    for way in ways:
        found = imported(fsdp(**way)).scenario["sharding"]
        assert (found["strategy"], found.get("reshard_after_forward")) == (strategy, kept), way


def test_a_number_that_is_no_strategy_is_refused_with_the_choices() -> None:
    with pytest.raises(TrainsimError, match=r"7 is not a valid choice; choose from 1 FULL_SHARD, 2"):
        imported(fsdp(sharding_strategy=7))


def test_replicas_of_groups_that_share_multiply_to_the_degree_of_data_parallelism() -> None:
    degrees = {"dp_replicate_size": 2, "dp_shard_size": 2, "tp_size": 2}
    config = fsdp(version=2, auto_wrap_policy="TRANSFORMER_BASED_WRAP") | {
        "parallelism_config": {f"parallelism_config_{name}": size for name, size in degrees.items()}
    }
    job = imported(config, {"model": "gpt2-medium", "cluster.topology": "dgx_a100"}).complete.resolve()
    assert (job.parallel.dp, job.parallel.tp, job.parallel.ranks) == (4, 2, 8)
    assert (job.sharding.strategy, job.sharding.options["shard_size"]) == ("hsdp", 2)


def test_only_the_group_that_shares_gathers_parameters() -> None:
    config = fsdp(version=2, auto_wrap_policy="TRANSFORMER_BASED_WRAP")
    whole = imported(config, MACHINE | {"cluster.nodes": 2, "cluster.gpus": 16}).complete.run()
    parts = {"parallelism_config_dp_replicate_size": 2, "parallelism_config_dp_shard_size": 8}
    config |= {"parallelism_config": parts, "num_processes": 16}
    hybrid = imported(config, MACHINE | {"cluster.nodes": 2}).complete.run()
    assert hybrid.memory.peak > whole.memory.peak  # shares are an eighth and not a sixteenth


def test_without_a_policy_the_model_is_one_unit() -> None:
    assert imported(fsdp()).scenario["sharding"]["units"] == "model"
    assert imported(fsdp(auto_wrap_policy="NO_WRAP")).scenario["sharding"]["units"] == "model"
    assert imported(fsdp(auto_wrap_policy=1)).scenario["sharding"]["units"] == "layers"
    assert "whole model" in told(imported(fsdp()), "sharding.units")


def test_no_is_a_word_and_a_truth_value_of_yaml() -> None:
    for no in ("no", False):
        config = fsdp() | {"mixed_precision": no}
        assert imported(config).scenario["training"]["precision"] == "fp32"


def test_precision_of_the_script_wins_over_no() -> None:
    script = Source(shown="sft.yaml", text=yaml.safe_dump(TRL | {"bf16": True}))
    config = Source(shown="acc.yaml", text=yaml.safe_dump(fsdp() | {"mixed_precision": "no"}))
    assert import_sources([config, script]).scenario["training"]["precision"] == "bf16"


def test_processes_are_all_gpus_and_have_to_divide_by_machines() -> None:
    config = {"distributed_type": "MULTI_GPU", "num_processes": 12, "num_machines": 5}
    with pytest.raises(TrainsimError, match=r"12 processes are not divisible by num_machines=5"):
        imported(config)


@pytest.mark.parametrize("kind", ["TPU", "XLA", "MULTI_CPU", "MULTI_NPU"])
def test_other_machines_are_refused(kind: str) -> None:
    with pytest.raises(TrainsimError, match=f"{kind} are not simulated"):
        imported({"distributed_type": kind, "num_processes": 8})


def test_a_file_that_is_named_is_read_and_one_that_is_missing_is_told(tmp_path: Path) -> None:
    config = {
        "distributed_type": "DEEPSPEED",
        "num_processes": 4,
        "deepspeed_config": {"deepspeed_config_file": "z.json"},
    }
    (tmp_path / "acc.yaml").write_text(yaml.safe_dump(config))
    missing = import_config(tmp_path / "acc.yaml")
    assert any("z.json, which does not exist" in r.words for r in missing.warnings)
    (tmp_path / "z.json").write_text('{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}')
    assert import_config(tmp_path / "acc.yaml").scenario["sharding"]["strategy"] == "zero2"


def test_names_of_the_hub_are_models_of_the_catalogue() -> None:
    data = yaml.safe_load((Path(__file__).parents[1] / "trainsim/importers/hub_names.yaml").read_text())
    assert set(data["models"]) <= set(model_names())
    spelled = [name.casefold() for names in data["models"].values() for name in names]
    assert len(spelled) == len(set(spelled))
    assert catalogue_name("/data/models/Llama-2-7b-chat-hf/") == "llama-2-7b"
    assert catalogue_name("ours/unknown-7b") is None


@pytest.mark.parametrize(
    "config", [LLAMA | {"model_name_or_path": "ours/new-3b"}, AXOLOTL | {"base_model": "ours/new-3b"}]
)
def test_a_model_that_nobody_knows_needs_its_config(config: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(config))
    result = import_config(tmp_path / "own.yaml")
    assert any("new-3b/config.json, which does not exist" in r.words for r in result.warnings)
    with pytest.raises(TrainsimError, match="no file sets model"):
        _ = result.complete
    sizes = '{"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,'
    (tmp_path / "config.json").write_text(sizes + ' "intermediate_size": 512, "vocab_size": 1000}')
    both = import_config([tmp_path / "own.yaml", tmp_path / "config.json"])
    assert both.scenario["model"]["layers"] == 2


def test_a_model_in_a_folder_is_read_from_its_config(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    sizes = '{"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4,'
    (tmp_path / "base/config.json").write_text(sizes + ' "intermediate_size": 512, "vocab_size": 1000}')
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(LLAMA | {"model_name_or_path": "base"}))
    assert import_config(tmp_path / "own.yaml").scenario["model"]["layers"] == 3


def test_adapters_are_on_modules_that_a_scenario_knows() -> None:
    for target in set(TARGETS.values()):
        assert members(target, gated=True) or members(target, gated=False)


def test_all_targets_are_every_linear_layer_with_an_adapter_of_its_own() -> None:
    every = {"model.lora.targets": ["q", "k", "v", "o", "gate", "up", "down"]}
    machine = {"cluster.topology": "dgx_a100", "cluster.nodes": 1}
    config = LLAMA | {"lora_target": "all", "bf16": True}
    one, other = (imported(config, machine | more).complete.resolve() for more in ({}, every))
    assert one.model.parameters == other.model.parameters


@pytest.mark.parametrize(("bits", "stored"), [(4, "nf4"), (8, "int8")])
def test_quantised_weights_are_those_under_adapters(bits: int, stored: str) -> None:
    config = LLAMA | {"quantization_bit": bits, "finetuning_type": "lora"}
    assert imported(config).scenario["model"]["lora"]["base_dtype"] == stored
    with pytest.raises(TrainsimError, match="quantization_bit: quantised weights are for finetuning_type: lora"):
        imported(config | {"finetuning_type": "full"})


def test_llama_factory_recomputes_by_itself_and_the_trainer_does_not() -> None:
    assert imported(LLAMA).scenario["training"]["recompute"] == "full"
    assert imported(LLAMA | {"disable_gradient_checkpointing": True}).scenario["training"]["recompute"] == "none"
    plain = {"per_device_train_batch_size": 2, "output_dir": "out", "fp16": True}
    assert "recompute" not in imported(plain).scenario["training"]
    assert imported(TRL).scenario["training"]["recompute"] == "full"


def test_packed_documents_leave_their_lengths_open_until_somebody_says_them() -> None:
    config = AXOLOTL | {"sample_packing": True, "bf16": True}
    assert "training.documents open" in told(imported(config), "sample_packing")
    assert "open" not in told(imported(config, {"training.documents": 300}), "sample_packing")


def test_deepspeed_in_the_place_of_its_file_names_the_line_of_its_own_key() -> None:
    config = AXOLOTL | {"deepspeed": {"zero_optimization": {"stage": 9}}}
    with pytest.raises(TrainsimError, match=r"own.yaml:\d+: deepspeed.zero_optimization.stage: there are stages"):
        imported(config)
    unknown = imported(AXOLOTL | {"deepspeed": {"zero_optimization": {"stage": 2, "ofload_param": 1}}})
    assert "did you mean" in told(unknown, "deepspeed.zero_optimization.ofload_param")


@pytest.mark.parametrize("words", ["full_shard auto_wrap", ["full_shard", "auto_wrap"]])
def test_fsdp_is_a_text_or_a_list(words: Any) -> None:
    found = imported(TRL | {"fsdp": words}).scenario["sharding"]
    assert (found["strategy"], found["units"]) == ("fsdp", "layers")
    with pytest.raises(TrainsimError, match="'full_shrad' is not known"):
        imported(TRL | {"fsdp": "full_shrad"})


def test_several_updates_after_a_rollout_are_told() -> None:
    actor = {"ppo_mini_batch_size": 64, "ppo_micro_batch_size_per_gpu": 2}
    config = {
        "actor_rollout_ref": {"actor": actor, "model": {"path": "gpt2"}, "rollout": {"n": 4}},
        "data": {"train_batch_size": 256},
    }
    result = imported(config)
    assert result.scenario["training"]["global_batch"] == result.scenario["training"]["rollout"]["samples"] == 1024
    assert "4 updates after a rollout" in told(result, "actor_rollout_ref.actor.ppo_mini_batch_size")


def test_values_that_stand_elsewhere_are_looked_up() -> None:
    config = {
        "actor_rollout_ref": {"rollout": {"prompt_length": "${data.max_prompt_length}", "name": "???"}},
        "data": {"max_prompt_length": 333},
    }
    result = imported(config)
    assert result.scenario["training"]["rollout"]["prompt_length"] == 333
    assert "has to be given" in told(result, "actor_rollout_ref.rollout.name")
