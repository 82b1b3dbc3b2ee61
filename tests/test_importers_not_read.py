"""Files that look like descriptions of jobs and are something else: told what they are."""

import pytest

from trainsim.errors import ScenarioError
from trainsim.importers.importing import import_config
from trainsim.importers.not_read import kinds

FILES = {
    "run.0.et": (b"\x07\n\x050.0.4\x80\x80@", "an execution trace of Chakra"),
    "rank0.json.gz": (b"\x1f\x8b\x08\x00", "a trace of PyTorch's profiler, compressed"),
    "rank0.json": (b'{"schemaVersion": 1, "traceEvents": []}', "a trace of PyTorch's profiler"),
    "step.nsys-rep": (b"\x00\x01", "a report of Nsight Systems"),
    "model.safetensors": (b"\x00", "weights of a model; the sizes of the model stand in the config.json"),
    "snapshot.pickle": (b"\x80\x04", "a snapshot of CUDA memory"),
    "ring.xml": (b'<algo name="ring" coll="allreduce" ngpus="4"/>', "a collective algorithm of MSCCL"),
    "order.csv": (b"0F0,0F1,0I0,0W0\n1F0,1F1,1I0,1W0\n", "--set pipeline.schedule=FILE.csv"),
    "nccl.log": (b"# nThread 1 nGpus 8 minBytes 8 maxBytes 16\n", "the output of nccl-tests"),
    "workload.txt": (b"HYBRID_TRANSFORMER_FWD_IN_BCKWD ep: 2\n12\n", "a workload of SimAI"),
    "busbw.yaml": (b"test\nTP:\nallreduce,: 310\n", "bus bandwidths of SimAI"),
    "network.yml": (b"# two\ntopology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 50 ]\n", "a network of ASTRA-sim"),
    "logical.json": (b'{"logical-dims": ["4", "4"]}', "logical dimensions of ASTRA-sim"),
    "system.json": (b'{"scheduling-policy": "LIFO"}', "a system of ASTRA-sim"),
    "topology.txt": (b"10 4 2 4 20 H800\n1 2\n", "a topology of SimAI or ns-3"),
    "golden.json": (b'{"lm loss": {"values": {"1": 10.2}}}', "golden values of Megatron-LM"),
    "train.log": (b" iteration 1/ 10 | elapsed time per iteration (ms): 900.1 |", "the log of a training run"),
    "fabric.yaml": (b"# x\nswitches:\n  a:\n    nodes: [n1]\n", "a model of a fabric for topograph"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_kind_is_told_as_what_it_is(tmp_path, name: str) -> None:
    content, what = FILES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ScenarioError) as caught:
        import_config(tmp_path / name)
    assert "not a description of a job but " in str(caught.value)
    assert what in str(caught.value)


def test_every_kind_has_an_example() -> None:
    shown = " ".join(what for _, what in FILES.values())
    assert all(kind.what.split(" (")[0].split(",")[0][:20] in shown or kind.name or kind.text for kind in kinds())
    assert len(FILES) == len(kinds())


def test_a_key_that_stands_twice_in_yaml_counts_once_and_is_told(tmp_path) -> None:
    from trainsim.importers.reader import Reader
    from trainsim.importers.source import read_source

    path = tmp_path / "x.yaml"
    path.write_text("a: {b: 1}\nc: 2\na: {b: 3}\n")
    reader = Reader(read_source(path).document, ())
    assert reader.whole("a.b") == 3
    reader.use("a.b", "x"), reader.use("c", "y")
    assert [(r.key, r.words) for r in reader.findings("test").warnings] == [
        ("a", "appears twice, first in line 1; the last one counts")
    ]
