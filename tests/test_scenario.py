"""Scenarios: read, resolved, changed, compared, and written back."""

import re
import typing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from tests.jobs import scenario
from trainsim.contracts.job import Delay, Slow
from trainsim.errors import InvalidPlan, ScenarioError, TrainsimError
from trainsim.scenario import checks, layout
from trainsim.scenario.loading import scenario_names
from trainsim.scenario.scenario import Scenario
from trainsim.scenario.schema import ScenarioSpec
from trainsim.scenario.sharding_section import ShardingSpec, sharding_section
from trainsim.schedules.lookup import facts

SMALL = {"model": "gpt2", "cluster": {"topology": "dgx_a100", "nodes": 1}, "training": {"global_batch": 64}}


@pytest.mark.parametrize("name", scenario_names())
def test_every_shipped_scenario_resolves_and_reads_back(name: str) -> None:
    scenario = Scenario.load(name)
    job = scenario.resolve()
    p, t = job.parallel, job.training
    assert p.ranks == p.tp * p.cp * p.pp * p.dp == job.cluster.ranks
    assert t.global_batch == t.micro_batch * p.dp * t.microbatches
    assert sum(job.pipeline.layout) == job.model.layers
    replicas = facts(job.pipeline.schedule).replicas
    assert len(job.pipeline.layout) * replicas == p.pp * job.pipeline.chunks
    assert Scenario.from_dict(scenario.resolved).resolve() == job
    assert Scenario.from_dict(scenario.to_dict()) == scenario


def test_bloom_is_what_was_trained() -> None:
    job = Scenario.load("scenarios/bloom_3d.yaml").resolve()
    assert (job.parallel.tp, job.parallel.pp, job.parallel.dp, job.training.microbatches) == (4, 12, 8, 128)
    assert job.pipeline.layout == (5, *[6] * 10, 5)
    assert job.padded_vocab == 250880
    derived = Scenario.load("bloom_3d").resolved["derived"]
    assert derived["parallel.dp"] == "8  (384 GPUs / (tp 4 x pp 12))"


@pytest.mark.parametrize(
    "changes",
    [
        {"pipeline.p2p": "blocking"},
        {"pipeline.post_validation": True},
        {"simulation.steps": 3},
        {"training.precision": "fp16", "training.loss_scaling": "none"},
        {"training.precision": "bf16", "training.gradient_dtype": "fp16"},
        {"pipeline.schedule": "seq1f1b", "pipeline.group": 2},
    ],
)
def test_a_resolved_scenario_says_what_ran(changes: dict[str, object]) -> None:
    scenario = Scenario.load("quickstart").replace(changes)
    again = Scenario.from_dict(scenario.resolved)
    assert again.resolve() == scenario.resolve()
    assert {**again.resolved, "derived": {}} == {**scenario.resolved, "derived": {}}


def test_yaml_written_by_a_scenario_reads_back(tmp_path: Path) -> None:
    scenario = Scenario.load("quickstart")
    (tmp_path / "again.yaml").write_text(scenario.to_yaml())
    again = Scenario.load(tmp_path / "again.yaml")
    assert again == scenario
    assert hash(again) == hash(scenario)


def test_equality_is_of_meaning_not_of_spelling() -> None:
    base = Scenario.from_dict(SMALL)
    assert base.replace({"parallel.tp": 1}) == base
    assert base.replace({"sharding.reduce_bucket": "500M"}) == base.replace({"sharding.reduce_bucket": 5e8})
    assert base.replace({"parallel.tp": 2}) != base
    assert len({base, base.replace({"parallel.tp": 1}), base.replace({"parallel.tp": 2})}) == 2
    assert base.replace({"parallel.tp": np.int64(2)}) == base.replace({"parallel.tp": 2})
    with pytest.raises(ScenarioError, match="3 is not a path"):
        base.replace({3: 2})  # type: ignore[dict-item]


def test_replace_leaves_the_original_alone() -> None:
    base = Scenario.from_dict(SMALL)
    changed = base.replace({"parallel.tp": 4, "training.recompute.layers": 2, "model.layers": 24, "name": "other"})
    assert base.spec.parallel.tp == 1
    assert "parallel" not in base.to_dict()
    job = changed.resolve()
    assert (job.parallel.tp, job.parallel.dp, job.training.recompute, job.training.recompute_layers) == (
        4,
        2,
        "full",
        2,
    )
    assert (job.model.layers, job.model.hidden, job.name) == (24, 768, "other")


def test_replace_reaches_into_lists_and_takes_whole_sections() -> None:
    base = Scenario.load("bloom_slow_node")
    slow = base.replace({"what_if.0.slow.node": 3}).resolve().what_if[0]
    assert isinstance(slow, Slow)
    assert slow.ranks == tuple(range(24, 32))
    assert base.replace({"what_if": []}).resolve().what_if == ()
    assert base.replace({"parallel": {"tp": 8, "pp": 12}}).resolve().parallel.dp == 4


def test_what_if_names_ranks_and_links() -> None:
    two = {"topology": "dgx_a100", "nodes": 2}
    what = [
        {"slow": {"node": 1, "factor": 1.1}},
        {"slow": {"gpu": "node1.gpu3", "factor": 2}},
        {"slow": {"gpu": 4, "factor": 2}},
        {"slow": {"rank": 5, "factor": 2}},
        {"slow": {"nic": "node1.nic0", "factor": 0.5}},
        {"delay": {"rank": 3, "at": "backward", "seconds": "20ms"}},
    ]
    job = Scenario.from_dict({**SMALL, "cluster": two, "what_if": what}).resolve()
    assert job.what_if == (
        Slow(factor=1.1, ranks=tuple(range(8, 16))),
        Slow(factor=2.0, ranks=(11,)),
        Slow(factor=2.0, ranks=(4,)),
        Slow(factor=2.0, ranks=(5,)),
        Slow(factor=0.5, links=("node1.nic0",)),
        Delay(rank=3, at="backward", seconds=0.02),
    )


def test_what_is_left_out_is_derived_and_said() -> None:
    scenario = Scenario.from_dict({"model": "llama-3-8b", "cluster": {"topology": "dgx_h100", "nodes": 2}})
    job, derived = scenario.resolve(), scenario.resolved["derived"]
    assert (job.parallel.dp, job.training.microbatches, job.sharding.strategy) == (16, 1, "zero1")
    for key in ("parallel.dp", "training.global_batch", "training.sequence_length", "pipeline.layout"):
        assert key in derived
    assert job.framework.name == "neutral"
    assert job.training.attention == job.framework.kernels.attention


def test_a_model_file_beside_the_scenario_is_found(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text("name: tiny\nfamily: llama\nlayers: 4\nhidden: 256\nheads: 4\nvocab: 1000\n")
    (tmp_path / "s.yaml").write_text("model: tiny.yaml\ncluster: {topology: dgx_a100, nodes: 1}\n")
    job = Scenario.load(tmp_path / "s.yaml").resolve()
    assert (job.model.name, job.model.layers, job.padded_vocab) == ("tiny", 4, 1000)


def test_topology_fields_can_be_overridden() -> None:
    usual = Scenario.from_dict(SMALL)
    fast = usual.replace({"cluster.nic_bandwidth": "400Gbps"})
    assert fast.resolve().cluster != usual.resolve().cluster
    assert fast.resolve().cluster.ranks == 8


def test_one_key_of_a_mapping_of_the_topology_can_be_set() -> None:
    usual = Scenario.from_dict(SMALL)
    small, before = usual.replace({"cluster.hosts.memory": "64GB"}).resolve().cluster, usual.resolve().cluster
    assert small.node.host is not None
    assert before.node.host is not None
    assert small.node.host == replace(before.node.host, memory=64e9)
    for path, words in (
        ("cluster.hosts.memry", "'memory'"),
        ("cluster.gpus.memory", "a single value"),
        ("cluster.hostz.memory", "hosts"),
        ("cluster.gpu.memory", "set cluster.gpu to a name first"),
    ):
        with pytest.raises(ScenarioError, match=words):
            usual.replace({path: "64GB"}).resolve()


@given(layers=st.integers(1, 200), pp=st.integers(1, 20), chunks=st.integers(1, 4))
@settings(deadline=None, max_examples=300)
def test_derived_layouts_conserve_layers_and_faults_offer_what_works(layers: int, pp: int, chunks: int) -> None:
    found = layout.derive(layers=layers, pp=pp, chunks=chunks)
    if isinstance(found, checks.Fault):
        works = [
            n for n in range(1, 201) if not isinstance(layout.derive(layers=layers, pp=n, chunks=chunks), checks.Fault)
        ]
        offered = (
            found.message.split("pp=")[-1].split(" would")[0].replace(", ...", "") if " would" in found.message else ""
        )
        for word in offered.split(", "):
            assert not word.isdigit() or int(word) in works
        return
    stages, _ = found
    assert layout.check(stages, layers=layers, pp=pp, chunks=chunks) is None
    assert max(stages) - min(stages) <= 1
    assert min(stages) >= 0


@pytest.mark.parametrize(
    ("text", "stages"),
    [("Et*3|(tt|)*2t*2L", (3, 2, 2, 2)), ("E|(t|)*3,t|L", (0, 1, 1, 1, 1, 0)), ("Et|tL", (1, 1))],
)
def test_megatron_layout_strings(text: str, stages: tuple[int, ...]) -> None:
    assert layout.parse(text) == stages


@pytest.mark.parametrize("text", ["", "tt", "Ett|x", "EL|EL", "t|EtL", "((", "E(t*9999)*9999L", "t*9999999999"])
def test_wrong_layout_strings(text: str) -> None:
    assert isinstance(layout.parse(text), checks.Fault)


@given(tp=st.integers(1, 64), pp=st.integers(1, 64), micro=st.integers(1, 9), batch=st.integers(1, 300))
@settings(deadline=None, max_examples=60)
def test_any_numbers_resolve_or_are_refused_in_words(tp: int, pp: int, micro: int, batch: int) -> None:
    changes = {"parallel.tp": tp, "parallel.pp": pp, "training.micro_batch": micro, "training.global_batch": batch}
    try:
        job = Scenario.from_dict(SMALL).replace(changes).resolve()
    except InvalidPlan as error:
        assert "would" in str(error) or "works" in str(error) or "need" in str(error)
    else:
        assert job.parallel.ranks == 8


def test_defaults_are_not_shared_between_scenarios() -> None:
    given_data = {"model": "gpt2", "cluster": {"topology": "dgx_a100", "nodes": 1}}
    scenario = Scenario.from_dict(given_data)
    given_data["cluster"]["nodes"] = 7  # type: ignore[index]
    scenario.to_dict()["cluster"]["nodes"] = 5
    assert scenario.resolve().cluster.nodes == 1


@pytest.mark.parametrize("data", [[], None, 3, "x"])
def test_from_dict_wants_a_mapping(data: object) -> None:
    with pytest.raises(ScenarioError, match="mapping"):
        Scenario.from_dict(data)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"parallel.tpp": 2},
        {"paralel.tp": 2},
        {"training.foo.bar": 1},
        {"framework.x": 1},
        {"what_if.0.slow": {}},
        {"": 1},
        {"parallel..tp": 1},
        {"model.layes": 3},
        {"parallel.tp": None},
        {"parallel.tp": "two"},
        {"parallel": 3},
    ],
)
def test_changes_that_cannot_be(changes: dict[str, object]) -> None:
    with pytest.raises(TrainsimError):
        Scenario.from_dict(SMALL).replace(changes)


REFUSED = ("MoeSpec", "MlaSpec", "LoraSpec")


def test_every_key_of_a_scenario_is_documented() -> None:
    """docs/scenario.md names each field of the schema."""
    text = (Path(__file__).parents[1] / "docs" / "scenario.md").read_text()

    def fields(model: type[BaseModel]) -> typing.Iterator[str]:
        model = sharding_section() if model is ShardingSpec else model
        for name, field in model.model_fields.items():
            yield field.alias or name
            for part in typing.get_args(field.annotation) or (field.annotation,):
                for inner in typing.get_args(part) or (part,):
                    if isinstance(inner, type) and issubclass(inner, BaseModel) and inner.__name__ not in REFUSED:
                        yield from fields(inner)

    unwritten = {name for name in fields(ScenarioSpec) if not re.search(rf"\b{name}\b", text)}
    assert not unwritten


def test_a_strategy_of_another_software_is_told() -> None:
    base = {"parallel.pp": 1, "parallel.tp": 1, "sharding.strategy": "zero3"}
    for framework, told in (("megatron-core", True), ("deepspeed", False), ("neutral", False)):
        derived = scenario().replace({**base, "framework": framework}).resolved["derived"]
        assert ("zero3 belongs to deepspeed" in derived.get("framework", "")) == told


def test_one_group_of_all_replicas_is_told() -> None:
    base = {"parallel.pp": 1, "parallel.tp": 1, "framework": "pytorch-fsdp2", "sharding.strategy": "hsdp"}
    for shard, told in ((16, True), (8, False)):
        derived = scenario().replace({**base, "sharding.shard_size": shard}).resolved["derived"]
        assert ("nothing differs from fsdp" in derived.get("sharding.shard_size", "")) == told
