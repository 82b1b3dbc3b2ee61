"""
The model that arguments of Megatron-LM describe.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainsim.importers.arithmetic import NoSum, evaluate
from trainsim.importers.formats.megatron_arguments import Arguments
from trainsim.importers.tables import table, worded

FAMILIES = ("bloom", "deepseek", "mixtral", "llama", "nemotron", "gpt")


def model(args: Arguments) -> int | None:
    """Say the model; its number of layers, if it is known."""
    encoder = args.count("encoder-num-layers") or 0
    own = args.count("num-layers")
    decoder = args.count("decoder-num-layers") or 0
    layers = own if own is not None else encoder + decoder or None
    _sizes(args, layers, encoder if own is None and decoder else 0)
    gated = _mlp(args)
    latent = args.on("multi-latent-attention")
    _norms(args, latent=latent)
    _positions(args)
    _attention(args, layers, latent=latent)
    experts = _experts(args, layers)
    _vocabulary(args)
    args.say("model.mtp_layers", args.count("mtp-num-layers"), *args.given("mtp-num-layers"))
    tied = not args.on("untie-embeddings-and-output-weights")
    _said_or_assumed(args, "model.tied_embeddings", tied, "untie-embeddings-and-output-weights")
    rates = [args.amount(f"{name}-dropout", high=1.0) for name in ("attention", "hidden")]
    drops = any(0.1 if rate is None else rate for rate in rates)
    _said_or_assumed(args, "model.dropout", drops, "attention-dropout", "hidden-dropout")
    if own is not None or layers:
        rms = args.name("normalization") == "RMSNorm"
        alibi = args.name("position-embedding-type") == "alibi" and args.on("embed-layernorm")
        plain = {"mixtral": experts, "llama": True} if gated and rms else {"nemotron": args.on("squared-relu")}
        chosen = {"bloom": alibi, "deepseek": latent, **plain, "gpt": True}
        family = next(name for name, fits in chosen.items() if fits)
        args.assume("model.family", family, "the family that is most alike; its sizes are the file's")
    return layers


def _sizes(args: Arguments, layers: int | None, encoder: int) -> None:
    args.say("model.layers", layers, *args.given("num-layers", "encoder-num-layers", "decoder-num-layers"))
    if encoder:
        args.say("model.encoder_layers", encoder, *args.given("encoder-num-layers"))
    args.say("model.hidden", args.count("hidden-size"), *args.given("hidden-size"))
    args.say("model.heads", args.count("num-attention-heads"), *args.given("num-attention-heads"))
    args.say("model.head_dim", args.count("kv-channels"), *args.given("kv-channels"))
    groups = args.count("num-query-groups")
    if args.on("group-query-attention"):
        args.say("model.kv_heads", groups or 1, *args.given("num-query-groups", "group-query-attention"))
    elif groups is not None:
        args.ignore(args.key("num-query-groups"), "without effect: --group-query-attention is not there")
    args.say("model.kv_heads", args.count("num-key-value-heads"), *args.given("num-key-value-heads"))


def _mlp(args: Arguments) -> bool:
    """Say the MLP; whether it has a gate."""
    glu = args.name("glu-activation")
    kinds = {"swiglu": "silu", "quick-geglu": "gelu", "squared-relu": "relu2"}
    switched = [name for name in kinds if args.on(name)]
    if len(switched) > 1:
        raise args.fail(args.key(switched[1]), f"goes against --{switched[0]}; leave one of them out")
    name = switched[0] if switched else ""
    gated = name in ("swiglu", "quick-geglu") or glu is not None
    known = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu", "liglu": "silu"}
    activation = kinds.get(name, known.get(glu or "", "gelu_tanh" if args.on("openai-gelu") else ""))
    sources = args.given(*switched, "glu-activation", "openai-gelu")
    if gated:
        args.say("model.gated_mlp", True, *sources)
    if activation:
        args.say("model.activation", activation, *sources)
    width, hidden = args.count("ffn-hidden-size"), args.count("hidden-size")
    if width is not None:
        args.say("model.ffn_hidden", width, *args.given("ffn-hidden-size"))
    elif hidden is not None:
        rule = "int(4 hidden 2/3 / 64) x 64" if name == "swiglu" else "4 hidden"
        size = int((4 * hidden * 2 / 3) / 64) * 64 if name == "swiglu" else 4 * hidden
        args.assume("model.ffn_hidden", size, f"{args.whose}, {rule}")
    if not gated:
        args.assume("model.gated_mlp", False, args.whose)
    return gated


def _norms(args: Arguments, *, latent: bool) -> None:
    kind = args.choice("normalization", ("LayerNorm", "RMSNorm")) or "LayerNorm"
    norm = kind.casefold() + ("1p" if args.on("apply-layernorm-1p") else "")
    _said_or_assumed(args, "model.norm", norm, "normalization", "apply-layernorm-1p")
    if args.on("embed-layernorm"):
        args.say("model.embedding_norm", True, *args.given("embed-layernorm"))
    bare = args.on("disable-bias-linear")
    biases = "qkv" if bare and args.on("add-qkv-bias") else "none" if bare else "all"
    _said_or_assumed(args, "model.biases", biases, "disable-bias-linear", "add-qkv-bias")
    for name, kind in (("qk-layernorm", "head"), ("qk-l2-norm", "l2")):
        if args.on(name) and latent:
            args.use(args.key(name), "norms of the small vectors of latent attention, which it has anyway")
        elif args.on(name):
            args.say("model.qk_norm", kind, *args.given(name))


def _positions(args: Arguments) -> None:
    known: Mapping[str, str] = table("megatron")["positions"]
    kind = args.choice("position-embedding-type", known)
    rotary = args.on("use-rotary-position-embeddings")
    positions = "rotary" if rotary else known[kind] if kind else "learned"
    if kind is None and not rotary and args.on("no-position-embedding"):
        positions = "none"
    names = ("position-embedding-type", "use-rotary-position-embeddings", "no-position-embedding")
    _said_or_assumed(args, "model.positions", positions, *names)
    args.say("model.max_positions", args.count("max-position-embeddings"), *args.given("max-position-embeddings"))
    share = args.amount("rotary-percent", high=1.0)
    if positions == "rotary" and share:
        args.say("model.rotary_share", share, *args.given("rotary-percent"))


def _attention(args: Arguments, layers: int | None, *, latent: bool) -> None:
    if latent:
        sizes = {
            "q_lora_rank": (args.count("q-lora-rank"), "q-lora-rank"),
            "kv_lora_rank": (args.count("kv-lora-rank") or 32, "kv-lora-rank"),
            "qk_nope_head_dim": (args.count("qk-head-dim") or args.count("qk-nope-head-dim") or 128, "qk-head-dim"),
            "qk_rope_head_dim": (args.count("qk-pos-emb-head-dim") or args.count("qk-rope-head-dim") or 64,
                                 "qk-pos-emb-head-dim"),
            "v_head_dim": (args.count("v-head-dim") or 128, "v-head-dim"),
        }  # fmt: skip
        others = {"qk-head-dim": "qk-nope-head-dim", "qk-pos-emb-head-dim": "qk-rope-head-dim"}
        args.use(args.key("multi-latent-attention"), "model.mla")
        for key, (size, name) in sizes.items():
            sources = args.given(name, others.get(name, name))
            if sources:
                args.say(f"model.mla.{key}", size, sources[0])
            elif size is not None:
                args.assume(f"model.mla.{key}", size, args.whose)
    if args.name("softmax-type") not in (None, "vanilla"):
        args.say("model.attention_sinks", True, *args.given("softmax-type"))
    _window(args, layers)


def _window(args: Arguments, layers: int | None) -> None:
    """Say the window: so many tokens to the left of a query, and itself."""
    left = re.match(r"[^\d-]*(-?\d{1,9})", " ".join(args.words("window-size")))
    if not left or int(left[1]) < 0:
        return
    args.say("model.window", int(left[1]) + 1, *args.given("window-size"))
    frequency = _pattern(args, "window-attn-skip-freq", layers)
    if frequency is None or layers is None:
        return
    if isinstance(frequency, int):
        frequency = [int((k + 1) % frequency != 0) for k in range(layers)]
    if not all(frequency):
        args.say("model.layer_kinds", {"full": {"window": None}}, *args.given("window-attn-skip-freq"))
        names = ["default" if local else "full" for local in frequency]
        args.say("model.layer_pattern", names, *args.given("window-attn-skip-freq"))


def _experts(args: Arguments, layers: int | None) -> bool:
    """Say the mixture of experts; whether there is one."""
    counts = args.words("num-experts")
    if len(set(counts)) > 1:
        args.warn(args.key("num-experts"), "not modelled: layers with different numbers of experts")
        return False
    count = args.count("num-experts", low=0) if len(counts) == 1 else int(counts[0]) if counts else 0
    if not count or count == 1:
        if counts:
            args.ignore(args.key("num-experts"), "no experts")
        return False
    args.say("model.moe.experts", count, *args.given("num-experts"))
    chosen = args.given("moe-router-topk", "topk")
    top = args.count("moe-router-topk") or args.count("topk")
    if top:
        args.say("model.moe.top_k", top, *chosen)
    else:
        args.assume("model.moe.top_k", 2, args.whose)
    width = args.count("moe-ffn-hidden-size")
    args.say("model.moe.expert_ffn_hidden", width, *args.given("moe-ffn-hidden-size"))
    shared = args.count("moe-shared-expert-intermediate-size")
    args.say("model.moe.shared_ffn_hidden", shared, *args.given("moe-shared-expert-intermediate-size"))
    if args.on("moe-shared-expert-gate"):
        args.say("model.moe.shared_gate", True, *args.given("moe-shared-expert-gate"))
    _which_layers(args, layers)
    return True


def _which_layers(args: Arguments, layers: int | None) -> None:
    """Say which layers have experts: every N-th from the first, or what a list says."""
    frequency = _pattern(args, "moe-layer-freq", layers)
    if frequency is None or layers is None or frequency == 1:
        return
    sources = args.given("moe-layer-freq")
    sparse = [int(k % frequency == 0) for k in range(layers)] if isinstance(frequency, int) else frequency
    first = sparse.index(1) if 1 in sparse else layers
    if all(sparse[first:]):
        if first and first < layers:
            args.say("model.moe.first_dense", first, *sources)
        elif not first:
            args.use(sources[0], "every layer has experts")
        else:
            raise args.fail(sources[0], "no layer has experts; leave --num-experts out")
        return
    args.say("model.layer_kinds", {"dense": {"moe": None}}, *sources)
    args.say("model.layer_pattern", ["default" if has else "dense" for has in sparse], *sources)


def _pattern(args: Arguments, name: str, layers: int | None) -> int | list[int] | None:
    """A frequency: a whole number, or a list that a sum such as ``([0]*1+[1]*15)`` makes, a number for each layer."""
    value, key = args.raw(args.key(name)), args.key(name)
    if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
        found: Any = [int(item) for item in value]
    elif value is None:
        return None
    else:
        text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
        try:
            found = evaluate(text.strip("\"' "), style="python")
        except NoSum as reason:
            raise args.fail(key, f"{text} is neither a number nor a list of 0 and 1: {reason}") from None
    if isinstance(found, int) and found >= 1:
        return found
    if not isinstance(found, list) or not all(item in (0, 1) and not isinstance(item, list) for item in found):
        raise args.fail(key, "expected a whole number from 1, or a list of 0 and 1 such as [0]*1+[1]*15")
    if layers is not None and len(found) != layers:
        raise args.fail(key, f"says it of {len(found)} layers, but there are {layers}")
    return [int(item) for item in found]


def _vocabulary(args: Arguments) -> None:
    """Say how many words there are: what is given, or what a tokenizer of that name has."""
    for name in ("padded-vocab-size", "pad-vocab-size-to"):
        size = args.count(name)
        if size:
            args.say("model.vocab", size, *args.given(name))
            return
    extra = (args.count("extra-vocab-size", low=0) or 0) + (args.count("vocab-extra-ids", low=0) or 0)
    kind, size = args.name("tokenizer-type"), args.count("vocab-size")
    sources = args.given("vocab-size", "tokenizer-type", "extra-vocab-size", "vocab-extra-ids")
    if size and kind == "NullTokenizer":
        args.say("model.vocab", size + 1, *sources)  # and the end of a document
        return
    if size:
        args.say("model.vocab", size + extra, *sources)
        return
    files = ("tokenizer-model", "tokenizer-name-or-path", "patch-tokenizer-type", "vocab-file")
    named = [name for name in map(args.name, files) if name]
    if kind is None and args.given("vocab-file", "merge-file"):
        kind = "GPT2BPETokenizer"  # the default of pretrain_gpt.py
    sources = args.given("tokenizer-type", *files, "merge-file")
    hidden = [f"--{name}" for name in files if f"--{name}" in args.argued.unknown]
    found = _tokenizer(kind, named)
    for key in hidden:
        args.ignore(key, f"{args.argued.unknown[key]} is known to the job only; only the number of words counts")
    if found:
        args.assume("model.vocab", found[1] + extra, f"words of {found[0]}; if it has others: --set model.vocab=N")
        for key in sources:
            args.use(key, f"model.vocab = {found[1] + extra}, the words of {found[0]}")
    elif sources or hidden:
        common = ", ".join(f"{name} {words}" for name, words in table("megatron")["common"].items())
        what = f"how many words {named[0] if named else kind} has is not known"
        args.warn([*sources, *hidden][0], f"{what}: --set model.vocab=N (as common tokenizers: {common})")


def _tokenizer(kind: str | None, names: Sequence[str]) -> tuple[str, int] | None:
    """A tokenizer that is known by a part of its name, or by its type; (what it is called, its words)."""
    known = table("megatron")
    letters = " ".join([*names, kind or ""]).casefold()
    for part, size in known["names"].items():
        if part in letters:
            return part, size
    return worded(known["types"], kind) if kind else None


def _said_or_assumed(args: Arguments, key: str, value: Any, *names: str) -> None:
    """*key* is *value* because of the arguments *names*, or by default where none of them is there."""
    sources = args.given(*names)
    if sources:
        args.say(key, value, *sources)
    else:
        args.assume(key, value, args.whose)
