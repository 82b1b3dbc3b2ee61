"""
Low-rank adapters (LoRA) as tools on top of peft name them: rank, targets, and how the frozen weights are kept.
"""

from __future__ import annotations

from trainsim.importers.reader import Reader

TARGETS = {
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o", "gate_proj": "gate", "up_proj": "up",
    "down_proj": "down",
    "query_key_value": "qkv", "qkv_proj": "qkv", "c_attn": "qkv", "Wqkv": "qkv", "W_pack": "qkv", "dense": "proj",
    "out_proj": "proj", "dense_h_to_4h": "fc1", "dense_4h_to_h": "fc2", "gate_up_proj": "fc1", "fc1": "fc1",
    "fc2": "fc2",
    "c_fc": "fc1", "fc_in": "fc1", "fc_out": "fc2", "w1": "gate", "w3": "up", "w2": "down",
}  # fmt: skip
"""Modules of models of transformers and the targets of a scenario's adapters."""
ALL = ("all", "all-linear", "all_linear")


def say_adapters(
    reader: Reader, rank: str, targets: str, *, usual: int | None, whose: str, everything: bool = False
) -> None:
    """The model's adapters, from the keys of their *rank* and *targets*; *usual* is the rank where none is given.

    *everything*: all linear layers where no target is named.
    """
    if (size := reader.whole(rank)) is not None:
        reader.say("model.lora.rank", size, rank)
    elif usual is not None:
        reader.assume("model.lora.rank", usual, f"{whose}'s default of {rank.rpartition('.')[2]}")
    named = _listed(reader, targets)
    if any(name in ALL for name in named):
        reader.say("model.lora.targets", ["all"], targets)
    elif named:
        known = [TARGETS[name] for name in named if name in TARGETS]
        if lost := [name for name in named if name not in TARGETS]:
            reader.warn(targets, f"not modelled: adapters on {', '.join(lost)}")
        if known:
            reader.say("model.lora.targets", list(dict.fromkeys(known)), targets)
    elif everything:
        reader.assume("model.lora.targets", ["all"], f"{whose}'s default is all linear layers")
    else:
        reader.assume("model.lora.targets", ["q", "v"], "peft's default for models like Llama")


def _listed(reader: Reader, key: str) -> list[str]:
    """The names under *key*: a list, or one text with commas or spaces."""
    value = reader.raw(key)
    if value is None:
        return []
    if isinstance(value, str):
        return [name for name in value.replace(",", " ").split() if name]
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise reader.fail(key, "expected names of modules, such as [q_proj, v_proj]")
    return [str(name).rpartition(".")[2] for name in value]
