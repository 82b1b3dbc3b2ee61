"""Ways to make the loss: every logit is made once, however few of them are there at a time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.jobs import run_small, same_spans, scenario, small, torchtune
from trainsim.cli import app
from trainsim.errors import TrainsimError
from trainsim.models.cross_entropies import cross_entropies
from trainsim.models.layers import Shape, Style, head_operations
from trainsim.models.operations import Exchange, Gemm, Operation, works
from trainsim.program.layer_work import style_for
from trainsim.scenario.scenario import Scenario
from trainsim.sharding.launches import shape_of

WAYS = tuple(cross_entropies)
CHUNKED = tuple(name for name in WAYS if name != "standard")
CHANGES: dict[str, dict[str, Any]] = {
    "plain": {"parallel__tp": 1, "parallel__pp": 1},
    "tp": {"parallel__pp": 1},
    "sequence parallel": {"parallel__sequence_parallel": True, "parallel__pp": 1},
    "pipeline": {},
    "split backward": {"pipeline__schedule": "zb-h1"},
    "FSDP": {"parallel__tp": 1, "parallel__pp": 1, "sharding__strategy": "fsdp"},
    "gathered logits": {"framework": "transformers", "training__loss_parallel": False},
    "further tokens": {"model__mtp_layers": 1},
    "eager": {"framework": "transformers"},
    "adapters": {"model__lora": {"rank": 8, "targets": ["q", "v"]}},
    "softcap": {"model__logits_softcap": 30.0},
}


def cases(**changes: Any) -> tuple[Shape, Style]:
    job = small(**changes)
    return shape_of(job), style_for(job)


def head(**changes: Any) -> tuple[Operation, ...]:
    shape, style = cases(**changes)
    return head_operations(small(**changes).model, shape, style)


def flops(operations: tuple[Operation, ...]) -> float:
    steps = (s for o in operations for s in (*o.forward, *o.input_gradient, *o.weight_gradient))
    return sum(w.flops for w in works(steps) if isinstance(w, Gemm))


def needed(operations: tuple[Operation, ...]) -> tuple[float, float]:
    """The most that is there while they run forward, and what stays for their backward; bytes."""
    held = most = 0.0
    for o in operations:
        held += o.saved
        most = max(most, held + o.transient_forward)
    return most, held


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CHANGES)
def test_products_collectives_and_columns_are_the_same(way: str, case: str) -> None:
    usual, own = head(**CHANGES[case]), head(**CHANGES[case], training__cross_entropy=way)
    assert flops(own) == flops(usual)

    def gathered(operations: tuple[Operation, ...]) -> float:
        return sum(s.nbytes for o in operations for s in o.forward if isinstance(s, Exchange))

    assert gathered(own) == gathered(usual)
    assert sum(b for o in own for b in o.reduced) == sum(b for o in usual for b in o.reduced)
    assert sum(o.parallel == "column" for o in own) == sum(o.parallel == "column" for o in usual)


@pytest.mark.parametrize("case", CHANGES)
def test_one_chunk_is_the_standard_loss(case: str) -> None:
    one = {"kind": "chunked", "chunks": 1}
    assert head(**CHANGES[case], training__cross_entropy=one) == head(**CHANGES[case])


@pytest.mark.parametrize("way", CHUNKED)
@pytest.mark.parametrize("case", CHANGES)
def test_more_chunks_take_less_memory(way: str, case: str) -> None:
    def at(chunks: int) -> tuple[float, float]:
        return needed(head(**CHANGES[case], training__cross_entropy={"kind": way, "chunks": chunks}))

    every = [at(chunks) for chunks in (2, 4, 8, 16)]
    assert all(more[0] < less[0] and more[1] <= less[1] for less, more in pairwise(every))
    if case != "adapters":  # whose model is mostly its gradients there
        assert every[0][0] < needed(head(**CHANGES[case]))[0]


def test_fused_linear_keeps_gradients_instead_of_logits() -> None:
    """Bytes of the hidden states and of the head's weight, of one rank of two."""
    (fused,) = (o for o in head(training__cross_entropy="fused_linear") if o.name == "logits")
    assert fused.saved == 2 * (1024 * 1024 + 16000 * 1024)
    frozen = {"model__lora": {"rank": 8, "targets": ["q"]}, "training__cross_entropy": "fused_linear"}
    (fused,) = (o for o in head(**frozen) if o.name == "logits")
    assert fused.saved == 2 * 1024 * 1024
    assert not any(isinstance(s, Gemm) and s.role == "weight" for s in fused.forward)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CHANGES)
def test_folded_is_unfolded(way: str, case: str) -> None:
    changes = CHANGES[case] | {"training__cross_entropy": way, "model__layers": 4, "cluster__nodes": 1}
    folded, whole = (run_small(**changes, simulation__fold=fold) for fold in (True, False))
    assert same_spans(folded.trace, whole.trace)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CHANGES)
def test_whatever_is_taken_is_given_back(way: str, case: str) -> None:
    result = scenario(**CHANGES[case], training__cross_entropy=way, simulation__steps=2).run()
    for stage in result.memory.per_stage:
        for category in ("logits", "temporary"):
            levels = stage.levels.get(category, [0.0])
            assert levels[0] == levels[-1] == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize("way", CHUNKED)
def test_an_encoder_with_a_decoder(way: str) -> None:
    given = {
        "model": "t5-3b",
        "cluster": {"topology": "dgx_a100", "nodes": 1},
        "training": {"sequence_length": 512, "decoder_length": 128, "micro_batch": 8},
    }
    base = Scenario.from_dict(given)
    one, two = base.run(), base.replace({"training.cross_entropy": way}).run()
    assert one.memory.fullest.at_peak.get("logits", 0.0) >= two.memory.fullest.at_peak.get("logits", 0.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training__cross_entropy": "chunkd"}, ["training.cross_entropy", "Did you mean 'chunked'"]),
        ({"training__cross_entropy": {"kind": "standard", "chunks": 4}}, ["cross_entropy.chunks", "has no chunks"]),
        ({"training__cross_entropy": {"kind": "chunked", "chunk": 4}}, ["did you mean 'chunks'"]),
        ({"training__cross_entropy": {"kind": "chunked", "chunks": 0}}, ["at least 1"]),
        ({"training__cross_entropy": {"chunks": 4}}, ["training.cross_entropy.kind", "missing"]),
        (
            {"training__cross_entropy": "chunked", "pipeline__vocabulary_parallel": True},
            ["training.cross_entropy", "whole micro-batch", "vocabulary_parallel: false"],
        ),
    ],
)
def test_what_cannot_be_says_why(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(TrainsimError) as caught:
        small(**changes)
    assert all(word in str(caught.value) for word in words), caught.value


def test_resolved_ways_are_read_again() -> None:
    one = scenario(training__cross_entropy={"kind": "fused_linear", "chunks": 6})
    assert Scenario.from_dict(one.resolved).resolve().training == one.resolve().training


def test_the_whole_command(tmp_path: Any) -> None:
    command = ["run", "quickstart", "--set", "training.cross_entropy.chunks=4", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("changes", "gib", "tokens", "within"),
    [
        ({"training__cross_entropy": "chunked"}, 42.9, 9174, 0.07),
        ({"training__cross_entropy": "chunked", "training__recompute": "full"}, 24.9, 7210, 0.03),
    ],
)
def test_torchtune_on_one_gpu(changes: dict[str, Any], gib: float, tokens: float, within: float) -> None:
    """Llama-3.2-3B, one A100-80GB, 2 x 4096 tokens, all in bf16, compiled: peak active GiB and tokens/s of the README
    of meta-pytorch/torchtune, optimizations added one by one."""
    run = torchtune(**changes).run()
    full = run.memory.fullest
    assert (full.needed - full.part("framework")) / 2**30 == pytest.approx(gib, rel=within)
    assert run.tokens_per_s == pytest.approx(tokens, rel=0.03)
