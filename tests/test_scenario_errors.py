"""Bad input: each is one message that names the file, the line, the key, the value and the way out."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainsim.contracts.job import Slow
from trainsim.documents.document import read_text
from trainsim.errors import NotBuilt, ScenarioError, TrainsimError
from trainsim.hardware.cluster import load_topology
from trainsim.scenario.scenario import Scenario

GOOD = "model: gpt2\ncluster: {topology: dgx_a100, nodes: 1}\n"
BLOOM = "model: bloom-176b\nframework: megatron-deepspeed-2022\ncluster:\n  topology: jean_zay_a100\n  nodes: 48\n"

CASES = {
    "empty": ("", ["is empty", "`model:`"]),
    "only a comment": ("# nothing\n", ["is empty"]),
    "list": ("- a\n- b\n", [":1:", "holds a list"]),
    "single value": ("hello\n", ["single value"]),
    "two documents": ("a: 1\n---\nb: 2\n", ["several documents"]),
    "duplicate key": (GOOD + "model: gpt2-xl\n", [":3:", "model is already given in line 1"]),
    "duplicate key inside": (GOOD + "parallel:\n  tp: 1\n  tp: 2\n", [":5:", "tp is already given in line 4"]),
    "tab": ("model:\n\tname: x\n", [":2:", "tab"]),
    "broken YAML": ("model: [1, 2\ncluster: }\n", ["not valid YAML"]),
    "endless alias": ("model: &a [*a]\n", ["deeply nested"]),
    "unknown tag": ("model: !!python/object:os.system x\n", ["not valid YAML"]),
    "key is a list": ("[a, b]: 1\n", ["must be a word"]),
    "no cluster": ("model: gpt2\n", ["cluster: is missing", "topology: dgx_h100"]),
    "unknown section": (GOOD + "trainin: {}\n", [":3:", "trainin", "did you mean 'training'"]),
    "unknown key": (GOOD + "parallel:\n  tpp: 2\n", [":4:", "parallel.tpp", "did you mean 'tp'"]),
    "key of another section": (GOOD + "parallel:\n  micro_batch: 2\n", ["belongs under training"]),
    "list for a mapping": (
        GOOD + "parallel: [1, 2]\n",
        [":3:", "parallel = [1, 2]", "expected a mapping", "tp, pp, dp"],
    ),
    "word for a mapping": (
        GOOD + "sharding: {offload: cpu}\n", ["offload = 'cpu'", "expected a mapping", "optimizer, parameters"]
    ),
    "no GPU": (
        "model: gpt2\ncluster: {topology: dgx_a100, gpu: a100}\n", ["cluster.gpu = 'a100'", "No GPU is called"]
    ),
    "mapping for a list": (GOOD + "what_if: {slow: 1}\n", [":3:", "expected a list"]),
    "word for a number": (GOOD + "parallel:\n  tp: two\n", [":4:", "parallel.tp = 'two'", "whole number"]),
    "true for a number": (GOOD + "parallel: {tp: true}\n", ["parallel.tp = true", "whole number"]),
    "fraction": (GOOD + "parallel: {tp: 1.5}\n", ["parallel.tp = 1.5", "whole number"]),
    "number for a word": (GOOD + "framework: 3\n", ["framework = 3"]),
    "number for true": (GOOD + "parallel: {sequence_parallel: 1}\n", ["true or false"]),
    "zero": (GOOD + "parallel: {tp: 0}\n", ["at least 1"]),
    "negative": (GOOD + "training: {micro_batch: -2}\n", ["training.micro_batch = -2", "at least 1"]),
    "absurd": (GOOD + "training: {sequence_length: 99999999999999}\n", ["at most"]),
    "infinite": (GOOD + "training: {micro_batch: .inf}\n", ["whole number"]),
    "absurd nodes": ("model: gpt2\ncluster: {topology: dgx_a100, nodes: 900000}\n", ["cluster", "900000"]),
    "unknown option": (GOOD + "training: {recompute: ful}\n", ["did you mean 'full'"]),
    "parsecs": (GOOD + "sharding: {reduce_bucket: 25 parsecs}\n", ["25 parsecs", "500M"]),
    "bandwidth in parsecs": (
        "model: gpt2\ncluster:\n  topology: dgx_a100\n  nic_bandwidth: 25 parsecs\n",
        [":4:", "cluster.nic_bandwidth", "parsecs", "200Gbps"],
    ),
    "unknown override": (
        "model: gpt2\ncluster:\n  topology: dgx_a100\n  nic_bandwith: 25GB/s\n",
        [":4:", "did you mean 'nic_bandwidth'"],
    ),
    "unknown model": ("model: gpt-2\ncluster: {topology: dgx_a100}\n", [":1:", "gpt-2", "gpt2"]),
    "unknown topology": ("model: gpt2\ncluster: {topology: dgx_a10}\n", [":2:", "Did you mean 'dgx_a100'"]),
    "unknown framework": (GOOD + "framework: megatron-cor\n", [":3:", "Did you mean 'megatron-core'"]),
    "unknown schedule": (GOOD + "pipeline: {schedule: 1f1c}\n", [":3:", "Did you mean '1f1b'"]),
    "unknown algorithm": (GOOD + "network: {algorithm: rinf}\n", [":3:", "Did you mean 'ring'"]),
    "unknown collective": (GOOD + "network: {algorithm: {allreduce: ring}}\n", ["all_reduce"]),
    "heads": (
        BLOOM + "parallel:\n  tp: 3\n  pp: 16\n",
        [":7:", "112 heads are not divisible by tp=3", "tp=1, 2, 4, 7, 8"],
    ),
    "product": (BLOOM + "parallel: {tp: 4, pp: 12, dp: 7}\n", ["336", "384", "dp=8 would"]),
    "product without dp": (BLOOM + "parallel: {tp: 4, pp: 11}\n", ["44", "384", "pp=1, 2, 3, 4, 6, 8, 12", "nodes="]),
    "batch": (
        BLOOM + "parallel: {tp: 4, pp: 12}\ntraining: {global_batch: 2047, micro_batch: 2}\n",
        ["2047", "16", "2032", "2048"],
    ),
    "layers": (BLOOM + "parallel: {tp: 4, pp: 16}\n", ["70 layers are not divisible by pp=16", "pp=", "layout"]),
    "layout length": (GOOD + "pipeline: {layout: [6, 6]}\n", ["2 numbers", "1 virtual stages"]),
    "layout sum": (GOOD + "parallel: {pp: 2}\npipeline: {layout: [6, 5]}\n", ["11 layers", "1 too few"]),
    "slices": (GOOD + "pipeline: {schedule: seq1f1b, group: 3}\n", ["1024 tokens", "3 equal slices", "group=1, 2, 4"]),
    "slices and sequence parallel": (
        GOOD + "parallel: {tp: 2, sequence_parallel: true}\npipeline: {schedule: terapipe, group: 1024}\n",
        ["1024 equal slices of 2 parts", "512, ... would"],
    ),
    "group of none": (GOOD + "pipeline: {schedule: 1f1b, group: 2}\n", ["takes no group"]),
    "sharded without a flush": (
        GOOD + "pipeline: {schedule: pipedream}\nsharding: {strategy: zero1}\n",
        [":4:", "sharding.strategy", "pipedream", "ddp would work"],
    ),
    "chunks": (GOOD + "pipeline: {schedule: 1f1b, chunks: 2}\n", ["interleaved-1f1b"]),
    "positions": (GOOD + "training: {sequence_length: 4096}\n", ["1024 learned positions"]),
    "sequence parallel": (
        GOOD + "parallel: {tp: 4, sequence_parallel: true}\ntraining: {sequence_length: 510}\n",
        ["510", "tp=4"],
    ),
    "order": (GOOD + "parallel: {order: [tp, dp]}\n", ["parallel.order", "once"]),
    "precision": (GOOD + "training: {precision: fp8}\n", ["fp8", "a100"]),
    "scales that the GPU does not know": (
        GOOD.replace("dgx_a100", "dgx_h100") + "training: {precision: mxfp8}\n",
        ["training.precision", "mxfp8", "h100", "fp8"],
    ),
    "fused attention in single precision": (
        GOOD + "training: {precision: fp32, attention: flash2}\n",
        ["flash2", "does not support fp32", "use eager"],
    ),
    "layers of selective": (GOOD + "training: {recompute: {mode: selective, layers: 2}}\n", ["with mode: full"]),
    "layers of recompute": (GOOD + "training: {recompute: {mode: full, layers: 13}}\n", ["13 layers", "12 or fewer"]),
    "slow without target": (GOOD + "what_if:\n- slow: {factor: 2}\n", [":4:", "node, gpu, rank, link or nic"]),
    "slow with two": (GOOD + "what_if:\n- slow: {factor: 2, rank: 1, node: 0}\n", ["one thing"]),
    "slow by nothing": (GOOD + "what_if:\n- slow: {factor: 0, rank: 1}\n", ["at least 1e-06"]),
    "slow nothing": (GOOD + "what_if:\n- slow: {factor: 2, link: ''}\n", ["link or device"]),
    "slow GPU that is none": (
        GOOD + "what_if:\n- slow: {factor: 2, gpu: node0.nic0}\n",
        [":4:", "is not a GPU", "node0.gpu0"],
    ),
    "slow GPU that is not there": (
        GOOD + "what_if:\n- slow: {factor: 2, gpu: node0.gpu8}\n",
        ["8 GPUs of a node, 0 to 7"],
    ),
    "slow link to nothing": (
        GOOD + "what_if:\n- slow: {factor: 1.0e-300, link: node0.nic0}\n",
        ["what_if.0.slow.factor"],
    ),
    "delay for ever": (GOOD + "what_if:\n- delay: {rank: 1, seconds: 1.0e+300}\n", ["what_if.0.delay.seconds"]),
    "control character": (GOOD + 'name: "a\\x1bb"\n', [":3:", "cannot be printed"]),
    "NUL": (GOOD + "name: a\x00b\n", ["not valid YAML"]),
    "no date": (GOOD + "name: !!timestamp 2024-13-45\n", ["not valid YAML", "tag"]),
    "no bool": (GOOD + "name: !!bool abc\n", ["not valid YAML"]),
    "override with a number as key": (
        "model: gpt2\ncluster: {topology: dgx_a100, collectives: {1: 2, a: 3}}\n", ["1 is not a key"]
    ),
    "divided by zero": (
        "model: gpt2\ncluster: {topology: dgx_a100, collectives: {ramp_gpus: 0}}\n",
        ["cluster.collectives", "from 0.01"],
    ),
    "fewer heads than ranks": (
        "model: {layers: 4, hidden: 512, heads: 4, vocab: 999}\ncluster: {topology: dgx_a100}\nparallel: {tp: 8}\n",
        [":3:", "4 heads are not divisible by tp=8", "tp=1, 2, 4 would"],
    ),
    "sequence parallel of a derived length": (
        "model: {layers: 4, hidden: 512, heads: 8, vocab: 999, max_positions: 1001}\n"
        "cluster: {topology: dgx_a100}\nparallel: {tp: 8, sequence_parallel: true}\n",
        ["1001 tokens of a sequence", "tp=1 would"],
    ),
    "two in one": (GOOD + "what_if:\n- {slow: {factor: 2, rank: 1}, fail: {rail: 1}}\n", ["one of slow"]),
    "slow node": (GOOD + "what_if:\n- slow: {factor: 2, node: 3}\n", ["what_if.0.slow.node = 3", "one node"]),
    "slow rank": (GOOD + "what_if:\n- slow: {factor: 2, rank: 8}\n", ["8 ranks, 0 to 7"]),
    "slow link": (GOOD + "what_if:\n- slow: {factor: 2, link: foo}\n", [":4:", "foo"]),
    "fail nothing": (GOOD + "what_if:\n- fail: {count: 1}\n", ["one thing that fails"]),
    "fail a NIC": (GOOD + "what_if:\n- fail: {nic: node0.nic9}\n", ["what_if.0.fail", "node0.nic9"]),
    "fail a count": (GOOD + "what_if:\n- fail: {rail: 1, count: 2}\n", ["count is of uplinks"]),
    "fail in a node": (GOOD + "what_if:\n- fail: {link: node0.gpu0>nvswitch}\n", ["within a node", "slow"]),
    "flap backwards": (GOOD + "what_if:\n- flap: {nic: node0.nic0, from: 2, until: 1}\n", ["before it begins"]),
    "flap of nothing": (GOOD + "what_if:\n- flap: {from: 1, until: 2}\n", ["one thing that flaps"]),
    "delay": (GOOD + "what_if:\n- delay: {rank: 1, seconds: 3 parsecs}\n", ["parsecs"]),
    "model sizes": ("model: {hidden: 64}\ncluster: {topology: dgx_a100}\n", ["layers", "must be given"]),
    "model family": (
        "model: {family: gtp, layers: 1, hidden: 8, heads: 1, vocab: 9}\ncluster: {topology: dgx_a100}\n",
        ["gtp"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_one_clear_message(case: str, tmp_path: Path) -> None:
    text, expected = CASES[case]
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(TrainsimError) as error:
        Scenario.load(file).resolve()
    message = str(error.value)
    for words in [*expected, "bad.yaml"]:
        assert words in message, message
    assert "pydantic" not in message
    assert "<" not in message


LATER = [
    "parallel: {cp: 2}\npipeline: {schedule: seq1f1b, group: 2}",
    "sharding: {offload: {optimizer: nvme, delayed_update: true}}",
    "simulation: {steps: 300}",
    "what_if: [{jitter: {sigma: 0.1}}]",
]


@pytest.mark.parametrize("text", LATER)
def test_what_is_not_built_says_what_is(text: str, tmp_path: Path) -> None:
    file = tmp_path / "later.yaml"
    file.write_text(GOOD + text + "\n")
    with pytest.raises(NotBuilt, match=r"later\.yaml:3: .*(not simulated|not built|would add nothing)"):
        Scenario.load(file).resolve()


LINEAR = "linear_attention: {key_heads: 2, value_heads: 2, key_head_dim: 8, value_head_dim: 8}"


@pytest.mark.parametrize("part", [LINEAR])
def test_models_that_are_not_built(part: str) -> None:
    data = read_text(f"model: {{layers: 2, hidden: 64, heads: 2, vocab: 99, {part}}}\n", file="m").data
    with pytest.raises(NotBuilt):
        Scenario.from_dict({**data, "cluster": {"topology": "dgx_a100", "nodes": 1}}).resolve()


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "long.yaml").write_text("a: " + "x" * (2 << 20))
    for name in ("missing.yaml", "", "binary.yaml", "long.yaml", "../nothing"):
        with pytest.raises(TrainsimError):
            Scenario.load(tmp_path / name)
    with pytest.raises(TrainsimError, match="Did you mean 'bloom_3d'"):
        Scenario.load("bloom_3")


def test_changed_values_stand_in_no_line() -> None:
    with pytest.raises(TrainsimError) as error:
        Scenario.load("bloom_3d").replace({"parallel.tp": 3}).resolve()
    assert str(error.value).startswith("parallel.tp = 3: 112 heads")


def test_many_mistakes_are_listed_together(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("model: gpt2\nclustr: {}\nparallel: {tp: 0, ppp: 1}\n" + "".join(f"k{n}: 1\n" for n in range(20)))
    with pytest.raises(TrainsimError) as error:
        Scenario.load(file)
    lines = str(error.value).splitlines()
    assert len(lines) == 9
    assert lines[-1].startswith("... and")


yaml_like = st.text(alphabet="model: cluster{}[]-&*!|>#'\"\n\t,0123.x?%@~", max_size=80)


@given(text=yaml_like)
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_no_text_crashes_the_loader(text: str) -> None:
    try:
        document = read_text(text, file="t")
    except TrainsimError as error:
        assert str(error).startswith("t:")
        return
    with suppress(TrainsimError):
        Scenario(document.data, document.origin)


leaves = st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=4)
values = st.recursive(leaves, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=4), v, max_size=3))
fields = st.sampled_from(
    ["parallel", "parallel.tp", "training.recompute", "model", "cluster", "cluster.nodes", "cluster.gpu", "what_if",
     "pipeline.layout", "network.algorithm", "sharding.offload", "simulation", "name", "sharding.reduce_bucket"]
)  # fmt: skip


@given(field=fields, value=values)
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_any_value_of_any_field_is_accepted_or_refused_in_words(field: str, value: object) -> None:
    base = Scenario.from_dict({"model": "gpt2", "cluster": {"topology": "dgx_a100", "nodes": 1}})
    try:
        base.replace({field: value}).resolve()
    except TrainsimError as error:
        assert str(error)


@pytest.mark.parametrize("topology", ["dgx1_v100", "jean_zay_v100", "dgx_a100", "dgx_h100"])
def test_a_gpu_is_the_same_by_name_and_by_rank(topology: str) -> None:
    data = {"model": "gpt2", "cluster": {"topology": topology, "nodes": 2}}
    per_node = load_topology(topology, nodes=2).gpus_per_node
    precise = {"training": {"precision": "fp16"}, "framework": "neutral"}
    for node, gpu in ((0, 0), (1, per_node - 1)):
        what_if = [{"slow": {"gpu": f"node{node}.gpu{gpu}", "factor": 2.0}}]
        (slow,) = Scenario.from_dict({**data, **precise, "what_if": what_if}).resolve().what_if
        assert isinstance(slow, Slow)
        assert slow.ranks == (node * per_node + gpu,)


def test_a_value_that_may_have_several_forms_is_told_once() -> None:
    with pytest.raises(ScenarioError) as refused:
        Scenario.load("quickstart").replace({"network.algorithm": None})
    assert str(refused.value) == "network.algorithm = null: expected a name or a mapping (key: value lines)"


@pytest.mark.parametrize(("until", "says"), [(1, "ends at 1 s, at the moment it begins"), (0.5, "before it begins")])
def test_a_flap_ends_after_it_begins(until: float, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        Scenario.load("quickstart").replace({"what_if": [{"flap": {"link": "node0", "from": 1, "until": until}}]})
