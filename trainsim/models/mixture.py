"""
Mixtures of experts: the MLP of a layer as many small ones, of which a router chooses a few for every token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from trainsim.errors import InvalidPlan, ScenarioError, nearest
from trainsim.models.sizes import check_size, check_switch

PLACES = ("first_dense", "every")
"""Keys of a scenario's ``model.moe`` that say which layers have experts, and not what these are like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """The experts of one layer; every token goes to ``top_k`` of them, and through the shared ones too.

    ``shared_ffn_hidden`` is the width of all shared experts together (0: none); with a ``shared_gate`` a learnt number
    per token scales what they add.

    >>> Moe(experts=8, top_k=2, expert_ffn_hidden=14336).shared_ffn_hidden
    0
    """

    experts: int
    top_k: int
    expert_ffn_hidden: int
    shared_ffn_hidden: int = 0
    shared_gate: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The mapping that ``read_moe`` reads back."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def read_moe(given: Mapping[str, Any] | Moe, *, ffn_hidden: int | None = None) -> Moe:
    """The experts that a scenario's ``model.moe`` describes; *ffn_hidden* is their width if it says none.

    ``shared_experts`` counts shared experts as wide as the others. Raises ScenarioError and InvalidPlan.

    >>> read_moe({"experts": 64, "top_k": 6, "expert_ffn_hidden": 1408, "shared_experts": 2}).shared_ffn_hidden
    2816
    """
    if isinstance(given, Moe):
        return given
    if not isinstance(given, Mapping):
        raise ScenarioError("model.moe: expected a mapping, such as {experts: 8, top_k: 2}")
    known = (*(f.name for f in fields(Moe)), "shared_experts", *PLACES)
    for key in given:
        if key not in known:
            near = nearest(str(key), known)
            hint = f"did you mean {near!r}?" if near else ", ".join(known)
            raise ScenarioError(f"model.moe: unknown key {key!r}; {hint}")
    values = {"top_k": 2, "expert_ffn_hidden": ffn_hidden} | {k: v for k, v in given.items() if v is not None}
    missing = [key for key in ("experts", "expert_ffn_hidden") if values.get(key) is None]
    if missing:
        raise ScenarioError(f"model.moe: {', '.join(missing)} must be given")
    shared = values.pop("shared_experts", 0)
    check_size("moe", "shared_experts", shared, least=0)
    if shared and values.get("shared_ffn_hidden"):
        raise InvalidPlan("model.moe: shared_ffn_hidden is the width of all shared experts; leave shared_experts out")
    check_size("moe", "expert_ffn_hidden", values["expert_ffn_hidden"])
    values.setdefault("shared_ffn_hidden", shared * values["expert_ffn_hidden"])
    experts = Moe(**{key: value for key, value in values.items() if key not in PLACES})
    check_moe(experts)
    return experts


def check_moe(moe: Moe) -> None:
    """Sizes are positive, and no token needs more experts than there are. Raises InvalidPlan."""
    for key in ("experts", "top_k", "expert_ffn_hidden"):
        check_size("moe", key, getattr(moe, key))
    check_size("moe", "shared_ffn_hidden", moe.shared_ffn_hidden, least=0)
    check_switch("moe", "shared_gate", moe.shared_gate)
    if moe.top_k > moe.experts:
        raise InvalidPlan(
            f"model.moe: top_k={moe.top_k} of {moe.experts} experts cannot be chosen; top_k={moe.experts} or less would"
        )


def pattern_of(given: Mapping[str, Any], layers: int) -> tuple[str, ...]:
    """Which of *layers* layers are ``dense``, by the ``first_dense`` and ``every`` of a scenario's ``model.moe``.

    The first ``first_dense`` layers have no experts; of the others every ``every``-th has. () if all have. Raises
    InvalidPlan.

    >>> pattern_of({"first_dense": 1, "every": 2}, 6)
    ('dense', 'dense', 'default', 'dense', 'default', 'dense')
    """
    first, every = given.get("first_dense") or 0, given.get("every") or 1
    check_size("moe", "first_dense", first, least=0)
    check_size("moe", "every", every)
    check_size("model", "layers", layers)
    if first >= layers or every > layers - first:
        raise InvalidPlan(
            f"model.moe: first_dense={first} and every={every} leave no layer of {layers} with experts; leave moe out "
            "for a dense model"
        )
    sparse = [layer >= first and (layer - first) % every == every - 1 for layer in range(layers)]
    return () if all(sparse) else tuple("default" if has else "dense" for has in sparse)
