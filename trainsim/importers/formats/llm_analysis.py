"""
llm-analysis' JSON: a model, a GPU and types of numbers are a file each.
"""

from __future__ import annotations

from trainsim.importers.findings import Findings
from trainsim.importers.importer import Importer, no_effect, not_modelled, read, register
from trainsim.importers.machines import gpu_called, unlike
from trainsim.importers.reader import Reader
from trainsim.importers.source import Source

MODEL = {"num_layers": "layers", "n_head": "heads", "hidden_dim": "hidden", "vocab_size": "vocab",
         "num_key_value_heads": "kv_heads", "ffn_embed_dim": "ffn_hidden"}  # fmt: skip
GPU = ("mem_per_GPU_in_GB", "hbm_bandwidth_in_GB_per_sec", "peak_fp16_TFLOPS", "intra_node_bandwidth_in_GB_per_sec")
DTYPE = ("weight_bits", "activation_bits", "embedding_bits")
TYPES = {16: "bf16", 8: "fp8", 32: "fp32"}
FAMILIES = {"gpt2": "gpt", "gpt_neo": "gpt", "gpt_bigcode": "gpt-bigcode", "gptj": "gpt-j", "gpt_neox": "gpt-neox"}


def sniff(source: Source) -> float:
    """Sure of the keys that only one of its kinds of files has together."""
    model = source.has("num_layers", "n_head", "hidden_dim", "vocab_size") / 4
    return max(model, source.has(*GPU) / len(GPU), source.has(*DTYPE) / len(DTYPE)) * 0.97


def load(source: Source) -> Findings:
    """A model, a GPU or types of numbers."""
    reader = Reader(source.document, KEYS)
    if source.has("num_layers", "n_head", "hidden_dim"):
        _model(reader)
    if source.has(*GPU):
        _gpu(reader)
    if source.has(*DTYPE):
        _types(reader)
    return reader.findings("llm-analysis")


def _model(reader: Reader) -> None:
    """Sizes as they are written, over what the family has."""
    from trainsim.models.known import family_names

    kind, name = reader.text("model_type"), reader.text("name")
    family = FAMILIES.get(kind or "", (kind or "").replace("_", "-"))
    if family in family_names():
        reader.say("model.family", family, "model_type")
    elif kind:
        words = "no family of models here; sizes are laid over GPT-3's rules: --set model.family=NAME"
        reader.warn("model_type", f"{kind} is {words}")
        reader.say("model.family", "gpt")
    else:
        reader.assume("model.family", "gpt", "what llm-analysis counts where a file names no model_type")
    sizes = {to: reader.whole(key) for key, to in MODEL.items()}
    for key, to in MODEL.items():
        reader.say(f"model.{to}", sizes[to], key)
    if sizes["ffn_hidden"] is None and sizes["hidden"]:
        reader.assume("model.ffn_hidden", 4 * sizes["hidden"], "llm-analysis' default: 4 x hidden_dim")
    elif sizes["ffn_hidden"]:
        words = f"model.ffn_hidden = {sizes['ffn_hidden']}, as it is written"
        reader.warn("ffn_embed_dim", f"{words}: llm-analysis writes 4 x hidden_dim where it does not know the width")
    reader.say("model.max_positions", reader.whole("max_seq_len"), "max_seq_len")
    if name:
        reader.say("model.name", name, "name")
        if difference := unlike(name.rpartition("_")[2], sizes):
            reader.warn("name", f"sizes are taken as they are written; {difference}")


def _gpu(reader: Reader) -> None:
    """The GPU, by its name."""
    name = reader.text("name")
    gpu = gpu_called(name) if name else None
    if gpu:
        reader.say("cluster.gpu", gpu, "name")
    else:
        reader.warn("name", f"{name or 'a GPU without a name'} is not in the catalogue: --set cluster.gpu=NAME")


def _types(reader: Reader) -> None:
    """The precision: what matrix products are made in."""
    reader.text("name")
    bits = {key: reader.whole(key) for key in DTYPE}
    precision = TYPES.get(max(bits["weight_bits"] or 16, bits["activation_bits"] or 16))
    if bits["weight_bits"] == bits["activation_bits"] and precision:
        reader.say("training.precision", precision, "weight_bits", "activation_bits")
    else:
        words = f"weights of {bits['weight_bits']} and activations of {bits['activation_bits']} bits"
        reader.warn("weight_bits", f"{words} are a way to serve a model; training here is in one precision")


KEYS = (
    *(read(key, f"model.{to}") for key, to in MODEL.items()),
    read("name", "model.name, or cluster.gpu by a table"),
    read("model_type", "model.family"),
    read("max_seq_len", "model.max_positions"),
    read("weight_bits", "training.precision"),
    read("activation_bits", "training.precision"),
    read("embedding_bits", "nothing: embeddings are kept as other weights are"),
    *no_effect("follows from the heads", "num_key_value_groups"),
    *no_effect("the catalogue has this GPU's numbers, and measured kernels", *GPU[:3], "peak_i8_TFLOPS",
               "peak_i4_TFLOPS"),
    *not_modelled("a topology has the links (cluster.topology)", GPU[3], "inter_node_bandwidth_in_GB_per_sec",
                  "intra_node_min_message_latency"),
    *not_modelled("a mixture of experts: --set model.moe={experts: N}", "moe_num_experts", "moe_top_k",
                  harmless=(1,)),
    *not_modelled("an MLP of three matrices follows from the family", "mlp_gated_linear_units"),
    *not_modelled("an expansion beside ffn_embed_dim", "expansion_ratio"),
)  # fmt: skip

register(
    Importer(
        name="llm-analysis",
        title="llm-analysis' JSON",
        about="llm-analysis' models, GPUs and types of numbers, a JSON file each.",
        leaves_open="A model: all else. A GPU: the topology. Types: all but the precision.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=(
            "Sizes are taken as they are written, `ffn_embed_dim` too: llm-analysis writes 4 x hidden_dim where it "
            "knows no better, so its Llama 2 7B has an MLP of 16384 instead of 11008.",
            "A model that is called like one of the catalogue and differs from it is reported with what differs.",
        ),
    )
)
