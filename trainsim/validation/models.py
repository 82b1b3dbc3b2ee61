"""The model of a published run: its sizes by column, and what its name adds to them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from trainsim.documents.catalogue import shipped
from trainsim.errors import nearest
from trainsim.models.known import MODELS, family_names
from trainsim.validation.published import SIZES, PublishedRun, UnreadableCell

LORA_RANK = 16
"""Of adapters whose rank nobody tells."""
FURTHER_SIZES = {"ffn_hidden": "ffn_hidden", "kv_heads": "kv_heads", "vocab": "vocab"}
FAMILIES = {"gpt": "gpt", "llama": "llama", "moe": "llama", "bert": "gpt"}
"""Families of the column ``family`` as the catalogue has them."""


def model_of(run: PublishedRun) -> dict[str, Any]:
    """The ``model`` section. Raises UnreadableCell for sizes that are none.

    >>> cells = {"model_name": "deepseek-v3", "layers": "8", "hidden": "7168", "heads": "128", "num_experts": "256"}
    >>> model_of(PublishedRun(line=2, cells=cells))
    {'base': 'deepseek-v3', 'layers': 8}
    """
    row = next((row for row in _rows() if re.search(row["name"], run.text("model_name"), re.I)), {})
    if "base" in row and (run.whole("num_experts") or "sized" in row):
        layers = {"layers": run.wanted("layers")}
        vocab = run.whole("vocab")
        further = {"mtp_layers": 1} if predicts_further(run) else {}
        return {"base": row["base"]} | layers | ({"vocab": vocab} if vocab else {}) | further | _adapters(run)
    family = _family(run)
    if _is_of_the_catalogue(run):
        given = {key: value for key in ("layers", "hidden", "heads") if (value := run.degree(key))}
        return {"base": run.text("model_name")} | given | _further(run)
    own = {key: value for key, value in row.items() if key not in ("name", "base", "sized")}
    if (blank := next((size for size in SIZES if not run.text(size) and size not in own), None)) is not None:
        raise UnreadableCell(
            f"{blank} is blank, and model_name = {run.text('model_name')!r} is not a model of the catalogue; give "
            f"{', '.join(SIZES)}, or a name of `trainsim list models`"
        )
    family = own.pop("family", family)
    return {
        "name": run.text("model_name") or "model",
        "family": family,
        **{key: run.wanted(key) for key in ("layers", "hidden", "heads")},
        **_head_size(run),
        **_further(run),
        "max_positions": run.wanted("seq_len"),
        **own,
    }


def is_taken_for_a_gpt(run: PublishedRun) -> bool:
    """Whether nothing says of what family the model is."""
    named = any(re.search(row["name"], run.text("model_name"), re.I) for row in _rows())
    return not (named or run.text("family") or run.text("gated_mlp") or _is_of_the_catalogue(run))


def _is_of_the_catalogue(run: PublishedRun) -> bool:
    """Whether the model is the catalogue's of that name: columns leave open which sizes it has, or of what family."""
    known = MODELS.canonical(run.text("model_name")) in MODELS.files
    whole = all(run.text(size) for size in SIZES) and (run.text("family") or run.text("gated_mlp"))
    return known and not whole


def _family(run: PublishedRun) -> str:
    """The family by its column, else by whether the MLP is gated."""
    told = run.text("family").lower()
    if told in ("", "nan"):
        return "llama" if run.flag("gated_mlp") else "gpt"
    if told in FAMILIES or told in family_names():
        return FAMILIES.get(told, told)
    near = nearest(told, family_names())
    hint = f"; did you mean {near!r}?" if near else ""
    raise UnreadableCell(f"family = {told!r} is none of {', '.join(dict.fromkeys([*FAMILIES, *family_names()]))}{hint}")


def _further(run: PublishedRun) -> dict[str, Any]:
    """Sizes that have a rule where they are blank, and what else columns say of a model."""
    sizes = {key: value for column, key in FURTHER_SIZES.items() if (value := run.whole(column))}
    return {**sizes, **_flags(run), **_experts(run), **_adapters(run)}


def predicts_further(run: PublishedRun) -> bool:
    """Whether the notes say that the model also predicts the token after the next (DeepSeek-V3's MTP layer)."""
    return "MTP layer" in run.text("notes")


def _head_size(run: PublishedRun) -> dict[str, Any]:
    """The size of a head, where it is not what heads share of the hidden size."""
    size = run.whole("head_dim")
    if size is None or (size * run.wanted("heads") == run.wanted("hidden")):
        return {}
    return {"head_dim": size}


def _flags(run: PublishedRun) -> dict[str, Any]:
    gated, tied = run.flag("gated_mlp"), run.flag("tied_embeddings")
    told = {"gated_mlp": gated, "tied_embeddings": tied}
    return {key: value for key, value in told.items() if value is not None}


def _experts(run: PublishedRun) -> dict[str, Any]:
    experts = run.whole("num_experts")
    if not experts:
        return {}
    shared = run.whole("shared_expert_ffn") or 0
    moe: dict[str, Any] = {"experts": experts, "top_k": run.whole("top_k") or 2}
    if width := run.whole("moe_ffn_hidden"):
        moe["expert_ffn_hidden"] = width
    if shared:
        moe |= {"shared_experts": 1, "shared_ffn_hidden": shared}
    if dense := run.whole("dense_layers"):
        moe["first_dense"] = dense
    return {"moe": moe}


def _adapters(run: PublishedRun) -> dict[str, Any]:
    """Low-rank adapters on frozen weights, where the model's name or remarks speak of them; rank 16 unless it is said.

    >>> _adapters(PublishedRun(line=2, cells={"model_name": "llama2-70b LoRA r=8"}))
    {'lora': {'rank': 8}}
    """
    text = "; ".join((run.text("model_name"), run.text("kind"), run.remarks))
    if not re.search(r"\bQ?LoRA\b", text) or re.search(r"(no|without|not) LoRA", text, re.I):
        return {}
    rank = re.search(r"\b(?:r|rank)\W{0,3}(\d+)", text, re.I)
    return {"lora": {"rank": int(rank[1]) if rank else LORA_RANK}}


@cache
def _rows() -> tuple[Mapping[str, Any], ...]:
    return tuple(shipped("validation", "models").data["models"])
