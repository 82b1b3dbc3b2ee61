"""Examples at the end of every command's help; a test reads them all."""

from __future__ import annotations

EXAMPLES = {
    "": (
        "trainsim run quickstart",
        "trainsim run bloom_3d --set parallel.tp=8 --set parallel.pp=6",
        "trainsim sweep bloom_3d --grid parallel.tp=2,4,8",
        "trainsim explain bloom_3d",
        "trainsim list models",
        "trainsim show gpu h100-sxm5-80gb",
    ),
    "run": (
        "trainsim run quickstart",
        "trainsim run my_scenario.yaml --set parallel.tp=8 --out tp8",
        "trainsim run bloom_3d --files gantt,trace",
        "trainsim run bloom_3d --json",
        "trainsim run two_bloom_jobs --set cluster.oversubscription=2",
    ),
    "sweep": (
        "trainsim sweep bloom_3d --grid parallel.tp=2,4,8 --csv sweep.csv",
        "trainsim sweep quickstart --grid parallel.tp=1,2 --grid parallel.pp=1,2",
        "trainsim sweep quickstart --grid parallel.tp=1,2,4 --plot tp.png",
        "trainsim sweep bloom_3d --grid parallel.tp=2,4,8 --store a.sqlite",
        "trainsim sweep quickstart --zip parallel.tp=1,2 --where parallel.dp>1",
        "trainsim sweep quickstart --sample training.micro_batch=1..8 --samples 8",
    ),
    "plan": (
        "trainsim plan bloom_3d",
        "trainsim plan quickstart --set cluster.nodes=4 --objective memory --top 5",
        "trainsim plan bloom_3d --grid training.micro_batch=1,2,4 --keep parallel.tp",
        "trainsim plan config.json --set cluster.topology=dgx_h100",
    ),
    "compare": (
        "trainsim compare bloom_3d bloom_slow_node",
        "trainsim compare bloom_3d --grid pipeline.schedule=1f1b,zb-h1 --out a.png",
        "trainsim compare my_job.yaml rank0.json.gz rank1.json.gz --out a.png",
    ),
    "explain": ("trainsim explain bloom_3d",),
    "diagnose": (
        "trainsim diagnose trace-ST.parquet",
        "trainsim diagnose operations.csv --meta job.yaml --out diagnosis",
        "trainsim diagnose trace-ST.parquet --json",
    ),
    "memory": (
        "trainsim memory config.json",
        "trainsim memory llama-3-8b --cards rtx-4090,a100-sxm4-80gb --gpus 1,2,4",
        "trainsim memory qwen1.5-7b --set training.sequence_length=8k --out fits.png",
    ),
    "validate": (
        "trainsim validate",
        "trainsim validate --source S4 --csv errors.csv",
        "trainsim validate --runs my_runs.csv",
    ),
    "import": (
        "trainsim import config.json",
        "trainsim import config.json ds_config.json -o my.yaml",
        "trainsim run config.json --set cluster.topology=dgx_a100",
    ),
    "calibrate": (
        "trainsim calibrate all_reduce.log all_gather.log --base dgx_h100",
        "trainsim calibrate rank0.json.gz --base pytorch-fsdp2 -o ours.yaml",
        "trainsim calibrate steps.csv --scenario base.yaml -o mine.yaml",
        "trainsim calibrate --measure -o my_gpu.yaml",
    ),
    "export": (
        "trainsim export quickstart --to torchtitan",
        "trainsim export bloom_3d --to deepspeed -o ds_config.json",
        "trainsim export bloom_3d --set parallel.tp=8 --to megatron",
    ),
    "list": ("trainsim list", "trainsim list models"),
    "show": (
        "trainsim show topology dgx_h100 --out dgx.png",
        "trainsim show model llama-3-8b",
        "trainsim show schedule zb-h1 --stages 4 --microbatches 8",
        "trainsim show gpu h100-sxm5-80gb",
        "trainsim show framework megatron-core",
        "trainsim show scenario bloom_3d",
        "trainsim show trace rank0.json.gz rank1.json.gz --out step.png",
        "trainsim show memory quickstart --all",
        "trainsim show step bloom_3d F4/12 --out layer.png",
    ),
}
"""Commands by the word after ``trainsim``."""


def epilog(command: str) -> str:
    """The examples of a command as its help shows them, line by line."""
    return "\n".join(("Examples:\n", "\b", *(f"  {line}" for line in EXAMPLES[command])))
