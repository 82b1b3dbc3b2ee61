"""
Attention that is not heads of queries, keys and values: latent attention (DeepSeek-V2, arXiv 2405.04434), whose keys
and values come from one small vector per token, and linear attention, whose memory is a matrix per head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from trainsim.errors import InvalidPlan, ScenarioError, nearest
from trainsim.models.sizes import check_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Mla:
    """Sizes of latent attention: ``kv_lora_rank`` numbers per token hold all keys and values, ``qk_rope_head_dim`` more
    the rotated part of the keys, which all heads share. Queries come from ``q_lora_rank`` numbers (None: directly).

    >>> Mla(kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128).qk_head_dim
    192
    """

    q_lora_rank: int | None = None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int

    @property
    def qk_head_dim(self) -> int:
        """Numbers of a head's query and key."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    def to_dict(self) -> dict[str, Any]:
        """The mapping that ``read_mla`` reads back."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def read_mla(given: Mapping[str, Any] | Mla) -> Mla:
    """The latent attention that a scenario's ``model.mla`` describes. Raises ScenarioError and InvalidPlan.

    >>> read_mla({"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}).q_lora_rank
    """
    if isinstance(given, Mla):
        return given
    return Mla(**_sizes("mla", given, Mla, optional=("q_lora_rank",)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaNet:
    """Sizes of a gated delta network (Yang et al. 2024, arXiv 2412.06464), attention that is linear in the sequence:
    a state of ``key_head_dim`` x ``value_head_dim`` per value head, and a convolution of ``kernel`` tokens before it.

    >>> DeltaNet(key_heads=16, value_heads=32, key_head_dim=128, value_head_dim=128).channels
    8192
    """

    key_heads: int
    value_heads: int
    key_head_dim: int
    value_head_dim: int
    kernel: int = 4

    @property
    def channels(self) -> int:
        """Numbers of a token that the convolution takes: queries, keys and values."""
        return 2 * self.key_heads * self.key_head_dim + self.value_heads * self.value_head_dim

    def flops(self, tokens: float) -> float:
        """FLOP of the recurrence over *tokens*: what the state holds under a key, its update, what a query sees."""
        state = self.value_heads * self.key_head_dim * self.value_head_dim
        return tokens * (6.0 * state + 2.0 * self.kernel * self.channels)

    def to_dict(self) -> dict[str, Any]:
        """The mapping that ``read_delta`` reads back."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def read_delta(given: Mapping[str, Any] | DeltaNet) -> DeltaNet:
    """The network that a scenario's ``model.linear_attention`` describes. Raises ScenarioError and InvalidPlan."""
    if isinstance(given, DeltaNet):
        return given
    values = _sizes("linear_attention", given, DeltaNet, optional=("kernel",))
    if values["value_heads"] % values["key_heads"]:
        raise InvalidPlan(
            f"model.linear_attention: {values['value_heads']} value_heads are not divisible by "
            f"key_heads={values['key_heads']}"
        )
    return DeltaNet(**values)


def _sizes(name: str, given: Any, of: type, *, optional: tuple[str, ...]) -> dict[str, int]:
    """The sizes in a mapping for the fields of a class. Raises ScenarioError and InvalidPlan."""
    known = tuple(f.name for f in fields(of))
    if not isinstance(given, Mapping):
        raise ScenarioError(f"model.{name}: expected a mapping with {', '.join(known)}")
    for key in given:
        if key not in known:
            near = nearest(str(key), known)
            raise ScenarioError(
                f"model.{name}: unknown key {key!r}; {f'did you mean {near!r}?' if near else ', '.join(known)}"
            )
    missing = [key for key in known if key not in optional and given.get(key) is None]
    if missing:
        raise ScenarioError(f"model.{name}: {', '.join(missing)} must be given")
    for key, value in given.items():
        if value is not None:
            check_size(name, key, value)
    return {key: value for key, value in given.items() if value is not None}
