"""What torchtitan's files say that is easily misread, each with the answer."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from trainsim.errors import ScenarioError
from trainsim.importers.imported import Imported
from trainsim.importers.importing import import_sources
from trainsim.importers.source import Source

LLAMA = '[model]\nname = "llama3"\nflavor = "8B"\n'


def titan(text: str, changes: dict[str, Any] | None = None) -> Imported:
    return import_sources([Source(shown="train.toml", text=LLAMA + text, folder=Path())], changes)


@pytest.mark.parametrize(
    "text",
    [
        "[training]\nbatch_size = 2\ntensor_parallel_degree = 4\n[experimental]\npipeline_parallel_degree = 2",
        "[training]\nlocal_batch_size = 2\n[parallelism]\ntensor_parallel_degree = 4\npipeline_parallel_degree = 2",
        "[training]\nlocal_batch_size = 2\ntensor_parallel_degree = 4\npipeline_parallel_degree = 2",
    ],
)
def test_old_and_new_names_say_the_same(text: str) -> None:
    said = titan(text).scenario
    assert (said["parallel"]["tp"], said["parallel"]["pp"]) == (4, 2)
    assert (said["training"]["micro_batch"], said["training"]["gradient_accumulation"]) == (1, 2)


def test_two_names_of_one_key_are_told() -> None:
    imported = titan("[training]\nbatch_size = 4\nlocal_batch_size = 8")
    assert imported.scenario["training"]["micro_batch"] == 8
    assert [r.words for r in imported.ignored if r.key == "training.batch_size"] == [
        "an older name of training.local_batch_size, which is in the file as well"
    ]


def test_a_shard_degree_of_minus_one_is_whatever_is_left() -> None:
    imported = titan("[parallelism]\ndata_parallel_shard_degree = -1\ntensor_parallel_degree = 4")
    assert "dp" not in imported.scenario["parallel"]
    assert "gpus" not in imported.scenario.get("cluster", {})
    changes = {"cluster.topology": "dgx_h100", "cluster.nodes": 2, "framework": "torchtitan"}
    titan_ = titan("[parallelism]\ndata_parallel_shard_degree = -1\ntensor_parallel_degree = 4", changes)
    assert titan_.complete.resolve().parallel.dp == 4


def test_replicas_times_shards_are_the_data_parallel_ranks() -> None:
    """HSDP: only ranks of a shard group gather parameters from each other."""
    said = titan("[parallelism]\ndata_parallel_replicate_degree = 4\ndata_parallel_shard_degree = 8").scenario
    assert said["parallel"]["dp"] == 32
    assert (said["sharding"]["strategy"], said["sharding"]["shard_size"]) == ("hsdp", 8)
    assert said["cluster"]["gpus"] == 32


def test_with_an_open_shard_degree_the_group_of_hsdp_is_open_and_told() -> None:
    imported = titan("[parallelism]\ndata_parallel_replicate_degree = 4")
    assert "shard_size" not in imported.scenario["sharding"]
    assert any("--set sharding.shard_size" in remark.words for remark in imported.warnings)


def test_replicas_without_shards_are_ddp_under_autocast() -> None:
    said = titan("[parallelism]\ndata_parallel_replicate_degree = 8\ndata_parallel_shard_degree = 1").scenario
    assert said["sharding"]["strategy"] == "ddp"
    assert said["training"]["autocast"] is True


def test_a_local_batch_holds_all_micro_batches() -> None:
    said = titan("[training]\nlocal_batch_size = 8\n[parallelism]\npipeline_parallel_degree = 4").scenario["training"]
    assert (said["micro_batch"], said["gradient_accumulation"]) == (1, 8)


def test_files_of_2024_have_as_many_micro_batches_as_stages() -> None:
    text = "[training]\nbatch_size = 8\n[experimental]\npipeline_parallel_degree = 4"
    said = titan(text).scenario["training"]
    assert (said["micro_batch"], said["gradient_accumulation"]) == (2, 4)
    said = titan(f"{text}\npipeline_parallel_microbatches = 8").scenario["training"]
    assert (said["micro_batch"], said["gradient_accumulation"]) == (1, 8)


def test_layers_are_dealt_as_torchtitan_does() -> None:
    """32 layers, embedding and head as one more each: 34 on 4 stages are 9, 9, 8 and 8."""
    imported = titan("[parallelism]\npipeline_parallel_degree = 4")
    assert imported.scenario["pipeline"]["layout"] == [8, 9, 8, 7]


def test_split_points_begin_a_stage() -> None:
    text = '[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_split_points = ["layers.12"]'
    assert titan(text).scenario["pipeline"]["layout"] == [12, 20]
    with pytest.raises(ScenarioError, match=r"train.toml:6: parallelism.pipeline_parallel_split_points: 3 stages"):
        titan(text.replace('"layers.12"', '"layers.12", "layers.20"'))


@pytest.mark.parametrize(
    ("text", "recompute"),
    [
        ('mode = "none"', "none"),
        ('mode = "full"', "full"),
        ('mode = "selective"', {"mode": "full", "every": 2}),
        ('mode = "selective"\nselective_ac_option = "4"', {"mode": "full", "every": 4}),
        ('mode = "selective"\nselective_ac_option = "op"', {"mode": "selective", "policy": "op"}),
    ],
)
def test_selective_means_every_other_layer_or_operations(text: str, recompute: Any) -> None:
    assert titan(f"[activation_checkpoint]\n{text}").scenario["training"]["recompute"] == recompute


def test_an_overlap_that_needs_the_compiler_is_not_taken_without_it() -> None:
    text = "[parallelism]\ntensor_parallel_degree = 8\nenable_async_tensor_parallel = true\n"
    assert titan(text).scenario["training"]["tp_overlap"] == "none"
    assert titan(f"{text}[compile]\nenable = true").scenario["training"]["tp_overlap"] == "async"


def test_converters_choose_the_precision() -> None:
    section = "\n[quantize.linear.float8]\nenable_fsdp_float8_all_gather = true"
    text = LLAMA + 'converters = ["float8"]' + section
    said = import_sources([Source(shown="x.toml", text=text, folder=Path())]).scenario
    assert (said["training"]["precision"], said["sharding"]["gather_dtype"]) == ("fp8", "fp8")
    assert titan(section).scenario["training"]["precision"] == "bf16"


def test_a_flavour_that_nobody_knows_leaves_the_model_open() -> None:
    text = '[model]\nname = "llama3"\nflavor = "8C"\n[training]\nseq_len = 512'
    imported = import_sources([Source(shown="x.toml", text=text, folder=Path())])
    assert "model" in imported.missing
    assert imported.warnings[0].words.endswith("--set model=NAME; known: debugmodel, 8B, 70B, 405B")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[parallelism]\ntensor_parallel_degree = 0", "tensor_parallel_degree: 0 is out of range"),
        ("[parallelism]\ndata_parallel_shard_degree = 0", "0 is not a degree; -1 means whatever ranks are left"),
        ("[training]\nlocal_batch_size = 3\n[parallelism]\npipeline_parallel_degree = 2\n"
         "pipeline_parallel_microbatch_size = 2", "3 sequences of a local batch do not divide into micro-batches of 2"),
        ("[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = \"1F1C\"", "Did you mean '1F1B'"),
        ("[training]\nglobal_batch_size = 0", "0 is not a batch"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_file_line_and_key(text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=rf"train.toml:\d+: .*{message}"):
        titan(text)


def test_a_file_runs_once_the_machine_is_said(tmp_path) -> None:
    from trainsim.cli.commands import app

    path = tmp_path / "train.toml"
    path.write_text(LLAMA + "[training]\nlocal_batch_size = 1\nseq_len = 2048\n[compile]\nenable = true")
    machine = ["--set", "cluster.topology=dgx_h100", "--set", "cluster.nodes=1", "--set", "simulation.detail=block"]
    result = CliRunner().invoke(app, ["run", str(path), *machine, "--json"])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["scenario"]["parallel"]["dp"] == 8
    assert "assumed: training.optimizer = adamw: torchtitan's default" in result.stderr


def test_training_in_16_bits_keeps_and_moves_half() -> None:
    changes = {"cluster.topology": "dgx_h100", "cluster.nodes": 1}
    usual, low = (titan(f"[training]\n{text}", changes).complete.resolve() for text in ("", 'dtype = "bfloat16"'))
    moved = (job.framework.kernels.optimizer_bytes_per_parameter for job in (usual, low))
    assert list(moved) == [28, 14]
    assert low.framework.memory.states.weights == "training"
