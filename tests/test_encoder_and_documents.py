"""An encoder before a decoder, and documents packed into a sequence."""

from __future__ import annotations

from typing import Any

import pytest

import trainsim as ts
from tests.test_model_layers import saved, shape_of, works
from trainsim.errors import InvalidPlan, NotBuilt, ScenarioError, TrainsimError
from trainsim.frameworks import load_framework
from trainsim.models.counts import megatron_flops
from trainsim.models.layers import embedding_operations, head_operations, layer_operations, style_of
from trainsim.models.linears import linears
from trainsim.models.operations import Attention, Gemm
from trainsim.models.reading import load_model, transformer
from trainsim.sharding.cutting import _gradients_of
from trainsim.sharding.tensorwise import whole

EAGER, FUSED = (style_of(load_framework("neutral"), attention) for attention in ("eager", "flash2"))
T5 = {"family": "t5", "name": "small", "layers": 4, "encoder_layers": 2, "hidden": 256, "heads": 4, "vocab": 1024}
LLAMA = {"family": "llama", "name": "small", "layers": 4, "hidden": 256, "heads": 4, "vocab": 1024}


def job(of_model: dict[str, Any] | str, /, **changes: Any) -> ts.Scenario:
    base = {
        "model": of_model,
        "cluster": {"topology": "dgx_a100", "nodes": 1},
        "training": {"sequence_length": 512, "global_batch": 16, "micro_batch": 2},
    }
    return ts.Scenario.from_dict(base).replace({key.replace("__", "."): value for key, value in changes.items()})


@pytest.mark.parametrize("tp", [1, 2])
def test_products_of_a_decoder_are_the_counted_flops(tp: int) -> None:
    model = transformer(T5)
    encoder, decoder = model.kinds[0], model.kinds[-1]
    whole = shape_of(model, s=512, tp=tp, decoder_length=128)
    for kind, shape in ((encoder, whole), (decoder, whole.in_decoder)):
        operations = layer_operations(kind, whole, EAGER)
        parts = ("forward", "input_gradient", "weight_gradient")
        forward, inputs, weights = (sum(w.flops for w in works(operations, part)) for part in parts)
        memory = shape.memory or None
        assert tp * forward == kind.flops(sequence_length=shape.sequence_length, batch=2, memory=memory)
        assert inputs + weights == 2 * forward
        written = sum(w.m * w.n for w in works(operations, "weight_gradient") if isinstance(w, Gemm))
        assert written == sum(w.outputs * w.inputs for w in linears(kind, tp))


def test_an_encoder_looks_at_all_of_its_sequence_and_a_decoder_at_all_of_that() -> None:
    model = transformer(T5)
    kernels = [
        w
        for kind in model.kinds[1:3]
        for w in works(layer_operations(kind, shape_of(model, s=512, decoder_length=128), FUSED), "forward")
        if isinstance(w, Attention)
    ]
    assert [(w.queries, w.keys, w.causal) for w in kernels] == [(512, 512, False), (128, 128, True), (128, 512, False)]


def test_the_result_of_the_encoder_is_kept_once() -> None:
    model = transformer(T5)
    shape = shape_of(model, s=512, decoder_length=128)
    (cross,) = [o for o in layer_operations(model.kinds[-1], shape, FUSED) if o.name == "cross kv"]
    assert cross.saved == 2 * 2 * 512 * 2 * 256, "keys and values, not what they are made of"
    norm = head_operations(model, shape, FUSED)[0]
    assert norm.name == "encoder norm"
    assert norm.saved == 2 * 2 * 2 * 512 * 256
    assert [o.name for o in embedding_operations(model, shape, FUSED)] == ["embedding", "embedding"]
    assert saved(layer_operations(model.kinds[0], shape_of(model, s=512), FUSED)) > 0


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"parallel__tp": 2, "parallel__sequence_parallel": True},
        {"sharding__strategy": "fsdp", "training__recompute": "full"},
        {"sharding__strategy": "zero3", "framework": "deepspeed"},
        {"sharding__strategy": "zero1", "framework": "deepspeed"},
        {"sharding__strategy": "zero2", "framework": "deepspeed"},
        {"sharding__strategy": "ddp", "framework": "pytorch-ddp"},
        {"training__attention": "eager", "training__recompute": "selective"},
        {"framework": "torchtitan", "training__recompute": "selective"},
        {"simulation__detail": "layer"},
    ],
    ids=str,
)
def test_t5_runs(changes: dict[str, Any]) -> None:
    short, long = (job(T5, training__decoder_length=length, **changes).run() for length in (128, 512))
    assert 0 < short.step_time < long.step_time
    same = job(T5, **changes)
    assert same.run().step_time == long.step_time
    assert ts.Scenario.from_dict(same.resolved).run().step_time == long.step_time


def test_gradients_of_both_are_those_of_their_tensors() -> None:
    """A layer of the encoder, one of the decoder, the head with both norms: tensor by tensor, all of the model."""
    small = job(T5, sharding__strategy="zero1", framework="deepspeed").resolve()
    head, layers, embedding = _gradients_of(small)
    assert sorted(len(sizes) for sizes in layers.values()) == [8, 13], "2 norms and 6 matrices; 3 and 10"
    assert 2 * sum(layers) + sum(head) + sum(embedding) == sum(whole(small).sizes)


def test_reported_flops_are_three_passes_of_both() -> None:
    model = load_model("t5-3b")
    size = {"sequence_length": 512, "decoder_length": 114, "batch": 8}
    assert megatron_flops(model, recompute="none", **size) == 3 * model.flops_forward(**size)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"parallel__pp": 2}, NotBuilt, "parallel.pp.*encoder"),
        ({"parallel__cp": 2}, NotBuilt, "cp"),
        ({"pipeline__schedule": "seq1f1b"}, NotBuilt, "slices"),
        ({"model__moe": {"experts": 2}}, InvalidPlan, "moe is not simulated in a model with an encoder"),
        ({"parallel__tp": 2, "parallel__sequence_parallel": True, "training__decoder_length": 115}, InvalidPlan, "115"),
    ],
)
def test_what_an_encoder_cannot_be_is_told(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        job(T5, **changes).resolve()


def test_a_decoder_length_without_an_encoder_is_told() -> None:
    assert "no encoder" in job(LLAMA, training__decoder_length=64).resolved["derived"]["training.decoder_length"]


def attended(**shape: Any) -> float:
    model = transformer(LLAMA)
    operations = layer_operations(model.kind, shape_of(model, s=4096, **shape), FUSED)
    return sum(w.flops for w in works(operations, "forward") if isinstance(w, Attention))


def test_documents_cost_the_sum_of_their_squares() -> None:
    assert attended(document=4096) == attended() == attended(document=9999)
    assert attended(document=512) == attended() / 8
    lengths = [1024, 1024, 2048]  # of a sequence of 4096
    whole = job(LLAMA, training__sequence_length=4096, training__documents=lengths).resolve().training.document
    assert whole == sum(n * n for n in lengths) / 4096


def test_documents_make_a_long_sequence_quicker() -> None:
    def seconds(**changes: Any) -> float:
        return job(LLAMA, training__sequence_length=16384, training__micro_batch=1, **changes).run().step_time

    full = seconds()
    assert seconds(training__documents=16384) == full == seconds(training__documents=64000)
    assert seconds(training__documents=1024) < seconds(training__documents=[1024, 8192]) < full
    assert seconds(training__documents=1024, training__mask="causal") == full
    eager = {"training__attention": "eager"}
    assert seconds(training__documents=1024, **eager) == seconds(**eager)


def test_reported_flops_of_documents_are_those_of_their_squares() -> None:
    model = transformer(LLAMA)
    size = {"sequence_length": 4096, "batch": 2, "recompute": "none"}
    full = megatron_flops(model, **size)
    scores = 3 * 4 * model.kind.scores_flops(sequence_length=4096, batch=2)
    assert full - megatron_flops(model, **size, document=512) == scores * (1 - 512 / 4096)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training__mask": "document"}, "needs documents"),
        ({"training__documents": []}, "documents"),
        ({"training__documents": 0}, "documents"),
        ({"training__documents": [512, "x"]}, "documents"),
        ({"training__documents": 512, "pipeline__schedule": "seq1f1b"}, "slices"),
    ],
)
def test_bad_documents_are_told(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(TrainsimError, match=words):
        job(LLAMA, **changes).resolve()


def test_a_causal_mask_with_documents_is_told() -> None:
    derived = job(LLAMA, training__documents=64, training__mask="causal").resolved["derived"]
    assert "without effect" in derived["training.documents"]
    assert issubclass(ScenarioError, TrainsimError)
