"""
PyTorch's FSDP as accelerate, and whoever is built on it, is told of it: keys with and without ``fsdp_`` in front.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainsim.importers.importer import Key, no_effect, not_modelled, read
from trainsim.importers.reader import Reader

STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
"""torch.distributed.fsdp.ShardingStrategy, numbered from 1."""
PREFETCHES = {"BACKWARD_PRE": "pre", "BACKWARD_POST": "post", "NO_PREFETCH": "none"}
WRAPS = {"TRANSFORMER_BASED_WRAP": "layers", "SIZE_BASED_WRAP": None, "NO_WRAP": "model"}
READ = {
    "version": "framework: FSDP1 or FSDP2",
    "sharding_strategy": "sharding.strategy and sharding.reshard_after_forward (FSDP1), by name or number",
    "reshard_after_forward": "sharding.reshard_after_forward; a name of a strategy for FSDP1",
    "auto_wrap_policy": "sharding.units",
    "backward_prefetch": "sharding.backward_prefetch (FSDP1)",
    "backward_prefetch_policy": "sharding.backward_prefetch (old)",
    "forward_prefetch": "sharding.forward_prefetch (FSDP1)",
    "limit_all_gathers": "sharding.limit_all_gathers (FSDP1)",
    "offload_params": "sharding.offload: everything on the host",
    "activation_checkpointing": "training.recompute: full",
}
LATER = ("forward_prefetch", "limit_all_gathers", "backward_prefetch", "backward_prefetch_policy", "sharding_strategy")
"""Keys that FSDP2 has no use for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapping:
    """How a tool wraps a model: its FSDP ``version``, ``shard`` ranks that share (0: left to the strategy), the
    ``strategy`` and ``wrap`` policy where its own words stand elsewhere, and ``whose`` defaults hold."""

    version: int = 0
    shard: int = 0
    strategy: str = ""
    wrap: str = ""
    offload: bool = False
    whose: str = "accelerate"


def fsdp_keys(section: str) -> tuple[Key, ...]:
    """What is known of the keys of a *section* that is about FSDP."""
    both = [f"{section}.{start}" for start in ("fsdp_", "")]
    inner = [read(f"{start}{name}", becomes) for start in both for name, becomes in READ.items()]
    loading = ("cpu_ram_efficient_loading", "sync_module_states", "state_dict_type", "final_state_dict_type",
               "transformer_layer_cls_to_wrap", "use_orig_params", "xla", "xla_fsdp_v2", "xla_fsdp_settings.**",
               "xla_fsdp_grad_ckpt")  # fmt: skip
    return (
        *inner,
        *no_effect("how a model is loaded, saved or named", *(f"{s}{name}" for s in both for name in loading)),
        *not_modelled("units by their size", *(f"{s}min_num_params" for s in both), harmless=(0,)),
        *not_modelled("modules that are not sharded", *(f"{s}ignored_modules" for s in both), harmless=("",)),
        *not_modelled("dtypes other than those of training.precision", *(f"{s}mixed_precision_policy" for s in both)),
        *not_modelled("pageable memory of the host", *(f"{s}cpu_offload_pin_memory" for s in both), harmless=(True,)),
    )


def read_fsdp(reader: Reader, section: str, how: Wrapping) -> int:
    """Say what the *section* means; the version of FSDP. The framework and types are the caller's to say."""
    version = reader.whole(spelled(reader, section, "version")) or how.version or 1
    if version > 2:
        raise reader.fail(spelled(reader, section, "version"), f"there are FSDP 1 and 2, found {version}")
    if reader.has(key := spelled(reader, section, "version")):
        reader.use(key, f"framework: FSDP{version}")
    kept = _strategy(reader, section, how, version)
    _units(reader, section, how)
    if version == 2:
        _later(reader, section)
    else:
        _prefetch(reader, section, how, kept)
    if (offload := reader.flag(key := spelled(reader, section, "offload_params"))) or how.offload:
        sources = (key,) if offload else ()
        reader.say("sharding.offload", {"optimizer": "cpu", "parameters": "cpu"}, *sources)
    if reader.flag(key := spelled(reader, section, "activation_checkpointing")):
        reader.say("training.recompute", "full", key)
    reader.assume("sharding.sync", "last", f"{how.whose} reduces gradients after the last micro-batch (no_sync)")
    return version


def spelled(reader: Reader, section: str, name: str) -> str:
    """The key of *section* that is there of the two spellings."""
    return next(
        (key for key in (f"{section}.fsdp_{name}", f"{section}.{name}") if reader.has(key)), f"{section}.{name}"
    )


def choice(reader: Reader, key: str, names: tuple[str, ...]) -> str | None:
    """One of *names*, in any case or by its number from 1."""
    value = reader.raw(key)
    if isinstance(value, bool) or value is None:
        return None
    if str(value).isdecimal():
        number: int = reader.whole(key)
        if number > len(names):
            listed = ", ".join(f"{n} {name}" for n, name in enumerate(names, 1))
            raise reader.fail(key, f"{number} is not a valid choice; choose from {listed}")
        return names[number - 1]
    return reader.word(key, names)


def _strategy(reader: Reader, section: str, how: Wrapping, version: int) -> bool:
    """Say who shares what; whether gathered parameters are kept until their backward."""
    old = spelled(reader, section, "sharding_strategy")
    new = spelled(reader, section, "reshard_after_forward")
    value = reader.raw(new)
    by_name = isinstance(value, str) and value.lower() not in ("true", "false")
    chosen = choice(reader, new if by_name else old, STRATEGIES) if version == 1 or by_name else None
    key = new if by_name else old
    sources = (key,) if chosen else ()
    chosen = chosen or how.strategy.upper() or "FULL_SHARD"
    strategy = {"NO_SHARD": "ddp"}.get(chosen, "hsdp" if "HYBRID" in chosen or how.shard else "fsdp")
    if sources or how.strategy or how.shard:
        reader.say("sharding.strategy", strategy, *sources)
    else:
        reader.assume("sharding.strategy", strategy, f"{how.whose}'s default is FULL_SHARD")
    if strategy == "ddp":
        return True
    if how.shard:
        reader.say("sharding.shard_size", how.shard)
    if chosen in ("SHARD_GRAD_OP", "HYBRID_SHARD_ZERO2"):
        reader.say("sharding.reshard_after_forward", False, *sources)
        return True
    if value is not None and not by_name:
        whole = isinstance(value, int) and not isinstance(value, bool)
        given = reader.whole(new) if whole else reader.flag(new)
        reader.say("sharding.reshard_after_forward", given, new)
        return given is False
    return False


def _units(reader: Reader, section: str, how: Wrapping) -> None:
    key = spelled(reader, section, "auto_wrap_policy")
    policy = choice(reader, key, tuple(WRAPS)) or how.wrap
    if not policy:
        reader.assume(
            "sharding.units", "model", f"{how.whose}'s default is NO_WRAP: the whole model is gathered at once"
        )
    elif policy == "SIZE_BASED_WRAP":
        reader.warn(key, "not modelled: units by size; layers are used")
    else:
        reader.say("sharding.units", WRAPS[policy], *((key,) if reader.has(key) else ()))


def _later(reader: Reader, section: str) -> None:
    for name in LATER:
        if reader.has(key := spelled(reader, section, name)) and not reader.noted(key):
            reader.ignore(key, "for FSDP1 only; FSDP2 ignores it")


def _prefetch(reader: Reader, section: str, how: Wrapping, kept: bool) -> None:
    """What FSDP1 gathers ahead; nothing in the backward where parameters are *kept* until then."""
    name = "backward_prefetch"
    keys = (spelled(reader, section, name), spelled(reader, section, f"{name}_policy"))
    found = [(key, PREFETCHES[word]) for key in keys if (word := choice(reader, key, tuple(PREFETCHES)))]
    if found and kept:
        reader.ignore(found[0][0], "parameters stay unsharded until their backward, so nothing is gathered there")
    elif found:
        reader.say("sharding.backward_prefetch", found[0][1], found[0][0])
    elif not kept:
        reader.assume("sharding.backward_prefetch", "none", f"{how.whose}'s default is NO_PREFETCH")
    if (ahead := reader.flag(key := spelled(reader, section, "forward_prefetch"))) is not None:
        reader.say("sharding.forward_prefetch", ahead, key)
    if (limited := reader.flag(key := spelled(reader, section, "limit_all_gathers"))) is not None:
        reader.say("sharding.limit_all_gathers", limited, key)
