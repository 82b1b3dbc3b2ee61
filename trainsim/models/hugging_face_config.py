"""
A configuration of transformers as its class sees it, and what the rules of several classes have in common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainsim.errors import ScenarioError, nearest

Values = dict[str, Any]
ACTIVATIONS = {
    **dict.fromkeys(("silu", "swish"), "silu"),
    **dict.fromkeys(("gelu", "gelu_python"), "gelu"),
    **dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "quick_gelu", "gelu_accurate"), "gelu_tanh"),
    **{"relu": "relu", "relu2": "relu2"},
}
"""transformers' names of activations and what they are called here."""
KINDS = {"window": "local", "chunk": "local", "moe": "dense", "positions": "unrotated", "linear_attention": "linear"}
"""What a kind of layer is called that differs from the model's own in this."""
WINDOWED, CHUNKED, LINEAR, FULL = "sliding_attention", "chunked_attention", "linear_attention", "full_attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A configuration over the defaults of its class, under the names that most classes use."""

    path: Path
    kind: str
    values: Mapping[str, Any]

    def get(self, key: str) -> Any:
        """The value of *key*; None if it is null or nowhere."""
        return self.values.get(key)

    def size(self, key: str) -> int:
        """A whole number above 0. Raises ScenarioError."""
        value = self.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ScenarioError(f"{self.path}: {key} is {value!r}; it must be a whole number above 0")
        return value

    def refuse(self, key: str) -> None:
        """Raise ScenarioError if *key* is switched on."""
        if self.get(key):
            raise ScenarioError(f"{self.path}: {key} is not simulated for {self.kind}; with {key}: false it is")

    def activation(self, key: str) -> str:
        """An activation by the name that it has here. Raises ScenarioError."""
        value = str(self.get(key))
        if value not in ACTIVATIONS:
            near = nearest(value, ACTIVATIONS)
            hint = f"did you mean {near!r}?" if near else f"simulated: {', '.join(ACTIVATIONS)}"
            raise ScenarioError(f"{self.path}: {key} is {value!r}; {hint}")
        return ACTIVATIONS[value]

    def biases(self, attention: str | bool, mlp: str | bool) -> str:
        """Where biases are, from two keys (or values) that say so."""
        inside, outside = (bool(self.get(x) if isinstance(x, str) else x) for x in (attention, mlp))
        return "all" if inside and outside else "attention" if inside else "mlp" if outside else "none"

    def types(self, usual: Sequence[str]) -> Sequence[str]:
        """The type of every layer: what the file says, else the *usual*. Raises ScenarioError."""
        types = self.get("layer_types") or usual
        if not isinstance(types, list | tuple) or len(types) != self.size("num_hidden_layers"):
            raise ScenarioError(f"{self.path}: layer_types must have one entry for each of num_hidden_layers")
        for name in types:
            if name not in (WINDOWED, CHUNKED, LINEAR, FULL):
                raise ScenarioError(f"{self.path}: layer type {name!r} is not simulated")
        return types

    @property
    def layers(self) -> range:
        """Numbers of the layers."""
        return range(self.size("num_hidden_layers"))


def layered(layers: Sequence[Mapping[str, Any]]) -> Values:
    """Kinds and their pattern from what each layer has that the model's own has not.

    >>> layered([{"window": 8}, {}])
    {'layer_kinds': {'local': {'window': 8}}, 'layer_pattern': ['local', 'default']}
    >>> layered([{"window": 8}, {"window": 8}])
    {'window': 8}
    """
    if all(changes == layers[0] for changes in layers):
        return dict(layers[0])
    names = ["-".join(dict.fromkeys(KINDS[key] for key in changes)) or "default" for changes in layers]
    kinds = {name: dict(changes) for name, changes in zip(names, layers, strict=True) if changes}
    return {"layer_kinds": kinds, "layer_pattern": names}


def windows(config: Config, types: Sequence[str], **more: Sequence[Mapping[str, Any]]) -> Values:
    """Layers of these *types*, each with *more* that it has for itself."""
    window, chunk = config.get("sliding_window"), config.get("attention_chunk_size")
    values = {WINDOWED: ("window", window), CHUNKED: ("chunk", chunk)}
    layers: list[Values] = []
    for number, name in enumerate(types):
        changes = {key: value for key, value in (values.get(name, ("", None)),) if value is not None}
        layers.append(changes | {k: v for extra in more.values() for k, v in extra[number].items()})
    return layered(layers)


def all_but(config: Config, step: int) -> list[str]:
    """Windows in all layers but every *step*-th."""
    return [WINDOWED if (k + 1) % step else FULL for k in config.layers]


def late_windows(config: Config) -> list[str]:
    """Qwen's rule: windows from a layer on, if they are switched on."""
    on, first = config.get("use_sliding_window") and config.get("sliding_window"), config.get("max_window_layers") or 0
    return [WINDOWED if on and k >= first else FULL for k in config.layers]


def experts(config: Config, width: str, **more: Any) -> Values:
    """Experts whose width is the value of the key *width*."""
    return {
        "experts": config.size("num_experts"),
        "top_k": config.size("num_experts_per_tok"),
        "expert_ffn_hidden": config.size(width),
        **more,
    }
