"""
Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): keys and values come from one small vector per token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from trainsim.errors import ScenarioError, nearest
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
    known = tuple(f.name for f in fields(Mla))
    if not isinstance(given, Mapping):
        raise ScenarioError("model.mla wants a mapping with kv_lora_rank, qk_nope_head_dim, ...")
    for key in given:
        if key not in known:
            near = nearest(str(key), known)
            raise ScenarioError(
                f"model.mla: unknown key {key!r}; {f'did you mean {near!r}?' if near else ', '.join(known)}"
            )
    missing = [key for key in known if key != "q_lora_rank" and given.get(key) is None]
    if missing:
        raise ScenarioError(f"model.mla: {', '.join(missing)} must be given")
    for key, value in given.items():
        if value is not None:
            check_size("mla", key, value)
    return Mla(**given)
