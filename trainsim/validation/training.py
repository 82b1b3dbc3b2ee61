"""How a published run was trained: degrees, pipeline, sharding and batches, as sections of a scenario."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import gcd
from typing import Any, NamedTuple, get_args

from trainsim.documents.catalogue import shipped
from trainsim.frameworks import Attention
from trainsim.validation.pipelines import pipeline_of
from trainsim.validation.published import PublishedRun, UnreadableCell
from trainsim.validation.software import called
from trainsim.validation.strategy import strategy_of

DISPATCHERS = ("hybridep", "deepep", "allgather", "alltoall")
PRECISIONS = (
    ("nvfp4|fp4", "nvfp4"),
    ("mxfp8|mx-?fp8", "mxfp8"),
    ("fp8|float8", "fp8"),
    ("bf16|bfloat16", "bf16"),
    ("fp16|float16|half|amp", "fp16"),
    ("tf32", "tf32"),
    ("fp32|float32", "fp32"),
)
"""Words for a precision, and its name; the first that is found."""
GROUPS = re.compile(r"groups? of (\d+)|group (\d+)", re.I)
MODULES = re.compile(r"recompute modules ([a-z_]+(?:/[a-z_]+)*)")
"""In the notes of a row: the modules that selective recomputation does again, in Megatron's names."""
RECIPES = {
    "tensorwise": r"FP8-CS|current scaling|tensorwise",
    "delayed": r"FP8-DS|delayed scaling",
    "blockwise": r"FP8-SC|subchannel|blockwise|1x128",
}
"""Words for the recipes of fp8, Megatron-Bridge's short names among them."""
OVERLAPS = ("moe_overlap", "delay_wgrad")


class Sections(NamedTuple):
    """Sections of a scenario by name, and what the source does not say of them."""

    data: Mapping[str, Any]
    assumed: tuple[str, ...]


def sections_of(run: PublishedRun, *, family: str) -> Sections:
    """All sections but the model, the cluster and the framework, of whose *family* (megatron, pytorch, ...) it is.

    Raises UnreadableCell for what is no value of its column.
    """
    assumed: list[str] = []
    data = {
        "parallel": _parallel(run),
        "pipeline": pipeline_of(run, assumed.append),
        "sharding": _sharding(run, family=family),
        "training": _training(run, assumed.append),
    }
    return Sections({key: value for key, value in data.items() if value}, tuple(assumed))


def _parallel(run: PublishedRun) -> dict[str, Any]:
    degrees = {key: run.degree(key) or 1 for key in ("tp", "pp", "cp", "ep")}
    if degrees["ep"] == 1 and re.search("deepep|hybridep", run.remarks, re.I):
        # they send tokens to other ranks, so that experts are there: dealt to all replicas that they divide by, as in
        # NVIDIA-NeMo/Automodel examples/llm_benchmark
        degrees["ep"] = gcd(run.whole("num_experts") or 1, run.replicas)
    section: dict[str, Any] = {key: degree for key, degree in degrees.items() if degree > 1}
    if etp := run.whole("etp"):
        section["etp"] = etp
    if run.flag("sequence_parallel") and degrees["tp"] > 1:
        section["sequence_parallel"] = True
    if degrees["cp"] > 1 and re.search(r"\bCP a2a|ulysses|CP all.to.all", run.remarks, re.I):
        section["context_parallel"] = "ulysses"
    return section


def _sharding(run: PublishedRun, *, family: str) -> dict[str, Any]:
    stage, note = run.whole("zero_stage") or 0, run.text("zero_note")
    dp = run.replicas
    section: dict[str, Any] = {"strategy": strategy_of(run, family)}
    if section["strategy"] in ("fsdp", "hsdp") and (
        stage == 2 or re.search(r"SHARD_GRAD_OP|reshard_after_forward (false|0)|ZeRO-2", note, re.I)
    ):
        section["reshard_after_forward"] = False
    if found := GROUPS.search(note):
        size = int(found[1] or found[2])
        if section["strategy"] == "zero1" and size < dp and dp % size == 0:
            section["instances"] = dp // size
        elif section["strategy"] == "hsdp":
            section["shard_size"] = size
    if re.search(r"overlap off", run.text("overlap_flags"), re.I) and "DP" in run.text("overlap_flags"):
        section["overlap"] = False
    return section | _offload(run)


def _offload(run: PublishedRun) -> dict[str, Any]:
    optimizer, slash, where = run.text("optimizer_offload").lower().partition("/")
    text = where.strip() if slash else optimizer
    if text.startswith(("none", "no")):
        return {}
    place = "nvme" if "nvme" in text else "cpu" if re.search(r"cpu|host|offload", text) else ""
    if not place:
        return {}
    parameters = bool(re.search(r"param", text)) or "infinity" in text
    return {"offload": {"optimizer": place} | ({"parameters": place} if parameters else {})}


def _training(run: PublishedRun, assume: Callable[[str], None]) -> dict[str, Any]:
    micro, batch, dp = run.degree("micro_batch"), run.wanted("global_batch"), run.replicas
    if micro is None:
        micro = min(2, max(1, batch // dp)) if (run.whole("pp") or 1) == 1 else 1
        assume(f"micro-batch {micro}")
    section: dict[str, Any] = {
        "sequence_length": run.wanted("seq_len"),
        "micro_batch": micro,
        "global_batch": batch,
        "precision": _precision(run.text("precision")),
        "recompute": _recompute(run, assume),
        **_fp8_recipe(run),
        **_recipe(run, assume),
        **_attention(run),
        **_routing(run),
    }
    if "moe_a2a_overlap" in run.text("overlap_flags"):
        section["moe_overlap"] = True
    return section


def _fp8_recipe(run: PublishedRun) -> dict[str, Any]:
    """How numbers of 8 bits are made, where the precision or the notes of a run in fp8 say it."""
    if _precision(run.text("precision")) != "fp8":
        return {}
    told = f"{run.text('precision')}; {run.text('notes')}"
    named = next((name for name, words in RECIPES.items() if re.search(words, told, re.I)), None)
    return {"fp8_recipe": named} if named else {}


def _recipe(run: PublishedRun, assume: Callable[[str], None]) -> dict[str, Any]:
    """What the recipes of the software's release do, where the row does not say what was on (``recipes.yaml``)."""
    if run.text("overlap_flags"):
        return {}
    told = {"software": called(run)}
    for recipe in shipped("validation", "recipes").data["recipes"]:
        patterns = {key: value for key, value in recipe.items() if key != "training"}
        if all(re.search(pattern, told.get(key) or run.text(key), re.I) for key, pattern in patterns.items()):
            section = dict(recipe["training"])
            if (run.whole("pp") or 1) > 1 and (run.whole("vpp") or 1) == 1:  # Megatron-Core overlaps chunks only
                section = {key: value for key, value in section.items() if key not in OVERLAPS}
            assume("the release's recipe: " + ", ".join(section))
            return section
    return {}


def _precision(text: str) -> str:
    """The precision that *text* names, whatever else it says.

    >>> _precision("float8 rowwise"), _precision("BF16 mixed"), _precision("NVFP4"), _precision("")
    ('fp8', 'bf16', 'nvfp4', 'bf16')
    """
    words = text.lower()
    for pattern, name in PRECISIONS:
        if re.search(pattern, words):
            return name
    if words in ("", "nan"):
        return "bf16"
    raise UnreadableCell(f"precision = {text!r} is none of {', '.join(name for _, name in PRECISIONS)}")


def _recompute(run: PublishedRun, assume: Callable[[str], None]) -> str | dict[str, Any]:
    told = run.text("recompute").lower()
    if found := MODULES.search(run.text("notes")):
        return {"mode": "selective", "modules": found[1].split("/")}
    if told in ("full", "selective", "none"):
        return told
    if told in ("", "nan", "unknown"):
        assume("no recomputation")
        return "none"
    if "select" in told:
        return "selective"
    if re.search(r"full|checkpoint|uniform|block", told):
        return "full"
    raise UnreadableCell(f"recompute = {told!r} is none of none, selective, full")


def _attention(run: PublishedRun) -> dict[str, Any]:
    if re.search(r"FP8 attention", run.text("notes")):
        return {"attention": "cudnn-fp8"}
    told = run.text("flash_attention").lower().removesuffix(".0")
    known = {"0": "eager", "no": "eager", "1": "flash1", "2": "flash2", "3": "flash3"}
    named = known.get(told, told)
    return {"attention": named} if named in get_args(Attention) else {}


def _routing(run: PublishedRun) -> dict[str, Any]:
    if not run.whole("num_experts"):
        return {}
    text = run.remarks.lower()
    routing: dict[str, Any] = {}
    if named := next((name for name in DISPATCHERS if name in text), ""):
        routing["dispatcher"] = named
    if re.search(r"token drop|capacity factor", text):
        factor = re.search(r"capacity factor (\d+(?:\.\d+)?)", text)
        routing["capacity_factor"] = float(factor[1]) if factor else 1.0
        routing["pad_to_capacity"] = True
    return {"moe": routing} if routing else {}
