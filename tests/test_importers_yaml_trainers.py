"""What files of llm-foundry, GPT-NeoX and nanotron say that is easily misread, each with the answer."""

from pathlib import Path

import pytest

from trainsim.errors import ScenarioError
from trainsim.importers.imported import Imported
from trainsim.importers.importing import import_sources
from trainsim.importers.source import Source

MPT = "model: {name: mpt_causal_lm, d_model: 1024, n_heads: 16, n_layers: 24}\nmax_seq_len: 2048\n"
NEOX = "num-layers: 12\nhidden-size: 768\nnum-attention-heads: 12\npos-emb: rotary\nno-weight-tying: true\n"
NANOTRON = "general: {project: x}\noptimizer: {zero_stage: 0}\ntokens: {batch_accumulation_per_replica: 2}\n"


def said(text: str, name: str = "x.yaml") -> Imported:
    return import_sources([Source(shown=name, text=text, folder=Path())])


def words_of(imported: Imported, key: str) -> list[str]:
    return [remark.words for remark in imported.warnings if remark.key == key]


def test_variables_of_llm_foundry_have_their_values() -> None:
    text = "variables: {len: 4096, batch: 64}\nmodel: {name: mpt_causal_lm, max_seq_len: '${max_seq_len}'}\n"
    imported = said(f"{text}max_seq_len: ${{variables.len}}\nglobal_train_batch_size: ${{batch}}")
    assert imported.scenario["training"]["sequence_length"] == 4096
    assert imported.scenario["training"]["global_batch"] == 64
    assert imported.scenario["model"]["max_positions"] == 4096
    unknown = said(MPT + "global_train_batch_size: ${nobody.knows}\ndevice_train_microbatch_size: 4")
    assert words_of(unknown, "global_train_batch_size") == ["open: ${nobody.knows}: nothing is called nobody.knows"]


def test_a_micro_batch_that_is_found_when_it_runs_is_open() -> None:
    imported = said(MPT + "global_train_batch_size: 64\ndevice_train_microbatch_size: auto")
    assert "micro_batch" not in imported.scenario["training"]
    left = [remark.words for remark in imported.defaults if remark.key == "device_train_microbatch_size"]
    assert left[0].startswith("leaves training.micro_batch open")
    assert left[0].endswith("--set training.micro_batch=N")


def test_amp_is_autocast_over_fp32_weights() -> None:
    training = said(MPT + "global_train_batch_size: 64\nprecision: amp_bf16").scenario["training"]
    assert (training["precision"], training["autocast"]) == ("bf16", True)


@pytest.mark.parametrize(
    ("word", "sharding"),
    [
        ("FULL_SHARD", {"strategy": "fsdp"}),
        ("SHARD_GRAD_OP", {"strategy": "fsdp", "reshard_after_forward": False}),
        ("HYBRID_SHARD", {"strategy": "hsdp"}),
        ("NO_SHARD", {"strategy": "ddp"}),
    ],
)
def test_words_of_fsdp(word: str, sharding: dict[str, object]) -> None:
    text = f"{MPT}global_train_batch_size: 64\nfsdp_config: {{sharding_strategy: {word}}}"
    assert said(text).scenario["sharding"] == sharding


def test_without_fsdp_replicas_are_those_of_ddp() -> None:
    assert said(MPT + "global_train_batch_size: 64").scenario["sharding"] == {"strategy": "ddp"}


def test_an_mpt_without_words_has_learned_positions_and_biases() -> None:
    imported = said(MPT + "global_train_batch_size: 64")
    model = imported.scenario["model"]
    assert (model["positions"], model["biases"], model["vocab"]) == ("learned", "all", 50368)
    assert {"model.positions", "model.biases", "model.vocab"} <= {remark.key for remark in imported.defaults}


@pytest.mark.parametrize("spelling", ["pipe-parallel-size", "pipe_parallel_size"])
@pytest.mark.parametrize(("stages", "pp"), [(0, 1), (1, 1), (4, 4)])
def test_no_pipeline_and_one_stage_are_the_same(spelling: str, stages: int, pp: int) -> None:
    imported = said(f"{NEOX}{spelling}: {stages}")
    assert imported.scenario["parallel"]["pp"] == pp
    assert spelling in {remark.key for remark in imported.used}


def test_a_key_in_two_spellings_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"x.yaml:7: pipe_parallel_size: is already given as pipe-parallel-size"):
        said(f"{NEOX}pipe-parallel-size: 2\npipe_parallel_size: 4")


def test_accumulation_is_one_unless_it_is_given() -> None:
    imported = said(f"{NEOX}train_micro_batch_size_per_gpu: 4")
    assert imported.scenario["training"]["gradient_accumulation"] == 1
    assert any(remark.key == "training.gradient_accumulation" for remark in imported.defaults)
    assert said(f"{NEOX}train_micro_batch_size_per_gpu: 4\ngas: 8").scenario["training"]["gradient_accumulation"] == 8
    training = said(f"{NEOX}train_micro_batch_size_per_gpu: 4\ntrain_batch_size: 64").scenario["training"]
    assert "gradient_accumulation" not in training


def test_deepspeeds_keys_stand_at_the_top_level() -> None:
    text = "zero_optimization: {stage: 1, reduce_bucket_size: 5e8, overlap_comm: true}\nfp16: {enabled: true}"
    scenario = said(NEOX + text).scenario
    assert scenario["sharding"] == {"strategy": "zero1", "reduce_bucket": 500_000_000, "overlap": True}
    assert scenario["training"]["precision"] == "fp16"


def test_zero_2_in_a_pipeline_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"zero_optimization.stage: ZeRO-2 does not go with a pipeline of 2 stages"):
        said(f"{NEOX}pipe-parallel-size: 2\nzero_optimization: {{stage: 2}}")


def test_the_vocabulary_of_a_tokenizer_is_open() -> None:
    assert said(NEOX).missing["model.vocab"] == "add --set model.vocab=N"


def test_a_pipeline_of_nanotron_is_all_forward_all_backward_unless_it_says_so() -> None:
    imported = said(f"{NANOTRON}parallelism: {{dp: 2, tp: 1, pp: 4}}")
    assert imported.scenario["pipeline"]["schedule"] == "gpipe"
    text = f"{NANOTRON}parallelism: {{dp: 2, tp: 1, pp: 4, pp_engine: 1f1b}}"
    assert said(text).scenario["pipeline"]["schedule"] == "1f1b"


def test_degrees_of_nanotron_multiply_out_to_the_gpus() -> None:
    text = f"{NANOTRON}parallelism: {{dp: 4, tp: 2, pp: 2, expert_parallel_size: 4, context_parallel_size: 2}}"
    assert said(text).scenario["cluster"]["gpus"] == 32


def test_a_section_of_nanotron_that_stands_twice_counts_as_the_last_says() -> None:
    text = (
        "model:\n  model_config:\n    is_qwen2_config: true\n    moe_config: null\n    moe_config: {num_experts: 4}\n"
    )
    imported = said(f"{NANOTRON}parallelism: {{dp: 2, tp: 1, pp: 1}}\n{text}")
    assert imported.scenario["model"]["moe"]["experts"] == 4
    assert words_of(imported, "model.model_config.moe_config")[0].startswith("appears twice, first in line 8")
