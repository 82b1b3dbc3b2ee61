"""Arguments of Megatron-LM as scenarios: a published job, what arguments mean, and where readers go wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.importing import CASES
from trainsim.analysis.throughput import throughput
from trainsim.errors import ScenarioError
from trainsim.importers.formats.megatron_arguments import KNOWN, meaning
from trainsim.importers.formats.megatron_parallel import balanced
from trainsim.importers.imported import Imported
from trainsim.importers.importer import importers
from trainsim.importers.importing import import_config, import_sources, importer_of
from trainsim.importers.source import Source
from trainsim.scenario.scenario import Scenario

SIZES = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --max-position-embeddings 4096"
BASE = f"{SIZES} --micro-batch-size 1 --global-batch-size 64 --vocab-size 50257 --bf16"
ON = {"cluster.topology": "dgx_h100"}


def of(arguments: str, changes: dict[str, Any] | None = None, *, name: str = "run.sh") -> Imported:
    return import_sources([Source(shown=name, text=f"torchrun pretrain_gpt.py {arguments}\n")], changes)


def at(imported: Imported, key: str) -> Any:
    here: Any = imported.scenario
    for part in key.split("."):
        here = here.get(part) if isinstance(here, dict) else None
    return here


def resolved(arguments: str, nodes: int = 1, **changes: Any) -> dict[str, Any]:
    return of(arguments, {**ON, "cluster.nodes": nodes, **changes}).complete.resolved


def warned(imported: Imported) -> dict[str, str]:
    return {remark.key: remark.words for remark in imported.warnings}


def flat(data: dict[str, Any], above: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in data.items():
        out |= flat(value, f"{above}{key}.") if isinstance(value, dict) and value else {f"{above}{key}": value}
    return out


# BLOOM


def bloom() -> Scenario:
    changes = {"cluster.topology": "jean_zay_a100", "cluster.nodes": 48}  # the job that took 105.2 s had 48 nodes
    return import_config(CASES / "megatron" / "bloom_176b" / "launch.slurm", changes).complete


def test_the_job_of_bloom_is_our_scenario_of_bloom() -> None:
    """Field by field: only names differ, and which values are written and which derived."""
    ours, theirs = flat(Scenario.load("bloom_3d").resolved), flat(bloom().resolved)
    differing = {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}
    assert {key for key in differing if not key.startswith("derived.")} == {"name", "model.name"}
    assert {key for key in differing if key.startswith("derived.")} <= {
        *("derived.pipeline.layout", "derived.pipeline.schedule", "derived.training.attention")
    }


def test_the_job_of_bloom_takes_as_long_as_our_scenario_of_bloom() -> None:
    assert bloom().run().step_time == Scenario.load("bloom_3d").run().step_time


def test_what_the_job_of_bloom_logs_is_a_formula_and_no_measurement() -> None:
    """149 TFLOP/s at 105.2 s are 96 B s L h^2 (1 + s/6h + V/16Lh), for every layer ran twice; the head ran once, so
    without what ran again it is 72 B s L h^2 (1 + s/6h + V/12Lh)."""
    rates = throughput(bloom().resolve(), 105.2)
    each, width, words = 2048 * 2048 * 70 * 14336**2 / 105.2 / 384, 14336, 250880
    twice = 96 * each * (1 + 2048 / (6 * width) + words / (16 * 70 * width))
    once = 72 * each * (1 + 2048 / (6 * width) + words / (12 * 70 * width))
    assert rates.hardware_flops_per_gpu == pytest.approx(twice)
    assert rates.model_flops_per_gpu == pytest.approx(once)
    assert round(twice / 1e12) == 149


def test_the_job_of_bloom_tells_where_its_values_stand() -> None:
    imported = import_config(CASES / "megatron" / "bloom_176b" / "launch.slurm")
    used = {remark.key: (remark.place.rpartition(":")[2], remark.words) for remark in imported.used}
    assert used["--num-layers"] == ("38", "model.layers = 70")
    assert "steady step" in used["--rampup-batch-size"][1]
    assert used["--zero-stage"][1].startswith("sharding.strategy = zero1")
    assert at(imported, "cluster.gpus") == 24 * 8


# where readers go wrong


@pytest.mark.parametrize(
    ("argument", "chunks"),
    [("--num-layers-per-virtual-pipeline-stage 2", 4), ("--num-virtual-stages-per-pipeline-rank 2", 2)],
)
def test_virtual_stages_are_counted_in_layers_or_in_chunks(argument: str, chunks: int) -> None:
    assert at(of(f"{BASE} --pipeline-model-parallel-size 4 {argument}"), "pipeline.chunks") == chunks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--num-virtual-stages-per-pipeline-rank 2", "virtual stages need --pipeline-model-parallel-size of 2"),
        ("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 3", "1 or 2 or 4 or 8 would"),
        (
            "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2 "
            "--num-virtual-stages-per-pipeline-rank 4",
            "goes against --num-layers-per-virtual-pipeline-stage",
        ),
    ],
)
def test_stages_that_megatron_refuses_are_refused(arguments: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=f"run.sh:1: --.*{message}"):
        of(f"{BASE} {arguments}")


@pytest.mark.parametrize(("batch", "told"), [(12, True), (16, False), (24, False), (28, True)])
def test_interleaving_wants_micro_batches_that_divide_by_the_stages(batch: int, told: bool) -> None:
    arguments = f"{BASE} --pipeline-model-parallel-size 8 --num-virtual-stages-per-pipeline-rank 2"
    text = f"torchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py {arguments} --global-batch-size {batch}\n"
    words = warned(import_sources([Source(shown="run.sh", text=text)])).get("--global-batch-size", "")
    assert ("cannot interleave" in words) == told


@pytest.mark.parametrize(
    ("arguments", "width", "gated"),
    [("--swiglu", 10880, True), ("", 16384, False), ("--swiglu --ffn-hidden-size 11008", 11008, True)],
)
def test_the_width_of_the_mlp_follows_megatrons_rule(arguments: str, width: int, gated: bool) -> None:
    imported = of(f"{BASE} {arguments}")
    assert (at(imported, "model.ffn_hidden"), at(imported, "model.gated_mlp")) == (width, gated)


@pytest.mark.parametrize(
    ("arguments", "tp", "padded"),
    [
        ("--vocab-size 50257", 1, 50304),
        ("--vocab-size 50257 --make-vocab-size-divisible-by 256", 1, 50432),
        ("--vocab-size 131072 --tokenizer-type NullTokenizer", 1, 131200),
        ("--vocab-size 131072 --tokenizer-type NullTokenizer", 4, 131584),
        ("--pad-vocab-size-to 250880", 4, 250880),
        ("--padded-vocab-size 50260", 4, 50260),
        ("--tokenizer-type GPT2BPETokenizer", 2, 50432),
    ],
)
def test_vocabularies_are_padded_as_megatron_pads_them(arguments: str, tp: int, padded: int) -> None:
    whole = f"{SIZES} --micro-batch-size 1 --global-batch-size 64 --bf16 --tensor-model-parallel-size {tp} {arguments}"
    found = resolved(whole)
    assert found["derived"].get("model.padded_vocab", str(found["model"]["vocab"])).split()[0] == str(padded)


def test_a_tokenizer_of_unknown_size_leaves_the_vocabulary_open_and_says_what_is_common() -> None:
    whole = f"{SIZES} --micro-batch-size 1 --bf16 --tokenizer-type HuggingFaceTokenizer --tokenizer-model ours/new"
    imported = of(whole)
    assert imported.missing["model.vocab"]
    assert "llama-3 128256" in next(words for words in warned(imported).values() if "ours/new" in words)
    assert at(of(whole.replace("ours/new", "Qwen/Qwen3-8B")), "model.vocab") == 151669


@pytest.mark.parametrize(
    ("arguments", "batch"),
    [
        ("--rampup-batch-size 192 16 9_765_625 --global-batch-size 2048", 2048),
        ("--step-batch-size-schedule '0:384 200B:768 400B:1152'", 1152),
        ("--step-batch-size-schedule '0:16 12B:1536' --global-batch-size 1536", 1536),
    ],
)
def test_of_a_growing_batch_the_last_one_is_simulated(arguments: str, batch: int) -> None:
    imported = of(f"{SIZES} --vocab-size 1000 --micro-batch-size 1 {arguments}")
    assert at(imported, "training.global_batch") == batch
    assert any("steady step" in remark.words or "global_batch" in remark.words for remark in imported.used)


def test_without_a_global_batch_there_is_one_micro_batch_per_replica() -> None:
    found = resolved(f"{SIZES} --vocab-size 1000 --micro-batch-size 2 --bf16")
    assert found["training"]["global_batch"] == 16


@pytest.mark.parametrize(
    ("layers", "pp", "layout"),
    [(70, 12, [5, *[6] * 10, 5]), (24, 4, [6, 7, 7, 4]), (30, 4, [7, 8, 8, 7])],
)
def test_embeddings_count_as_layers_where_deepspeed_partitions_by_both(layers: int, pp: int, layout: list[int]) -> None:
    arguments = BASE.replace("--num-layers 32", f"--num-layers {layers}")
    whole = f"{arguments} --pipeline-model-parallel-size {pp} --pp-partition-method 'type:transformer|embedding'"
    assert at(of(whole), "pipeline.layout") == layout
    assert sum(balanced(layers + 2, pp)) == layers + 2


@pytest.mark.parametrize(
    ("arguments", "layout"),
    [
        ("--decoder-first-pipeline-num-layers 5", [5, 9, 9, 9]),
        ("--decoder-first-pipeline-num-layers 6 --decoder-last-pipeline-num-layers 6", [6, 10, 10, 6]),
        (
            "--decoder-first-pipeline-num-layers 4 --decoder-last-pipeline-num-layers 4 "
            "--num-virtual-stages-per-pipeline-rank 2",
            [2, 6, 6, 2] * 2,
        ),
        ("--pipeline-model-parallel-layout 'Et*7|t*8|(t*8|)tt*8L'", [7, 8, 8, 9]),
        ("--pipeline-model-parallel-layout 'E|(t*5,|)*6ttmL' --mtp-num-layers 1", [0, *[5] * 6, 2]),
    ],
)
def test_layouts_of_all_kinds(arguments: str, layout: list[int]) -> None:
    assert at(of(f"{BASE} --pipeline-model-parallel-size 4 {arguments}"), "pipeline.layout") == layout


@pytest.mark.parametrize(("layers", "ends", "layout"), [(6, "both", [0, *[1] * 6, 0]), (31, "loss", [4] * 7 + [3])])
def test_ends_of_the_pipeline_count_as_layers_where_they_are_accounted_for(
    layers: int, ends: str, layout: list[int]
) -> None:
    arguments = BASE.replace("--num-layers 32", f"--num-layers {layers}") + " --pipeline-model-parallel-size 4"
    both = " --account-for-embedding-in-pipeline-split" if ends == "both" else ""
    whole = f"{arguments}{both} --account-for-loss-in-pipeline-split --num-virtual-stages-per-pipeline-rank 2"
    assert at(of(whole), "pipeline.layout") == layout


def test_names_of_files_and_folders_mean_nothing() -> None:
    imported = of(f"{BASE} --tensor-model-parallel-size 2", name="llama_70b_tp1_pp8.sh")
    assert imported.scenario["parallel"] == {"tp": 2}
    assert at(imported, "model.layers") == 32


def test_lines_of_yaml_with_remarks_and_sums_are_read(tmp_path: Path) -> None:
    path = tmp_path / "model_config.yaml"
    path.write_text(
        "MODEL_ARGS:\n  --num-layers: 4 # of 32\n  --hidden-size: 256\n  --num-attention-heads: 4\n"
        "  --moe-layer-freq: ([0]*1+[1]*3)\n  --num-experts: 8\n  --bf16: true\n  --swiglu: false\n"
    )
    imported = import_config(path)
    assert at(imported, "model.layers") == 4
    assert at(imported, "model.moe") == {"experts": 8, "top_k": 2, "first_dense": 1}
    assert {r.key: r.place for r in imported.used}["MODEL_ARGS.--num-layers"] == f"{path}:2"


@pytest.mark.parametrize(
    ("frequency", "dense"),
    [("1", []), ("2", [1, 3, 5]), ("[1,0,0]*2", [1, 2, 4, 5]), ("([0]*2+[1]*4)", [0, 1])],
)
def test_which_layers_have_experts(frequency: str, dense: list[int]) -> None:
    arguments = BASE.replace("--num-layers 32", "--num-layers 6")
    imported = of(f"{arguments} --num-experts 4 --moe-layer-freq '{frequency}'", {**ON, "cluster.nodes": 1})
    model = imported.complete.resolve().model
    assert [k for k, kind in enumerate(model.layer_pattern) if kind == "dense"] == dense


@pytest.mark.parametrize("frequency", ["[0]*4", "[1]*3", "0", "x", "[2]*4", "[1]*(1<<40)", "[[1]]*4"])
def test_patterns_that_say_nothing_are_refused(frequency: str) -> None:
    arguments = BASE.replace("--num-layers 32", "--num-layers 4")
    with pytest.raises(ScenarioError, match="--moe-layer-freq"):
        of(f"{arguments} --num-experts 4 --moe-layer-freq '{frequency}'")


@pytest.mark.parametrize(
    ("arguments", "key", "value"),
    [
        ("", "training.gradients", "fp32"),
        ("--grad-reduce-in-bf16", "training.gradients", "bf16"),
        ("--main-grads-dtype bf16 --use-precision-aware-optimizer", "training.accumulation_dtype", "bf16"),
        ("--use-distributed-optimizer", "sharding.strategy", "zero1"),
        ("", "sharding.strategy", "ddp"),
        ("", "sharding.overlap", False),
        ("--use-distributed-optimizer --overlap-grad-reduce", "sharding.overlap", True),
        ("--use-distributed-optimizer --overlap-grad-reduce", "sharding.parameter_gather_overlap", False),
    ],
)
def test_gradients_and_states_are_those_of_megatron(arguments: str, key: str, value: Any) -> None:
    assert at(of(f"{BASE} {arguments}"), key) == value


def test_gradients_in_fp16_stay_in_fp16_unless_they_are_told_otherwise() -> None:
    low = BASE.replace("--bf16", "--fp16")
    assert at(of(low), "training.gradients") == "fp16"
    assert at(of(f"{low} --accumulate-allreduce-grads-in-fp32"), "training.gradients") == "fp32"


@pytest.mark.parametrize(
    ("value", "arguments", "told"),
    [
        (1, "--tensor-model-parallel-size 2", False),
        (8, "--tensor-model-parallel-size 2", True),
        (8, "", False),
        (1, "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", True),
    ],
)
def test_one_queue_of_launches_helps_tensor_parallelism_and_hinders_fsdp(
    value: int, arguments: str, told: bool
) -> None:
    script = f"export CUDA_DEVICE_MAX_CONNECTIONS={value}\ntorchrun pretrain_gpt.py {BASE} {arguments}\n"
    imported = import_sources([Source(shown="run.sh", text=script)])
    assert ("environment.CUDA_DEVICE_MAX_CONNECTIONS" in warned(imported)) == told


def test_experts_are_gathered_unless_a_dispatcher_is_named() -> None:
    mixture = f"{BASE} --num-experts 8 --expert-model-parallel-size 8 --expert-tensor-parallel-size 1"
    assert at(of(mixture), "training.moe.dispatcher") == "allgather"
    flex = f"{mixture} --moe-token-dispatcher-type flex"
    assert at(of(flex), "training.moe.dispatcher") == "deepep"
    assert at(of(f"{flex} --moe-flex-dispatcher-backend hybridep"), "training.moe.dispatcher") == "hybridep"


def test_replicas_of_experts_are_the_ranks_of_a_stage_over_ep_and_etp() -> None:
    """32 GPUs, pp 2, ep 4, etp 1: an expert is held by 32 / (2 x 4 x 1) = 4 ranks, a layer by dp = 8."""
    mixture = f"{BASE} --num-experts 8 --expert-model-parallel-size 4 --expert-tensor-parallel-size 1"
    degrees = "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel"
    job = of(f"{mixture} {degrees} --use-distributed-optimizer", {**ON, "cluster.nodes": 4}).complete.resolve()
    assert (job.parallel.dp, job.parallel.ep, job.parallel.etp) == (8, 4, 1)
    assert job.parallel.tp * job.parallel.dp // (job.parallel.ep * job.parallel.etp) == 4


# DeepSpeed's configuration


def test_deepspeeds_configuration_is_read_as_a_further_file(tmp_path: Path) -> None:
    config = '{"zero_optimization": {"stage": 1, "reduce_bucket_size": 5e7}, "fp16": {"enabled": true}}'
    (tmp_path / "zero.json").write_text(config)
    low = BASE.replace("--bf16", "--fp16")
    (tmp_path / "run.sh").write_text(f"deepspeed pretrain_gpt.py {low} --deepspeed --deepspeed_config zero.json\n")
    imported = import_config(tmp_path / "run.sh")
    assert list(imported.files.values()) == ["megatron", "deepspeed"]
    assert imported.scenario["framework"] == "megatron-deepspeed-2022"
    assert imported.scenario["sharding"] == {"strategy": "zero1", "reduce_bucket": 50_000_000}


def test_a_stage_that_the_script_writes_and_one_that_it_passes_are_compared() -> None:
    config = 'cat <<EOF > ds.json\n{"zero_optimization": {"stage": 2}}\nEOF\n'
    text = f"{config}deepspeed pretrain_gpt.py {BASE} --deepspeed --deepspeed_config ds.json --zero-stage 1\n"
    imported = import_sources([Source(shown="run.sh", text=text)])
    assert "writes stage 2, but --zero-stage is 1" in warned(imported)["--deepspeed_config"]
    assert at(imported, "sharding.strategy") == "zero1"


# further meanings


@pytest.mark.parametrize(
    ("arguments", "key", "value"),
    [
        ("--group-query-attention --num-query-groups 8", "model.kv_heads", 8),
        ("--num-query-groups 8", "model.kv_heads", None),
        ("--kv-channels 64", "model.head_dim", 64),
        ("--squared-relu", "model.activation", "relu2"),
        ("--qk-layernorm", "model.qk_norm", "head"),
        ("--disable-bias-linear --add-qkv-bias", "model.biases", "qkv"),
        ("--apply-layernorm-1p", "model.norm", "layernorm1p"),
        ("--window-size 127,0", "model.window", 128),
        ("--window-size -1,-1", "model.window", None),
        ("--attention-dropout 0 --hidden-dropout 0.1", "model.dropout", True),
        ("--use-rotary-position-embeddings", "model.positions", "rotary"),
        ("--use-tp-pp-dp-mapping", "parallel.order", ["tp", "cp", "ep", "pp", "dp"]),
        ("--tensor-model-parallel-size 2 --sequence-parallel", "parallel.sequence_parallel", True),
        ("--sequence-parallel", "parallel.sequence_parallel", None),
        ("--context-parallel-size 4 --cp-comm-type allgather", "parallel.context_parallel", "all_gather"),
        (
            "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2",
            "parallel.ulysses",
            2,
        ),
        ("--recompute-granularity full --recompute-method uniform", "training.recompute", "full"),
        ("--recompute-activations", "training.recompute", "selective"),
        ("--checkpoint-activations", "training.recompute", "full"),
        ("--moe-layer-recompute", "training.recompute", {"mode": "selective", "modules": ["moe"]}),
        (
            "--recompute-granularity selective --moe-layer-recompute",
            "training.recompute",
            {"mode": "selective", "modules": ["core_attn", "moe"]},
        ),
        ("--recompute-activations --recompute-modules core_attn", "training.recompute", "selective"),
        ("--fp8-format hybrid", "training.precision", "fp8"),
        ("--fp8-format e4m3 --fp8-recipe mxfp8", "training.precision", "mxfp8"),
        ("--fp4-format e2m1", "training.precision", "nvfp4"),
        ("--optimizer sgd", "training.optimizer", "sgd-momentum"),
        ("--cuda-graph-impl transformer_engine", "training.cuda_graphs", True),
        ("--attention-backend unfused", "training.attention", "eager"),
        ("--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward", "sharding.reshard_after_forward", False),
        ("--num-distributed-optimizer-instances 2 --use-distributed-optimizer", "sharding.instances", 2),
        ("--deepspeed --zero-stage 3 --remote-device nvme", "sharding.offload", {"parameters": "nvme"}),
        ("--deepspeed --zero-stage 0", "sharding.strategy", "zero1"),
        ("--deepspeed --zero-stage 2", "sharding.strategy", "zero2"),
        ("--deepspeed --no-pipeline-parallel", "parallel.pp", None),
        ("--multi-latent-attention --kv-lora-rank 512", "model.mla.v_head_dim", 128),
        ("--enable-zbh1-pipeline", "pipeline.schedule", "zb-h1"),
    ],
)
def test_what_arguments_mean(arguments: str, key: str, value: Any) -> None:
    assert at(of(f"{BASE} {arguments}"), key) == value


@pytest.mark.parametrize(
    ("arguments", "framework"),
    [
        ("", "megatron-core"),
        ("--transformer-impl transformer_engine", "megatron-core"),
        ("--transformer-impl local", "megatron-2022"),
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", "megatron-core-fused-loss"),
        ("--use-megatron-fsdp", "megatron-fsdp"),
        ("--sequence-parallel --recompute-activations", "megatron-2022"),
        ("--activations-checkpoint-method uniform", "megatron-2021"),
        ("--model-parallel-size 8", "megatron-2020"),
        ("--deepspeed", "megatron-deepspeed-2022"),
    ],
)
def test_the_profile_follows_what_the_arguments_show_and_says_why(arguments: str, framework: str) -> None:
    imported = of(f"{BASE} {arguments}")
    assert imported.scenario["framework"] == framework
    reason = next(remark.words for remark in imported.defaults if remark.key == "framework")
    assert reason.startswith(f"{framework}: ")
    assert len(reason) > len(framework) + 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--num-layers --hidden-size 4", "--num-layers: no value follows it"),
        (f"{BASE} --num-layers many", "expected a whole number, found 'many'"),
        (f"{BASE} --num-layers 0", "out of range"),
        (f"{BASE} --bf16 --fp16", "goes against --fp16"),
        (f"{BASE} --swiglu --squared-relu", "goes against --swiglu"),
        (f"{BASE} --position-embedding-type rope2", "not known"),
        (f"{BASE} --hybrid-override-pattern M-M*", "state-space layers are not simulated"),
        (f"{BASE} --pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 't|E|t|L'", "first or last stage"),
        (f"{BASE} --pipeline-model-parallel-layout '(((t'", "is not a layout"),
        (f"{BASE} --pipeline-model-parallel-layout '((((((E*9)*99)*99)*99)*99)*99)*99'", "too many layers"),
    ],
)
def test_what_cannot_be_is_refused_with_the_argument_and_the_way_out(arguments: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=r"run.sh:1: .*") as caught:
        of(arguments)
    assert message in str(caught.value)


def test_a_model_that_is_no_decoder_of_text_is_refused() -> None:
    text = f"torchrun pretrain_bert.py {BASE}\n"
    with pytest.raises(ScenarioError, match=r"pretrain_bert.py trains a BERT"):
        import_sources([Source(shown="run.sh", text=text)])


def test_an_argument_that_nobody_knows_is_told_with_the_nearest() -> None:
    assert "did you mean --num-query-groups?" in warned(of(f"{BASE} --num-query-group 4"))["--num-query-group"]


def test_arguments_that_only_the_job_knows_are_told_with_the_key_to_set() -> None:
    text = f"TP=$1\ntorchrun pretrain_gpt.py {BASE} --tensor-model-parallel-size $TP --save $2\n"
    imported = import_sources([Source(shown="run.sh", text=text)])
    words = warned(imported)["--tensor-model-parallel-size"]
    assert words == "$1 is known to the job only; --set parallel.tp=..."
    assert "--save" in {remark.key for remark in imported.ignored}


def test_a_script_whose_sizes_come_from_its_arguments_asks_for_them() -> None:
    script = (
        "if [ $1 = large ]; then\nLAYERS=48\nfi\ntorchrun pretrain_gpt.py --num-layers ${LAYERS} --hidden-size 1024 "
        "--num-attention-heads 16 --micro-batch-size 1\n"
    )
    with pytest.raises(ScenarioError, match=r"run.sh:4: --num-layers: no value .* asks for \$1, .* set -- A B C"):
        import_sources([Source(shown="run.sh", text=script)])
    known = import_sources([Source(shown="run.sh", text=f"set -- large\n{script}")])
    assert at(known, "model.layers") == 48


def test_a_script_that_starts_nothing_by_itself_names_the_file_that_would() -> None:
    text = "NLS=24\nEXTRA='--activations-checkpoint-method uniform'\n. `pwd`/common.sh\n"
    with pytest.raises(ScenarioError, match=r"run.sh: starts no training program by itself: ./common.sh"):
        import_sources([Source(shown="run.sh", text=text)])


def test_arguments_in_a_variable_of_a_script_that_starts_nothing_are_read() -> None:
    text = f'TOKENIZER=x\nMODEL_ARGS=" \\\n {BASE} \\\n"\n#    --decoder-first-pipeline-num-layers 6 \\\n'
    assert at(import_sources([Source(shown="conf.sh", text=text)]), "model.layers") == 32


def test_options_after_a_comment_that_ends_the_command_are_told() -> None:
    text = f"torchrun pretrain_gpt.py {BASE} \\\n  # --swiglu \\\n  --qk-layernorm\n"
    imported = import_sources([Source(shown="run.sh", text=text)])
    assert at(imported, "model.qk_norm") is None
    assert "--qk-layernorm stands after the end of the command" in warned(imported)["script"]


def test_the_users_nodes_take_the_place_of_the_scripts_gpus() -> None:
    text = f"torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py {BASE}\n"
    source = Source(shown="run.sh", text=text)
    assert at(import_sources([source]), "cluster") == {"gpus": 32}
    assert at(import_sources([source], {**ON, "cluster.nodes": 2}), "cluster") == {"topology": "dgx_h100", "nodes": 2}


def test_files_of_other_tools_are_not_taken_for_arguments() -> None:
    script = "deepspeed train.py --deepspeed ds.json --model_name_or_path x\n"
    recipe = "model: {num_layers: 4, hidden_size: 8}\ntrain: {micro_batch_size: 2}\n"
    others = [Source(shown="a.sh", text=script), Source(shown="a.yaml", text=recipe)]
    assert not any(importers["megatron"].sniff(source) for source in others)
    assert importer_of(Source(shown="x.txt", text=BASE)).name == "megatron"


def test_every_argument_has_one_meaning() -> None:
    assert len(KNOWN) > 250
    assert all(meaning(name) is not None for name in KNOWN)
