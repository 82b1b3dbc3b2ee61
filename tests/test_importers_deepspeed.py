"""Configurations of DeepSpeed: what people trip over, one test each."""

import json
from typing import Any

import pytest

from trainsim.errors import TrainsimError
from trainsim.importers.imported import Imported
from trainsim.importers.importing import import_sources
from trainsim.importers.source import Source

MACHINE = {"model": "llama-2-7b", "cluster.topology": "dgx_a100", "cluster.nodes": 1}
SMALL = MACHINE | {"model": "gpt2", "training.sequence_length": 512}


def imported(config: dict[str, Any] | str, changes: dict[str, Any] | None = None, name: str = "ds.json") -> Imported:
    text = config if isinstance(config, str) else json.dumps(config, indent=1)
    return import_sources([Source(shown=name, text=text)], changes)


def zero(stage: int, **keys: Any) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": stage, **keys},
    }


def told(result: Imported, key: str) -> str:
    kinds = ("used", "ignored", "warnings", "defaults")
    return " | ".join(r.words for kind in kinds for r in getattr(result, kind) if r.key == key)


def test_buckets_are_elements_of_which_two_live_at_once_under_overlap() -> None:
    peak = [
        imported(zero(2, reduce_bucket_size=size, overlap_comm=True), SMALL).complete.run().memory.peak
        for size in (1e6, 101e6)
    ]
    assert imported(zero(2, reduce_bucket_size=5e8)).scenario["sharding"]["reduce_bucket"] == 500_000_000
    assert peak[1] - peak[0] >= 2 * 2 * 50e6  # two buffers of 16-bit numbers, as far as 124M gradients fill them


def test_auto_follows_the_rule_of_the_trainer_and_needs_the_model() -> None:
    automatic = dict.fromkeys(
        ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"), "auto"
    )
    result = imported(zero(3, **automatic), MACHINE)
    resolved = result.complete.resolved["sharding"]
    assert result.scenario["framework"] == "transformers-deepspeed"
    assert [resolved[k] for k in ("reduce_bucket", "prefetch_bucket", "persistence_threshold")] == [
        4096**2,
        int(0.9 * 4096**2),
        10 * 4096,
    ]
    with pytest.raises(TrainsimError, match="no file sets model"):
        _ = imported(zero(3, **automatic)).complete


def test_auto_of_a_batch_is_left_open_and_told() -> None:
    result = imported(zero(2) | {"train_batch_size": "auto", "gradient_accumulation_steps": "auto"}, MACHINE)
    assert "global_batch" not in result.scenario["training"]
    assert "leaves training.global_batch open" in told(result, "train_batch_size")


def test_auto_where_the_trainer_has_no_rule_is_deepspeeds_default() -> None:
    result = imported(zero(3, stage3_max_live_parameters="auto", sub_group_size="auto", overlap_comm="auto"))
    assert set(result.scenario["sharding"]) == {"strategy"}
    assert all(
        "DeepSpeed's own default" in told(result, f"zero_optimization.{k}") for k in ("sub_group_size", "overlap_comm")
    )


@pytest.mark.parametrize("key", ["offload_param", "offload_optimizer"])
def test_offload_beside_the_section_offloads_nothing_and_says_so(key: str) -> None:
    result = imported(zero(3) | {key: {"device": "cpu"}})
    assert "offload" not in result.scenario["sharding"]
    assert any(r.key == key and "nothing is offloaded" in r.words for r in result.warnings)


def test_without_zero_it_is_stage_0_and_the_accumulation_follows_from_the_degrees() -> None:
    config = {"train_batch_size": 256, "train_micro_batch_size_per_gpu": 8, "fp16": {"enabled": True}}
    for pp, micro_batches in ((1, 4), (2, 8), (4, 16)):
        result = imported(config, SMALL | {"parallel.pp": pp})
        assert result.scenario["sharding"]["strategy"] == "ddp"
        assert result.complete.resolve().training.microbatches == micro_batches


def test_of_three_batch_sizes_any_may_be_missing_and_all_must_agree() -> None:
    two = {"train_batch_size": 64, "gradient_accumulation_steps": 4, "bf16": {"enabled": True}}
    assert imported(two, SMALL).complete.resolved["training"]["micro_batch"] == 2
    with pytest.raises(TrainsimError, match=r"ds.json:\d+: (train|gradient)_"):
        imported(two | {"train_micro_batch_size_per_gpu": 3}, SMALL).complete.resolve()


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("stage3_param_persitence_threshold", "stage3_param_persistence_threshold"),
        ("stage3_prefetch_bucket", "stage3_prefetch_bucket_size"),
        ("offload_optimiser", "offload_optimizer"),
    ],
)
def test_a_misspelt_key_is_told_with_the_one_that_was_meant(key: str, meant: str) -> None:
    assert f"did you mean zero_optimization.{meant}" in told(imported(zero(3, **{key: 5})), f"zero_optimization.{key}")


def test_old_spellings_mean_what_the_new_ones_do() -> None:
    old = imported(zero(3, cpu_offload=True, cpu_offload_params=True, stage3_gather_fp16_weights_on_model_save=True))
    new = imported(zero(3, offload_optimizer={"device": "cpu"}, offload_param={"device": "cpu"}))
    assert old.scenario == new.scenario
    spelled = imported({"fp16": {"enabled": True, "type": "bfloat16"}, "zero_optimization": True})
    assert spelled.scenario["training"]["precision"] == "bf16"


@pytest.mark.parametrize("stage", [2, 3])
def test_zero_2_and_3_in_a_pipeline_are_refused_at_the_users_own_key(stage: int) -> None:
    with pytest.raises(TrainsimError, match=r"ds.json:7: zero_optimization.stage: .*pp"):
        imported(zero(stage), SMALL | {"parallel.pp": 2}).complete.resolve()
    assert imported(zero(1), SMALL | {"parallel.pp": 2}).complete.resolve()


def test_the_second_copy_of_parameters_is_of_ranks_and_1_is_off() -> None:
    result = imported(zero(3, zero_hpz_partition_size=16))
    assert result.scenario["sharding"]["secondary_partition"] == 16
    assert "on nodes with fewer than 16 GPUs" in told(result, "zero_optimization.zero_hpz_partition_size")
    for ranks, crosses in ((8, False), (16, True)):
        changes = SMALL | {"cluster.nodes": 4}
        derived = imported(zero(3, zero_hpz_partition_size=ranks), changes).complete.resolved["derived"]
        assert ("cross nodes" in derived.get("sharding.secondary_partition", "")) == crosses
    off = imported(zero(3, zero_hpz_partition_size=1))
    assert "secondary_partition" not in off.scenario["sharding"]


def test_a_part_of_the_optimizer_on_the_host_is_for_stage_3() -> None:
    part = {"device": "cpu", "ratio": 0.3}
    assert imported(zero(3, offload_optimizer=part)).scenario["sharding"]["offload"] == {
        "optimizer": "cpu",
        "ratio": 0.3,
    }
    assert imported(zero(2, offload_optimizer=part)).scenario["sharding"]["offload"] == {"optimizer": "cpu"}
    assert "offload" not in imported(zero(3, offload_optimizer=part | {"ratio": 0.0})).scenario["sharding"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n"train_batch_size": CONFIG_BATCH_SIZE\n}', "ds.json:2: .*CONFIG_BATCH_SIZE is a placeholder"),
        ('{\n"zero_optimization": {\n"stage": 3,\n}\n}', "ds.json:3: .*comma|ds.json:4: .*comma"),
        ('{\n"train_batch_size": 8\n"fp16": {}\n}', "ds.json:3: .*delimiter"),
        ('{\n"train_batch_size": 8, // per step\n"fp16": {}}', "ds.json:2: .*no comments"),
        ('{\n"train_batch_size": 8,\n...\n}', "ds.json:3: .*double quotes|left out"),
        ('{\n"zero_optimization": {"stage": 3, "overlap_comm": True}}', "ds.json:2: .*Python's word: JSON has true"),
        ("{\n'zero_optimization': {'stage': 3}}", "ds.json:2: .*double quotes"),
        ('{\n"zero_optimization": {"stage": [1, 2, 3]}}', r"ds.json:2: zero_optimization.stage: .*\[1, 2, 3\]; a list"),
        ('{"zero_optimization": {\n"stage": 3,\n"reduce_bucket_size": [5e7, 5e8]}}', "ds.json:3: .*a list is for"),
        ('{"zero_optimization": {"stage": 3}, "zero_optimization": {"stage": 2}}', "stands twice"),
        ('{"zero_optimization": {\n"stage": 4}}', "ds.json:2: zero_optimization.stage: there are stages 0 to 3"),
        ('{"zero_optimization": [3]}', "expected a mapping"),
        ('{"zero_optimization": {"stage": 2, "reduce_bucket_size": 2.5}}', "expected a whole number"),
        ('{"zero_optimization": {"stage": 2}, "fp16": {"enabled": true}, "bf16": {"enabled": true}}', "one of them"),
    ],
)  # fmt: skip
def test_what_is_no_configuration_is_refused_with_line_and_reason(text: str, message: str) -> None:
    with pytest.raises(TrainsimError, match=message):
        imported(text)


def test_live_parameters_bound_what_is_gathered_ahead_in_elements() -> None:
    changes = SMALL | {"model": "gpt2-xl"}
    sizes = {"stage3_prefetch_bucket_size": 5e8, "stage3_max_reuse_distance": 0}
    peaks = [
        imported(zero(3, stage3_max_live_parameters=live, **sizes), changes).complete.run().memory.peak
        for live in (5e7, 1e9)
    ]
    assert peaks[1] - peaks[0] > 2 * 3e8


def test_underscores_and_exponents_of_yaml_are_numbers() -> None:
    text = "zero_optimization: {stage: 2, reduce_bucket_size: 500_000_000}\ntrain_batch_size: 8\n"
    assert imported(text, name="ds.yaml").scenario["sharding"]["reduce_bucket"] == 500_000_000
    text = 'zero_optimization: {stage: 2, reduce_bucket_size: "5_000"}\ntrain_batch_size: 8\n'
    assert imported(text, name="ds.yaml").scenario["sharding"]["reduce_bucket"] == 5000


def test_fp32_messages_take_longer_and_fp32_sums_more_memory() -> None:
    plain = imported(zero(2), SMALL).complete.run()
    wide = imported(zero(2) | {"communication_data_type": "fp32"}, SMALL).complete.run()
    summed = imported(zero(2) | {"data_types": {"grad_accum_dtype": "fp32"}}, SMALL).complete.run()
    assert wide.step_time > plain.step_time
    assert summed.memory.peak > plain.memory.peak


def test_a_configuration_inside_of_another_file_is_found() -> None:
    text = "deepspeed:\n  train_batch_size: 8\n  zero_optimization:\n    stage: 2\n    reduce_bucket: 5\n"
    result = imported(text, name="job.yaml")
    assert result.scenario["sharding"]["strategy"] == "zero2"
    assert "did you mean" in told(result, "deepspeed.zero_optimization.reduce_bucket")
    with pytest.raises(TrainsimError, match=r"job.yaml:4: deepspeed.zero_optimization.stage"):
        imported(text.replace("stage: 2", "stage: 8"), name="job.yaml")


def test_zero_1_with_fp32_sums_in_bf16_is_another_optimizer() -> None:
    result = imported(zero(1) | {"data_types": {"grad_accum_dtype": "fp32"}})
    assert result.scenario["framework"] == "deepspeed-bf16"
    assert "BF16_Optimizer" in told(result, "framework")


def test_neither_16_bit_type_is_single_precision_and_told() -> None:
    result = imported({"zero_optimization": {"stage": 1}, "train_batch_size": 8})
    assert result.scenario["training"]["precision"] == "fp32"
    assert "neither bf16 nor fp16" in told(result, "training.precision")


@pytest.mark.parametrize("section", ["curriculum_learning", "progressive_layer_drop", "elasticity", "autotuning"])
def test_sections_that_change_a_step_count_where_they_are_on(section: str) -> None:
    on, off = (imported(zero(1) | {section: {"enabled": value, "theta": 0.5}}) for value in (True, False))
    assert section in {r.key for r in on.warnings}
    assert section not in {r.key for r in off.warnings}
