"""What a scenario names by a name, a path or in place: content counts, and what has no effect is said."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.test_hardware_errors import GOOD
from trainsim.collectives.pattern import collective_time
from trainsim.documents.building import keys_of
from trainsim.documents.origin import key_of, value_at
from trainsim.errors import InvalidPlan, TrainsimError
from trainsim.frameworks import Framework, load_framework
from trainsim.hardware.cluster import load_topology
from trainsim.hardware.topology import parse_topology
from trainsim.models.known import MODELS
from trainsim.scenario import layout
from trainsim.scenario.named import NAMED
from trainsim.scenario.scenario import Scenario
from trainsim.schedules import schedules
from trainsim.schedules.cells import schedule
from trainsim.schedules.csv_files import write_schedule

PLAIN: dict[str, Any] = {
    "framework": "neutral",
    "model": {"family": "gpt", "layers": 4, "hidden": 512, "heads": 8, "vocab": 50000},
    "cluster": {"topology": "dgx_h100", "nodes": 1, "gpu": "h100-sxm5-80gb", "collectives": "infiniband"},
    "parallel": {"tp": 2, "pp": 2},
    "training": {"optimizer": "adam", "micro_batch": 1, "global_batch": 8},
}
OTHER = {  # a name for each field, what differs in a mapping on top of it, and what shows it in the job
    "framework": ("nemo", {"host": {"step_seconds": "7ms"}}, lambda job: job.framework.host.step_seconds == 0.007),
    "cluster.topology": ("dgx_a100", {"nvls": True}, lambda job: job.cluster.nvls),
    "cluster.gpu": ("a100-sxm4-80gb", {"memory": "96GB"}, lambda job: job.cluster.gpu.memory == 96e9),
    "cluster.collectives": ("efa", {"ring_step": "3us"}, lambda job: job.cluster.constants["ring_step"] == 3e-6),
    "training.optimizer": ("adamw", {"foreach_bytes": 12}, lambda job: job.training.optimizer.foreach_bytes == 12),
    "model": ("gpt2", {"vocab": 4096}, lambda job: job.model.vocab == 4096),
}
fields = pytest.mark.parametrize("field", [*NAMED, "model"])


def plain(**changes: Any) -> Scenario:
    return Scenario.from_dict(PLAIN).replace({k.replace("__", "."): v for k, v in changes.items()})


@fields
def test_in_place_and_by_path_are_the_same_job_and_read_back(field: str, tmp_path: Path) -> None:
    name, differs, shows = OTHER[field]
    mapping = {"base": name, "name": "ours", **differs}
    (tmp_path / "ours.yaml").write_text(yaml.safe_dump({k: v for k, v in mapping.items() if k != "name"}))
    in_place = Scenario.from_dict(PLAIN).replace({field: mapping})
    by_path = Scenario.from_dict(PLAIN).replace({field: str(tmp_path / "ours.yaml")})
    assert shows(in_place.resolve())
    assert in_place.resolve() == by_path.resolve()
    written = by_path.resolved
    (tmp_path / "ours.yaml").unlink()
    back = Scenario.from_dict(written)
    assert back.resolve() == in_place.resolve()
    assert {**back.resolved, "derived": {}} == {**written, "derived": {}}


@fields
def test_paths_start_at_the_folder_of_the_scenario(field: str, tmp_path: Path) -> None:
    name, differs, shows = OTHER[field]
    (tmp_path / "ours.yaml").write_text(yaml.safe_dump({"base": name, **differs}))
    data = Scenario.from_dict(PLAIN).replace({field: "./ours.yaml"}).to_dict()
    (tmp_path / "scenario.yaml").write_text(yaml.safe_dump(data))
    assert shows(Scenario.load(tmp_path / "scenario.yaml").resolve())


@fields
def test_an_edited_file_is_read_anew_and_tells_scenarios_apart(field: str, tmp_path: Path) -> None:
    name, differs, shows = OTHER[field]
    file = tmp_path / "ours.yaml"
    file.write_text(f"base: {name}\n")
    before = Scenario.from_dict(PLAIN).replace({field: str(file)})
    same = Scenario.from_dict(PLAIN).replace({field: str(file)})
    old_hash = hash(before)
    assert before == same
    assert not shows(before.resolve())
    file.write_text(yaml.safe_dump({"base": name, **differs}))
    assert shows(before.resolve())
    assert shows(Scenario.from_dict(PLAIN).replace({field: str(file)}).resolve())
    (tmp_path / "copy.yaml").write_text(f"base: {name}\n")
    old = Scenario.from_dict(PLAIN).replace({field: str(tmp_path / "copy.yaml")})
    assert before != old
    assert hash(before) != old_hash


def test_an_edited_file_that_another_one_names_is_read_anew(tmp_path: Path) -> None:
    """Kernel constants of a GPU of a topology of a scenario, each in its own file."""
    (tmp_path / "kernels.yaml").write_text("base: hopper\n")
    (tmp_path / "gpu.yaml").write_text("base: h100-sxm5-80gb\nkernels: ./kernels.yaml\n")
    (tmp_path / "machine.yaml").write_text("base: dgx_h100\ngpu: ./gpu.yaml\n")
    data = {k: v for k, v in PLAIN.items() if k != "cluster"}
    data["cluster"] = {"topology": str(tmp_path / "machine.yaml"), "nodes": 1}
    scenario = Scenario.from_dict(data)
    assert scenario.resolve().cluster.gpu.kernels.gemm.overhead < 1e-4
    before = scenario.resolved
    (tmp_path / "kernels.yaml").write_text("base: hopper\ngemm: {overhead: 1.0}\n")
    assert scenario.resolve().cluster.gpu.kernels.gemm.overhead == 1.0
    assert scenario.resolved != before
    assert Scenario.from_dict(scenario.resolved).resolve() == scenario.resolve()


def test_an_edited_schedule_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "order.csv"
    write_schedule(schedule("1f1b", 2, 4), file)
    scenario = plain(pipeline__schedule=str(file), training__global_batch=8)
    first = scenario.run().step_time
    assert first == plain(pipeline__schedule="1f1b").run().step_time
    same = plain(pipeline__schedule=str(file), training__global_batch=8)
    assert scenario == same
    write_schedule(schedule("gpipe", 2, 4), file)
    assert scenario.run().step_time == plain(pipeline__schedule="gpipe").run().step_time


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        ("framework.host.step_seconds", "5ms", "framework"),
        ("cluster.topology.nvls", False, "cluster.topology"),
        ("cluster.gpu.memory_bandwidth", "4TB/s", "cluster.gpu"),
        ("cluster.collectives.message_latency", "50us", "cluster.collectives"),
        ("training.optimizer.foreach_bytes", 3, "training.optimizer"),
    ],
)
def test_one_value_of_a_named_thing_can_be_set(path: str, value: object, key: str) -> None:
    before = Scenario.from_dict(PLAIN)
    after = before.replace({path: value})
    assert value_at(after.data, key_of(key))["base"] == value_at(PLAIN, key_of(key))
    assert after.resolve() != before.resolve() or path == "cluster.topology.nvls"
    with pytest.raises(TrainsimError, match="unknown key"):
        before.replace({path + "x": value}).resolve()


ALL_GRADIENTS = {"parallel.tp": 1, "parallel.pp": 1, "sharding.strategy": "ddp"}


@pytest.mark.parametrize(
    ("changes", "key", "told"),
    [
        ({"simulation.seed": 7}, "simulation.seed", "random"),
        ({"parallel.context_parallel": "ulysses"}, "parallel.context_parallel", "cp is 1"),
        ({"parallel.tp": 1, "parallel.sequence_parallel": True}, "parallel.sequence_parallel", "tp is 1"),
        ({"parallel.pp": 1, "pipeline.p2p": "blocking"}, "pipeline.p2p", "no messages"),
        ({"parallel.pp": 1, "pipeline.vocabulary_parallel": True}, "pipeline.vocabulary_parallel", "pp is 1"),
        ({"training.loss_scaling": "static"}, "training.loss_scaling", "only the loss of fp16"),
        ({"parallel.tp": 1, "training.tp_overlap": "userbuffers"}, "training.tp_overlap", "tp is 1"),
        ({"training.recompute": "selective"}, "training.recompute", "keeps no scores"),
        ({**ALL_GRADIENTS, "pipeline.post_validation": True}, "pipeline.post_validation", "by itself"),
    ],
)
def test_what_has_no_effect_is_told(changes: dict[str, Any], key: str, told: str) -> None:
    scenario = Scenario.from_dict(PLAIN).replace(changes)
    assert "without effect: " in scenario.resolved["derived"][key]
    assert told in scenario.resolved["derived"][key]
    without = Scenario.from_dict(PLAIN).replace({k: v for k, v in changes.items() if k != key})
    assert scenario.run().step_time == without.run().step_time
    assert "without effect" not in str(without.resolved["derived"])


@pytest.mark.parametrize("gpu", ["a100-sxm4-80gb", "h100-sxm5-80gb"])
def test_xformers_runs_as_its_curves_say(gpu: str) -> None:
    """Slower than FlashAttention-2, faster than scores that go through memory."""
    kernels, batches = ("flash2", "xformers", "eager"), {"training__micro_batch": 8, "training__global_batch": 64}
    times = [plain(cluster__gpu=gpu, training__attention=kernel, **batches).run().step_time for kernel in kernels]
    assert times[0] <= times[1] < times[2]


def test_what_has_an_effect_is_not_told() -> None:
    changes = {"training.precision": "fp16", "training.loss_scaling": "static", "pipeline.p2p": "blocking"}
    assert "without effect" not in str(Scenario.from_dict(PLAIN).replace(changes).resolved["derived"])


def test_another_gpu_brings_its_own_nvlinks_and_that_is_told() -> None:
    sizes = {"training__micro_batch": 4, "training__global_batch": 16}
    h100, h800 = plain(**sizes), plain(cluster__gpu="h800-sxm5-80gb", **sizes)
    note = h800.resolved["derived"]["cluster.nvlink_bandwidth"]
    assert note == "200 GB/s  (the NVLink of h800-sxm5-80gb, where h100-sxm5-80gb has 450 GB/s)"
    assert h800.resolve().cluster.nvlink_bandwidth == 200e9
    assert h800.run().step_time > 1.01 * h100.run().step_time
    written = h800.replace({"cluster.nvlink_bandwidth": "450GB/s"})
    assert written.resolve().cluster.nvlink_bandwidth == 450e9
    assert not {"cluster.gpu", "cluster.nvlink_bandwidth"} & set(written.resolved["derived"])
    assert not {"cluster.gpu", "cluster.nvlink_bandwidth"} & set(h100.resolved["derived"])
    back = Scenario.from_dict(h800.resolved)
    assert back.resolve() == h800.resolve()
    unused = plain(cluster__topology="pcie_box", cluster__gpu="a100-pcie-80gb")
    assert "connects GPUs by PCIe" in unused.resolved["derived"]["cluster.gpu"]
    with pytest.raises(TrainsimError, match="has no NVLinks"):
        load_topology("pcie_box", nvlink_bandwidth="100GB/s")


def test_pods_that_are_not_there_cannot_be_oversubscribed() -> None:
    with pytest.raises(TrainsimError, match=r"cluster\.pod_oversubscription = 4: nothing has pods here"):
        plain(cluster__topology="dgx_a100", cluster__gpu="a100-sxm4-80gb", cluster__pod_oversubscription=4).resolve()


@pytest.mark.parametrize(
    ("written", "tokens", "told"),
    [("8k", 8192, True), ("8K", 8192, True), ("8Ki", 8192, False), (8000, 8000, False), ("8192", 8192, False)],
)
def test_lengths_as_people_write_them(written: object, tokens: int, told: bool) -> None:
    scenario = plain(model__max_positions="128k", model__positions="rotary", training__sequence_length=written)
    assert scenario.resolve().training.sequence_length == tokens
    assert scenario.resolve().model.max_positions == 131072
    assert ("k is 1,024" in scenario.resolved["derived"].get("training.sequence_length", "")) == told


def test_whole_numbers_with_a_prefix() -> None:
    assert plain(training__global_batch="2k").resolve().training.global_batch == 2000
    assert plain(training__global_batch="2Ki").resolve().training.global_batch == 2048
    for wrong in ("2.5", "many", "1e-3", ""):
        with pytest.raises(TrainsimError, match=r"training\.global_batch = .*expected a whole number, such as 2048"):
            plain(training__global_batch=wrong)


@pytest.mark.parametrize("given", ["[2, 4x2, 2]", "2,4 x2,2", [2, "4x2", 2], [2, 4, 4, 2], "Et*2|(t*4|)*2t*2L"])
def test_layouts_in_short(given: object) -> None:
    scenario = plain(model__layers=12, parallel__tp=1, parallel__pp=4, pipeline__layout=given)
    assert scenario.resolve().pipeline.layout == (2, 4, 4, 2)


@pytest.mark.parametrize(("layers", "pp", "chunks"), [(70, 16, 1), (97, 32, 1), (61, 8, 3)])
def test_a_layout_that_is_offered_can_be_copied(layers: int, pp: int, chunks: int) -> None:
    fault = layout.derive(layers=layers, pp=pp, chunks=chunks)
    assert isinstance(fault, layout.Fault)
    offered = fault.message.rpartition("write the layout: ")[2]
    for text in (offered, yaml.safe_load(f"layout: {offered}")["layout"]):
        read = Scenario.from_dict(PLAIN).replace({"pipeline.layout": text}).spec.pipeline.layout
        stages = layout.parse(read) if isinstance(read, str) else read
        assert layout.check(stages, layers=layers, pp=pp, chunks=chunks) is None  # type: ignore[arg-type]


def test_a_full_mesh_is_one_link() -> None:
    text = GOOD.replace("to: nvswitch0, kind: nvlink3", 'to: "gpu[*]", kind: nvlink3')
    cables = [c for c in parse_topology(text).node.cables if c.kind == "nvlink3"]
    pairs = {frozenset((f"gpu{i}", f"gpu{j}")) for i in range(4) for j in range(i)}
    assert {frozenset((c.a, c.b)) for c in cables} == pairs
    with pytest.raises(TrainsimError, match="cyclic link"):
        parse_topology(GOOD.replace('from: "gpu[*]", to: nvswitch0', 'from: "gpu1", to: gpu1'))


def test_a_mesh_carries_collectives(tmp_path: Path) -> None:
    (tmp_path / "mesh.yaml").write_text(GOOD.replace("to: nvswitch0, kind: nvlink3", 'to: "gpu[*]", kind: nvlink3'))
    mesh = load_topology(tmp_path / "mesh.yaml")
    times = [collective_time(mesh, "all_reduce", range(n), "64MiB") for n in (2, 4)]
    assert all(time > 0 for time in times)


def leaves(kind: Any) -> Iterator[str]:
    """Keys of a profile: of its groups, and of the groups in them."""
    for key, (hint, _) in keys_of(kind).items():
        yield key
        if is_dataclass(hint):
            yield from leaves(hint)


def test_every_key_of_a_profile_is_documented() -> None:
    page = (Path(__file__).parents[1] / "docs" / "frameworks.md").read_text(encoding="utf-8")
    missing = [
        key
        for key in leaves(Framework)
        if not any(form in page for form in (f"`{key}`", f"`memory.{key}`", f"## {key}")) and key != "name"
    ]
    assert not missing
    rows = re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE)
    known = {*leaves(Framework)}
    assert {word for row in rows for word in re.findall(r"`(\w+)`", row)} <= known


def test_the_example_of_the_page_of_frameworks_works(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "frameworks.md").read_text(encoding="utf-8")
    (tmp_path / "ours.yaml").write_text(page.split("```yaml\n")[1].split("```")[0])
    ours, base = (load_framework(name, "fp8") for name in (tmp_path / "ours.yaml", "torchtitan"))
    assert (ours.host.step_seconds, ours.communication.bucket_parameters) == (0.012, 25e6)
    assert (ours.memory.states.fp8_copies, ours.kernels) == (2.0, base.kernels)


@pytest.mark.parametrize("name", schedules)
def test_schedules_say_what_they_are(name: str) -> None:
    assert len(schedules.description(name)) > 20
    assert len(schedules.traits(name).source) > 8
    with pytest.raises(InvalidPlan):
        schedules.check(name, 0, microbatches=1)


def test_models_in_place_start_from_a_base() -> None:
    model = plain(model={"base": "llama-3-8b", "layers": 8}).resolve().model
    assert (model.layers, model.hidden) == (8, 4096)
    with pytest.raises(TrainsimError, match=r"model\.base: No model is called 'llama3-8b'. Did you mean 'llama-3-8b'"):
        plain(model={"base": "llama3-8b"}).resolve()
    assert "llama-3-8b" in MODELS.names()


def test_a_scenario_starts_from_another(tmp_path: Path) -> None:
    (tmp_path / "low.yaml").write_text(yaml.safe_dump(PLAIN))
    (tmp_path / "high.yaml").write_text("base: ./low.yaml\nparallel:\n  tp: 3\n")
    with pytest.raises(TrainsimError, match=r"high\.yaml:3: parallel\.tp = 3: "):
        Scenario.load(tmp_path / "high.yaml").resolve()
    (tmp_path / "high.yaml").write_text("base: ./low.yaml\nparallel:\n  tp: 4\n")
    assert Scenario.load(tmp_path / "high.yaml").resolve().parallel.tp == 4
    (tmp_path / "low.yaml").write_text(yaml.safe_dump({**PLAIN, "training": {"optimizer": "adm"}}))
    with pytest.raises(TrainsimError, match=r"low\.yaml:\d+: training\.optimizer = 'adm': .*Did you mean 'adam'"):
        Scenario.load(tmp_path / "high.yaml").resolve()


def test_a_field_of_a_model_in_a_file_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "wide.yaml").write_text("base: llama-3-8b\nname: wide\nlayers: 4\n")
    (tmp_path / "job.yaml").write_text("model: wide.yaml\ncluster: {topology: dgx_h100, nodes: 1}\n")
    changed = Scenario.load(tmp_path / "job.yaml").replace({"model.layers": 2})
    assert changed.resolve().model.layers == 2
