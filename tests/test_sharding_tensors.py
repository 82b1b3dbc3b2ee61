"""Tensors and calls of a model against its parameter counts and against what transformers and DeepSpeed count."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.tables import tiny_llama
from trainsim.errors import InvalidPlan
from trainsim.models import tensors as module_under_test
from trainsim.models.calls import calls, modules, ready_order
from trainsim.models.counts import parameters_per_rank
from trainsim.models.known import family_names, model_names
from trainsim.models.layer_kind import counted
from trainsim.models.reading import load_model, transformer
from trainsim.models.tensors import embedding_tensors, family_modules, head_tensors, layer_tensors
from trainsim.models.transformer import BIASES, NORMS, POSITIONS, Transformer, padded_vocab

SMALL = {"layers": 3, "hidden": 96, "heads": 12, "kv_heads": 4, "head_dim": 8, "ffn_hidden": 136, "vocab": 500}
VARIANTS = [
    {"gated_mlp": gated, "biases": biases, "positions": positions, "norm": norm, "tied_embeddings": tied}
    | {"embedding_norm": tied, "max_positions": 32}
    for gated in (True, False)
    for biases in BIASES
    for positions in POSITIONS
    for norm, tied in zip(NORMS, (True, False, True, False), strict=True)
]


def two_layers(name: str) -> Transformer:
    """A model of the catalogue with its last two layers, one of an encoder if it has one."""
    model = load_model(name)
    return replace(model, layers=2, encoder_layers=min(1, model.encoder_layers), layer_pattern=model.layer_pattern[-2:])


def adds_up(model: Transformer, tp: int) -> None:
    def elements(tensors: tuple[module_under_test.Tensor, ...]) -> int:
        return sum(t.elements for t in tensors)

    kinds, first = counted(model.kinds), elements(embedding_tensors(model, tp))
    for kind in kinds:
        assert elements(layer_tensors(kind, tp)) == parameters_per_rank(model, tp, (kind,))
    layers = sum(n * elements(layer_tensors(kind, tp)) for kind, n in kinds.items())
    assert first == parameters_per_rank(model, tp, (), embedding=True)
    assert elements(head_tensors(model, tp, embedding=False)) == parameters_per_rank(model, tp, (), head=True)
    whole = parameters_per_rank(model, tp, model.kinds, embedding=True, head=True)
    assert layers + first + elements(head_tensors(model, tp)) == whole
    assert sum(modules(model, tp).sizes) == whole


@pytest.mark.parametrize("name", model_names())
@pytest.mark.parametrize("tp", [1, 2, 3, 8, 64])
def test_tensors_add_up_to_the_parameters_of_a_rank(name: str, tp: int) -> None:
    adds_up(load_model(name), tp)


@pytest.mark.parametrize("family", family_names())
def test_tensors_add_up_whatever_a_scenario_changes(family: str) -> None:
    for variant in VARIANTS:
        adds_up(transformer({"family": family} | SMALL | variant), 2)


@pytest.mark.parametrize("name", model_names())
def test_the_vocabularys_padding_is_the_callers(name: str) -> None:
    model = load_model(name)
    assert sum(modules(model, padded_vocab=model.vocab).sizes) == model.parameters
    default, given = embedding_tensors(model, 8), embedding_tensors(model, 8, padded_vocab=padded_vocab(model.vocab, 8))
    assert default == given


@pytest.mark.parametrize(
    ("name", "whole", "layer"),
    [  # tensors that transformers 5.24 registers for the public configurations
        ("opt-13b", 644, 16),
        ("bloom-176b", 845, 12),
        ("llama-2-13b", 363, 9),
        ("llama-3-8b", 291, 9),
        ("llama-3.1-405b", 1137, 9),
        ("qwen1.5-14b", 483, 12),
        ("qwen2.5-72b", 963, 12),
        ("mistral-7b", 291, 9),
        ("gemma-7b", 254, 9),
        ("gpt2-xl", 580, 12),
        ("falcon-7b", 195, 6),
        ("falcon-180b", 643, 8),
        ("gemma-2-9b", 464, 11),
        ("mixtral-8x7b", 291, 9),
        ("qwen3-30b-a3b", 531, 11),
        ("deepseek-v3", 909, 15),
    ],
)
def test_as_many_tensors_as_transformers_registers(name: str, whole: int, layer: int) -> None:
    model = load_model(name)
    assert len(layer_tensors(model.kinds[-1])) == layer
    assert len(modules(model).tensors) == whole


@pytest.mark.parametrize("name", ["llama-3-8b", "gpt2", "qwen2.5-7b", "opt-13b"])
@pytest.mark.parametrize("recompute", [False, True])
def test_each_pass_calls_every_module_once(name: str, recompute: bool) -> None:
    model = two_layers(name)
    whole = modules(model)
    trace = calls(whole.root, recompute=recompute)
    start = next(k for k, call in enumerate(trace) if not call.forward)
    again = Counter(p for call in trace[start:] for p in call.parameters if call.forward)
    layers = range(len(embedding_tensors(model)), len(whole.tensors) - len(head_tensors(model)))
    assert again == Counter(layers if recompute else [])
    for part in (trace[:start], [call for call in trace[start:] if not call.forward]):
        used = Counter(p for call in part for p in call.parameters)
        assert set(used) == set(range(len(whole.tensors)))
        shared = {p: n for p, n in used.items() if n > 1}
        assert shared == ({0: 2} if model.tied_embeddings else {})


def test_backward_meets_containers_first_and_children_from_the_last() -> None:
    names = [call.module for call in calls(tiny_llama(1).root, recompute=True)]
    layer = ["layer", "input norm", "attention", *"qkvo", "post norm", "mlp", "gate", "activation", "up", "down"]
    back = ["layer", "mlp", "down", "up", "activation", "gate", "post norm", "attention", *"ovkq", "input norm"]
    start = ["root", "model", "word embedding", "rotary", *layer, "final norm", "head"]
    assert names == [*start, "root", "head", "model", "final norm", *layer, *back, "word embedding"]


def test_as_many_calls_as_deepspeed_records() -> None:
    """DeepSpeed 0.19.8 compares 115 calls and 78 uses of parameters over its ranks for this model of 4 layers."""
    trace = calls(tiny_llama(4).root)
    assert (len(trace), sum(len(call.parameters) for call in trace)) == (115, 78)


@pytest.mark.parametrize("name", model_names())
def test_every_gradient_is_ready_once_and_the_shared_one_last(name: str) -> None:
    whole = modules(two_layers(name))
    order = ready_order(whole.root)
    assert sorted(order) == list(range(len(whole.tensors)))
    assert whole.tensors[order[-1]].module.endswith("embedding") or "norm" in whole.tensors[order[-1]].module
    words = next(k for k, t in enumerate(whole.tensors) if t.module == "word embedding")
    assert order.index(words) > order.index(len(whole.tensors) - 1)


def test_a_family_that_forgets_a_module_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {"registered": ["q", "k", "v", "o", "up", "down", "input norm"]}
    monkeypatch.setattr(module_under_test, "family_modules", lambda family: listed)
    with pytest.raises(InvalidPlan, match="leaves out post norm"):
        layer_tensors(load_model("llama-2-7b").kind)


@pytest.mark.parametrize("family", family_names())
def test_what_a_family_registers_is_called(family: str) -> None:
    def names(listed: list[object]) -> list[str]:
        inner = [n for item in listed if isinstance(item, dict) for part in item.values() for n in names(part)]
        return [item for item in listed if isinstance(item, str)] + inner

    tree = family_modules(family)
    assert set(tree["registered"]) <= set(names(tree["layer"]))
    assert {"embedding", "layers", "final norm", "head"} <= set(names(tree["called"]))
