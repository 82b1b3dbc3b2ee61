"""Scenarios as files of other tools: what a file says and what was told to be left out are the scenario again."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainsim.errors import UnknownName
from trainsim.exporters.exporter import Exported, export, exporters
from trainsim.frameworks import load_framework
from trainsim.importers.importer import importers
from trainsim.importers.importing import import_sources
from trainsim.importers.source import Source
from trainsim.scenario.scenario import Scenario

EACH = pytest.mark.parametrize("name", list(exporters))
BACK = [name for name in exporters if name in importers]
"""Formats that are read as well."""
MODELS = ("llama-3-8b", "llama-3-70b", "qwen3-8b", "gpt3-175b", "bloom-7b1", "mixtral-8x7b", "deepseek-v2-lite")
USUAL = {"model": "llama-3-8b", "cluster": {"topology": "dgx_h100", "nodes": 2}}


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """A random job that can be."""
    tp, pp, cp = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2]))
    dp = draw(st.sampled_from([2, 4, 8])) * max(1, 8 // (tp * pp * cp * 2))
    strategy = draw(
        st.sampled_from(["zero1", "fsdp", "hsdp", "zero3", "zero2"] if pp == 1 else ["zero1", "ddp", "fsdp"])
    )
    recompute = [{"mode": "full"}, {"mode": "full", "every": 3}, {"mode": "selective", "policy": "op"}, "none", "full"]
    micro, steps = draw(st.integers(1, 4)), draw(st.integers(1, 4)) * pp
    data: dict[str, Any] = {
        "model": draw(st.sampled_from(MODELS)),
        "framework": draw(st.sampled_from(["torchtitan", "neutral", "megatron-core", "deepspeed", "deepspeed-bf16"])),
        "cluster": {"topology": "dgx_h100", "nodes": -(-tp * pp * cp * dp // 8)},
        "parallel": {"tp": tp, "pp": pp, "cp": cp, "dp": dp, "sequence_parallel": draw(st.booleans())},
        "training": {
            "micro_batch": micro,
            "sequence_length": draw(st.sampled_from([1024, 4096])),
            "precision": draw(st.sampled_from(["bf16", "fp8", "fp16", "fp32"])),
            "optimizer": draw(st.sampled_from(["adam", "adamw", "sgd", "muon"])),
            "recompute": draw(st.sampled_from(recompute)),
        },
        "sharding": {"strategy": strategy},
    }
    if draw(st.booleans()):
        data["training"]["gradient_accumulation"] = steps
    else:
        data["training"]["global_batch"] = micro * dp * steps
    if pp > 1:
        data["pipeline"] = {"schedule": draw(st.sampled_from(["1f1b", "gpipe"]))}
    if strategy == "hsdp":
        data["sharding"]["shard_size"] = draw(st.sampled_from([size for size in (2, 4) if dp * cp % size == 0]))
    if strategy == "zero1" and draw(st.booleans()):
        data["sharding"]["parameter_gather_overlap"] = draw(st.booleans())
    if strategy in ("zero2", "zero3") and draw(st.booleans()):
        data["sharding"] |= {"reduce_bucket": 200_000_000, "overlap": draw(st.booleans())}
    if strategy in ("fsdp", "hsdp") and pp == 1 and draw(st.booleans()):
        data["sharding"]["reshard_after_forward"] = draw(st.booleans())
    return Scenario.from_dict(with_options(draw, data, strategy))


def with_options(draw: st.DrawFn, data: dict[str, Any], strategy: str) -> dict[str, Any]:
    """*data* with some of what a few formats know."""
    training, sharding, parallel = data["training"], data["sharding"], data["parallel"]
    if data["model"] in ("mixtral-8x7b", "deepseek-v2-lite") and parallel["pp"] * parallel["cp"] == 1:
        parallel |= {"ep": 2, "etp": draw(st.sampled_from([1, parallel["tp"]]))}
        training["moe"] = {"dispatcher": draw(st.sampled_from(["alltoall", "allgather", "deepep"]))}
    elif strategy in ("fsdp", "zero3") and parallel["pp"] == 1 and draw(st.booleans()):
        where = draw(st.sampled_from([("cpu", "cpu"), ("cpu", "none")]))
        sharding["offload"] = dict(zip(("optimizer", "parameters"), where, strict=True))
    if strategy == "zero3":
        sharding |= draw(st.sampled_from([{}, {"prefetch_bucket": 30_000_000, "persistence_threshold": 0}]))
    if parallel["tp"] > 1 and draw(st.booleans()):
        training["tp_overlap"] = draw(st.sampled_from(["none", "wgrad"]))
    if training["precision"] == "fp8" and strategy == "fsdp" and data["framework"] == "torchtitan":
        sharding |= draw(st.sampled_from([{}, {"gather_dtype": "fp8"}]))
    if training["precision"] == "fp16":
        training["loss_scaling"] = draw(st.sampled_from(["dynamic", "static"]))
    if parallel["cp"] > 1:
        parallel["context_parallel"] = draw(st.sampled_from(["ring", "all_gather"]))
    return data


def resolved(scenario: Scenario) -> dict[str, Any] | None:
    """Its resolved values but for its name and the reasons; None for what cannot be."""
    from trainsim.errors import TrainsimError

    try:
        values = scenario.resolved
    except TrainsimError:
        return None
    return {key: value for key, value in values.items() if key not in ("name", "derived")}


def again(exported: Exported, scenario: Scenario) -> Scenario:
    """The file read, with what was left out of it set by hand."""
    exporter = exporters[exported.exporter]
    values = scenario.resolved
    changes: dict[str, Any] = {
        "cluster.topology": "dgx_h100",
        "cluster.nodes": scenario.spec.cluster.nodes,
        "framework": scenario.spec.framework,  # files say more of one than its name: whether it is compiled
    }
    for told in exported.left_out:
        if told.key.split(".")[0] in ("cluster", "name", "framework"):
            continue
        value: Any = values
        for part in told.key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        changes[told.key] = value
    source = Source(shown=f"file{exporter.suffix}", text=exported.text, folder=Path())
    return import_sources([source], changes, kind=exported.exporter).complete


@pytest.mark.parametrize("name", BACK)
@given(scenario=scenarios())
@settings(max_examples=40, deadline=None)
def test_a_file_and_what_it_leaves_out_are_the_scenario(name: str, scenario: Scenario) -> None:
    before = resolved(scenario)
    if before is None:
        return
    exported = export(scenario, name)
    after = resolved(again(exported, scenario))
    assert after is not None
    if name == "megatron":
        assert _summed(scenario, after) == _summed(scenario, before)
    for section, values in before.items():
        assert _plain(after[section]) == _plain(values), (section, exported.text, exported.left_out)


def _plain(value: Any) -> Any:
    """A section of two resolved scenarios that may say the same in different words."""
    if isinstance(value, dict) and "layers" in value and "hidden" in value:
        return {k: v for k, v in value.items() if k not in ("name", "family", "max_positions")}
    if isinstance(value, dict) and set(value) <= {"base", "compiled"}:
        return value.get("base")
    if not isinstance(value, dict):
        return value
    value = {k: v for k, v in value.items() if k not in ("gpus", "gradient_accumulation", "gradients")}
    if value.get("moe") in ({"dispatcher": "alltoall"}, {"dispatcher": "alltoall", "pad_to_capacity": False}):
        del value["moe"]
    if value.get("overlap") is False or value.get("parameter_gather_overlap"):
        value.pop("parameter_gather_overlap", None)  # the usual one
    return value


def _summed(scenario: Scenario, values: dict[str, Any]) -> str:
    """The type in which gradients are summed: what is said, or the framework's."""
    states = load_framework(scenario.spec.framework).memory.states
    precision = values["training"]["precision"]
    low = "fp16" if precision == "fp16" else "fp32" if precision == "fp32" else "bf16"
    said = values["training"].pop("accumulation_dtype", None)
    return said or (low if states.accumulation == "training" else "fp32")


@EACH
@given(scenario=scenarios())
@settings(max_examples=20, deadline=None)
def test_every_key_that_was_given_is_told(name: str, scenario: Scenario) -> None:
    if resolved(scenario) is None:
        return
    exported = export(scenario, name)
    told = {one.key for one in (*exported.written, *exported.left_out)}
    for section, values in scenario.to_dict().items():
        keys = [f"{section}.{key}" for key in values] if isinstance(values, dict) else [section]
        for key in keys:
            assert any(f"{key}.".startswith(f"{one}.") or f"{one}.".startswith(f"{key}.") for one in told), key


@EACH
def test_nothing_is_both_written_and_left_out(name: str) -> None:
    exported = export(Scenario.from_dict(USUAL), name)
    assert not {one.key for one in exported.written} & {one.key for one in exported.left_out}
    assert all(one.words for one in (*exported.written, *exported.left_out))
    json.dumps(exported.to_dict())


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="torchtitan"):
        export(Scenario.from_dict(USUAL), "torchtitann")
