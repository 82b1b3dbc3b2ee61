"""Scenarios at random, the same for the same seed: small, and legal more often than not."""

from __future__ import annotations

import random
from typing import Any

from trainsim.frameworks import framework_names
from trainsim.models.context_parallel import context_parallelisms
from trainsim.models.weight_types import WEIGHT_TYPES
from trainsim.optimizers import optimizer_names
from trainsim.schedules import schedules
from trainsim.schedules.lookup import facts
from trainsim.sharding import strategies
from trainsim.sharding.strategy_options import Option

TOPOLOGIES = ("dgx_a100", "dgx_h100", "dgx1_v100", "pcie_box", "meta_h100_roce", "dgx_b200")
FAMILIES = ("gpt", "llama", "bloom", "qwen2")


def document(seed: int) -> dict[str, Any]:
    """A scenario: every strategy with some of its options, every schedule, offload, adapters, troubles."""
    rng = random.Random(seed)
    pp = rng.choice((1, 1, 2, 4))
    schedule = rng.choice(list(schedules)) if pp > 1 or rng.random() < 0.1 else "1f1b"
    chunks = facts(schedule).chunks or rng.choice((2, 2, 4))
    micro_batch = rng.choice((1, 1, 2, 3))
    out: dict[str, Any] = {
        "model": _model(rng),
        "cluster": {
            "topology": rng.choice(TOPOLOGIES),
            "nodes": rng.choice((1, 1, 2)),
            "gpus_per_node": rng.choice((4, 8)),
        },
        "parallel": {"tp": rng.choice((1, 1, 1, 2, 4)), "pp": pp},
        "pipeline": {"schedule": schedule, "chunks": chunks},
        "sharding": _sharding(rng, pp),
        "training": {
            "sequence_length": rng.choice((64, 256, 512, 1000)),
            "micro_batch": micro_batch,
            "global_batch": micro_batch * rng.choice((16, 32, 48)),
            "recompute": rng.choice(("none", "none", "selective", "full", {"mode": "full", "layers": 1})),
            "precision": rng.choice(("bf16", "bf16", "bf16", "fp16", "fp32", "fp8")),
            "optimizer": rng.choice(("adam", "adam", *optimizer_names())),
        },
        "simulation": {"detail": rng.choice(("op", "op", "layer", "block")), "steps": rng.choice((1, 1, 1, 2, 3))},
    }
    if rng.random() < 0.6:
        out["framework"] = rng.choice(framework_names())
    if rng.random() < 0.15:
        out["pipeline"]["p2p"] = "blocking"
    if rng.random() < 0.3:
        out["parallel"]["sequence_parallel"] = True
    if rng.random() < 0.3:
        out["what_if"] = [_trouble(rng)]
    if rng.random() < 0.1:
        ways = tuple(context_parallelisms)
        out["parallel"] |= {"cp": rng.choice((2, 2, 2, 4)), "context_parallel": rng.choice(ways)}
    _kept(rng, out)
    return out


def _kept(rng: random.Random, out: dict[str, Any]) -> None:
    """What is kept otherwise than usual: activations, lengths of documents, frozen weights."""
    training = out["training"]
    if rng.random() < 0.2 and "p2p" not in out["pipeline"]:
        training["activation_offload"] = "cpu"
    if rng.random() < 0.1:
        training["recompute"] = rng.choice(({"mode": "full", "every": 2}, {"mode": "selective", "policy": "op"}))
    if rng.random() < 0.15:
        spread = {"mean": rng.choice((50, 200, 3000)), "deviation": rng.choice((0, 90)), "seed": rng.randrange(9)}
        training["documents"] = rng.choice((spread, spread | {"distribution": "uniform", "mean": 300}, [100, 700]))
        training["padding"] = rng.choice(("none", "longest", "max"))
    if "lora" in out["model"] and rng.random() < 0.5:
        out["model"]["lora"]["base_dtype"] = rng.choice(WEIGHT_TYPES.names())


def _model(rng: random.Random) -> dict[str, Any]:
    heads = rng.choice((4, 8, 16))
    out: dict[str, Any] = {
        "family": rng.choice(FAMILIES),
        "layers": rng.choice((4, 8, 16)),
        "hidden": rng.choice((256, 512, 1024)),
        "heads": heads,
        "ffn_hidden": rng.choice((64, 1024, 2816)),
        "vocab": rng.choice((1000, 32000, 50257)),
        "tied_embeddings": rng.random() < 0.4,
        "max_positions": 2048,
    }
    if rng.random() < 0.3:
        out["kv_heads"] = rng.choice((1, heads // 2, heads))
    if rng.random() < 0.15:
        out["lora"] = {"rank": rng.choice((4, 16)), "targets": ["q", "v"]}
    return out


def _sharding(rng: random.Random, pp: int) -> dict[str, Any]:
    """A strategy with a few of its own options; in a pipeline mostly one that goes there."""
    name = rng.choice(("ddp", "zero1", "zero1", "fsdp") if pp > 1 and rng.random() < 0.8 else list(strategies))
    out: dict[str, Any] = {"strategy": name}
    for option in strategies[name].options:
        if rng.random() < 0.2:
            out[option.name] = _value(rng, option)
    if rng.random() < 0.4:
        out["overlap"] = rng.random() < 0.5
    if rng.random() < 0.2:
        out["offload"] = {state: rng.choice(("none", "cpu", "nvme")) for state in ("optimizer", "parameters")}
    return out


def _value(rng: random.Random, option: Option[Any]) -> Any:
    if isinstance(option.accepts, tuple):
        return rng.choice(option.accepts)
    if option.automatic and rng.random() < 0.2:
        return "auto"
    return {
        "count": rng.choice((5_000, 1_000_000, 25_000_000)),
        "count or 0": rng.choice((0, 1_000, 2_000_000)),
        "degree": rng.choice((1, 2, 4)),
        "group": rng.choice((1, 2, 4)),
        "flag": rng.random() < 0.7,
        "flag or group": rng.choice((True, False, 2)),
        "flag or units": rng.choice((True, False, 2)),
        "prefetch": rng.choice(("pre", "post", "none", 2)),
        "units": rng.choice(("layers", "layers_and_embeddings", "model", 2)),
    }[option.accepts]


def _trouble(rng: random.Random) -> dict[str, Any]:
    return rng.choice(
        (
            {"slow": {"gpu": rng.randrange(4), "factor": rng.choice((1.1, 1.5, 3.0))}},
            {"slow": {"node": 0, "factor": 1.2}},
            {
                "delay": {
                    "rank": rng.randrange(4),
                    "at": rng.choice(("forward", "backward", "optimizer")),
                    "seconds": 0.01,
                }
            },
        )
    )
