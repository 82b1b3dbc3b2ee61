"""
DeepSpeed's ``zero_optimization`` as the section ``sharding`` of a scenario.
"""

from __future__ import annotations

from trainsim.importers.deepspeed_keys import ELEMENTS, KEYS, ZERO
from trainsim.importers.reader import Reader

AUTO = ("auto",)
STRATEGIES = ("ddp", "zero1", "zero2", "zero3")
DEVICES = ("none", "cpu", "nvme")
DROPPED = "auto means DeepSpeed's own default here; the Trainer fills in other keys only"
STAGE3 = "DeepSpeed uses it only in stage 3"


def read_zero(reader: Reader) -> int:
    """Say what the section means; the stage."""
    _misplaced(reader)
    if reader.mapping_or_flag(ZERO) is not None and not isinstance(reader.peek(ZERO), bool):
        stage: int = reader.whole(f"{ZERO}.stage", low=0) or 0
        if stage > 3:
            raise reader.fail(f"{ZERO}.stage", f"there are stages 0 to 3, found {stage}")
        _strategy(reader, stage)
        _buckets(reader, stage)
        _quantized(reader, stage)
        _offload(reader, stage)
        return stage
    stage = int(bool(reader.raw(ZERO)))
    reader.say("sharding.strategy", STRATEGIES[stage], ZERO)
    if not reader.has(ZERO):
        reader.assume("sharding.strategy", "ddp", f"DeepSpeed's default, since {ZERO}.stage is not set")
    return stage


def _misplaced(reader: Reader) -> None:
    """Keys of the section that stand beside it, where DeepSpeed does not look."""
    inner = {known.name.split(".")[1] for known in KEYS if known.name.startswith(f"{ZERO}.")}
    own = {known.name.split(".")[0] for known in KEYS}
    for key in reader.document.data:
        if key in inner and key not in own:
            lost = "nothing is offloaded" if "offload" in key else "it does nothing"
            reader.warn(key, f"is outside {ZERO}, where DeepSpeed silently ignores it: {lost}; move it inside")


def _strategy(reader: Reader, stage: int) -> None:
    shared = reader.whole(f"{ZERO}.mics_shard_size", low=-1, besides=AUTO)
    if stage == 3 and isinstance(shared, int) and shared > 0:
        reader.say("sharding.strategy", "mics", f"{ZERO}.mics_shard_size", f"{ZERO}.stage")
        reader.say("sharding.shard_size", shared, f"{ZERO}.mics_shard_size")
    elif reader.has(f"{ZERO}.stage"):
        reader.say("sharding.strategy", STRATEGIES[stage], f"{ZERO}.stage")
    else:
        reader.assume("sharding.strategy", "ddp", f"DeepSpeed's default of {ZERO}.stage is 0")
    if (overlap := reader.flag(f"{ZERO}.overlap_comm", besides=AUTO)) is not None:
        _say_or_drop(reader, "sharding.overlap", overlap, f"{ZERO}.overlap_comm")
    scattered = reader.flag(f"{ZERO}.reduce_scatter", besides=AUTO)
    if scattered is False and stage == 3:
        reader.warn(f"{ZERO}.reduce_scatter", "not modelled: gradients as all-reduces of twice the bytes")
    elif scattered is not None:
        usual = "as it is modelled" if stage == 3 else "whole buckets are all-reduced either way"
        reader.ignore(f"{ZERO}.reduce_scatter", usual)


def _buckets(reader: Reader, stage: int) -> None:
    """Buckets and thresholds, all in elements; ``auto`` is the Trainer's rule where it has one."""
    reduced = f"{ZERO}.reduce_bucket_size"
    reader.say("sharding.reduce_bucket", reader.whole(reduced, besides=AUTO), reduced)
    for name, becomes in ELEMENTS.items():
        for key in (f"{ZERO}.stage3_{name}", f"{ZERO}.{name}"):
            value = reader.whole(key, low=0, besides=AUTO)
            if value is not None and stage < 3:
                reader.ignore(key, STAGE3)
            elif value == "auto" and becomes in ("max_live_parameters", "reuse_distance"):
                reader.ignore(key, DROPPED)
            else:
                reader.say(f"sharding.{becomes}", value, key)
    group = f"{ZERO}.sub_group_size"
    size = reader.whole(group, low=0, besides=AUTO)
    if size == 0 and stage == 3:
        reader.warn(group, "not modelled: 0 updates each parameter separately; the update uses the framework's groups")
    elif size is not None:
        _stage3(reader, stage, "sharding.sub_group", size, group)


def _quantized(reader: Reader, stage: int) -> None:
    """ZeRO++."""
    for name in ("weights", "gradients"):
        key = f"{ZERO}.zero_quantized_{name}"
        if reader.flag(key, besides=AUTO) is True:
            _stage3(reader, stage, f"sharding.quantized_{name}", True, key)
    key = f"{ZERO}.zero_hpz_partition_size"
    ranks = reader.whole(key, besides=AUTO)
    if ranks == 1:
        reader.ignore(key, "1 is off: there is no second copy")
    elif ranks is not None:
        _stage3(reader, stage, "sharding.secondary_partition", ranks, key)
        if stage == 3 and ranks != "auto":
            reader.use(
                key, f"meant to be the ranks of a node: on nodes with fewer than {ranks} GPUs, gathers cross nodes"
            )


def _offload(reader: Reader, stage: int) -> None:
    where = {name: _device(reader, name, old) for name, old in
             (("optimizer", ("cpu_offload",)), ("param", ("cpu_offload_params", "cpu_offload_param")))}  # fmt: skip
    device, key = where["param"]
    if device and stage == 3:
        reader.say("sharding.offload.parameters", device, key)
    elif device:
        reader.warn(
            key, f"DeepSpeed offloads parameters in stage 3 only, and this is stage {stage}: they stay on the GPU"
        )
    device, key = where["optimizer"]
    section = f"{ZERO}.offload_optimizer"
    ratio = reader.number(f"{section}.ratio", high=1.0, besides=AUTO)
    if device and not stage:
        reader.warn(key, "without ZeRO (stage 0) DeepSpeed offloads nothing")
        return
    if device == "nvme" and stage < 3:
        reader.warn(key, f"DeepSpeed uses drives in stage 3 only; in stage {stage} states go to the host")
        device = "cpu"
    if device and ratio == 0.0 and stage == 3:
        reader.ignore(f"{section}.ratio", "a ratio of 0 leaves nothing on the host, so nothing is offloaded")
        return
    if not device:
        return
    reader.say("sharding.offload.optimizer", device, key)
    if ratio is not None and ratio != 1.0 and stage < 3:
        reader.warn(
            f"{section}.ratio", f"DeepSpeed allows no ratio in stage {stage}: all of the optimizer is offloaded"
        )
    elif ratio is not None:
        _stage3(reader, stage, "sharding.offload.ratio", ratio, f"{section}.ratio")
    _drives(reader, section, device)


def _drives(reader: Reader, section: str, device: str) -> None:
    values = {
        "pipeline_read": reader.flag(f"{section}.pipeline_read", besides=AUTO),
        "pipeline_write": reader.flag(f"{section}.pipeline_write", besides=AUTO),
        "buffer_count": reader.whole(f"{section}.buffer_count", besides=AUTO),
    }
    for name, value in values.items():
        if value is None:
            continue
        if device != "nvme":
            reader.ignore(f"{section}.{name}", "of drives; nothing is offloaded to any")
        else:
            _say_or_drop(reader, f"sharding.offload.{name}", value, f"{section}.{name}")


def _device(reader: Reader, name: str, old: tuple[str, ...]) -> tuple[str, str]:
    """Where it goes (empty: nowhere) and the key that says so; the old spellings where the new one is missing."""
    section = f"{ZERO}.offload_{name}"
    if reader.mapping(section) is not None:
        device = reader.word(f"{section}.device", DEVICES) or "none"
        if device == "none" and reader.has(f"{section}.device"):
            reader.ignore(f"{section}.device", "none: nothing is offloaded")
        return ("" if device == "none" else device), f"{section}.device"
    for key in old:
        if reader.flag(f"{ZERO}.{key}", besides=AUTO) is True:
            return "cpu", f"{ZERO}.{key}"
    return "", f"{section}.device"


def _stage3(reader: Reader, stage: int, key: str, value: object, source: str) -> None:
    if stage < 3:
        reader.ignore(source, STAGE3)
    else:
        _say_or_drop(reader, key, value, source)


def _say_or_drop(reader: Reader, key: str, value: object, source: str) -> None:
    if value == "auto":
        reader.ignore(source, DROPPED)
    else:
        reader.say(key, value, source)
