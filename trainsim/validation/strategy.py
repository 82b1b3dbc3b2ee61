"""How the replicas of a published run share their states, by its stage of ZeRO and what its source says beside it."""

from __future__ import annotations

import re

from trainsim.validation.published import PublishedRun, UnreadableCell

STAGES = {0: "ddp", 1: "zero1", 2: "zero2", 3: "zero3"}


def strategy_of(run: PublishedRun, family: str = "") -> str:
    """The strategy; software of the *family* pytorch shards parameters by FSDP, whatever stage of ZeRO that is called.

    >>> strategy_of(PublishedRun(line=2, cells={"zero_stage": "3", "zero_note": "FSDP FULL_SHARD"}))
    'fsdp'
    """
    stage, note = run.whole("zero_stage") or 0, run.text("zero_note")
    if stage not in STAGES:
        raise UnreadableCell(f"zero_stage = {stage} is none of {', '.join(map(str, STAGES))}")
    if re.search(r"\b(HSDP|HYBRID(?! ?ZeRO-?1))", note, re.I):  # a hybrid ZeRO-1 shares no parameters
        return "hsdp"
    if "fsdp" in note.lower() or (family == "pytorch" and stage >= 2):
        return "fsdp"
    if re.search(r"ZeRO\+\+|zeropp", note, re.I):
        return "zeropp"
    if re.search(r"\bMiCS\b", note, re.I):
        return "mics"
    if stage == 0 and "BF16_Optimizer" in note and run.text("precision") == "bf16":
        return "zero1"  # DeepSpeed's optimizer for bf16 shares its states, whatever stage is asked for
    return STAGES[stage]
