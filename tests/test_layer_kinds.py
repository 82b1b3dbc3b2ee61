"""Models whose layers differ: everything is a sum over the layers, and equal layers are a plain model."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs import SMALL, run_small, same_spans, scenario, small
from trainsim.errors import InvalidPlan, ScenarioError, TrainsimError, UnknownName
from trainsim.models.reading import load_model, transformer
from trainsim.program.estimate import estimate
from trainsim.program.parts import work_out
from trainsim.study.moved_layers import moves, slowest

PLAIN: dict[str, Any] = SMALL["model"]
WIDE = {"ffn_hidden": 5632}
KINDS = {"wide": WIDE, "few": {"heads": 8, "kv_heads": 4, "head_dim": 64}}
ONE_GPU: dict[str, Any] = {
    "parallel.tp": 1,
    "parallel.pp": 1,
    "parallel.dp": 1,
    "cluster": {"topology": "dgx_a100", "nodes": 1, "gpus_per_node": 1},
    "training.global_batch": 2,
    "framework": "neutral",
    "sharding.strategy": "ddp",
}


def mixed(pattern: list[str], **sizes: Any) -> dict[str, Any]:
    """The model of the small job with a pattern of layers."""
    return {**PLAIN, "layer_kinds": KINDS, "layer_pattern": pattern, **sizes}


def one_gpu(model: dict[str, Any], **changes: Any) -> Any:
    return scenario(**{key.replace(".", "__"): value for key, value in (ONE_GPU | {"model": model} | changes).items()})


def states_of(run: Any) -> Any:
    """What the only rank holds between steps."""
    return run.simulation.programs[0].memory


def uniform(kind: str, layers: int) -> dict[str, Any]:
    return {**PLAIN, **KINDS.get(kind, {}), "layers": layers}


def test_counts_are_sums_over_the_layers() -> None:
    model = transformer(mixed(["wide", "default", "few", "wide"]))
    ends = transformer(PLAIN).parameters - 8 * transformer(PLAIN).kind.parameters
    of = {kind: transformer(uniform(kind, 1)) for kind in ("default", *KINDS)}
    layers = 4 * of["wide"].kind.parameters + 2 * of["default"].kind.parameters + 2 * of["few"].kind.parameters
    assert model.parameters == ends + layers
    assert of["wide"].kind.parameters - of["default"].kind.parameters == 3 * 1024 * 2816

    def flops(kind: str) -> float:
        return of[kind].flops_forward(sequence_length=512) - of[kind].logits_flops(sequence_length=512)

    expected = 4 * flops("wide") + 2 * flops("default") + 2 * flops("few")
    assert model.flops_forward(sequence_length=512) == expected + model.logits_flops(sequence_length=512)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_time_and_memory_on_one_gpu_are_sums_over_the_layers(recompute: str) -> None:
    """A layer more of a kind costs the same whatever stands beside it."""

    def result(model: dict[str, Any]) -> Any:
        return one_gpu(model, **{"training.recompute": recompute}).run()

    counts = {"wide": 2, "default": 1, "few": 1}
    whole = result(mixed(["wide", "default", "few", "wide"], layers=4))
    alone = {kind: (result(uniform(kind, 2)), result(uniform(kind, 1))) for kind in counts}
    ends = [2 * alone["default"][1].step_time - alone["default"][0].step_time]
    time = ends[0] + sum(n * (alone[kind][0].step_time - alone[kind][1].step_time) for kind, n in counts.items())
    assert whole.step_time == pytest.approx(time, rel=1e-9)
    for category in ("weights", "gradients", "optimizer"):

        def held(run: Any, category: str = category) -> float:
            return float(getattr(states_of(run), category))

        ends = [2 * held(alone["default"][1]) - held(alone["default"][0])]
        bytes_held = ends[0] + sum(n * (held(alone[kind][0]) - held(alone[kind][1])) for kind, n in counts.items())
        assert held(whole) == pytest.approx(bytes_held, rel=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"pipeline.schedule": "zb-h1"},
        {"training.recompute": {"mode": "full", "layers": 1}},
        {"sharding.strategy": "zero3", "parallel.pp": 1, "framework": "deepspeed"},
        {"sharding.strategy": "ddp", "framework": "pytorch-ddp", "parallel.pp": 1},
        {"pipeline.schedule": "seq1f1b"},
    ],
    ids=str,
)
def test_equal_layers_through_a_pattern_are_the_plain_model(change: dict[str, Any]) -> None:
    same = {**PLAIN, "layer_kinds": {"same": {"ffn_hidden": 2816}, "wide": WIDE}, "layer_pattern": ["same", "default"]}
    given = {key.replace(".", "__"): value for key, value in change.items()}
    plain, patterned = run_small(**given), run_small(**given, model=same)
    assert same_spans(plain.trace, patterned.trace)
    assert [p.memory for p in plain.programs] == [p.memory for p in patterned.programs]
    assert estimate(plain.plan.parts) == estimate(patterned.plan.parts)


@pytest.mark.parametrize("strategy", ["zero1", "fsdp", "zero3"])
@pytest.mark.parametrize("pattern", [["wide", "default"], ["few*2", "wide*6"]])
def test_folding_changes_nothing(pattern: list[str], strategy: str) -> None:
    change = {"sharding__strategy": strategy, "parallel__pp": 4 if strategy == "zero1" else 1}
    folded, unfolded = (
        run_small(model=mixed(pattern), framework="neutral", simulation__fold=fold, **change) for fold in (True, False)
    )
    assert unfolded.trace.classes > folded.trace.classes
    assert same_spans(folded.trace, unfolded.trace)


@pytest.mark.parametrize("detail", ["layer", "block"])
def test_coarser_detail_keeps_the_time(detail: str) -> None:
    fine, coarse = (scenario(model=mixed(["wide", "few"]), simulation__detail=d).run() for d in ("op", detail))
    plain = [scenario(simulation__detail=d).run().step_time for d in ("op", detail)]
    assert abs(coarse.step_time / fine.step_time - 1) < abs(plain[1] / plain[0] - 1) + 0.005


def test_each_stage_has_its_own_layers() -> None:
    job = small(model=mixed(["wide*2", "default*6"]), pipeline__layout=[2, 2, 2, 2])
    parts = work_out(job)
    wide, *_, last = [parts.layer_blocks(stage) for stage in parts.stages]
    assert len({id(block) for block in wide}) == 1
    assert len({id(block) for block in parts.layers}) == 2
    assert wide[0].forward_seconds > last[0].forward_seconds
    assert wide[0].saved > last[0].saved
    assert [len(set(parts.holdings.gradients(stage).layers)) for stage in parts.stages] == [1] * 4
    assert (
        parts.holdings.gradients(parts.stages[0]).layers[0] - parts.holdings.gradients(parts.stages[1]).layers[0]
        == 3 * 1024 * 2816 / 2
    )


def test_partial_recomputation_is_per_layer() -> None:
    job = small(model=mixed(["wide", "default"]), training__recompute={"mode": "full", "layers": 1})
    parts = work_out(job)
    for stage in parts.stages:
        first, second = parts.layer_blocks(stage)
        assert first.saved < second.saved
        assert any(getattr(piece, "kind", "") == "recompute" for piece in first.backward)
        assert not any(getattr(piece, "kind", "") == "recompute" for piece in second.backward)


def test_explain_sees_the_slow_stage() -> None:
    """Stages hold equally many layers, and the wide ones make theirs slow: a move of one layer evens that out."""
    run = scenario(model=mixed(["wide*2", "default*6"], vocab=512), parallel__tp=1, training__global_batch=32).run()
    slow = slowest(run)
    assert slow.stage == 0
    assert slow.matters
    assert slow.reason == "its layers are larger than those of other stages"
    assert any(change.values["pipeline.layout"][0] == 1 for change in moves(run, slow))


def test_the_mapping_is_read_back() -> None:
    model = transformer(mixed(["few*2", "wide*6"]))
    assert transformer(model.to_dict()) == model
    assert "layer_pattern" not in load_model("gpt2").to_dict()
    base = scenario(model=mixed(["few*2", "wide*6"]))
    assert base.resolve().model == model


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        (mixed(["wide", "thin"]), UnknownName, "thin"),
        (mixed(["wide*3"]), InvalidPlan, "3 layers, which does not divide the model's 8"),
        (mixed(["wide*x"]), ScenarioError, "NAME*COUNT"),
        ({**PLAIN, "layer_kinds": {"wide": {"ffn": 1}}}, ScenarioError, "ffn_hidden"),
        ({**PLAIN, "layer_kinds": {"default": WIDE}}, ScenarioError, "another name"),
        ({**PLAIN, "layer_kinds": {"odd": {"heads": 7}}}, InvalidPlan, "layer kind odd"),
    ],
)
def test_what_cannot_be_is_said(model: dict[str, Any], error: type[TrainsimError], words: str) -> None:
    with pytest.raises(error, match=words.replace("*", r"\*")):
        transformer(model)
    with pytest.raises(TrainsimError, match=words.split()[0].replace("*", r"\*")):
        small(model=model)


def test_every_kind_is_cut_over_tensor_parallelism() -> None:
    with pytest.raises(InvalidPlan, match="4097"):
        small(model={**PLAIN, "layer_kinds": {"odd": {"ffn_hidden": 4097}}, "layer_pattern": ["odd", "default"]})
