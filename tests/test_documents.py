"""One reader for all data files: any text or mapping is a value, or a message that names its place."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trainsim as ts
from trainsim.documents.catalogue import OWN, Catalogue, merged
from trainsim.documents.document import canonical, read_text, value_of
from trainsim.documents.origin import Origin
from trainsim.errors import InvalidData, TrainsimError, UnknownName, suggestions
from trainsim.frameworks import FRAMEWORKS, load_framework
from trainsim.hardware.cluster import load_topology
from trainsim.hardware.gpu import GPUS, load_gpu
from trainsim.hardware.kernel_constants import KERNELS, load_kernels
from trainsim.hardware.topology import TOPOLOGIES, parse_topology
from trainsim.models.known import FAMILIES, MODELS
from trainsim.models.reading import load_model
from trainsim.optimizers import OPTIMIZERS, load_optimizer
from trainsim.scenario.loading import SCENARIOS, scenario_names
from trainsim.scenario.scenario import Scenario

Load = Callable[[Any], object]
LOADERS: dict[str, tuple[Catalogue, Load]] = {
    "GPU": (GPUS, load_gpu),
    "kernels": (KERNELS, load_kernels),
    "framework": (FRAMEWORKS, load_framework),
    "optimizer": (OPTIMIZERS, load_optimizer),
    "model": (MODELS, load_model),
    "topology": (TOPOLOGIES, load_topology),
    "scenario": (SCENARIOS, lambda spec: Scenario.from_dict(spec) if isinstance(spec, dict) else Scenario.load(spec)),
}
SAMPLES = {
    "GPU": "h100-sxm5-80gb",
    "kernels": "hopper",
    "framework": "megatron-core",
    "optimizer": "muon",
    "model": "llama-3-8b",
    "topology": "dgx_a100",
    "scenario": "bloom_3d",
}
kinds = pytest.mark.parametrize("kind", LOADERS)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)
quick = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


def every() -> Iterator[Any]:
    for kind, (catalogue, _) in LOADERS.items():
        names = scenario_names() if kind == "scenario" else catalogue.names()  # not the files of several jobs
        yield from (pytest.param(kind, name, id=f"{kind}-{name}") for name in names)


@pytest.mark.parametrize(("kind", "name"), list(every()))
def test_what_ships_loads_and_says_what_it_is(kind: str, name: str) -> None:
    catalogue, load = LOADERS[kind]
    assert load(name)
    document = catalogue.find(name)
    assert document.name == name
    assert 4 < len(catalogue.descriptions()[name]) < 140
    assert kind == "scenario" or len(str(document.data["source"])) > 20


@pytest.mark.parametrize("family", FAMILIES.names())
def test_families_say_what_they_are(family: str) -> None:
    assert len(FAMILIES.descriptions()[family]) > 10


@kinds
def test_by_name_by_path_and_in_place_are_the_same(kind: str, tmp_path: Path) -> None:
    catalogue, load = LOADERS[kind]
    name = SAMPLES[kind]
    text = catalogue.files[name].read_text()
    (tmp_path / f"{name}.yaml").write_text(text)
    for spec in (str(tmp_path / f"{name}.yaml"), tmp_path / f"{name}.yaml", {"base": name, "name": name}):
        ours, theirs = load(spec), load(name)
        if kind != "scenario" and not isinstance(spec, dict):
            assert ours == theirs
        assert catalogue.find(spec).data.keys() >= catalogue.find(name).data.keys() - set(OWN)


@kinds
def test_a_base_and_what_differs(kind: str, tmp_path: Path) -> None:
    """A file on top of one that ships, and one on top of that, by a path from its folder."""
    catalogue, load = LOADERS[kind]
    (tmp_path / "first.yaml").write_text(f"base: {SAMPLES[kind]}\n")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "second.yaml").write_text("base: ../first.yaml\n")
    assert load(tmp_path / "inner" / "second.yaml")
    document = catalogue.find(tmp_path / "inner" / "second.yaml")
    assert document.name == "second"
    theirs = catalogue.find(SAMPLES[kind]).data
    assert document.data == {key: value for key, value in theirs.items() if key not in OWN}


@kinds
def test_a_circle_of_bases_is_refused(kind: str, tmp_path: Path) -> None:
    catalogue, load = LOADERS[kind]
    (tmp_path / "a.yaml").write_text("base: ./b.yaml\n")
    (tmp_path / "b.yaml").write_text("base: ./a.yaml\n")
    with pytest.raises(catalogue.error, match=r"[ab]\.yaml:1: base: \./[ab]\.yaml is based on itself"):
        load(tmp_path / "a.yaml")


@kinds
def test_an_unknown_base_names_its_line(kind: str, tmp_path: Path) -> None:
    catalogue, load = LOADERS[kind]
    name = SAMPLES[kind]
    (tmp_path / "a.yaml").write_text(f"# mine\nbase: {name}x\n")
    with pytest.raises(catalogue.error, match=rf"a\.yaml:2: base: No .* is called .*Did you mean.*{name}"):
        load(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("GPU", "base: l40s\nmemry: 3GB\n", ["x.yaml:2: memry", "Did you mean 'memory'"]),
        ("GPU", "base: l40s\nmemory: 3 parsecs\n", ["x.yaml:2: memory", "80GiB"]),
        ("GPU", "base: l40s\nsms: 0\n", ["x.yaml:2: sms: 0 is out of range"]),
        ("GPU", "base: l40s\nflops: {bf16: 0}\n", ["x.yaml:2: flops.bf16", "more than 0"]),
        ("GPU", "base: l40s\nkernels: hoper\n", ["x.yaml:2: kernels", "Did you mean 'hopper'"]),
        ("GPU", "sms: 3\n", ["x.yaml:1", "kernels"]),
        ("kernels", "base: hopper\ngemm:\n  tiles: [[1, 2]]\n", ["x.yaml:3: gemm.tiles", "[m, n, efficiency]"]),
        ("kernels", "base: hopper\nattention: {fallback: flash9}\n", ["x.yaml:2: attention", "'flash9'"]),
        ("framework", "base: neutral\nhost:\n  step_secnds: 1\n", ["x.yaml:3: host.step_secnds", "'step_seconds'"]),
        ("framework", "base: neutral\nhost: {step_seconds: 1GB}\n", ["x.yaml:2: host.step_seconds", "1.5us"]),
        ("framework", "base: neutral\nkernels: {attention: flesh2}\n", ["kernels.attention", "'flash2'"]),
        ("framework", "base: neutral\nprecisions: {bf17: {}}\n", ["precisions.bf17", "'bf16'"]),
        ("framework", "family: any\n", ["kernels: 'kernels' is missing"]),
        ("optimizer", "base: adam\nmatrices: {states: -1, moved: 3}\n", ["x.yaml:2: matrices.states", "negative"]),
        ("optimizer", "matrices: {states: 8}\n", ["matrices.moved: 'moved' is missing"]),
        ("topology", "base: dgx_a100\ngpu: h1000\n", ["x.yaml:2: gpu", "No GPU is called 'h1000'"]),
        ("topology", "base: dgx_a100\nnode:\n  nics: {bandwith: 1}\n", ["x.yaml:3: node.nics.bandwith"]),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_their_line(kind: str, text: str, words: list[str], tmp_path: Path) -> None:
    catalogue, load = LOADERS[kind]
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(catalogue.error) as error:
        load(tmp_path / "x.yaml")
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("known", "name", "first"),
    [
        (GPUS.names(), "h100", "h100-sxm5-80gb"),
        (GPUS.names(), "H200", "h200-sxm5-141gb"),
        (GPUS.names(), "a100", "a100-sxm4-80gb"),
        (GPUS.names(), "V100", "v100-sxm3-32gb"),
        (GPUS.names(), "a100 40gb", "a100-sxm4-40gb"),
        (GPUS.names(), "4090", "rtx-4090"),
        (GPUS.names(), "b20-sxm", "b200-sxm"),
        (MODELS.names(), "llama3-8b", "llama-3-8b"),
        (MODELS.names(), "405b", "llama-3.1-405b"),
        (TOPOLOGIES.names(), "h100", "dgx_h100"),
        (FRAMEWORKS.names(), "megatron core", "megatron-core"),
    ],
)
def test_names_that_people_mean(known: tuple[str, ...], name: str, first: str) -> None:
    assert suggestions(name, known)[0] == first


def test_special_files_are_no_documents(tmp_path: Path) -> None:
    fifo, link = tmp_path / "pipe.yaml", tmp_path / "loop.yaml"
    os.mkfifo(fifo)
    link.symlink_to(link)
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "long.yaml").write_text("a: " + "x" * (2 << 20))
    for spec in ("/dev/zero", fifo, link, tmp_path / "folder.yaml", tmp_path / "long.yaml", "a" * 5000, "x/" * 3000,
                 "a\0b.yaml", "\ud800/x.yaml", ".", "..", "/"):  # fmt: skip
        for _, load in LOADERS.values():
            with pytest.raises(TrainsimError):
                load(spec)
        for key in ("model", "framework", "cluster.topology", "cluster.gpu", "training.optimizer", "pipeline.schedule"):
            with pytest.raises(TrainsimError):
                Scenario.load("quickstart").replace({key: str(spec)}).resolve()


@given(st.text(max_size=80) | st.text(alphabet="abc: {}[]-&*!|>#'\"\n\t,0123.?%@~<=ed", max_size=80))
@settings(deadline=None, max_examples=300)
def test_any_text_is_a_mapping_or_is_refused(text: str) -> None:
    try:
        assert isinstance(read_text(text, file="t.yaml").data, dict)
    except InvalidData as error:
        assert str(error).startswith("t.yaml")


@pytest.mark.parametrize("tag", ["int", "float", "bool", "timestamp", "binary", "null", "set", "omap", "pairs", "seq"])
@pytest.mark.parametrize("value", ["", "x", "[]", "{}", "[1]", "{a: 1}", "'2024-13-45'", "0o9", "9" * 5000])
def test_tags_that_do_not_fit_are_refused_in_words(tag: str, value: str) -> None:
    with suppress(InvalidData):
        read_text(f"a: !!{tag} {value}\n", file="t.yaml")


@given(st.text(max_size=40))
@quick
def test_any_word_of_the_command_line_is_a_value(text: str) -> None:
    value_of(text)


@kinds
@given(value=anything)
@quick
def test_any_mapping_is_a_value_or_a_message(kind: str, value: object) -> None:
    _, load = LOADERS[kind]
    with suppress(TrainsimError):
        load(value if isinstance(value, dict) else {"base": SAMPLES[kind], "x": value})
    with suppress(TrainsimError):
        load({"base": value})


@kinds
@given(seed=st.integers(0, 1 << 30), value=anything)
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_any_change_of_what_ships_is_a_value_or_a_message(kind: str, seed: int, value: object) -> None:
    catalogue, load = LOADERS[kind]
    data = mutated(catalogue.find(SAMPLES[kind]).data, random.Random(seed), value)
    with suppress(TrainsimError):
        load(data)


def mutated(data: Any, chance: random.Random, value: object) -> Any:
    """*data* with one of its values, somewhere, replaced by *value*, by another of its own, or left out."""
    data = deepcopy(dict(data))
    places = [
        (spot, key) for spot in containers(data) for key in (spot if isinstance(spot, dict) else range(len(spot)))
    ]
    (spot, key), (other, its) = chance.choice(places), chance.choice(places)
    if chance.random() < 0.2:
        del spot[key]
    else:
        spot[key] = deepcopy(other[its]) if chance.random() < 0.6 else value
    return data


def containers(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from containers(inner)


@given(seed=st.integers(0, 1 << 30), value=scalars)
@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
def test_any_change_of_the_text_of_a_topology(seed: int, value: object) -> None:
    chance = random.Random(seed)
    name = chance.choice(TOPOLOGIES.names())
    data = mutated(yaml.safe_load(TOPOLOGIES.files[name].read_text()), chance, value)
    with suppress(TrainsimError):
        parse_topology(yaml.safe_dump(data))


@given(anything, anything)
@quick
def test_canonical_tells_values_apart(a: object, b: object) -> None:
    assert canonical(a) == canonical(deepcopy(a))
    if canonical(a) == canonical(b):
        assert repr(a) == repr(b) or a == b
    if isinstance(a, dict):
        assert canonical(a) == canonical(dict(reversed(a.items())))


def test_a_key_is_a_word_and_a_value_may_be_true() -> None:
    words = {"on": True, "off": "nics", "yes": False, "No": [{"true": None}]}
    text = "{on: on, off: nics, yes: no, No: [{true: ~}]}"
    assert value_of(text) == words
    document = read_text(f"a: 1\nb:\n  {text}", file="x.yaml")
    assert document.data == {"a": 1, "b": words}
    assert document.origin.where(("b", "on")) == "x.yaml:3: b.on"


def test_lines_of_a_base_are_those_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "low.yaml").write_text("a:\n  b: 1\n  c: 2\n")
    low = read_text("a:\n  b: 1\n  c: 2\n", file="low.yaml")
    high = Origin(file="high.yaml", lines={("a",): 1, ("a", "c"): 2}, below=low.origin)
    assert high.where(("a", "c")) == "high.yaml:2: a.c"
    assert high.where(("a", "b")) == "low.yaml:2: a.b"
    assert merged(low.data, {"a": {"c": 3}}) == {"a": {"b": 1, "c": 3}}


@pytest.mark.parametrize("quantity", ["1MiB", 1 << 20, 1048576.0])
def test_bytes_are_a_number_or_what_people_write(quantity: str | float) -> None:
    cluster = ts.topology("dgx_a100", nodes=2)
    assert ts.collective_time(cluster, "all_reduce", range(16), quantity) == ts.collective_time(
        cluster, "all_reduce", range(16), 1 << 20
    )
    kernel = ts.kernel_time("l40s", "memory_bound", kind="elementwise", nbytes=quantity)
    assert kernel == ts.kernel_time("l40s", "memory_bound", kind="elementwise", nbytes=1 << 20)


def test_a_topology_takes_by_keyword_what_a_scenario_takes() -> None:
    changes: dict[str, Any] = {
        "gpu": {"base": "a100-sxm4-40gb", "memory": "96GB"},
        "nic_bandwidth": "50Gbps",
        "oversubscription": 2,
    }
    cluster = ts.topology("dgx_a100", nodes=30, **changes)
    scenario = Scenario.from_dict({"model": "gpt2", "cluster": {"topology": "dgx_a100", "nodes": 30, **changes}})
    assert cluster == scenario.resolve().cluster
    assert (cluster.gpu.memory, cluster.fabric.oversubscription) == (96e9, 2)
    with pytest.raises(UnknownName, match="Did you mean 'nic_bandwidth'"):
        ts.topology("dgx_a100", nic_bandwith=1)
